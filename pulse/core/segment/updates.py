"""Apply update semantics (1.4): of overlapping segments of one key the later one, by arrival, is valid from its start on.

::

    arrives first    [--------------)          [----------)           [---)
    arrives later         [----)           [-------)                        [--)
    at rest          [---)[----)           [-------)                  [---) [--)

The earlier one is truncated where the later begins, also past the later's end: the world moved on. One that
would begin inside the later is removed. Segments that do not overlap do not affect each other. A point
covers its instant.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import gaps, split, tolerances
from pulse.core.segment.order import Ranges

_NANOSECONDS = 1e9


def truncate_overlaps(ranges: Ranges) -> tuple[BoolArray, FloatArray]:
    """Return the mask of rows, in order of arrival, that remain at rest, and the ``hi`` of every row after truncation."""
    n = len(ranges.ref)
    keep = np.ones(n, dtype=bool)
    cut_by = np.full(n, -1, dtype=np.int64)  # the row whose start truncates this one
    arrival = np.argsort(ranges.rank, kind="stable")
    unsorted_keys = _truncate_at_next(ranges, arrival, cut_by)
    ranks = ranges.rank[arrival]
    first, last = np.searchsorted(ranks, unsorted_keys), np.searchsorted(ranks, unsorted_keys, side="right")
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        rows = arrival[begin:end]
        cut_by[rows] = -1
        _replay(ranges, rows, keep, cut_by)
    hi = ranges.hi.copy()
    cut = np.flatnonzero(cut_by >= 0)
    by = cut_by[cut]
    hi[cut] = gaps(ranges.ref[cut], np.zeros(len(cut)), ranges.ref[by], ranges.lo[by])
    return keep, hi


def _truncate_at_next(ranges: Ranges, arrival: IntArray, cut_by: IntArray) -> IntArray:
    """Truncate each row at the next of its key, which is right where starts ascend; return the keys where they do not."""
    rank, ref, lo, hi = ranges.take(arrival)
    same = rank[:-1] == rank[1:]
    rising = gaps(ref[:-1], lo[:-1], ref[1:], lo[1:]) > tolerances(ref[:-1], lo[:-1], ref[1:], lo[1:])
    past = gaps(ref[:-1], hi[:-1], ref[1:], lo[1:]) < -tolerances(ref[:-1], hi[:-1], ref[1:], lo[1:])
    cut = same & rising & past
    cut_by[arrival[:-1][cut]] = arrival[1:][cut]
    return np.unique(rank[:-1][same & ~rising])


def _replay(ranges: Ranges, rows: IntArray, keep: BoolArray, cut_by: IntArray) -> None:
    """Replay one key whose starts do not ascend, row by row, against a sorted list of the segments at rest.

    Instants are Python integers of nanoseconds (the grain of instants), which neither overflow nor round.
    """
    ref, lo, hi = ranges.ref[rows], ranges.lo[rows], ranges.hi[rows]
    starts, ends = _nanoseconds(ref, lo), _nanoseconds(ref, hi)
    slack = np.ceil(tolerances(ref, lo, ref, hi) * _NANOSECONDS).astype(np.int64).tolist()
    live_starts: list[int] = []
    live: list[int] = []
    for j, (start, end, tolerance) in enumerate(zip(starts, ends, slack, strict=True)):
        first = bisect_left(live_starts, start - tolerance)
        last = bisect_left(live_starts, max(end - tolerance, start + tolerance + 1), lo=first)
        keep[rows[live[first:last]]] = False
        if first and ends[live[first - 1]] > start + tolerance:
            ends[live[first - 1]] = start
            cut_by[rows[live[first - 1]]] = rows[j]
        live_starts[first:last] = [start]
        live[first:last] = [j]


def _nanoseconds(ref: IntArray, offset: FloatArray) -> list[int]:
    whole, rest = split(ref, offset)
    fine = np.rint(rest * _NANOSECONDS).astype(np.int64)
    return [us * 1000 + ns for us, ns in zip(whole.tolist(), fine.tolist(), strict=True)]
