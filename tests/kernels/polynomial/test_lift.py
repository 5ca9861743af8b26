from __future__ import annotations

from fractions import Fraction

import mpmath
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.polynomial import lift as lifting
from pulse.kernels.polynomial.lift import absolute, lift
from pulse.kernels.status import EMPTY_RANGE, NOT_CONVERGED, NOT_FINITE, OK, OUT_OF_DOMAIN
from tests import naive

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND

# Polynomials that stay in every function's domain on [0, 2]: 3 plus at most 2.5.
gentle = st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(
    lambda x: [3.0, x[0] / 2, x[1] / 4, x[2] / 16]
)


def certified(made, function, ref, c, samples=9):
    """Whether every piece is within its certified error of the truth, ends included."""
    with mpmath.workdps(50):
        for i in range(len(made.err)):
            shift = Fraction(int(made.ref[i]) - ref, SECOND)
            for share in np.linspace(0.0, 1.0, samples):
                s = Fraction(made.lo[i]) + Fraction(share) * (Fraction(made.hi[i]) - Fraction(made.lo[i]))
                truth = naive.lifted(function, c, s + shift)
                found = naive.polynomial_in_mpmath(made.c[i], s)
                assert abs(found - truth) <= made.err[i]


def covers(made, ref, lo, hi):
    """Whether the pieces follow each other from lo to hi."""
    assert naive.seconds(made.ref[0], made.lo[0]) == pytest.approx(naive.seconds(ref, lo), abs=1e-9)
    assert naive.seconds(made.ref[-1], made.hi[-1]) == pytest.approx(naive.seconds(ref, hi), abs=1e-9)
    for i in range(len(made.ref) - 1):
        step = naive.seconds(made.ref[i + 1], made.lo[i + 1]) - naive.seconds(made.ref[i], made.hi[i])
        assert abs(step) <= 1e-12 * (made.hi[i] - made.lo[i]) + 1e-22


def one(function, c, lo, hi, bound, order=2, ref=NOON):
    return lift(function, np.array([ref]), np.array([lo]), np.array([hi]), np.array([c]), bound, order)


@given(
    st.sampled_from(sorted(lifting.FUNCTIONS)),
    gentle,
    st.sampled_from([1e-2, 1e-4, 1e-6]),
    st.integers(2, 4),
)
def test_the_certified_error_holds(function, c, bound, order):
    made = one(function, c, 0.0, 2.0, bound, order)
    assert made.status.tolist() == [OK]
    assert (made.err <= bound).all()
    assert made.c.shape[1] == order * 3 + 1
    covers(made, NOON, 0.0, 2.0)
    few = np.linspace(0, len(made.err) - 1, min(len(made.err), 12)).astype(int)
    certified(lifting.Lifted(*(x[few] for x in made[:-1]), made.status), function, NOON, c)


@given(
    st.floats(-3, 3),
    st.floats(-3, 3),
    st.floats(-2, 2),
    st.floats(-2, 2),
    st.sampled_from([1e-1, 1e-3, 1e-5]),
)
def test_distances_of_moving_objects(x, y, dx, dy, bound):
    c = [x * x + y * y, 2 * (x * dx + y * dy), dx * dx + dy * dy]
    made = one("sqrt", c, -1.0, 3.0, bound)
    assert made.status.tolist() == [OK]
    covers(made, NOON, -1.0, 3.0)
    few = np.unique(np.linspace(0, len(made.err) - 1, 12).astype(int))
    certified(lifting.Lifted(*(a[few] for a in made[:-1]), made.status), "sqrt", NOON, c)


@pytest.mark.parametrize("speed", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("meeting", [0.0, 1.0, 2.0, 0.7, 1 / 3])
def test_a_distance_that_hits_zero(speed, meeting):
    c = [(speed * meeting) ** 2, -2 * speed * speed * meeting, speed * speed]
    made = one("sqrt", c, 0.0, 2.0, 1e-6 * speed)
    assert made.status.tolist() == [OK]
    assert len(made.err) < 300
    covers(made, NOON, 0.0, 2.0)
    certified(made, "sqrt", NOON, c, samples=5)


@pytest.mark.parametrize(
    ("function", "c", "bound", "most"),
    [
        ("sqrt", [1.0, 1.0], 1e-6, 24),
        ("reciprocal", [1.0, 1.0], 1e-6, 48),
        ("reciprocal", [-1.0, -1.0], 1e-6, 48),
        ("exp", [0.0, 1.0], 1e-6, 80),
        ("log", [1.0, 1.0], 1e-6, 40),
        ("sin", [0.0, 3.0], 1e-6, 160),
        ("atan", [-2.0, 3.0], 1e-6, 260),
        ("cos", [0.0, 3.0], 1e-6, 160),
    ],
)
def test_the_number_of_pieces_is_that_of_the_theory(function, c, bound, most):
    made = one(function, c, 0.0, 2.0, bound)
    assert 0 < len(made.err) <= most
    certified(made, function, NOON, c, samples=5)
    better = one(function, c, 0.0, 2.0, bound, order=4)
    assert len(better.err) < len(made.err) / 2


@pytest.mark.parametrize("function", sorted(lifting.FUNCTIONS))
@pytest.mark.parametrize("value", [2.0, 1e-12, 1e12, 1e-300, 700.0])
def test_constants_need_one_piece(function, value):
    if function == "exp" and value > 709:
        assert one(function, [value], 0.0, 2.0, 1.0).status.tolist() == [NOT_CONVERGED]
        return
    truth = float(naive.lifted(function, [value], Fraction(0)))
    made = one(function, [value, 0.0], 0.0, 1e6, max(abs(truth), 1e-3 if function == "sin" else 0.0) * 1e-9)
    if function in ("sin", "cos") and value > 1e9:  # the argument's own rounding is not within the bound
        assert made.status.tolist() == [NOT_CONVERGED]
        return
    assert made.status.tolist() == [OK]
    assert len(made.err) == 1
    certified(made, function, NOON, [value, 0.0], samples=3)


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e12, 1e150])
@pytest.mark.parametrize("function", ["sqrt", "reciprocal"])
def test_huge_and_tiny_values(function, scale):
    c = [3.0 * scale, scale, -scale / 4]
    size = float(naive.lifted(function, [scale], Fraction(0)))
    made = one(function, c, 0.0, 2.0, 1e-5 * size)
    assert made.status.tolist() == [OK]
    certified(made, function, NOON, c, samples=5)


@pytest.mark.parametrize("far", [10**15, -(10**15)])
def test_references_far_away(far):
    """The same line, about a reference 1e9 seconds away: its values there are rounded, but not the result."""
    seconds = far / SECOND
    c = [2.0 - seconds, 1.0]
    made = one("sqrt", c, seconds, seconds + 4.0, 1e-6, ref=NOON - far)
    assert made.status.tolist() == [OK]
    assert np.abs(made.lo).max() <= 4.0
    assert np.abs(made.c).max() <= 10.0
    certified(made, "sqrt", NOON - far, c, samples=5)


def test_year_long_and_microsecond_pieces():
    year = 31_556_952.0
    c = [1.0, 1e-7, 1e-15]
    made = one("log", c, 0.0, year, 1e-8)
    assert made.status.tolist() == [OK]
    covers(made, NOON, 0.0, year)
    certified(made, "log", NOON, c, samples=3)
    made = one("exp", [0.0, 1e6], 0.0, 1e-6, 1e-6)
    assert made.status.tolist() == [OK]
    covers(made, NOON, 0.0, 1e-6)
    certified(made, "exp", NOON, [0.0, 1e6], samples=3)


def test_below_zero_by_rounding_is_zero_but_no_more():
    assert one("sqrt", [1e-18 - 1e-17, 0.0, 1.0], -1.0, 1.0, 1e-3).status.tolist() == [OK]
    assert one("sqrt", [-1e-6, 0.0, 1.0], -1.0, 1.0, 1e-1).status.tolist() == [OUT_OF_DOMAIN]
    assert one("sqrt", [-1.0], 0.0, 1.0, 1e-1).status.tolist() == [OUT_OF_DOMAIN]
    third = 1 / 3
    c = np.array([third * third - 1e-17, -2 * third, 1.0])
    made = one("sqrt", c, 0.0, 1.0, 1e-6)
    assert made.status.tolist() == [OK]
    certified(made, "sqrt", NOON, c, samples=5)


@pytest.mark.parametrize("function", ["reciprocal", "log"])
@pytest.mark.parametrize("c", [[0.0, 1.0], [-1.0, 1.0], [1.0, -2.0, 1.0], [0.0]])
def test_touching_zero_is_out_of_domain(function, c):
    made = one(function, c, 0.0, 2.0, 1e-3)
    assert made.status.tolist() == [OUT_OF_DOMAIN]
    assert len(made.ref) == 0


def test_bounds_that_cannot_be_met_are_reported_to_be():
    assert one("exp", [0.0, 1.0], 0.0, 2.0, 1e-18).status.tolist() == [NOT_CONVERGED]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it takes 65,000 pieces to give up")
def test_a_bound_that_needs_too_many_pieces_is_reported_to():
    made = one("sin", [0.0, 1e9], 0.0, 2.0, 1e-6)
    assert made.status.tolist() == [NOT_CONVERGED]
    assert len(made.ref) == 0


def test_every_piece_for_itself():
    n = 200
    ref = NOON + SECOND * np.arange(n)
    c = np.column_stack([1.0 + np.arange(n) % 7, np.ones(n)])
    c[3] = [-5.0, 0.0]
    c[5] = [np.nan, 0.0]
    lo, hi = np.zeros(n), np.ones(n)
    hi[7], hi[9], hi[11] = -1.0, 0.0, np.inf
    bound = np.where(np.arange(n) % 2, 1e-3, 1e-7)
    made = lift("sqrt", ref, lo, hi, c, bound)
    expected = np.zeros(n, int)
    expected[[3, 5, 7, 11]] = [OUT_OF_DOMAIN, NOT_FINITE, EMPTY_RANGE, NOT_FINITE]
    np.testing.assert_array_equal(made.status, expected)
    np.testing.assert_array_equal(np.unique(made.source), np.flatnonzero(expected == 0))
    assert (np.diff(made.source) >= 0).all()
    assert (made.err <= bound[made.source]).all()
    for i in (0, 1, 9, n - 1):
        alone = lift("sqrt", ref[[i]], lo[[i]], hi[[i]], c[[i]], bound[[i]])
        here = made.source == i
        for a, b in zip(alone[1:-1], made[1:-1], strict=True):
            np.testing.assert_array_equal(a, b[here])


def test_names_and_codes_are_the_same():
    for name, code in lifting.FUNCTIONS.items():
        a, b = one(name, [2.0, 0.5], 0.0, 1.0, 1e-3), one(code, [2.0, 0.5], 0.0, 1.0, 1e-3)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_nothing_in_nothing_out():
    none = np.zeros(0)
    made = lift("exp", none.astype(int), none, none, np.zeros((0, 3)), 1.0)
    assert made.c.shape == (0, 5)
    assert absolute(none.astype(int), none, none, np.zeros((0, 3))).c.shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tan", [0], [0.0], [1.0], [[1.0]], 1.0), "function"),
        ((17, [0], [0.0], [1.0], [[1.0]], 1.0), "function"),
        (("exp", [0], [0.0], [1.0], [[1.0]], 0.0), "bound"),
        (("exp", [0], [0.0], [1.0], [[1.0]], np.nan), "bound"),
        (("exp", [0], [0.0], [1.0], [[1.0]], 1.0, 5), "order"),
        (("exp", [0, 1], [0.0], [1.0], [[1.0]], 1.0), "ref"),
        (("exp", [0], [0.0], [1.0], [1.0], 1.0), "coefficients"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        lift(*arguments)


@given(
    st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=1, max_size=5),
    st.sampled_from([1e-12, 1.0, 1e12]),
    st.floats(-3, 3),
    st.floats(0, 6),
)
def test_absolute_is_exact(c, scale, lo, length):
    c = np.array([c]) * scale
    made = absolute(np.array([NOON]), np.array([lo]), np.array([lo + length]), c)
    assert made.status.tolist() == [OK]
    assert made.lo[0] == lo
    assert made.hi[-1] == lo + length
    np.testing.assert_array_equal(made.lo[1:], made.hi[:-1])
    assert (made.ref == NOON).all()
    size = sum(abs(x) * max(abs(lo), abs(lo + length)) ** j for j, x in enumerate(c[0]))
    for i in range(len(made.lo)):
        np.testing.assert_array_equal(np.abs(made.c[i]), np.abs(c[0]))
        for t in np.linspace(made.lo[i], made.hi[i], 9):
            value = np.polynomial.polynomial.polyval(t, made.c[i])
            assert value >= -1e-13 * size
            assert abs(value) == pytest.approx(
                abs(np.polynomial.polynomial.polyval(t, c[0])), abs=1e-13 * size
            )


def test_absolute_cuts_at_crossings_only():
    touching, crossing, zero = [1.0, -2.0, 1.0], [2.0, -3.0, 1.0], [0.0, 0.0, 0.0]
    made = absolute(np.zeros(3, int), np.zeros(3), np.full(3, 3.0), np.array([touching, crossing, zero]))
    assert made.source.tolist() == [0, 1, 1, 1, 2]
    np.testing.assert_allclose(made.lo, [0, 0, 1, 2, 0], atol=1e-15)
    assert made.c[2].tolist() == [-2.0, 3.0, -1.0]
    odd = absolute(
        np.zeros(3, int), np.zeros(3), np.array([-1.0, 0.0, 1.0]), np.array([[1.0], [-1.0], [np.nan]])
    )
    assert odd.status.tolist() == [EMPTY_RANGE, OK, NOT_FINITE]
    assert (odd.source.tolist(), odd.c.tolist()) == ([1], [[1.0]])
