"""Interval sets against membership of every instant and every gap of a small grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.polynomial.interval_sets import IntervalSets, complement, full, intersect, union
from tests import naive
from tests.strategies import interval_lists

GRID = [x / 4 for x in range(-4, 29)]  # the ends 0..6, what lies between them, and what lies outside
batches = st.lists(interval_lists(), max_size=4)
pairs = st.lists(st.tuples(interval_lists(), interval_lists()), max_size=4)
domains = st.tuples(st.integers(-1, 7), st.integers(-1, 7)).map(lambda ends: (float(ends[0]), float(ends[1])))


def measure(sets):
    """The total length of each row's set."""
    lengths = np.append(np.diff(sets.bounds, axis=1)[:, 0], 0.0)
    return np.array([lengths[a:b].sum() for a, b in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)])


def packed(rows):
    """Interval sets of lists of (lower, upper, lower included, upper included)."""
    flat = [x for row in rows for x in row]
    offsets = np.cumsum([0, *[len(row) for row in rows]])
    bounds = np.array([x[:2] for x in flat], dtype=float).reshape(-1, 2)
    return IntervalSets(offsets, bounds, np.array([x[2] + 2 * x[3] for x in flat], dtype=np.uint8))


def unpacked(sets):
    flat = [
        (float(a), float(b), bool(e & 1), bool(e & 2))
        for (a, b), e in zip(sets.bounds.tolist(), sets.ends, strict=True)
    ]
    return [flat[i:j] for i, j in zip(sets.offsets, sets.offsets[1:], strict=False)]


def assert_normal(row):
    """Sorted, disjoint, maximal, and no interval without an instant."""
    for a, b, with_a, with_b in row:
        assert a < b or (a == b and with_a and with_b)
    for (_, b, _, with_b), (a, _, with_a, _) in itertools.pairwise(row):
        assert b < a or (b == a and not with_b and not with_a)


@given(pairs)
def test_union_and_intersection_by_membership(rows):
    a, b = [x for x, _ in rows], [y for _, y in rows]
    either, both = unpacked(union(packed(a), packed(b))), unpacked(intersect(packed(a), packed(b)))
    for x, y, u, v in zip(a, b, either, both, strict=True):
        assert_normal(u)
        assert_normal(v)
        for t in GRID:
            in_x, in_y = naive.interval_member(x, t), naive.interval_member(y, t)
            assert naive.interval_member(u, t) == (in_x or in_y)
            assert naive.interval_member(v, t) == (in_x and in_y)


@given(st.lists(st.tuples(interval_lists(), domains), max_size=4))
def test_complement_by_membership(rows):
    lo = np.array([d[0] for _, d in rows])
    hi = np.array([d[1] for _, d in rows])
    for (x, (a, b)), rest in zip(
        rows, unpacked(complement(packed([x for x, _ in rows]), lo, hi)), strict=True
    ):
        assert_normal(rest)
        for t in GRID:
            assert naive.interval_member(rest, t) == (a <= t < b and not naive.interval_member(x, t))


@given(pairs)
def test_laws(rows):
    a, b = packed([x for x, _ in rows]), packed([y for _, y in rows])
    lo, hi = np.full(len(rows), -1.0), np.full(len(rows), 7.0)

    def negated(x):
        return complement(x, lo, hi)

    assert unpacked(negated(union(a, b))) == unpacked(intersect(negated(a), negated(b)))
    assert unpacked(negated(intersect(a, b))) == unpacked(union(negated(a), negated(b)))
    assert unpacked(negated(negated(a))) == unpacked(a)
    assert unpacked(union(a, a)) == unpacked(intersect(a, a)) == unpacked(a)
    assert unpacked(union(a, b)) == unpacked(union(b, a))
    assert unpacked(union(a, negated(a))) == unpacked(full(lo, hi))
    assert unpacked(intersect(a, negated(a))) == [[] for _ in rows]
    np.testing.assert_allclose(measure(union(a, b)) + measure(intersect(a, b)), measure(a) + measure(b))


def test_what_joins_and_what_does_not():
    left, right, open_right = [(0.0, 1.0, True, False)], [(1.0, 2.0, True, False)], [(1.0, 2.0, False, True)]
    assert unpacked(union(packed([left]), packed([right]))) == [[(0.0, 2.0, True, False)]]
    assert unpacked(union(packed([left]), packed([open_right]))) == [[*left, *open_right]]
    filled = union(union(packed([left]), packed([open_right])), packed([[(1.0, 1.0, True, True)]]))
    assert unpacked(filled) == [[(0.0, 2.0, True, True)]]


def test_at_most_and_at_least_leave_the_instant():
    below, above = [(0.0, 5.0, True, True)], [(5.0, 9.0, True, False)]
    assert unpacked(intersect(packed([below]), packed([above]))) == [[(5.0, 5.0, True, True)]]
    assert measure(intersect(packed([below]), packed([above]))).tolist() == [0.0]


def test_full_and_measure():
    whole = full(np.array([0.0, 1.0, 3.0, -np.inf]), np.array([2.0, 1.0, 2.0, np.inf]))
    assert unpacked(whole) == [[(0.0, 2.0, True, False)], [], [], [(-np.inf, np.inf, True, False)]]
    assert measure(whole).tolist() == [2.0, 0.0, 0.0, np.inf]


def test_no_rows():
    nothing = full(np.empty(0), np.empty(0))
    for sets in [
        nothing,
        union(nothing, nothing),
        intersect(nothing, nothing),
        complement(nothing, 0.0, 1.0),
    ]:
        assert unpacked(sets) == []
        assert sets.bounds.shape == (0, 2)
    assert measure(nothing).shape == (0,)


def test_what_is_refused():
    one = packed([[(0.0, 1.0, True, False)]])
    with pytest.raises(ValueError, match="two batches of one length"):
        union(one, packed([[], []]))
    with pytest.raises(ValueError, match="bounds"):
        complement(one._replace(bounds=np.zeros(2)), 0.0, 1.0)
    with pytest.raises(ValueError, match="offsets"):
        complement(one._replace(offsets=np.array([0, 2])), 0.0, 1.0)
    with pytest.raises(ValueError, match="NaN in row 1"):
        full(np.array([0.0, np.nan]), np.array([1.0, 1.0]))
