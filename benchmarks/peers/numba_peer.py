"""Tuple operators written by hand, compiled: what a stream engine does to each tuple, without any engine around it.

One pass in order of arrival with state per key, as in the Pulse paper's V.A, and beside its algorithms the best we know::

    filter    compare, copy the columns of what is selected
    min       open windows    the paper's: every tuple lowers each window it falls into; cost is linear in size / advance
              deque           candidates ascending in time and value; two steps a tuple, whatever the size
              panes           one running minimum per pane between closing times, so many panes to a window
    join      nested loops    the paper's: a tuple is compared with all of the other stream's last ``window``
              grid            only with those in the nine squares around it

Results are whole: all columns of selected tuples, or of both tuples of a pair. Keys are the numbers ``0 … keys - 1``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.benchmarks.peers.compiled import compiled
from pulse.benchmarks.peers.numba_squares import cell, square
from pulse.benchmarks.workloads.moving_objects import Tuples
from pulse.core.arrays import FloatArray, IntArray

# -- filter -----------------------------------------------------------------------------------------------------


@compiled
def _above(key, t, x, y, vx, vy, level):
    """Two passes: a first that only counts reads one column, and spares the second all guessing of room."""
    n = x.shape[0]
    count = 0
    for i in range(n):
        count += x[i] > level
    found = (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count),
        np.empty(count),
        np.empty(count),
        np.empty(count),
    )
    m = 0
    for i in range(n):
        if x[i] > level:
            found[0][m], found[1][m] = key[i], t[i]
            found[2][m], found[3][m], found[4][m], found[5][m] = x[i], y[i], vx[i], vy[i]
            m += 1
    return found


def above(tuples: Tuples, level: float) -> Tuples:
    """The tuples whose ``x`` is above the level."""
    return Tuples(*_above(*tuples, float(level)))


# -- smallest value of a sliding window ---------------------------------------------------------------------------


class Windows(NamedTuple):
    """Results in order of closing, per key: the key, the closing time and the value."""

    key: IntArray
    t: IntArray
    value: FloatArray


# These two stand once more in numba_minima, for streams, with a state that goes from batch to batch. State made inside costs a
# fifth to a quarter less a tuple (one check of a key does for all arrays), and the peer is to be as fast as it can.
@compiled
def _open_windows(key, t, x, keys, size, advance):
    windows = size // advance
    low = np.full((keys, windows), np.inf)
    closing = np.full(keys, -1, np.int64)
    complete = np.zeros(keys, np.int64)
    place = np.zeros(keys, np.int64)
    room = keys * ((t[-1] - t[0]) // advance + 2)
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now = key[i], t[i]
        if closing[g] < 0:
            closing[g] = (now // advance + 1) * advance
            complete[g] = -(-now // advance) * advance + size
        while closing[g] <= now:
            if closing[g] >= complete[g]:
                found[0][m], found[1][m], found[2][m] = g, closing[g], low[g, place[g]]
                m += 1
            low[g, place[g]] = np.inf
            place[g] = place[g] + 1 if place[g] + 1 < windows else 0
            closing[g] += advance
        value = x[i]
        for w in range(windows):
            low[g, w] = min(low[g, w], value)
    return found[0][:m], found[1][:m], found[2][:m]


@compiled
def _panes(key, t, x, keys, size, advance):
    windows = size // advance
    panes = np.full((keys, windows), np.inf)
    low = np.full(keys, np.inf)
    closing = np.full(keys, -1, np.int64)
    complete = np.zeros(keys, np.int64)
    place = np.zeros(keys, np.int64)
    room = keys * ((t[-1] - t[0]) // advance + 2)
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now, value = key[i], t[i], x[i]
        if now >= closing[g]:
            if closing[g] < 0:
                closing[g] = (now // advance + 1) * advance
                complete[g] = -(-now // advance) * advance + size
            while closing[g] <= now:
                panes[g, place[g]] = low[g]
                low[g] = np.inf
                place[g] = place[g] + 1 if place[g] + 1 < windows else 0
                if closing[g] >= complete[g]:
                    best = np.inf
                    for w in range(windows):
                        best = min(best, panes[g, w])
                    found[0][m], found[1][m], found[2][m] = g, closing[g], best
                    m += 1
                closing[g] += advance
        if value < low[g]:
            low[g] = value
    return found[0][:m], found[1][:m], found[2][:m]


@compiled
def _deque(key, t, x, keys, size, advance, most):
    """``most``: tuples of one key in a window at most, a power of two."""
    at = np.empty((keys, most), np.int64)
    values = np.empty((keys, most))
    first, last = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    closing = np.full(keys, -1, np.int64)
    complete = np.zeros(keys, np.int64)
    room = keys * ((t[-1] - t[0]) // advance + 2)
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m, mask = 0, most - 1
    for i in range(t.shape[0]):
        g, now, value = key[i], t[i], x[i]
        a, b = first[g], last[g]
        if closing[g] < 0:
            closing[g] = (now // advance + 1) * advance
            complete[g] = -(-now // advance) * advance + size
        while closing[g] <= now:
            while a < b and at[g, a & mask] < closing[g] - size:
                a += 1
            if closing[g] >= complete[g]:
                found[0][m], found[1][m] = g, closing[g]
                found[2][m] = values[g, a & mask] if a < b else np.inf
                m += 1
            closing[g] += advance
        while b > a and values[g, (b - 1) & mask] >= value:
            b -= 1
        at[g, b & mask], values[g, b & mask] = now, value
        first[g], last[g] = a, b + 1
    return found[0][:m], found[1][:m], found[2][:m]


def minimum(tuples: Tuples, keys: int, size: int, advance: int, *, way: str = "panes") -> Windows:
    """The smallest ``x`` of each key's tuples in ``[t - size, t)``, at all multiples ``t`` of ``advance`` (microseconds).

    ``size`` is a multiple of ``advance``. A window has a result once its key has tuples before it opens and after it
    closes; ``way`` is "open windows", "deque" or "panes". A window without tuples is infinite.
    """
    if size % advance or size <= 0:
        raise ValueError(f"expected a size that is a multiple of the advance, got {size} and {advance}")
    columns = tuples.id, tuples.t, tuples.x
    if len(tuples.t) == 0:
        return Windows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    if way == "open windows":
        return Windows(*_open_windows(*columns, keys, size, advance))
    if way == "deque":
        return Windows(*_deque(*columns, keys, size, advance, most_in_window(tuples, size + advance)))
    if way == "panes":
        return Windows(*_panes(*columns, keys, size, advance))
    raise ValueError(f"expected open windows, deque or panes, got {way!r}")


def most_in_window(tuples: Tuples, size: int) -> int:
    """A power of two that no key's tuples within ``size`` exceed: those of all keys, in the densest of some stretches."""
    t = tuples.t
    most = int(
        (
            np.searchsorted(t, t[:: max(len(t) // 1000, 1)] + 2 * size)
            - np.arange(0, len(t), max(len(t) // 1000, 1))
        ).max()
    )
    return 1 << max(most, 2).bit_length()


# -- window join -----------------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Tuples of both streams that match, row by row."""

    left: Tuples
    right: Tuples


@compiled
def _doubled(pairs):
    larger = np.empty((2 * pairs.shape[0], 2), np.int64)
    larger[: pairs.shape[0]] = pairs
    return larger


@compiled
def _nested_loops(t, x, y, t_other, x_other, y_other, window, reach):
    """Each tuple with the other stream's of up to ``window`` before; of equal instants the left stream's comes first."""
    n, n_other = t.shape[0], t_other.shape[0]
    limit = reach * reach
    pairs = np.empty((1024, 2), np.int64)
    m = 0
    oldest, oldest_other = 0, 0  # of what is still in a window
    i, j = 0, 0
    while i < n or j < n_other:
        if j == n_other or (i < n and t[i] <= t_other[j]):
            while oldest_other < j and t_other[oldest_other] <= t[i] - window:
                oldest_other += 1
            while m + j - oldest_other > pairs.shape[0]:
                pairs = _doubled(pairs)
            a, b = x[i], y[i]
            for o in range(oldest_other, j):
                dx, dy = x_other[o] - a, y_other[o] - b
                if dx * dx + dy * dy < limit:
                    pairs[m, 0], pairs[m, 1] = i, o
                    m += 1
            i += 1
        else:
            while oldest < i and t[oldest] <= t_other[j] - window:
                oldest += 1
            while m + i - oldest > pairs.shape[0]:
                pairs = _doubled(pairs)
            a, b = x_other[j], y_other[j]
            for o in range(oldest, i):
                dx, dy = x[o] - a, y[o] - b
                if dx * dx + dy * dy < limit:
                    pairs[m, 0], pairs[m, 1] = o, j
                    m += 1
            j += 1
    return pairs[:m]


@compiled
def _around(i, x, y, x_other, y_other, heads, before, oldest, reach, swapped, pairs, m):
    """Add the pairs of tuple ``i`` with the other stream's from ``oldest`` on in the nine squares around it.

    Lists run from the newest to the oldest, so what has left the window ends them and is never taken out.
    """
    limit = reach * reach
    cx, cy = cell(x[i], reach), cell(y[i], reach)
    mask = heads.shape[0] - 1
    for ix in range(cx - 1, cx + 2):
        for iy in range(cy - 1, cy + 2):
            o = heads[square(ix, iy, mask)]
            while o >= oldest:
                dx, dy = x_other[o] - x[i], y_other[o] - y[i]
                # Two squares may share a list: whose square it is decides where a pair is found.
                if dx * dx + dy * dy < limit:
                    own = np.floor(x_other[o] / reach) == ix and np.floor(y_other[o] / reach) == iy
                    if own:
                        pairs[m, 0], pairs[m, 1] = (o, i) if swapped else (i, o)
                        m += 1
                o = before[o]
    return m


@compiled
def _grid(t, x, y, t_other, x_other, y_other, window, reach, squares):
    n, n_other = t.shape[0], t_other.shape[0]
    heads, heads_other = np.full(squares, -1, np.int64), np.full(squares, -1, np.int64)
    before, before_other = np.empty(n, np.int64), np.empty(n_other, np.int64)
    pairs = np.empty((1024, 2), np.int64)
    m = 0
    oldest, oldest_other = 0, 0
    i, j = 0, 0
    mask = squares - 1
    while i < n or j < n_other:
        if j == n_other or (i < n and t[i] <= t_other[j]):
            while oldest_other < j and t_other[oldest_other] <= t[i] - window:
                oldest_other += 1
            while m + j - oldest_other > pairs.shape[0]:
                pairs = _doubled(pairs)
            m = _around(
                i, x, y, x_other, y_other, heads_other, before_other, oldest_other, reach, False, pairs, m
            )
            place = square(cell(x[i], reach), cell(y[i], reach), mask)
            before[i] = heads[place]
            heads[place] = i
            i += 1
        else:
            while oldest < i and t[oldest] <= t_other[j] - window:
                oldest += 1
            while m + i - oldest > pairs.shape[0]:
                pairs = _doubled(pairs)
            m = _around(j, x_other, y_other, x, y, heads, before, oldest, reach, True, pairs, m)
            place = square(cell(x_other[j], reach), cell(y_other[j], reach), mask)
            before_other[j] = heads_other[place]
            heads_other[place] = j
            j += 1
    return pairs[:m]


@compiled
def _taken(key, t, x, y, vx, vy, pairs, side):
    n = pairs.shape[0]
    found = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        p = pairs[i, side]
        found[0][i], found[1][i] = key[p], t[p]
        found[2][i], found[3][i], found[4][i], found[5][i] = x[p], y[p], vx[p], vy[p]
    return found


def near(left: Tuples, right: Tuples, window: int, reach: float, *, way: str = "grid") -> Pairs:
    """Pairs of tuples less than ``window`` microseconds apart in time and less than ``reach`` in the plane.

    A pair comes when the later of the two arrives. ``way`` is "nested loops" or "grid".
    """
    sides = left.t, left.x, left.y, right.t, right.x, right.y, int(window), float(reach)
    if way == "nested loops":
        found = _nested_loops(*sides)
    elif way == "grid":
        found = _grid(*sides, 1 << 12)
    else:
        raise ValueError(f"expected nested loops or grid, got {way!r}")
    return Pairs(Tuples(*_taken(*left, found, 0)), Tuples(*_taken(*right, found, 1)))
