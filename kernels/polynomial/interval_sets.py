"""Unite, intersect and complement sets of time intervals, one per row, with open and closed ends (semantics 1.2, 3.2).

Every end is a *cut* of the line just before or just after an instant: ``(x, 0)`` or ``(x, 1)``. ``[x`` starts
at ``(x, 0)``, ``(x`` at ``(x, 1)``; ``x]`` stops at ``(x, 1)``, ``x)`` at ``(x, 0)``; the instant ``x``
lies between the two. Cuts are ordered, so that an interval of any kind is a plain pair of cuts, two
intervals join where the cut of one's stop is not before the other's start, and the algebra has no special
cases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import (
    BOOL,
    IN1,
    IN2,
    IN_BYTE1,
    IN_INT1,
    OUT2,
    OUT_BYTE1,
    OUT_INT1,
    device,
    inlined,
    kernel,
)
from pulse.kernels.polynomial.arithmetic import per_row

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOWER = 1  # bit of ends: the lower end belongs to the interval
UPPER = 2  # bit of ends: the upper end belongs to the interval


class IntervalSets(NamedTuple):
    """A batch of interval sets: row ``i`` has ``offsets[i]:offsets[i + 1]``, sorted, disjoint and not adjacent.

    ``bounds`` is (lower, upper), ``ends`` the bits LOWER and UPPER. A single instant is ``lower ==
    upper`` with both.
    """

    offsets: Integers
    bounds: Array
    ends: Bytes


@inlined
def before(x, side, y, other):
    """Test whether the cut ``(x, side)`` lies before the cut ``(y, other)``."""
    return x < y or (x == y and side < other)


@inlined
def append(start, stop, out, first, at):
    """Add the interval between two cuts to a row of ``out = (bounds, ends)`` that starts at ``first``.

    Nothing is added when ``stop`` is not after ``start``; an interval that meets the last one extends it.
    Starts come in ascending order. Returns the index after the last interval.
    """
    bounds, ends = out
    if not before(start[0], start[1], stop[0], stop[1]):
        return at
    if at > first:
        last = at - 1
        if not before(bounds[last, 1], ends[last] >> 1, start[0], start[1]):
            if before(bounds[last, 1], ends[last] >> 1, stop[0], stop[1]):
                bounds[last, 1] = stop[0]
                ends[last] = (ends[last] & LOWER) | (UPPER * stop[1])
            return at
    bounds[at, 0] = start[0]
    bounds[at, 1] = stop[0]
    ends[at] = (LOWER * (1 - start[1])) | (UPPER * stop[1])
    return at + 1


@inlined
def start_of(bounds, ends, j):
    """Return the cut at which interval ``j`` starts."""
    return bounds[j, 0], 1 - np.int64(ends[j] & LOWER)


@inlined
def stop_of(bounds, ends, j):
    """Return the cut at which interval ``j`` stops."""
    return bounds[j, 1], np.int64(ends[j] >> 1)


@device
def union_row(a, b, out, at):
    """Write the union of two sets, each ``(bounds, ends, begin, end)``, to ``out = (bounds, ends)`` from ``at`` on.

    Returns the index after it.
    """
    a_bounds, a_ends, i, a_end = a
    b_bounds, b_ends, j, b_end = b
    first = at
    while i < a_end or j < b_end:
        take_a = j >= b_end
        if i < a_end and j < b_end:
            x, y = start_of(a_bounds, a_ends, i), start_of(b_bounds, b_ends, j)
            take_a = before(x[0], x[1], y[0], y[1])
        if take_a:
            at = append(start_of(a_bounds, a_ends, i), stop_of(a_bounds, a_ends, i), out, first, at)
            i += 1
        else:
            at = append(start_of(b_bounds, b_ends, j), stop_of(b_bounds, b_ends, j), out, first, at)
            j += 1
    return at


@device
def intersect_row(a, b, out, at):
    """Write the intersection, as :func:`union_row` does."""
    a_bounds, a_ends, i, a_end = a
    b_bounds, b_ends, j, b_end = b
    first = at
    while i < a_end and j < b_end:
        start, other = start_of(a_bounds, a_ends, i), start_of(b_bounds, b_ends, j)
        if before(start[0], start[1], other[0], other[1]):
            start = other
        stop, other = stop_of(a_bounds, a_ends, i), stop_of(b_bounds, b_ends, j)
        if before(stop[0], stop[1], other[0], other[1]):
            i += 1
        else:
            stop = other
            j += 1
        at = append(start, stop, out, first, at)
    return at


@device
def complement_row(a, lo, hi, out, at):
    """Write the half-open ``[lo, hi)`` minus the set ``a``, as :func:`union_row` does."""
    bounds, ends, i, end = a
    first = at
    cut = (lo, 0)
    while i < end:
        start, stop = start_of(bounds, ends, i), stop_of(bounds, ends, i)
        if not before(start[0], start[1], hi, 0):
            break
        at = append(cut, start, out, first, at)
        if before(cut[0], cut[1], stop[0], stop[1]):
            cut = stop
        i += 1
    return append(cut, (hi, 0), out, first, at)


@kernel(IN_INT1, IN2, IN_BYTE1, IN_INT1, IN2, IN_BYTE1, BOOL, OUT_INT1, OUT2, OUT_BYTE1)
def _combine(a_offsets, a_bounds, a_ends, b_offsets, b_bounds, b_ends, both, offsets, bounds, ends):
    at = 0
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        a = (a_bounds, a_ends, a_offsets[i], a_offsets[i + 1])
        b = (b_bounds, b_ends, b_offsets[i], b_offsets[i + 1])
        at = intersect_row(a, b, (bounds, ends), at) if both else union_row(a, b, (bounds, ends), at)
        offsets[i + 1] = at


@kernel(IN_INT1, IN2, IN_BYTE1, IN1, IN1, OUT_INT1, OUT2, OUT_BYTE1)
def _complement(a_offsets, a_bounds, a_ends, lo, hi, offsets, bounds, ends):
    at = 0
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        a = (a_bounds, a_ends, a_offsets[i], a_offsets[i + 1])
        at = complement_row(a, lo[i], hi[i], (bounds, ends), at)
        offsets[i + 1] = at


def union(a: IntervalSets, b: IntervalSets) -> IntervalSets:
    """Unite sets row by row: ``OR``.

    >>> ends = np.array([LOWER], dtype=np.uint8)
    >>> sets = [IntervalSets(np.array([0, 1]), np.array([[x, x + 1.0]]), ends) for x in (0.0, 1.0)]
    >>> union(*sets).bounds
    array([[0., 2.]])
    """
    return _combined(a, b, False)


def intersect(a: IntervalSets, b: IntervalSets) -> IntervalSets:
    """Intersect sets row by row: ``AND``."""
    return _combined(a, b, True)


def _combined(a: IntervalSets, b: IntervalSets, both: bool) -> IntervalSets:
    a, b = _same_length(a, b)
    offsets, bounds, ends = _room(len(a.offsets) - 1, len(a.bounds) + len(b.bounds))
    _combine(*a, *b, both, offsets, bounds, ends)
    return trim(offsets, bounds, ends)


def complement(a: IntervalSets, lo: Array | float, hi: Array | float) -> IntervalSets:
    """Return each row's half-open ``[lo, hi)`` minus its set: ``NOT``. Empty where ``hi <= lo``."""
    a = _checked(a)
    n = len(a.offsets) - 1
    offsets, bounds, ends = _room(n, len(a.bounds) + n)
    _complement(*a, _numbers(lo, n), _numbers(hi, n), offsets, bounds, ends)
    return trim(offsets, bounds, ends)


def full(lo: Array, hi: Array) -> IntervalSets:
    """Return each row's whole half-open ``[lo, hi)``; the empty set where ``hi <= lo``."""
    lo = _numbers(lo, len(lo))
    hi = _numbers(hi, len(lo))
    some = lo < hi
    offsets = np.concatenate(([0], np.cumsum(some))).astype(np.int64)
    bounds = np.ascontiguousarray(np.stack((lo[some], hi[some]), axis=1))
    return IntervalSets(offsets, bounds, np.full(len(bounds), LOWER, dtype=np.uint8))


def trim(offsets: Integers, bounds: Array, ends: Bytes) -> IntervalSets:
    """Build the sets that a kernel wrote into oversized arrays, dropping the unused tail."""
    used = offsets[-1]
    return IntervalSets(offsets, bounds[:used].copy(), ends[:used].copy())


def _room(n: int, m: int) -> tuple[Integers, Array, Bytes]:
    return np.empty(n + 1, dtype=np.int64), np.empty((m, 2)), np.empty(m, dtype=np.uint8)


def _numbers(x: Array | float, n: int) -> Array:
    x = per_row(x, n)
    if np.isnan(x).any():
        raise ValueError(f"domain: expected numbers, got NaN in row {int(np.flatnonzero(np.isnan(x))[0])}")
    return x


def _checked(a: IntervalSets) -> IntervalSets:
    offsets = np.ascontiguousarray(a.offsets, dtype=np.int64)
    bounds = np.ascontiguousarray(a.bounds, dtype=np.float64)
    ends = np.ascontiguousarray(a.ends, dtype=np.uint8)
    if bounds.ndim != 2 or bounds.shape[1] != 2 or ends.shape != (len(bounds),):
        raise ValueError(
            f"interval sets: expected bounds (m, 2) and ends (m,), got {bounds.shape}, {ends.shape}"
        )
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(bounds):
        raise ValueError(f"interval sets: expected offsets from 0 to {len(bounds)}, got {offsets}")
    return IntervalSets(offsets, bounds, ends)


def _same_length(a: IntervalSets, b: IntervalSets) -> tuple[IntervalSets, IntervalSets]:
    a, b = _checked(a), _checked(b)
    if len(a.offsets) != len(b.offsets):
        raise ValueError(
            f"expected two batches of one length, got {len(a.offsets) - 1} and {len(b.offsets) - 1}"
        )
    return a, b
