"""Extrema against dense samples in fractions, and critical points that split into monotone pieces."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulse.kernels import status
from pulse.kernels.polynomial.extrema import bounds, critical_points
from tests import naive
from tests.strategies import coefficient_rows


def points_of(c, lo, hi):
    found = critical_points(np.array([c], dtype=float), lo, hi)
    assert found.offsets.tolist() == [0, len(found.roots)]
    return found.roots.tolist()


def bounds_of(c, lo, hi):
    minimum, maximum, code = bounds(np.array([c], dtype=float), lo, hi)
    return float(minimum[0]), float(maximum[0]), int(code[0])


@given(
    coefficient_rows(), st.sampled_from([0.0, -3.5, 1e3, -1e6, 1e9]), st.sampled_from([1e-6, 1.0, 17.0, 1e7])
)
def test_nothing_exceeds_the_extrema_and_they_are_taken(c, lo, length):
    hi = lo + length
    assume(hi > lo)
    minimum, maximum, code = bounds_of(c, lo, hi)
    assert code == status.OK
    values = [naive.exact_value(c, lo + (hi - lo) * j / 64) for j in range(65)]
    allowed = Fraction(1e-12) * max(abs(v) for v in values)
    assert all(Fraction(minimum) - allowed <= v <= Fraction(maximum) + allowed for v in values)
    taken = [naive.exact_value(c, t) for t in [lo, hi, *points_of(c, lo, hi)]]
    assert abs(min(taken) - Fraction(minimum)) <= allowed
    assert abs(max(taken) - Fraction(maximum)) <= allowed


@given(coefficient_rows(6, (-3, 3)), st.floats(-100, 100), st.floats(0.01, 100))
def test_critical_points_split_into_monotone_pieces(c, lo, length):
    hi = lo + length
    points = points_of(c, lo, hi)
    assert points == sorted(set(points))
    assert all(lo < t < hi for t in points)
    spread = max(abs(naive.exact_value(c, lo + length * j / 16)) for j in range(17))
    for a, b in zip([lo, *points], [*points, hi], strict=True):
        values = [naive.exact_value(c, a + (b - a) * j / 16) for j in range(17)]
        steps = [y - x for x, y in itertools.pairwise(values)]
        clear = [d for d in steps if abs(d) > Fraction(1e-12) * spread]
        assert all(d > 0 for d in clear) or all(d < 0 for d in clear)


def test_known_extrema():
    assert bounds_of([0.0, -1.0, 1.0], 0.0, 2.0) == (-0.25, 2.0, status.OK)
    assert bounds_of([3.0], 0.0, 2.0) == (3.0, 3.0, status.OK)
    assert bounds_of([1.0, 2.0, 0.0, 0.0], -1.0, 2.0) == (-1.0, 5.0, status.OK)
    assert bounds_of([0.0, 0.0, 0.0], -1.0, 2.0) == (0.0, 0.0, status.OK)
    low, high, _ = bounds_of([0.0, 3.0, 0.0, -4.0], -1.0, 1.0)  # -T3
    assert (low, high) == pytest.approx((-1.0, 1.0), abs=1e-15)
    assert bounds_of([1e18, -2e9, 1.0], 1e9 - 1, 1e9 + 2) == (0.0, 4.0, status.OK)
    assert points_of([1e18, -2e9, 1.0], 1e9 - 1, 1e9 + 2) == [1e9]


def test_ends_are_no_interior_points():
    assert points_of([0.0, 0.0, 1.0], 0.0, 1.0) == []
    assert points_of([0.0, 0.0, 1.0], -1.0, 0.0) == []
    assert points_of([7.0], -1.0, 1.0) == []
    assert points_of([7.0, 0.0, 0.0], -1.0, 1.0) == []


def test_huge_and_tiny_coefficients():
    assert bounds_of([0.0, -1e300, 1e300], 0.0, 1.0) == pytest.approx((-2.5e299, 0.0, status.OK))
    assert bounds_of([0.0, -1.5e308, 1.5e308], 0.0, 1.0) == pytest.approx((-3.75e307, 0.0, status.OK))
    assert bounds_of([0.0, -1e-300, 1e-300], 0.0, 1.0) == pytest.approx(
        (-2.5e-301, 0.0, status.OK), rel=1e-12
    )


def test_degenerate_ranges():
    inf, nan = np.inf, np.nan
    assert bounds_of([1.0, 2.0, 3.0], 2.0, 2.0) == (17.0, 17.0, status.OK)
    assert bounds_of([1.0, 2.0], 2.0, 1.0) == (inf, -inf, status.EMPTY_RANGE)
    assert bounds_of([1.0], 2.0, 1.0) == (inf, -inf, status.EMPTY_RANGE)
    for c, lo, hi in [([nan], 0.0, 1.0), ([1.0, inf], 0.0, 1.0), ([1.0, 1.0], nan, 1.0), ([1.0], 0.0, inf)]:
        assert bounds_of(c, lo, hi) == (-inf, inf, status.NOT_FINITE)
        assert critical_points(np.array([c]), lo, hi).status.tolist() == [status.NOT_FINITE]
    minimum, maximum, code = bounds(np.empty((0, 4)), 0.0, 1.0)
    assert len(minimum) == len(maximum) == len(code) == 0


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="shape"):
        bounds(np.zeros((3, 0)), 0.0, 1.0)
