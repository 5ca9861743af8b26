"""Maintain the lines that satisfy every constraint by two convex hulls; constraints come in the order of ``x``.

The classic O(n) method (O'Rourke 1981; the slide filter of Elmeleegy et al. 2009). A constraint requires that a
line's value at ``x`` lies in ``[low, high]``. Of all lines through the constraints so far, the steepest rises
from some ``low`` to a later ``high``; the flattest falls from some ``high`` to a later ``low``. A new
constraint either lies outside the two (no line is left), inside (nothing changes), or turns one of them: the
steepest then ends at the new ``high`` and leans on the upper hull of the lows, the flattest at the new ``low``
on the lower hull of the highs. Hull points before the one it leans on will never be leaned on again, so every
point enters and leaves once.

A set is a row of a 2-D array, one array for all of it: views and tuples of arrays cost reference counting in
the innermost loop.
"""

from pulse.kernels._jit import routine, step

BELOW, FITS, ABOVE = -1, 0, 1
CAPACITY = 1 << 14  # points of a hull; more, and the set takes no further constraint

# Columns: how many constraints (two stand for all later ones), whether they come in order, the first one, …
COUNT, ORDERED, FIRST_X, FIRST_LOW, FIRST_HIGH = 0, 1, 2, 3, 4
# … the steepest and the flattest line (value at 0, slope), and the hulls: begin, end, and points.
_STEEP_A, _STEEP_B, _FLAT_A, _FLAT_B = 5, 6, 7, 8
_LOW_BEGIN, _LOW_END, _HIGH_BEGIN, _HIGH_END = 9, 10, 11, 12
_LOW_X = 13
_LOW_Y = _LOW_X + CAPACITY
_HIGH_X = _LOW_Y + CAPACITY
_HIGH_Y = _HIGH_X + CAPACITY
HULL = _HIGH_Y + CAPACITY  # the first column after


@routine
def open_hulls(tube, i, x0, low0, high0, x1, low1, high1):
    """The lines through ``[low0, high0]`` at ``x0`` and ``[low1, high1]`` at ``x1 > x0``."""
    tube[i, _STEEP_B] = (high1 - low0) / (x1 - x0)
    tube[i, _STEEP_A] = high1 - tube[i, _STEEP_B] * x1
    tube[i, _FLAT_B] = (low1 - high0) / (x1 - x0)
    tube[i, _FLAT_A] = low1 - tube[i, _FLAT_B] * x1
    tube[i, _LOW_X], tube[i, _LOW_Y], tube[i, _HIGH_X], tube[i, _HIGH_Y] = x0, low0, x0, high0
    tube[i, _LOW_X + 1], tube[i, _LOW_Y + 1], tube[i, _HIGH_X + 1], tube[i, _HIGH_Y + 1] = x1, low1, x1, high1
    tube[i, _LOW_BEGIN], tube[i, _LOW_END], tube[i, _HIGH_BEGIN], tube[i, _HIGH_END] = 0, 2, 0, 2
    tube[i, COUNT] = 4


@step
def constrain_hulls(tube, i, x, low, high):
    """Keep the lines whose value at ``x`` lies in ``[low, high]``; FITS, or the side on which all fail, the
    set left as it was.
    """
    most = tube[i, _STEEP_A] + tube[i, _STEEP_B] * x
    least = tube[i, _FLAT_A] + tube[i, _FLAT_B] * x
    if most < low:
        return BELOW
    if least > high or tube[i, _LOW_END] >= CAPACITY or tube[i, _HIGH_END] >= CAPACITY:
        return ABOVE
    if most > high:
        slope = _lean(tube, i, x, high, _LOW_X, _LOW_Y, _LOW_BEGIN, 1.0)
        tube[i, _STEEP_A], tube[i, _STEEP_B] = high - slope * x, slope
    if least < low:
        slope = _lean(tube, i, x, low, _HIGH_X, _HIGH_Y, _HIGH_BEGIN, -1.0)
        tube[i, _FLAT_A], tube[i, _FLAT_B] = low - slope * x, slope
    _enter(tube, i, x, low, _LOW_X, _LOW_Y, _LOW_BEGIN, 1.0)
    _enter(tube, i, x, high, _HIGH_X, _HIGH_Y, _HIGH_BEGIN, -1.0)
    return FITS


@step
def _lean(tube, i, x, y, xs, ys, begin, sign):
    """The slope from the hull to (x, y): the least (``sign`` 1) or greatest over its points. Forgets the
    points passed by.
    """
    at, end = int(tube[i, begin]), int(tube[i, begin + 1])
    slope = (y - tube[i, ys + at]) / (x - tube[i, xs + at])
    while at + 1 < end and tube[i, xs + at + 1] < x:
        other = (y - tube[i, ys + at + 1]) / (x - tube[i, xs + at + 1])
        if sign * (other - slope) > 0.0:
            break
        slope = other
        at += 1
    tube[i, begin] = at
    return slope


@step
def _enter(tube, i, x, y, xs, ys, begin, sign):
    """Add (x, y) to an upper (``sign`` 1) or lower hull: points under the line from their predecessor to it
    leave.
    """
    first, end = int(tube[i, begin]), int(tube[i, begin + 1])
    if tube[i, xs + end - 1] == x:
        if sign * (y - tube[i, ys + end - 1]) <= 0.0:
            return
        end -= 1
    while end - first >= 2:
        x1, y1 = tube[i, xs + end - 1], tube[i, ys + end - 1]
        x0, y0 = tube[i, xs + end - 2], tube[i, ys + end - 2]
        if sign * ((y1 - y0) * (x - x1) - (y - y1) * (x1 - x0)) > 0.0:
            break
        end -= 1
    tube[i, xs + end], tube[i, ys + end] = x, y
    tube[i, begin + 1] = end + 1


@step
def steepest_line(tube, i):
    """The line with the greatest slope: from the last constraint on, also the highest."""
    return tube[i, _STEEP_A], tube[i, _STEEP_B]


@step
def flattest_line(tube, i):
    """The line with the least slope: from the last constraint on, also the lowest."""
    return tube[i, _FLAT_A], tube[i, _FLAT_B]
