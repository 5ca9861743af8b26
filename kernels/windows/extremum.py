"""Compute sliding extrema of piecewise polynomials (semantics 3.6: min and max over a window).

A window of ``size`` that closes at ``t`` covers ``[t - size, t)``; its extremum is ``M(t) = sup f(s)`` over it, or
``inf``. It has a result only where f is defined on all of it: within a **chain** of pieces that meet, from ``size``
after the chain's start to its end. The extremum of a window is at one of its ends or between them, so M is the
envelope of three piecewise functions of the closing time::

    tail   f(t - size): the pieces of f with references moved by size, exactly, sizes being whole microseconds
    step   the best candidate s with t - size < s < t: critical points, and the values at boundaries of pieces
    head   f(t), from the left

Each candidate is valid for ``t`` in ``[s, s + size)``; a monotone deque makes a step function of them in O(n). Ties go
to tail, step, head in this order, which is the earliest source. At an instant where M jumps the piecewise form has
the limit from the right. Points (semantics 1.2) between pieces that meet are candidates like others; they cover nothing.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import (
    BOOL,
    IN1,
    IN2,
    IN_INT1,
    INT,
    OUT1,
    OUT2,
    OUT_INT1,
    OUT_INT2,
    device,
    kernel,
)
from pulse.kernels.instants import gap, later, meets, seconds_between
from pulse.kernels.pieces.align import pieces_of
from pulse.kernels.pieces.envelope import ascending, coefficients_of, merge_runs
from pulse.kernels.polynomial.arithmetic import horner, magnitude
from pulse.kernels.polynomial.extrema import critical_points_row, extrema_work

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_TABLE = types.Tuple((IN_INT1, IN1, IN1, IN2))
_PARTS = types.Tuple((OUT_INT1, OUT1, OUT1, OUT2, OUT_INT1, OUT1))
_CLEAR = (
    16 * 2.220446049250313e-16
)  # relative to a line's magnitude: far more than the rounding of its value and a step's


TAIL, STEP, HEAD = range(3)


class SlidingPieces(NamedTuple):
    """A table of the pieces of M in the closing time; ``source`` is the input piece that has the extremum.

    Group ``g`` has the pieces ``offsets[g]:offsets[g + 1]``. By ``kind`` the extremum is reached as the window opens (``TAIL``),
    as it closes (``HEAD``), or at the offset ``at`` of the source (``STEP``).
    """

    offsets: Integers
    ref: Integers
    lo: Array
    hi: Array
    c: Array
    source: Integers
    kind: Integers
    at: Array


@device
def _next_range(table, p, end):
    """Return the first piece from ``p`` on that is not a point."""
    lo, hi = table[1], table[2]
    while p < end and lo[p] == hi[p]:
        p += 1
    return p


@device
def _chain_end(table, p, end):
    """Return one past the last piece of the chain that starts with range ``p``."""
    ref, lo, hi, _ = table
    last = p
    p = _next_range(table, p + 1, end)
    while p < end and meets(ref[last], hi[last], ref[p], lo[p]):
        last = p
        p = _next_range(table, p + 1, end)
    return last + 1


@device
def _better(a, b, upper):
    return a > b if upper else a < b


@device
def _candidates(table, begin, end, upper, work, found):
    """Fill ``found = (source, at, value)`` with the candidates of a chain in time order; return their number.

    Of the two values at a boundary only the better counts, the earlier when they are equal. A point at a boundary
    comes after it: the window that opens there still contains the point, but no longer the value from the left, which
    therefore must not evict it.
    """
    _, lo, hi, c = table
    source, at, value = found
    scratch, critical = work
    k = c.shape[1]
    n, before = 0, -1
    unseen = begin  # points from here to the next range are not yet candidates
    for p in range(begin, end):
        if lo[p] == hi[p]:
            continue
        if before >= 0:
            left, right = horner(c, before, k, hi[before]), horner(c, p, k, lo[p])
            if _better(right, left, upper):
                source[n], at[n], value[n] = p, lo[p], right
            else:
                source[n], at[n], value[n] = before, hi[before], left
            n += 1
        for point in range(unseen, p):
            source[n], at[n], value[n] = point, lo[point], horner(c, point, k, lo[point])
            n += 1
        before, unseen = p, p + 1
        if k > 2:
            for r in range(critical_points_row(c, p, k, lo[p], hi[p], scratch, critical)):
                source[n], at[n], value[n] = p, critical[r], horner(c, p, k, critical[r])
                n += 1
    return n


@device
def _room(offsets, k):
    """Bound the candidates of the largest group: a boundary or point and k - 2 critical points per piece."""
    largest = 0
    for g in range(len(offsets) - 1):
        largest = max(largest, offsets[g + 1] - offsets[g])
    return largest * max(k - 1, 1)


@device
def _put(parts, m, origin, at, begin, end):
    """Write time range, origin and instant in it of part ``m``, from instant ``begin`` to ``end``, unless it is a sliver."""
    begin_ref, start = begin
    end_ref, stop = end
    if not later(begin_ref, start, end_ref, stop):
        return False
    ref, lo, hi, _, source, ats = parts
    ref[m], lo[m], hi[m] = begin_ref, start, seconds_between(begin_ref, end_ref) + stop
    source[m], ats[m] = origin, at
    return True


@device
def _earlier_of(a, b):
    return a if gap(a[0], a[1], b[0], b[1]) >= 0.0 else b


@device
def _later_of(a, b):
    return b if gap(a[0], a[1], b[0], b[1]) > 0.0 else a


@device
def _best_of_line(table, p, upper):
    """Return the extremum of a piece of degree 0 or 1, and a bound of its rounding and that of another as large."""
    _, lo, hi, c = table
    k = c.shape[1]
    a, b = horner(c, p, k, lo[p]), horner(c, p, k, hi[p])
    size = max(magnitude(c, p, k, lo[p]), magnitude(c, p, k, hi[p]))
    return (a if _better(a, b, upper) else b), _CLEAR * size


@device
def _first_ending_after(parts, s, last, instant):
    """Return the first of the parts ``s … last - 1`` that ends after an instant."""
    ref, _, hi, _, _, _ = parts
    while s < last and not later(instant[0], instant[1], ref[s], hi[s]):
        s += 1
    return s


@device
def _is_hidden(parts, s, last, begin, end, best, upper):
    """Test whether the steps from part ``s`` on cover ``begin`` to ``end`` and are better than ``best`` throughout."""
    ref, lo, hi, rows, _, _ = parts
    value, margin = best
    if s == last or later(begin[0], begin[1], ref[s], lo[s]):
        return False
    while True:
        ahead = rows[s, 0] - value if upper else value - rows[s, 0]
        if not ahead > margin:
            return False
        if not later(ref[s], hi[s], end[0], end[1]):
            return True
        s += 1
        if s == last or not meets(ref[s - 1], hi[s - 1], ref[s], lo[s]):
            return False


@device
def _put_ends(table, begin, end, size, upper, parts, counts, steps):
    """Write tail and head of a chain: its pieces, delayed by a window and unchanged, where M has a result.

    Lines that the chain's ``steps`` hide are skipped: with many pieces per window, nearly all.
    """
    ref, lo, hi, c = table
    rows = parts[3]
    opens, closes = (ref[begin] + size, lo[begin]), (ref[end - 1], hi[end - 1])
    behind, ahead = steps
    last = counts[1]
    best = (0.0, 0.0)
    is_line = c.shape[1] <= 2
    for p in range(begin, end):
        if lo[p] == hi[p]:
            continue
        if is_line:
            best = _best_of_line(table, p, upper)
        start, until = (ref[p] + size, lo[p]), _earlier_of((ref[p] + size, hi[p]), closes)
        behind = _first_ending_after(parts, behind, last, start)
        hidden = is_line and _is_hidden(parts, behind, last, start, until, best, upper)
        if not hidden and _put(parts, counts[0], p, 0.0, start, until):
            rows[counts[0], :] = c[p, :]
            counts[0] += 1
        # A head keeps its own reference, so that its coefficients are unchanged.
        start, until = (ref[p], lo[p]), (ref[p], hi[p])
        if gap(ref[p], lo[p], opens[0], opens[1]) > 0.0:
            start = (ref[p], seconds_between(ref[p], opens[0]) + opens[1])
        ahead = _first_ending_after(parts, ahead, last, start)
        hidden = is_line and _is_hidden(parts, ahead, last, start, until, best, upper)
        if not hidden and _put(parts, counts[2], p, 0.0, start, until):
            rows[counts[2], :] = c[p, :]
            counts[2] += 1


@device
def _put_steps(table, domain, found, n, size, upper, queue, parts, m):
    """Write the step function of a chain's ``n`` candidates within the ``domain``; return the new ``m``.

    ``queue[first:last]`` holds candidates in time order, each better than those after it: the first is the extremum
    until it leaves, or until a better one enters and empties the queue.
    """
    ref = table[0]
    source, at, value = found
    opens, closes = domain
    rows = parts[3]
    first, last = 0, 0
    since = opens
    for i in range(n + 1):
        now = (ref[source[i]], at[i]) if i < n else closes
        front = -1
        while first < last:
            f = queue[first]
            leaves = (ref[source[f]] + size, at[f])
            if gap(leaves[0], leaves[1], now[0], now[1]) < 0.0:
                front = f
                break
            if _put(parts, m, source[f], at[f], _later_of(since, opens), _earlier_of(leaves, closes)):
                rows[m, :] = 0.0
                rows[m, 0] = value[f]
                m += 1
            since = leaves
            first += 1
        while i < n and last > first and _better(value[i], value[queue[last - 1]], upper):
            last -= 1
        if i == n or last == first:
            if front >= 0 and _put(parts, m, source[front], at[front], _later_of(since, opens), now):
                rows[m, :] = 0.0
                rows[m, 0] = value[front]
                m += 1
            since = now
        if i < n:
            queue[last] = i
            last += 1
    return m


@kernel(_TABLE, IN_INT1, INT, BOOL, _PARTS, OUT_INT2)
def _split(table, offsets, size, upper, parts, spans):
    """Write tail, step and head of group ``g`` to three stretches of ``parts``: rows ``3 g`` to ``3 g + 2`` of ``spans``."""
    ref, lo, hi, c = table
    k = c.shape[1]
    room = _room(offsets, k)
    found = (np.empty(room, np.int64), np.empty(room), np.empty(room))
    queue = np.empty(room, np.int64)
    work = (extrema_work(k), np.empty(k + 1))
    counts = np.array([0, len(ref), len(parts[0]) - len(ref)])
    for g in range(len(offsets) - 1):
        for part in range(3):
            spans[3 * g + part, 0] = counts[part]
        p = _next_range(table, offsets[g], offsets[g + 1])
        while p < offsets[g + 1]:
            end = _chain_end(table, p, offsets[g + 1])
            domain = (ref[p] + size, lo[p]), (ref[end - 1], hi[end - 1])
            if later(domain[0][0], domain[0][1], domain[1][0], domain[1][1]):
                count = _candidates(table, p, end, upper, work, found)
                first = counts[1]
                counts[1] = _put_steps(table, domain, found, count, size, upper, queue, parts, first)
                _put_ends(table, p, end, size, upper, parts, counts, (first, first))
            p = _next_range(table, end, offsets[g + 1])
        for part in range(3):
            spans[3 * g + part, 1] = counts[part]


def sliding_extremum(
    ref: Integers,
    lo: Array,
    hi: Array,
    c: Array,
    offsets: Integers,
    size_us: int,
    *,
    upper: bool = False,
) -> SlidingPieces:
    """Return the infimum (``upper``: supremum) over ``[t - size_us, t)`` as a piecewise polynomial of the closing time ``t``.

    Group ``g`` consists of the pieces ``offsets[g]:offsets[g + 1]``, sorted in time and not overlapping. There is no
    result where the window is not covered: a group shorter than the window has none.

    >>> one = np.array([[0.0, 1.0]])
    >>> found = sliding_extremum(np.array([0]), np.array([0.0]), np.array([9.0]), one, np.array([0, 1]), 2_000_000)
    >>> found.ref, found.lo, found.hi, found.c
    (array([2000000]), array([0.]), array([7.]), array([[0., 1.]]))
    """
    table, offsets = _checked(ref, lo, hi, c, offsets)
    size = _checked_size(size_us)
    n, k = table[3].shape
    room = 2 * n + n * max(k - 1, 1)
    parts = (
        np.empty(room, np.int64),
        np.empty(room),
        np.empty(room),
        np.empty((room, k)),
        np.empty(room, np.int64),
        np.empty(room),
    )
    spans = np.empty((3 * (len(offsets) - 1), 2), np.int64)
    _split(table, offsets, size, upper, parts, spans)
    part_ref, part_lo, part_hi, part_c, origin, instants = parts
    counts = spans[:, 1] - spans[:, 0]
    ends = np.cumsum(counts)
    used = np.repeat(spans[:, 0] - (ends - counts), counts) + np.arange(counts.sum())
    runs = (used, part_lo[used], part_hi[used])
    spans = np.stack((ends - counts, ends), axis=1)
    found = merge_runs((part_ref, part_c), runs, spans, np.arange(0, len(spans) + 1, 3), upper)
    at = found.source
    kind = (at >= n).astype(np.int64) + (at >= room - n)  # tails come first, heads last
    pieces = (part_ref[at], found.lo, found.hi, part_c[at], origin[at])
    return SlidingPieces(found.offsets, *pieces, kind, instants[at])


def _checked(
    ref: Integers, lo: Array, hi: Array, c: Array, offsets: Integers
) -> tuple[tuple[Integers, Array, Array, Array], Integers]:
    pieces = pieces_of(ref, lo, hi)
    return (*pieces, coefficients_of(c, len(pieces.ref))), ascending("offsets", offsets, len(pieces.ref))


def _checked_size(size_us: int) -> int:
    size = operator.index(size_us)
    if size <= 0:
        raise ValueError(f"size_us: expected a positive number of microseconds, got {size}")
    return size
