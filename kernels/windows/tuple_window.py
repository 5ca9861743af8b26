"""Find the tuples of each window and aggregate them (semantics 1.2, 7.8).

A window closing at ``t`` covers ``[t - size, t)``, so the tuple of an instant ``τ`` takes part for the closing times in
``(τ, τ + size]``. Times are whole microseconds, so that is ``[τ + 1, τ + size + 1)``: as a function of the closing time the
result is a step function that changes only where a tuple enters or leaves.

A window is a span ``[tail, head)`` of rows; both ends only move forward. Sums and extrema of all spans use two stacks:
rows up to ``middle`` have precomputed suffix aggregates up to ``middle``, those after it have a running aggregate::

    tail ....... middle ....... head
    suffix[tail]        running             their sum is the window's

When ``tail`` passes ``middle`` the suffixes are recomputed up to ``head``. Nothing is ever subtracted, so rows that left the
window leave no rounding behind; O(1) amortised per row. Sums are double-doubles (:mod:`pulse.kernels.double_double`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN_INT1, INT, OUT1, OUT_INT1, OUT_INT2, kernel
from pulse.kernels.double_double import dd_add, dd_add_float
from pulse.kernels.pieces.arguments import offsets_of

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SUM, MAX = 0, 1


class Spans(NamedTuple):
    """A table of windows as spans of rows: piece ``i`` closes in ``[start[i], end[i])`` and contains rows ``tail[i]:head[i]``.

    ``offsets`` delimit the groups.
    """

    offsets: Ints
    start: Ints
    end: Ints
    tail: Ints
    head: Ints


class Closings(NamedTuple):
    """A table of windows at regular closing times: stretch ``s`` of ``group[s]`` closes at ``first[s] + i * every``."""

    group: Ints
    first: Ints
    offsets: Ints
    tail: Ints
    head: Ints


@kernel(IN_INT1, IN_INT1, INT, OUT_INT1, OUT_INT2)
def _pieces(times, offsets, size, out_offsets, out):
    m = 0
    for g in range(offsets.shape[0] - 1):
        begin, stop = offsets[g], offsets[g + 1]
        tail, head = begin, begin
        while tail < stop:
            # The next instant at which a row enters or leaves; a window is then [tail, head).
            comes = head < stop and (head == tail or times[head] <= times[tail] + size)
            at = times[head] + 1 if comes else times[tail] + size + 1
            while head < stop and times[head] + 1 == at:
                head += 1
            while tail < head and times[tail] + size + 1 == at:
                tail += 1
            if tail == head:
                continue
            until = times[tail] + size + 1
            if head < stop and times[head] + 1 < until:
                until = times[head] + 1
            out[m, 0], out[m, 1], out[m, 2], out[m, 3] = at, until, tail, head
            m += 1
        out_offsets[g + 1] = m
    return m


def window_pieces(times: Ints, offsets: Ints, size_us: int) -> Spans:
    """Return the pieces of the closing time on which a window of ``size_us`` contains the same rows, at least one.

    ``times[n]``: microseconds, not descending within a group ``offsets[g]:offsets[g + 1]``.

    >>> spans = window_pieces(np.array([0, 10]), np.array([0, 2]), 15)
    >>> spans.start.tolist(), spans.end.tolist(), spans.tail.tolist(), spans.head.tolist()
    ([1, 11, 16], [11, 16, 26], [0, 0, 1], [1, 2, 2])
    """
    times, offsets = _checked(times, offsets, size_us)
    out = np.empty((2 * len(times), 4), np.int64)
    out_offsets = np.zeros(len(offsets), np.int64)
    m = _pieces(times, offsets, size_us, out_offsets, out)
    start, end, tail, head = (np.ascontiguousarray(column) for column in out[:m].T)
    return Spans(out_offsets, start, end, tail, head)


@kernel(IN_INT1, IN_INT1, IN_INT1, IN_INT1, IN_INT1, INT, INT, OUT_INT1, OUT_INT1)
def _closings(times, offsets, group, first, stretches, every, size, tail, head):
    last_group, a, b = -1, 0, 0
    for s in range(group.shape[0]):
        g = group[s]
        if g != last_group:
            last_group, a, b = g, offsets[g], offsets[g]
        for i in range(stretches[s], stretches[s + 1]):
            t = first[s] + (i - stretches[s]) * every
            while b < offsets[g + 1] and times[b] < t:
                b += 1
            while a < b and times[a] < t - size:
                a += 1
            tail[i], head[i] = a, b


def window_closings(times: Ints, offsets: Ints, size_us: int, every_us: int) -> Closings:
    """Return the windows that close at multiples of ``every_us`` and contain at least one row.

    >>> closings = window_closings(np.array([3, 12, 50]), np.array([0, 3]), 10, 5)
    >>> [(int(t), int(a), int(b)) for t, a, b in zip([5, 10, 15, 20, 55, 60], closings.tail, closings.head)]
    [(5, 0, 1), (10, 0, 1), (15, 1, 2), (20, 1, 2), (55, 2, 3), (60, 2, 3)]
    """
    times, offsets = _checked(times, offsets, size_us)
    if every_us <= 0:
        raise ValueError(f"expected every_us > 0, got {every_us!r}")
    n = len(times)
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    low, high = times // every_us + 1, (times + size_us) // every_us
    some = np.flatnonzero(high >= low)  # rows that some window contains
    owner, low, high = owner[some], low[some], high[some]
    begins = np.ones(len(some), bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (low[1:] > high[:-1] + 1)
    at = np.flatnonzero(begins)
    last = np.append(at[1:], len(some))[: len(at)] - 1
    stretches = np.concatenate(([0], np.cumsum(high[last] - low[at] + 1))).astype(np.int64)
    group, first = np.ascontiguousarray(owner[at]), low[at] * every_us
    tail, head = np.empty(stretches[-1], np.int64), np.empty(stretches[-1], np.int64)
    if n:
        _closings(times, offsets, group, first, stretches, every_us, size_us, tail, head)
    return Closings(group, first, stretches, tail, head)


@kernel(IN1, IN_INT1, IN_INT1, INT, OUT1, OUT1, OUT1)
def _aggregate(values, tail, head, kind, suffix, suffix_low, out):
    middle, reached = 0, 0
    high, low = 0.0, 0.0
    for i in range(tail.shape[0]):
        a, b = tail[i], head[i]
        if a >= reached:  # no row of the last window is left
            middle, reached = a, a
            high, low = (0.0, 0.0) if kind == SUM else (-np.inf, 0.0)
        while reached < b:
            if kind == SUM:
                high, low = dd_add_float(high, low, values[reached])
            else:
                high = max(high, values[reached])
            reached += 1
        if a >= middle:
            s, e = (0.0, 0.0) if kind == SUM else (-np.inf, 0.0)
            for j in range(b - 1, a - 1, -1):
                if kind == SUM:
                    s, e = dd_add_float(s, e, values[j])
                else:
                    s = max(s, values[j])
                suffix[j], suffix_low[j] = s, e
            middle = b
            high, low = (0.0, 0.0) if kind == SUM else (-np.inf, 0.0)
        if kind == SUM:
            s, _ = dd_add(suffix[a], suffix_low[a], high, low)
        else:
            s = max(suffix[a], high)
        out[i] = s


def aggregate_spans(values: Array, tail: Ints, head: Ints, kind: int) -> Array:
    """Return the sum (``SUM``) or maximum (``MAX``) of ``values[tail[i]:head[i]]``, for spans of at least one row.

    Spans come in order: neither end descends. Sums are right to the last bit but one, whatever earlier windows contained.

    >>> aggregate_spans(np.array([1e300, 1.0, 2.0]), np.array([0, 0, 1]), np.array([1, 2, 3]), SUM).tolist()
    [1e+300, 1e+300, 3.0]
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    tail, head = (np.ascontiguousarray(x, dtype=np.int64) for x in (tail, head))
    if kind not in (SUM, MAX) or tail.shape != head.shape:
        raise ValueError(
            f"expected SUM or MAX and as many tails as heads, got {kind!r}, {tail.shape}, {head.shape}"
        )
    falls = (np.diff(tail) < 0).any() or (np.diff(head) < 0).any() or (head <= tail).any()
    if falls or (len(tail) and (tail[0] < 0 or head[-1] > len(values))):
        raise ValueError(f"expected ascending spans of at least one of {len(values)} rows")
    out = np.empty(len(tail))
    _aggregate(values, tail, head, kind, np.empty(len(values)), np.empty(len(values)), out)
    return out


def _checked(times: Ints, offsets: Ints, size_us: int) -> tuple[Ints, Ints]:
    if size_us <= 0:
        raise ValueError(f"expected size_us > 0, got {size_us!r}")
    times = np.ascontiguousarray(times, dtype=np.int64)
    offsets = offsets_of(offsets, len(times))
    falls = np.diff(times) < 0
    falls[offsets[(offsets > 0) & (offsets < len(times))] - 1] = False
    if falls.any():
        raise ValueError("times: expected non-descending times within a group")
    return times, offsets
