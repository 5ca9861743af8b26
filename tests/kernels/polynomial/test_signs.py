"""Sign ranges against exact signs at every root, between roots and at the ends."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulse.kernels import status
from pulse.kernels.polynomial.interval_sets import complement, intersect
from pulse.kernels.polynomial.signs import EQ, GE, GT, LE, LT, NE, RELATIONS, sign_ranges
from tests import naive
from tests.strategies import coefficient_rows, grid_roots, quarters

COMPARE = {
    LT: operator.lt,
    LE: operator.le,
    EQ: operator.eq,
    NE: operator.ne,
    GE: operator.ge,
    GT: operator.gt,
}
OPPOSITE = {LT: GE, LE: GT, EQ: NE, NE: EQ, GE: LT, GT: LE}
relations = st.sampled_from(sorted(COMPARE))


def ranges(c, lo, hi, relation, noise=0.0):
    sets, code = sign_ranges(np.array([c], dtype=float), lo, hi, relation, noise)
    rows = zip(sets.bounds.tolist(), sets.ends.tolist(), strict=True)
    return [(a, b, bool(e & 1), bool(e & 2)) for (a, b), e in rows], int(code[0])


@given(grid_roots, st.sampled_from([1, -2]), quarters, quarters, relations)
def test_signs_on_the_grid(roots, leading, lo, hi, relation):
    """Distinct roots, or one of them twice: those are found exactly, so every instant must be right."""
    assume(lo < hi)
    roots = sorted(set(roots)) + sorted(set(roots))[:1]
    c = [float(x) for x in naive.expand(leading, roots)]
    found, code = ranges(c, lo, hi, relation)
    assert code == status.OK
    snapped = [(round(a * 4) / 4, round(b * 4) / 4, x, y) for a, b, x, y in found]
    np.testing.assert_allclose([x[:2] for x in found], [x[:2] for x in snapped], rtol=0, atol=1e-6)
    for eighth in range(-34, 35):
        t = eighth / 8
        expected = lo <= t < hi and COMPARE[relation](naive.exact_value(c, t), 0)
        assert naive.interval_member(snapped, t) == expected


@given(coefficient_rows(), st.floats(-100, 100), st.floats(1e-3, 100), relations)
def test_opposites_are_complements_and_signs_are_right(c, lo, length, relation):
    hi = lo + length
    sets, code = sign_ranges(np.array([c]), lo, hi, relation)
    other, _ = sign_ranges(np.array([c]), lo, hi, OPPOSITE[relation])
    rest = complement(sets, lo, hi)
    assert rest.bounds.tolist() == other.bounds.tolist()
    assert rest.ends.tolist() == other.ends.tolist()
    found, _ = ranges(c, lo, hi, relation)
    samples = [lo + length * (j + 0.5) / 64 for j in range(64)]
    values = [naive.exact_value(c, t) for t in samples]
    largest = max(abs(v) for v in values)
    if code == status.ZERO_POLYNOMIAL:
        assert largest == 0
    for t, value in zip(samples, values, strict=True):
        if abs(value) > 1e-9 * largest:
            assert naive.interval_member(found, t) == COMPARE[relation](value, 0)


def test_touching():
    c = [0.25, -1.0, 1.0]  # (t - 1/2)**2
    instant = (0.5, 0.5, True, True)
    whole = [(0.0, 1.0, True, False)]
    gap = [(0.0, 0.5, True, False), (0.5, 1.0, False, False)]
    expected = {LT: [], LE: [instant], EQ: [instant], NE: gap, GE: whole, GT: gap}
    for relation, answer in expected.items():
        assert ranges(c, 0.0, 1.0, relation) == (answer, status.OK)


def test_a_cluster_of_three_crosses_once():
    c = [float(x) for x in naive.expand(1, [0.5, 0.5, 0.5])]
    ((a, b, with_a, with_b),), _ = ranges(c, 0.0, 1.0, GT)
    assert (b, with_a, with_b) == (1.0, False, False)
    assert a == pytest.approx(0.5, abs=1e-5)


def test_both_bounds_leave_exactly_the_instant():
    """x <= 5 and x >= 5 at a crossing."""
    c = np.array([[-5.0, 1.0, 0.1, 0.01]])
    below, _ = sign_ranges(c, 0.0, 10.0, LE)
    above, _ = sign_ranges(c, 0.0, 10.0, GE)
    equal, _ = sign_ranges(c, 0.0, 10.0, EQ)
    both = intersect(below, above)
    assert both.bounds.tolist() == equal.bounds.tolist()
    assert both.bounds[0, 0] == both.bounds[0, 1]
    assert both.ends.tolist() == equal.ends.tolist() == [3]


def test_roots_at_the_ends_of_a_half_open_range():
    assert ranges([0.0, 1.0], 0.0, 1.0, EQ) == ([(0.0, 0.0, True, True)], status.OK)
    assert ranges([-1.0, 1.0], 0.0, 1.0, EQ) == ([], status.OK)
    assert ranges([0.0, 1.0], 0.0, 1.0, GT) == ([(0.0, 1.0, False, False)], status.OK)
    assert ranges([0.0, 1.0], 0.0, 1.0, GE) == ([(0.0, 1.0, True, False)], status.OK)
    assert ranges([-1.0, 1.0], 0.0, 1.0, NE) == ([(0.0, 1.0, True, False)], status.OK)


@pytest.mark.parametrize("relation", sorted(COMPARE))
def test_zero_polynomial(relation):
    answer = [(0.0, 1.0, True, False)] if relation in (EQ, LE, GE) else []
    assert ranges([0.0, 0.0, 0.0], 0.0, 1.0, relation) == (answer, status.ZERO_POLYNOMIAL)
    assert ranges([1e-9, -1e-9], 0.0, 1.0, relation, noise=1e-8) == (answer, status.ZERO_POLYNOMIAL)


def test_noise_does_not_turn_a_sign():
    """The crossing lies at the end of a stretch that is flat within the noise; beyond it the sign shows."""
    c = [-1e-9, 0.0, 0.0, 0.0, 0.0, 1.0]
    found, code = ranges(c, 0.0, 1.0, GT, noise=1e-6)
    assert code == status.OK
    assert naive.interval_member(found, 0.9)
    found, _ = ranges(c, 0.0, 1.0, LT, noise=1e-6)
    assert not naive.interval_member(found, 0.9)


def test_far_from_the_reference():
    c = [1e18 + 1e9, -2e9 - 1, 1.0]  # (t - 1e9) (t - 1e9 - 1), exact
    assert ranges(c, 1e9 - 1, 1e9 + 2, LT) == ([(1e9, 1e9 + 1, False, False)], status.OK)
    assert ranges(c, 1e9, 1e9 + 1, GE) == ([(1e9, 1e9, True, True)], status.OK)


@pytest.mark.parametrize("relation", sorted(COMPARE))
def test_nothing_to_solve(relation):
    assert ranges([0.0, 1.0], 1.0, 0.0, relation) == ([], status.EMPTY_RANGE)
    assert ranges([0.0, np.nan], 0.0, 1.0, relation) == ([], status.NOT_FINITE)
    assert ranges([0.0, 1.0], 0.0, 0.0, relation) == ([], status.OK)
    sets, code = sign_ranges(np.empty((0, 2)), 0.0, 1.0, relation)
    assert (len(sets.bounds), sets.offsets.tolist(), len(code)) == (0, [0], 0)


def test_relations_by_name():
    assert RELATIONS == {"<": LT, "<=": LE, "=": EQ, "!=": NE, ">=": GE, ">": GT}
    with pytest.raises(ValueError, match="relation"):
        sign_ranges(np.zeros((1, 2)), 0.0, 1.0, 9)
