"""The set of models that still pass through every constraint seen: what a greedy fit extends until it is empty.

A constraint says that the model's value at ``x`` lies in ``[low, high]``. For constants the set is an interval; for lines
``a + b*x`` it is a convex polygon in the plane of ``(a, b)``, since every constraint is a strip. The polygon is the dual of the two
convex hulls of the classic O(n) method (O'Rourke 1981) and holds its vertices only, so the state is bounded; unlike the hulls it takes
constraints in any order of ``x``, which a bound on the integral needs (its constraint on ``[s, x]`` is one on the line's value at the middle).

A polygon that outgrows its array loses the vertex whose removal costs the least area: the set becomes a little smaller, so
every model in it still satisfies every constraint. Each vertex was inside every strip when it was made, up to one rounding.
"""

import numpy as np

from pulse.kernels._jit import device, inlined

CAPACITY = 48  # vertices; ticks and tracks keep 4 to 12
BELOW, FITS, ABOVE = -1, 0, 1

# A set is a row of a 2-D array: the number of vertices, their values at 0, their slopes, and room to clip in. One array
# for all of it because views and tuples of arrays cost reference counting in the innermost loop.
COUNT = 0
_A = 1
_B = _A + CAPACITY + 4
_NEW_A = _B + CAPACITY + 4
_NEW_B = _NEW_A + CAPACITY + 4
TUBE = _NEW_B + CAPACITY + 4  # columns


@device
def clear(tube, i):
    """No constraint yet: every model is possible."""
    tube[i, COUNT] = 0


@device
def open_strip(tube, i, x, low, high, slope_low, slope_high):
    """Start with the lines through ``[low, high]`` at ``x`` whose slope lies between the two given."""
    for j in range(4):
        tube[i, _B + j] = slope_low if j < 2 else slope_high
        tube[i, _A + j] = (low if j == 0 or j == 3 else high) - tube[i, _B + j] * x
    tube[i, COUNT] = 4


@device
def _open(tube, i, x, low, high, lines):
    """The first constraint, or one more at the same ``x``; a second ``x`` makes the polygon."""
    if tube[i, COUNT] == 0:
        tube[i, _A], tube[i, _A + 1], tube[i, _B], tube[i, _B + 1] = low, high, 0.0, 0.0
        tube[i, COUNT] = 2
        if lines:
            tube[i, _B] = x  # until the second constraint: where the first one stands
            tube[i, COUNT] = 1
        return FITS
    x0, low0, high0 = tube[i, _B], tube[i, _A], tube[i, _A + 1]
    if x == x0:
        if high0 < low:
            return BELOW
        if low0 > high:
            return ABOVE
        tube[i, _A], tube[i, _A + 1] = max(low0, low), min(high0, high)
        return FITS
    for j in range(4):
        y0 = low0 if j < 2 else high0
        tube[i, _B + j] = ((low if j == 0 or j == 3 else high) - y0) / (x - x0)
        tube[i, _A + j] = y0 - tube[i, _B + j] * x0
    tube[i, COUNT] = 4
    return FITS


@device
def constrain(tube, i, x, low, high, lines):
    """Keep the models (lines, or constants) whose value at ``x`` lies in ``[low, high]``.

    Returns FITS, or, leaving the set as it was, BELOW when every model passes under ``low``, ABOVE when over ``high``.
    """
    m = int(tube[i, COUNT])
    if m < 2:
        return _open(tube, i, x, low, high, lines)
    least = tube[i, _A] + tube[i, _B] * x
    most = least
    for j in range(1, m):
        f = tube[i, _A + j] + tube[i, _B + j] * x
        if f < least:
            least = f
        if f > most:
            most = f
    if most < low:
        return BELOW
    if least > high:
        return ABOVE
    if m == 2:
        tube[i, _A], tube[i, _A + 1] = max(least, low), min(most, high)
        return FITS
    if most > high:
        _clip(tube, i, x, high, 1.0)
    if least < low:
        _clip(tube, i, x, low, -1.0)
    return FITS


@device
def _clip(tube, i, x, limit, sign):
    """Cut off the part where ``sign * (value - limit) > 0``; some of the set is known to remain."""
    m, n = int(tube[i, COUNT]), 0
    before = m - 1
    d_before = sign * ((tube[i, _A + before] + tube[i, _B + before] * x) - limit)
    for j in range(m):
        d = sign * ((tube[i, _A + j] + tube[i, _B + j] * x) - limit)
        if (d > 0.0) != (d_before > 0.0):
            w = d_before / (d_before - d)
            tube[i, _NEW_A + n] = tube[i, _A + before] + w * (tube[i, _A + j] - tube[i, _A + before])
            tube[i, _NEW_B + n] = tube[i, _B + before] + w * (tube[i, _B + j] - tube[i, _B + before])
            n += 1
        if d <= 0.0:
            tube[i, _NEW_A + n], tube[i, _NEW_B + n] = tube[i, _A + j], tube[i, _B + j]
            n += 1
        before, d_before = j, d
    while n > CAPACITY:
        n = _drop_flattest(tube, i, n)
    for j in range(n):
        tube[i, _A + j], tube[i, _B + j] = tube[i, _NEW_A + j], tube[i, _NEW_B + j]
    tube[i, COUNT] = n


@device
def _drop_flattest(tube, i, n):
    a, b = tube[i, _NEW_A:_NEW_B], tube[i, _NEW_B:]
    best, least = 0, np.inf
    for j in range(n):
        p, q = (j - 1) % n, (j + 1) % n
        area = abs((a[j] - a[p]) * (b[q] - b[p]) - (a[q] - a[p]) * (b[j] - b[p]))
        if area < least:
            best, least = j, area
    for j in range(best, n - 1):
        a[j], b[j] = a[j + 1], b[j + 1]
    return n - 1


@device
def middle(tube, i):
    """A model well inside the set: the mean of the vertices."""
    m = int(tube[i, COUNT])
    if m <= 2:
        return 0.5 * (tube[i, _A] + tube[i, _A + 1]), 0.0
    sa, sb = 0.0, 0.0
    for j in range(m):
        sa += tube[i, _A + j]
        sb += tube[i, _B + j]
    return sa / m, sb / m


@device
def extreme(tube, i, x, side):
    """The model that is highest (``side`` BELOW) or lowest (ABOVE) at ``x``: among lines, also ever after."""
    if tube[i, COUNT] <= 2:
        return (tube[i, _A + 1] if side == BELOW else tube[i, _A]), 0.0
    best = 0
    for j in range(1, int(tube[i, COUNT])):
        if (tube[i, _A + j] + tube[i, _B + j] * x > tube[i, _A + best] + tube[i, _B + best] * x) == (
            side == BELOW
        ):
            best = j
    return tube[i, _A + best], tube[i, _B + best]


@device
def through(tube, i, x, y):
    """A model whose value at ``x`` is ``y``, midway between the two ends of all such; or the nearest vertex."""
    m = int(tube[i, COUNT])
    if m <= 2:
        return min(max(y, tube[i, _A]), tube[i, _A + 1]), 0.0
    found, sa, sb = 0, 0.0, 0.0
    nearest, distance = 0, np.inf
    before = m - 1
    d_before = (tube[i, _A + before] + tube[i, _B + before] * x) - y
    for j in range(m):
        d = (tube[i, _A + j] + tube[i, _B + j] * x) - y
        if abs(d) < distance:
            nearest, distance = j, abs(d)
        if (d > 0.0) != (d_before > 0.0):
            w = d_before / (d_before - d)
            sa += tube[i, _A + before] + w * (tube[i, _A + j] - tube[i, _A + before])
            sb += tube[i, _B + before] + w * (tube[i, _B + j] - tube[i, _B + before])
            found += 1
        before, d_before = j, d
    if found == 2:
        return 0.5 * sa, 0.5 * sb
    return tube[i, _A + nearest], tube[i, _B + nearest]


@device
def steepest(tube, i, slope):
    """The largest difference between ``slope`` and the slope of a line in the set."""
    most = 0.0
    for j in range(int(tube[i, COUNT])):
        most = max(most, abs(tube[i, _B + j] - slope))
    return most
