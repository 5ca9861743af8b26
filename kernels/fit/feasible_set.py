"""Maintain the feasible set: the models that satisfy every constraint so far; a greedy fit extends until it is empty.

A constraint requires that the model's value at ``x`` lies in ``[low, high]``. For constants the set is an interval.
For lines it is kept by two hulls (:mod:`pulse.kernels.fit.slide_hulls`) when constraints come in the order of ``x``, as
those of one kind of bound do; where bounds on value and integral mix, it is a polygon
(:mod:`pulse.kernels.fit.feasible_polygon`). Any set is convex: between two models in it lie others.

The set of attribute ``i`` is row ``i`` of a 2-D array; ORDERED is the kind of lines to keep.
"""

from pulse.kernels._jit import routine, step
from pulse.kernels.fit.feasible_polygon import (
    POLYGON,
    constrain_polygon,
    extreme_vertex,
    open_polygon,
    widest_slope,
)
from pulse.kernels.fit.slide_hulls import (
    ABOVE,
    BELOW,
    COUNT,
    FIRST_HIGH,
    FIRST_LOW,
    FIRST_X,
    FITS,
    ORDERED,
    constrain_hulls,
    flattest_line,
    open_hulls,
    steepest_line,
)

__all__ = [
    "ABOVE",
    "BELOW",
    "COUNT",
    "FITS",
    "TUBE",
    "begin",
    "clear",
    "constrain",
    "extreme",
    "middle",
    "open_lines",
    "steepest",
    "through",
]

TUBE = POLYGON  # columns
_ONE, _CONSTANTS = 1, 2  # COUNT when a line has one constraint, and of constants


@step
def clear(tube, i):
    """No constraint yet: every model is possible."""
    tube[i, COUNT] = 0


@step
def begin(tube, i, x, low, high, lines):
    """The first constraint of a set: its models (lines, or constants) have a value in ``[low, high]`` at ``x``."""
    tube[i, FIRST_X], tube[i, FIRST_LOW], tube[i, FIRST_HIGH] = x, low, high
    tube[i, COUNT] = _ONE if lines else _CONSTANTS


@routine
def open_lines(tube, i, x0, low0, high0, x1, low1, high1):
    """Start with the lines through ``[low0, high0]`` at ``x0`` and ``[low1, high1]`` at ``x1 > x0``."""
    if tube[i, ORDERED] != 0.0:
        open_hulls(tube, i, x0, low0, high0, x1, low1, high1)
    else:
        open_polygon(tube, i, x0, low0, high0, x1, low1, high1)


@step
def constrain(tube, i, x, low, high, lines):
    """Keep the models (lines, or constants) whose value at ``x`` lies in ``[low, high]``.

    Returns FITS, or, leaving the set as it was, BELOW when every model passes under ``low``, ABOVE when over
    ``high``.
    """
    m = tube[i, COUNT]
    if m > _CONSTANTS:
        if tube[i, ORDERED] != 0.0:
            return constrain_hulls(tube, i, x, low, high)
        return constrain_polygon(tube, i, x, low, high)
    if m == 0:
        begin(tube, i, x, low, high, lines)
        return FITS
    least, most = tube[i, FIRST_LOW], tube[i, FIRST_HIGH]
    if m == _ONE and x != tube[i, FIRST_X]:
        open_lines(tube, i, tube[i, FIRST_X], least, most, x, low, high)
        return FITS
    if most < low:
        return BELOW
    if least > high:
        return ABOVE
    tube[i, FIRST_LOW], tube[i, FIRST_HIGH] = max(least, low), min(most, high)
    return FITS


@routine
def extreme(tube, i, x, side):
    """The model that is highest (``side`` BELOW) or lowest (ABOVE) at ``x``, which lies after all
    constraints: ever after, too.
    """
    if tube[i, COUNT] <= _CONSTANTS:
        return (tube[i, FIRST_HIGH] if side == BELOW else tube[i, FIRST_LOW]), 0.0
    if tube[i, ORDERED] == 0.0:
        return extreme_vertex(tube, i, x, side)
    return steepest_line(tube, i) if side == BELOW else flattest_line(tube, i)


@routine
def middle(tube, i, x):
    """A model well inside the set: midway between the extremes at ``x``, after all constraints."""
    high_a, high_b = extreme(tube, i, x, BELOW)
    low_a, low_b = extreme(tube, i, x, ABOVE)
    return 0.5 * (high_a + low_a), 0.5 * (high_b + low_b)


@routine
def through(tube, i, x, y):
    """A model whose value at ``x``, not before any constraint, is ``y``; or the one that comes nearest."""
    high_a, high_b = extreme(tube, i, x, BELOW)
    low_a, low_b = extreme(tube, i, x, ABOVE)
    high, low = high_a + high_b * x, low_a + low_b * x
    part = 0.5 if high <= low else min(max((y - low) / (high - low), 0.0), 1.0)
    return low_a + part * (high_a - low_a), low_b + part * (high_b - low_b)


@routine
def steepest(tube, i, slope):
    """The largest difference between ``slope`` and the slope of a line in the set."""
    if tube[i, ORDERED] == 0.0:
        return widest_slope(tube, i, slope)
    return max(abs(steepest_line(tube, i)[1] - slope), abs(flattest_line(tube, i)[1] - slope))
