"""The segments a revision meets, in the order of the tuples' keys and of time, and which of them a stretch of time overlaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core import SegmentBatch
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import first_microsecond, split, tolerances
from pulse.core.keys import key_ranks
from pulse.kernels.instants import MICROSECONDS
from pulse.operators.refit.apply_revisions import Corrected, dense


class Pairs(NamedTuple):
    """A segment and a stretch that overlap, by segment and time; ``lo`` and ``hi``: what they share about its ref."""

    segment: IntArray
    stretch: IntArray
    lo: FloatArray
    hi: FloatArray


@dataclass(frozen=True, eq=False)
class SegmentIndex:
    """Segments of the keys at hand, by key and time; ``key`` their codes. Points stand apart from ranges."""

    ranges: SegmentBatch
    key: IntArray
    points: SegmentBatch
    point_key: IntArray

    @classmethod
    def of(cls, segments: SegmentBatch, corrected: Corrected) -> SegmentIndex:
        """Those of the keys that tuples or revisions speak of."""
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
        """The whole microsecond at or before each range's begin."""
        return self.ranges.ref + np.floor(self.ranges.lo * MICROSECONDS).astype(np.int64)

    @cached_property
    def end(self) -> IntArray:
        """The whole microsecond at or after each range's end."""
        return self.ranges.ref + np.ceil(self.ranges.hi * MICROSECONDS).astype(np.int64)

    @cached_property
    def tolerance(self) -> FloatArray:
        """How far a range may miss an instant and still meet it."""
        return tolerances(self.ranges.ref, self.ranges.lo, self.ranges.ref, self.ranges.hi)

    def pairs(self, key: IntArray, begin: IntArray, end: IntArray) -> Pairs:
        """Which ranges overlap which stretches (by key and time, apart), by more than the timeline's tolerance."""
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
        """The range that ends at each instant, or -1."""
        return self._meeting(key, time, self.ranges.hi)

    def beginning_at(self, key: IntArray, time: IntArray) -> IntArray:
        """The range that begins at each instant, or -1."""
        return self._meeting(key, time, self.ranges.lo)

    def covering(self, key: IntArray, time: IntArray) -> IntArray:
        """The range in which each instant lies, or -1."""
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
        """Which points lie at one of the instants."""
        whole, _ = split(self.points.ref, self.points.lo)
        ids = dense(np.concatenate([key, self.point_key]), np.concatenate([time, whole]))
        return np.isin(ids[len(key) :], ids[: len(key)])


def key_codes(columns: list[pa.Array], n: int, corrected: Corrected) -> IntArray:
    """Codes of other rows' keys among those of the tuples; -1 where theirs is none of them."""
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
