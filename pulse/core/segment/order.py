"""Sort segments by key and time, find overlaps, and find the segment that covers an instant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import first_microsecond, gaps, on_microsecond, split, tolerances
from pulse.kernels.instants import MICROSECONDS


class Ranges(NamedTuple):
    """The positions of segments: the rank of their key, and ``[ref + lo, ref + hi)``."""

    rank: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray

    def take(self, rows: IntArray) -> Ranges:
        """Return these rows, in this order."""
        return Ranges(self.rank[rows], self.ref[rows], self.lo[rows], self.hi[rows])


def time_order(ranges: Ranges) -> IntArray | None:
    """Return the rows by key, then start, then length (points before ranges); None when they are already in order."""
    if is_in_order(ranges):
        return None
    whole, rest = split(ranges.ref, ranges.lo)
    length, place = ranges.hi - ranges.lo, _places(ranges.rank, whole)
    if place is None:
        return np.lexsort((length, rest, whole, ranges.rank))
    # A stable sort of one integer merges presorted runs, such as the files and units of a fit.
    order = np.argsort(place, kind="stable")
    equal = np.diff(place[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    rows = order[tied]
    order[tied] = rows[np.lexsort((length[rows], rest[rows], place[rows]))]
    return order


def _places(rank: IntArray, whole: IntArray) -> IntArray | None:
    """Return one integer per row that orders by key and microsecond; None if both do not fit in an int64."""
    first, span = int(whole.min()), int(whole.max()) - int(whole.min()) + 1
    if (int(rank.max()) + 1) * span >= 1 << 63:
        return None
    return rank * span + (whole - first)


def is_in_order(ranges: Ranges) -> bool:
    """Test whether keys do not descend and, within a key, starts do not descend, nor lengths at one start."""
    rank, ref, lo, hi = ranges
    step = np.diff(rank)
    if (step < 0).any():
        return False
    whole, rest = split(ref, lo)
    later = np.diff(whole)
    finer = np.diff(rest)
    longer = np.diff(hi - lo)
    falls = (later < 0) | ((later == 0) & ((finer < 0) | ((finer == 0) & (longer < 0))))
    return not bool((falls & (step == 0)).any())


def find_overlap(ranges: Ranges) -> tuple[int, int] | None:
    """Find two rows of one key that cover the same instant, the earlier start first; None when there are none.

    Ranges may overlap by the tolerance of instants. A point is in conflict with a range around it and
    with another point at exactly its instant; it may touch either end of a range.
    """
    order = time_order(ranges)
    rank, ref, lo, hi = ranges if order is None else ranges.take(order)
    rows = np.arange(1, len(ref))
    point = lo == hi
    before = np.maximum.accumulate(np.where(point, -1, np.arange(len(ref))))[:-1]  # the last range, if any
    before = np.where((before >= 0) & (rank[before] == rank[1:]), before, rows)
    overlaps = _begins(ref[before], hi[before], ref[1:], lo[1:], slack=-1) & (before != rows)
    overlaps &= ~point[1:] | ~_begins(ref[before], lo[before], ref[1:], lo[1:], slack=1)
    twin = (
        point[1:] & point[:-1] & (rank[1:] == rank[:-1]) & (gaps(ref[:-1], lo[:-1], ref[1:], lo[1:]) == 0.0)
    )
    if not (overlaps | twin).any():
        return None
    second = int(np.flatnonzero(overlaps | twin)[0]) + 1
    first = int(before[second - 1]) if overlaps[second - 1] else second - 1
    return (first, second) if order is None else (int(order[first]), int(order[second]))


def _begins(ref_a: IntArray, a: FloatArray, ref_b: IntArray, b: FloatArray, *, slack: int) -> BoolArray:
    """Test whether the second instant lies before the first plus ``slack`` tolerances."""
    result: BoolArray = gaps(ref_a, a, ref_b, b) < slack * tolerances(ref_a, a, ref_b, b)
    return result


def covering(ranges: Ranges, times: IntArray) -> tuple[IntArray, BoolArray]:
    """Find for each time (microseconds) the row that covers it, and whether there is one.

    The ranges are those of one key, in order, without overlaps. Degenerate: a point covers only its instant,
    and only if that is a whole microsecond; the row of an uncovered time is 0.
    """
    if len(ranges.ref) == 0:
        return np.zeros(len(times), dtype=np.int64), np.zeros(len(times), dtype=bool)
    begin = first_microsecond(ranges.ref, ranges.lo)
    end = first_microsecond(ranges.ref, ranges.hi)
    point = ranges.lo == ranges.hi
    end = end + (point & on_microsecond(ranges.ref, ranges.lo))
    rows = np.searchsorted(begin, times, side="right") - 1
    rows = np.maximum(rows, 0)
    covered: BoolArray = (begin[rows] <= times) & (times < end[rows])
    return np.where(covered, rows, 0), covered


def narrow(ranges: Ranges, start: int | None, end: int | None) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return the mask of rows that overlap ``[start, end)`` (microseconds), and their ``lo`` and ``hi`` within it.

    A remainder no longer than the tolerance of instants is dropped; a segment that was shorter before stays.
    """
    lo, hi = ranges.lo, ranges.hi
    if start is not None:
        lo = np.maximum(lo, (start - ranges.ref) / MICROSECONDS)
    if end is not None:
        hi = np.minimum(hi, (end - ranges.ref) / MICROSECONDS)
    untouched = (lo == ranges.lo) & (hi == ranges.hi)
    long_enough = hi - lo > tolerances(ranges.ref, lo, ranges.ref, hi)
    point = ranges.lo == ranges.hi
    inside = untouched if end is None else untouched & (ranges.lo < (end - ranges.ref) / MICROSECONDS)
    keep: BoolArray = np.where(point, inside, untouched | long_enough)
    return keep, lo, hi
