"""The set of models within constraints: what fits, what does not, and models picked out of it, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit import feasible_set as tubes
from pulse.kernels.fit import greedy_lines
from tests import naive

if not numba.config.DISABLE_JIT:
    # The kernel's own copies of these functions, whose arguments LLVM may have changed, must not be called from elsewhere.
    greedy_lines._fit.compile()

MODELS = ("highest", "lowest", "middle", "through")


@numba.njit
def feed(tube, lines, constraints, sides, models):
    """Add constraints ``(x, low, high)`` until one does not fit; the models picked out after each, and how many fitted."""
    tubes.clear(tube, 0)
    for j in range(constraints.shape[0]):
        x, low, high = constraints[j]
        sides[j] = tubes.constrain(tube, 0, x, low, high, lines)
        if sides[j] != tubes.FITS:
            return j
        if j > 0 or not lines:
            models[j, 0] = tubes.extreme(tube, 0, x, tubes.BELOW)
            models[j, 1] = tubes.extreme(tube, 0, x, tubes.ABOVE)
            models[j, 2] = tubes.middle(tube, 0, x)
            models[j, 3] = tubes.through(tube, 0, x, 0.75 * low + 0.25 * high)
    return constraints.shape[0]


def fed(constraints, *, lines=True, ordered=True):
    constraints = np.array(constraints, dtype=np.float64).reshape(-1, 3)
    tube = np.zeros((1, tubes.TUBE))
    tube[0, tubes.ORDERED] = ordered
    sides = np.zeros(len(constraints), dtype=np.int64)
    models = np.zeros((len(constraints), len(MODELS), 2))
    fitting = feed(tube, lines, constraints, sides, models)
    return fitting, sides, models


def widened(constraints, by):
    return [(Fraction(x), Fraction(low) - by, Fraction(high) + by) for x, low, high in constraints]


strips = st.tuples(
    st.integers(-20, 20).map(lambda i: i / 4) | st.floats(-5, 5, allow_subnormal=False), st.floats(0.01, 4)
)


@st.composite
def ordered_constraints(draw, max_size=30):
    """Strips of any width about values that go up and down, at increasing instants."""
    values = draw(st.lists(strips, min_size=2, max_size=max_size))
    x = np.cumsum(draw(st.lists(st.integers(1, 40), min_size=len(values), max_size=len(values)))) / 8
    return [(float(at), y - e, y + e) for at, (y, e) in zip(x, values, strict=True)]


def check(constraints, *, lines, ordered):
    """What fits is what exact arithmetic says, up to ties; models keep all constraints up to rounding."""
    fitting, sides, models = fed(constraints, lines=lines, ordered=ordered)
    tie = Fraction(1, 10**9)
    assert naive.line_fits(widened(constraints[:fitting], tie), int(lines)) or fitting == 0
    if fitting < len(constraints):
        assert not naive.line_fits(widened(constraints[: fitting + 1], -tie), int(lines))
        x, low, high = constraints[fitting]
        a, b = models[fitting - 1, 0 if sides[fitting] == tubes.BELOW else 1]
        if fitting > 1:  # even the extreme model misses the constraint on the side that was named
            assert (a + b * x < low + 1e-6) if sides[fitting] == tubes.BELOW else (a + b * x > high - 1e-6)
    for j in range(1, fitting):
        for a, b in models[j]:
            for x, low, high in constraints[: j + 1]:
                assert low - 1e-9 <= a + b * x <= high + 1e-9


@given(ordered_constraints())
def test_lines_within_ordered_constraints(constraints):
    check(constraints, lines=True, ordered=True)


@given(ordered_constraints())
def test_constants(constraints):
    check(constraints, lines=False, ordered=True)


@given(ordered_constraints(max_size=12), st.randoms(use_true_random=False))
def test_lines_within_constraints_in_any_order(constraints, random):
    random.shuffle(constraints)
    fitting, _, models = fed(constraints, ordered=False)
    assert naive.line_fits(widened(constraints[:fitting], Fraction(1, 10**9)), 1)
    if fitting < len(constraints):
        assert not naive.line_fits(widened(constraints[: fitting + 1], -Fraction(1, 10**9)), 1)
    for a, b in models[fitting - 1, :2] if fitting > 1 else ():
        assert all(low - 1e-9 <= a + b * x <= high + 1e-9 for x, low, high in constraints[:fitting])


@given(ordered_constraints(max_size=14))
def test_hulls_and_polygon_agree(constraints):
    by_hulls, by_polygon = (fed(constraints, ordered=ordered) for ordered in (True, False))
    assert by_hulls[0] == by_polygon[0]
    if by_hulls[0] > 1:
        last, x = by_hulls[0] - 1, constraints[by_hulls[0] - 1][0]
        for which in (0, 1):  # the extreme models are the same at the last constraint
            (a, b), (c, d) = by_hulls[2][last, which], by_polygon[2][last, which]
            assert a + b * x == pytest.approx(c + d * x, abs=1e-9)


def test_a_long_arc_outgrows_no_array():
    """A convex arc keeps every constraint on a hull: what is forgotten may shrink the set, never widen it."""
    x = np.arange(1, 3000) / 10
    constraints = np.stack([x, np.sqrt(x) - 1.0, np.sqrt(x) + 1.0], axis=1)
    for ordered in (True, False):
        fitting, _, models = fed(constraints, ordered=ordered)
        assert fitting > 100
        for a, b in models[fitting - 1]:
            inside = a + b * x[:fitting]
            assert (inside >= constraints[:fitting, 1] - 1e-9).all()
            assert (inside <= constraints[:fitting, 2] + 1e-9).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_the_side_on_which_it_fails(ordered):
    level = [(float(i), -0.1, 0.1) for i in range(5)]
    # Every line passes under it.
    assert fed([*level, (5.0, 9.0, 10.0)], ordered=ordered)[1][-1] == tubes.BELOW
    assert fed([*level, (5.0, -10.0, -9.0)], ordered=ordered)[1][-1] == tubes.ABOVE


def test_two_constraints_at_one_instant_are_their_intersection():
    fitting, sides, _ = fed([(1.0, 0.0, 2.0), (1.0, 1.0, 3.0), (1.0, 2.5, 4.0)])
    assert (fitting, sides[-1]) == (2, tubes.BELOW)
