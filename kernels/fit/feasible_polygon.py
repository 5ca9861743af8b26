"""Maintain the lines that satisfy every constraint as a convex polygon; constraints may come in any order.

A constraint requires that a line's value at ``x`` lies in ``[low, high]``: a strip in the plane of the lines'
values at 0 and slopes, so the lines that satisfy all of them form a convex polygon, which holds its vertices
only. A polygon that outgrows its array loses the vertex whose removal costs the least area: the set becomes a
little smaller, so every line in it still satisfies every constraint. Each vertex was inside every strip when it
was made, up to one rounding.
"""

import numpy as np

from pulse.kernels._jit import routine
from pulse.kernels.fit.slide_hulls import ABOVE, BELOW, COUNT, FITS, HULL

CAPACITY = 48  # vertices; ticks and tracks keep 4 to 12

_A = HULL  # values at 0, slopes, and room to clip in
_B = _A + CAPACITY + 4
_NEW_A = _B + CAPACITY + 4
_NEW_B = _NEW_A + CAPACITY + 4
POLYGON = _NEW_B + CAPACITY + 4  # the first column after


@routine
def open_polygon(tube, i, x0, low0, high0, x1, low1, high1):
    """The lines through ``[low0, high0]`` at ``x0`` and ``[low1, high1]`` at ``x1``."""
    for j in range(4):
        y0 = low0 if j < 2 else high0
        tube[i, _B + j] = ((low1 if j == 0 or j == 3 else high1) - y0) / (x1 - x0)
        tube[i, _A + j] = y0 - tube[i, _B + j] * x0
    tube[i, COUNT] = 4


@routine
def constrain_polygon(tube, i, x, low, high):
    """Keep the lines whose value at ``x`` lies in ``[low, high]``; FITS, or the side on which all fail, the
    set left as it was.
    """
    m = int(tube[i, COUNT])
    least = tube[i, _A] + tube[i, _B] * x
    most = least
    for j in range(1, m):
        f = tube[i, _A + j] + tube[i, _B + j] * x
        least = min(least, f)
        most = max(most, f)
    if most < low:
        return BELOW
    if least > high:
        return ABOVE
    if most > high:
        _clip(tube, i, x, high, 1.0)
    if least < low:
        _clip(tube, i, x, low, -1.0)
    return FITS


@routine
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


@routine
def _drop_flattest(tube, i, n):
    best, least = 0, np.inf
    for j in range(n):
        p, q = (j - 1) % n, (j + 1) % n
        pa, pb = tube[i, _NEW_A + p], tube[i, _NEW_B + p]
        ja, jb = tube[i, _NEW_A + j] - pa, tube[i, _NEW_B + j] - pb
        area = abs(ja * (tube[i, _NEW_B + q] - pb) - (tube[i, _NEW_A + q] - pa) * jb)
        if area < least:
            best, least = j, area
    for j in range(best, n - 1):
        tube[i, _NEW_A + j], tube[i, _NEW_B + j] = tube[i, _NEW_A + j + 1], tube[i, _NEW_B + j + 1]
    return n - 1


@routine
def extreme_vertex(tube, i, x, side):
    """The line that is highest (``side`` BELOW) or lowest (ABOVE) at ``x``."""
    best = 0
    for j in range(1, int(tube[i, COUNT])):
        if (tube[i, _A + j] + tube[i, _B + j] * x > tube[i, _A + best] + tube[i, _B + best] * x) == (
            side == BELOW
        ):
            best = j
    return tube[i, _A + best], tube[i, _B + best]


@routine
def widest_slope(tube, i, slope):
    """The largest difference between ``slope`` and that of a line in the set."""
    most = 0.0
    for j in range(int(tube[i, COUNT])):
        most = max(most, abs(tube[i, _B + j] - slope))
    return most
