"""Index the segments that a revision meets, by key and time, and find those that time ranges overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import first_microsecond, floor_microsecond, split, tolerances
from pulse.core.keys import key_ranks
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.instants import MICROSECONDS
from pulse.operators.refit.apply_revisions import Corrected, dense


class Pairs(NamedTuple):
    """The overlapping pairs of segments and ranges, by segment and time; ``lo``, ``hi``: the overlap, about its ref."""

    segment: IntArray
    stretch: IntArray
    lo: FloatArray
    hi: FloatArray


@dataclass(frozen=True, eq=False)
class SegmentIndex:
    """The segments of the revised keys, by key and time, points separate from ranges; ``key`` holds their codes."""

    ranges: SegmentBatch
    key: IntArray
    points: SegmentBatch
    point_key: IntArray

    @classmethod
    def of(cls, segments: SegmentBatch, corrected: Corrected) -> SegmentIndex:
        """Index the segments of the keys that occur in tuples or revisions."""
        code = key_codes(
            [segments.column(name) for name in segments.schema.key_names], len(segments), corrected
        )
        whole, rest = split(segments.ref, segments.lo)
        order = np.lexsort((rest, whole, code))
        order = order[code[order] >= 0]
        point = segments.is_point[order]
        return cls(
            segments.take(order[~point]), code[order[~point]], segments.take(order[point]), code[order[point]]
        )

    @cached_property
    def begin(self) -> IntArray:
        """Return the whole microsecond at or before the begin of each range."""
        return floor_microsecond(self.ranges.ref, self.ranges.lo)

    @cached_property
    def end(self) -> IntArray:
        """Return the whole microsecond at or after the end of each range."""
        return self.ranges.ref + np.ceil(self.ranges.hi * MICROSECONDS).astype(np.int64)

    @cached_property
    def tolerance(self) -> FloatArray:
        """Return how far an instant may lie from each range and still meet it."""
        return tolerances(self.ranges.ref, self.ranges.lo, self.ranges.ref, self.ranges.hi)

    def pairs(self, key: IntArray, begin: IntArray, end: IntArray) -> Pairs:
        """Find the ranges that overlap the given disjoint ranges (by key and time) by more than the timeline's tolerance."""
        n, m = len(key), len(self.ranges)
        ids = dense(
            np.concatenate([key, key, self.key, self.key]), np.concatenate([begin, end, self.begin, self.end])
        )
        from_, to, first, last = np.split(ids, [n, 2 * n, 2 * n + m])
        start = np.searchsorted(last, from_, side="right")
        stop = np.maximum(np.searchsorted(first, to, side="left"), start)
        count = stop - start
        stretch = np.repeat(np.arange(n), count)
        segment = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + start[stretch]
        ref, lo, hi = self.ranges.ref[segment], self.ranges.lo[segment], self.ranges.hi[segment]
        low = np.maximum(lo, (begin[stretch] - ref) / MICROSECONDS)
        high = np.minimum(hi, (end[stretch] - ref) / MICROSECONDS)
        keep = (high - low > self.tolerance[segment]) | ((high > low) & (low == lo) & (high == hi))
        order = np.lexsort((stretch[keep], segment[keep]))
        return Pairs(segment[keep][order], stretch[keep][order], low[keep][order], high[keep][order])

    def ending_at(self, key: IntArray, time: IntArray) -> IntArray:
        """Return the range that ends at each instant, or -1."""
        return self._meeting(key, time, self.ranges.hi)

    def beginning_at(self, key: IntArray, time: IntArray) -> IntArray:
        """Return the range that begins at each instant, or -1."""
        return self._meeting(key, time, self.ranges.lo)

    def covering(self, key: IntArray, time: IntArray) -> IntArray:
        """Return the range that contains each instant, or -1."""
        begin = first_microsecond(self.ranges.ref, self.ranges.lo)
        end = first_microsecond(self.ranges.ref, self.ranges.hi)
        n, m = len(key), len(self.ranges)
        ids = dense(np.concatenate([key, self.key, self.key]), np.concatenate([time, begin, end]))
        at, first, last = np.split(ids, [n, n + m])
        row = np.searchsorted(first, at, side="right") - 1
        inside = (row >= 0) & (last[np.maximum(row, 0)] > at) if m else np.zeros(n, dtype=bool)
        return np.where(inside, row, -1)

    def _meeting(self, key: IntArray, time: IntArray, offset: FloatArray) -> IntArray:
        whole, rest = split(self.ranges.ref, offset)
        meets = np.abs(rest) <= self.tolerance
        ids = dense(np.concatenate([key, self.key]), np.concatenate([time, whole]))
        row_of = np.full(int(ids.max(initial=-1)) + 1, -1)
        row_of[ids[len(key) :][meets]] = np.flatnonzero(meets)
        found: IntArray = row_of[ids[: len(key)]]
        return found

    def points_at(self, key: IntArray, time: IntArray) -> BoolArray:
        """Return which points lie at one of the instants."""
        whole, _ = split(self.points.ref, self.points.lo)
        ids = dense(np.concatenate([key, self.point_key]), np.concatenate([time, whole]))
        return np.isin(ids[len(key) :], ids[: len(key)])


def key_codes(columns: list[pa.Array], n: int, corrected: Corrected) -> IntArray:
    """Encode keys of other rows with the codes of the tuples' keys; -1 for unknown keys."""
    if not columns:
        return np.zeros(n, dtype=np.int64)
    code, row = np.unique(corrected.key, return_index=True)
    known = corrected.both.select(range(len(columns))).take(pa.array(row))
    joint: list[Any] = []
    for i, column in enumerate(columns):
        mine = known.column(i).combine_chunks()
        joint.append(pa.concat_arrays([mine, column.cast(mine.type)]))
    ranks = key_ranks(joint, len(code) + n)
    of_rank = np.full(int(ranks.max(initial=-1)) + 1, -1)
    of_rank[ranks[: len(code)]] = code
    found: IntArray = of_rank[ranks[len(code) :]]
    return found
