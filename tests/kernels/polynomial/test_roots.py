"""Roots against exact ones: grids of rational roots, Sturm's theorem, dense samples."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulse.kernels import status
from pulse.kernels.polynomial.roots import real_roots
from tests import naive
from tests.strategies import coefficient_rows, grid_roots, quarters

EPS = np.finfo(float).eps
MANY = 400 if numba.config.DISABLE_JIT else 100_000


def roots_of(c, lo, hi, noise=0.0):
    found = real_roots(np.array([c], dtype=float), lo, hi, noise)
    assert found.offsets.tolist() == [0, len(found.roots)]
    return found.roots.tolist(), int(found.status[0])


def floats(c):
    """Fractions that are floats."""
    assert all(Fraction(float(x)) == x for x in c)
    return [float(x) for x in c]


@given(grid_roots, quarters, quarters, st.integers(-900, 900), st.integers(-20, 20))
def test_grid_roots_at_every_scale(roots, lo, hi, exponent, time_exponent):
    assume(lo != hi)
    lo, hi = min(lo, hi), max(lo, hi)
    scale = Fraction(2) ** time_exponent
    c = floats([x * Fraction(2) ** exponent / scale**j for j, x in enumerate(naive.expand(3, roots))])
    found, code = roots_of(c, float(lo * scale), float(hi * scale))
    expected = sorted({float(r * scale) for r in roots if lo <= r <= hi})
    assert code == status.OK
    # a root of multiplicity m is good to the m-th root of the rounding
    worst = max([roots.count(r) for r in roots], default=1)
    assert len(found) == len(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=40 * float(scale) * (1e4 * EPS) ** (1 / worst))


@given(coefficient_rows(), st.floats(-1e3, 1e3), st.floats(1e-6, 1e3))
def test_no_sign_change_is_missed_and_every_root_is_one(c, lo, length):
    hi = lo + length
    assume(hi > lo)
    found, code = roots_of(c, lo, hi)
    if not any(c):
        assert (found, code) == ([], status.ZERO_POLYNOMIAL)
        return
    check_exactly(c, lo, hi, found, code)


def check_exactly(c, lo, hi, found, code, relative=1e-13):
    """Residuals and signs between roots in fractions, but for what rounding of values and instants does."""
    samples = [lo + (hi - lo) * j / 64 for j in range(65)]
    values = [naive.exact_value(c, t) for t in samples]
    largest = max(abs(v) for v in values)
    slope = [j * x for j, x in enumerate(c)][1:] or [0.0]
    steepest = max(abs(naive.exact_value(slope, t)) for t in samples)
    allowed = Fraction(relative) * largest + steepest * Fraction(4 * EPS * max(abs(lo), abs(hi)))
    if code == status.ZERO_POLYNOMIAL:
        assert largest <= allowed
        return
    assert code == status.OK
    assert found == sorted(set(found))
    assert all(lo <= t <= hi for t in found)
    assert all(abs(naive.exact_value(c, t)) <= allowed for t in found)
    cuts = [lo, *found, hi]
    for a, b in itertools.pairwise(cuts):
        inside = [v for t, v in zip(samples, values, strict=True) if a < t < b and abs(v) > allowed]
        assert not (any(v > 0 for v in inside) and any(v < 0 for v in inside))


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=6), st.integers(-4, 4), st.integers(1, 8))
def test_count_is_sturms(c, lo, length):
    assume(any(c))
    hi = lo + length
    found, code = roots_of(c, lo, hi)
    at_lo = naive.exact_value(c, lo) == 0
    assert code == status.OK
    assert len(found) == naive.sturm_count(c, lo, hi) + at_lo
    assert (lo in found) == at_lo
    assert (hi in found) == (naive.exact_value(c, hi) == 0)


@pytest.mark.parametrize("degree", range(1, 9))
@pytest.mark.parametrize("lo", [-1.0, 0.0])
def test_many_random_polynomials(degree, lo):
    n = MANY // 16
    rng = np.random.default_rng(degree)
    c = rng.standard_normal((n, degree + 1))
    found = real_roots(c, lo, 1.0)
    assert not found.status.any()
    check_densely(c, lo, 1.0, found)


def check_densely(c, lo, hi, found, residual=1e-10):
    """Residuals relative to the largest magnitude, and one sign (or next to nothing) between roots."""
    n, k = c.shape
    t = np.linspace(lo, hi, 401)
    values = np.polynomial.polynomial.polyval(t, c.T)
    largest = np.abs(values).max(axis=1)
    row = np.repeat(np.arange(n), np.diff(found.offsets))
    at_roots = sum(c[row, j] * found.roots**j for j in range(k))
    assert (np.abs(at_roots) <= residual * largest[row]).all()
    # how many roots lie before each sample tells in which gap it is; signs must agree within a gap
    before = np.zeros((n, len(t)), dtype=np.int64)
    np.add.at(before, (row, np.minimum(np.searchsorted(t, found.roots), len(t) - 1)), 1)
    gap = np.cumsum(before, axis=1)
    clear = np.abs(values) > residual * largest[:, None]
    both = clear[:, 1:] & clear[:, :-1] & (gap[:, 1:] == gap[:, :-1])
    assert not (both & (np.sign(values[:, 1:]) != np.sign(values[:, :-1]))).any()


@pytest.mark.parametrize("count", [5, 8, 10])
def test_wilkinson(count):
    c = [float(x) for x in naive.expand(1, range(1, count + 1))]
    for lo, hi in [(0.0, count + 1.0), (1.0, float(count))]:
        found, code = roots_of(c, lo, hi)
        assert code == status.OK
        np.testing.assert_allclose(found, np.arange(1, count + 1), rtol=1e-9)


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
def test_close_pairs_are_distinguished(spread):
    rng = np.random.default_rng(7)
    for centre in rng.uniform(-0.8, 0.8, 20):
        pair = [Fraction(centre - spread), Fraction(centre + spread)]
        c = [float(x) for x in naive.expand(1, [*pair, Fraction(2)])]
        found, _ = roots_of(c, -1.0, 1.0)
        assert len(found) == 2
        np.testing.assert_allclose(found, [float(x) for x in pair], atol=100 * EPS / spread)


@pytest.mark.parametrize("cluster", [1e-9, 1e-12, 0.0])
def test_clusters_within_rounding_are_one_root(cluster):
    rng = np.random.default_rng(8)
    for centre in rng.uniform(-0.8, 0.8, 20):
        c = [float(x) for x in naive.expand(1, [Fraction(centre), Fraction(centre + cluster), Fraction(-3)])]
        found, _ = roots_of(c, -1.0, 1.0)
        assert len(found) == 1
        assert abs(found[0] - centre) < 1e-7


def test_noise_makes_a_near_touch_a_touch():
    c = [0.25 + 1e-6, -1.0, 1.0]
    assert roots_of(c, 0.0, 1.0) == ([], status.OK)
    found, code = roots_of(c, 0.0, 1.0, noise=2e-6)
    assert code == status.OK
    assert found == pytest.approx([0.5])
    assert roots_of(c, 0.49999, 0.50001, noise=2e-6) == ([], status.ZERO_POLYNOMIAL)
    assert roots_of([1e-7], 0.0, 1.0, noise=1e-6) == ([], status.ZERO_POLYNOMIAL)
    assert roots_of([1e-300, 1e-300], 0.0, 1.0, noise=1e300) == ([], status.ZERO_POLYNOMIAL)


def test_far_reference():
    billion = Fraction(10**9)
    c = floats(naive.expand(1, [billion, billion + 1]))
    assert roots_of(c, 1e9, 1e9 + 1) == ([1e9, 1e9 + 1], status.OK)
    assert roots_of(c, 1e9 - 8, 1e9 + 0.5) == ([1e9], status.OK)
    double = floats(naive.expand(2, [billion, billion]))
    assert roots_of(double, 1e9 - 1, 1e9 + 1) == ([1e9], status.OK)
    assert roots_of([-1e9 - 0.25, 1.0], 1e9, 1e9 + 1) == ([1e9 + 0.25], status.OK)


@given(
    coefficient_rows(5, (-3, 3)),
    st.sampled_from([1e9, -1e9, 3e7, 1e5, 1e3]),
    st.sampled_from([1.0, 1e4, 1e-3]),
)
def test_far_ranges_exactly(q, far, length):
    """Coefficients about a reference far away, rounded: for what they are then the answer must be right."""
    assume(any(q))
    shifted = [Fraction(0)] * len(q)
    for power, x in enumerate(q):
        for j, y in enumerate(naive.expand(Fraction(x), [Fraction(far) + Fraction(1, 3)] * power)):
            shifted[j] += y
    c = [float(x) for x in shifted]
    assume(any(c))
    check_exactly(c, far, far + length, *roots_of(c, far, far + length))


@given(grid_roots, st.sampled_from([1e-6, 3e-5, 86400.0, 3.2e8]))
def test_microseconds_and_years_about_a_near_reference(roots, unit):
    c = [float(x / Fraction(unit) ** j) for j, x in enumerate(naive.expand(1, sorted(set(roots))))]
    found, code = roots_of(c, -5 * unit, 5 * unit)
    assert code == status.OK
    np.testing.assert_allclose(found, [r * unit for r in sorted(set(roots))], rtol=0, atol=1e-9 * unit)


@pytest.mark.parametrize("t", [0.0, 0.5, 1e9 + 0.5, -3e-7])
def test_a_single_instant(t):
    assert roots_of([-t, 1.0], t, t) == ([t], status.OK)
    assert roots_of([-t + 1.0, 1.0], t, t) == ([], status.OK)
    assert roots_of([0.0, 0.0], t, t) == ([], status.ZERO_POLYNOMIAL)
    assert roots_of([1e-9], t, t, noise=1e-8) == ([t], status.OK)


def test_what_is_not_a_problem_to_solve():
    c = np.array([[np.nan, 1.0], [1.0, np.inf], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [5.0, 0.0]])
    lo = np.array([-1.0, -1.0, np.nan, -1.0, 1.0, 0.0, 0.0])
    hi = np.array([1.0, 1.0, 1.0, np.inf, -1.0, 1.0, 1.0])
    found = real_roots(c, lo, hi)
    bad, empty = status.NOT_FINITE, status.EMPTY_RANGE
    assert found.status.tolist() == [bad, bad, bad, bad, empty, status.ZERO_POLYNOMIAL, status.OK]
    assert len(found.roots) == 0
    assert real_roots([[0.0, 1.0]] * 2, -1.0, 1.0, [np.nan, -1.0]).status.tolist() == [bad, bad]


def test_huge_ranges_and_sizes():
    assert roots_of([0.0, 1.0], -1.7e308, 1.7e308) == ([0.0], status.OK)
    assert roots_of([-1e300, 1e300], 0.0, 2.0) == ([1.0], status.OK)
    found, _ = roots_of([-2e-300, 0.0, 0.0, 1e-300], 0.0, 2.0)
    assert found == pytest.approx([2 ** (1 / 3)])
    found, _ = roots_of([-1e300, 0.0, 0.0, 1.0], 0.0, 1e101)
    assert found == pytest.approx([1e100], rel=1e-13)
    assert roots_of([-5e-324, 1.0], 0.0, 1e-323)[0] == [5e-324]


def test_no_rows():
    found = real_roots(np.empty((0, 3)), 0.0, 1.0)
    assert (len(found.roots), found.offsets.tolist(), len(found.status)) == (0, [0], 0)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="shape"):
        real_roots(np.zeros(3), 0.0, 1.0)
    with pytest.raises(ValueError, match="one per polynomial"):
        real_roots(np.zeros((2, 3)), np.zeros(3), 1.0)
