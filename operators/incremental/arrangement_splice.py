"""Compute the exact time hull of old and new rows, and cut rows that extend beyond it.

Instants are (reference, offset) pairs: regions are whole microseconds, rows end where a line leaves its tube.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import ceil_microsecond, floor_microsecond, gaps, split, tolerances
from pulse.operators.data.relation import Relation

Data = Mapping[str, Any]


class Instants(NamedTuple):
    """Instants as pairs: whole microseconds, and seconds relative to them."""

    ref: IntArray
    offset: FloatArray

    def take(self, rows: IntArray | BoolArray) -> Instants:
        """Select instants."""
        return Instants(self.ref[rows], self.offset[rows])

    def before(self, other: Instants) -> BoolArray:
        """Return which lie before the others, by more than rounding."""
        found: BoolArray = gaps(*self, *other) > tolerances(*self, *other)
        return found


@dataclass(frozen=True)
class Hulls:
    """The ranges from the first start to the last end of each group's rows; ``closed`` where a point lies at the end."""

    begin: Instants
    end: Instants
    closed: BoolArray

    @classmethod
    def of(cls, old: Relation, new: Relation) -> Hulls:
        """Compute the hulls of two relations' groups together; each group must have a row in one of them."""
        has_old, has_new = np.diff(old.offsets) > 0, np.diff(new.offsets) > 0
        ends: list[Instants] = []
        for at, side in ((0, "lo"), (-1, "hi")):
            one, other = (
                _picked(relation, relation.offsets[:-1] if at == 0 else relation.offsets[1:] - 1, side)
                for relation in (old, new)
            )
            later = gaps(*one, *other) > 0.0
            first = has_old & (~has_new | (later if at == 0 else ~later))
            ends.append(
                Instants(np.where(first, one.ref, other.ref), np.where(first, one.offset, other.offset))
            )
        closed = np.zeros(len(has_old), bool)
        for relation, has in ((old, has_old), (new, has_new)):
            if len(relation):
                last = (relation.offsets[1:] - 1).clip(0)
                point = relation.lo[last] == relation.hi[last]
                closed |= has & point & ~Instants(relation.ref[last], relation.hi[last]).before(ends[1])
        return cls(ends[0], ends[1], closed)

    def take(self, rows: IntArray) -> Hulls:
        """Select hulls."""
        return Hulls(self.begin.take(rows), self.end.take(rows), self.closed[rows])

    @property
    def order(self) -> tuple[FloatArray, IntArray]:
        """Return sort keys for ``lexsort`` by begin."""
        whole, rest = split(*self.begin)
        return rest, whole

    @property
    def around(self) -> tuple[IntArray, IntArray]:
        """Return enclosing ranges in whole microseconds."""
        start = floor_microsecond(*self.begin) - 1
        return start, ceil_microsecond(*self.end) + 1

    def trimmed(self, places: IntArray, data: Data) -> IntArray:
        """Drop rows at ``places`` that only touch a hull: rounding to microseconds included them."""
        ref, lo, hi = data["ref"], data["lo"], data["hi"]
        for _ in range(4):  # at most two rows, besides points, are that near at either end
            some = places[:, 1] > places[:, 0]
            f, b = np.minimum(places[:, 0], len(ref) - 1), np.maximum(places[:, 1] - 1, 0)
            first, last = Instants(ref[f], lo[f]), Instants(ref[b], lo[b])
            point_f, point_b = lo[f] == hi[f], lo[b] == hi[b]
            off_f = ~self.begin.before(Instants(ref[f], hi[f])) & (~point_f | first.before(self.begin))
            off_b = ~last.before(self.end) & ~(point_b & self.closed & ~self.end.before(last))
            off_b &= ~off_f
            if not (some & (off_f | off_b)).any():
                break
            places[:, 0] += some & off_f
            places[:, 1] -= some & off_b
        return places

    def cuts(self, places: IntArray, data: Data, code: IntArray) -> Cuts | None:
        """Find rows that extend beyond their hull or lie in two hulls; None without any."""
        ref, lo, hi = data["ref"], data["lo"], data["hi"]
        some = places[:, 1] > places[:, 0]
        f, b = np.minimum(places[:, 0], len(ref) - 1), np.maximum(places[:, 1] - 1, 0)
        left = some & Instants(ref[f], lo[f]).before(self.begin)
        right = some & self.end.before(Instants(ref[b], hi[b]))
        shared = np.zeros(len(code), bool)
        shared[1:] = (code[1:] == code[:-1]) & (places[1:, 0] < places[:-1, 1])
        if not (left.any() or right.any() or shared.any()):
            return None
        return Cuts(self, left, right, shared)


@dataclass(frozen=True)
class Cuts:
    """Rows to cut. ``left``, ``right``: a hull's first, last row extends beyond it; ``shared``: its first row is also its
    predecessor's last."""

    hulls: Hulls
    left: BoolArray
    right: BoolArray
    shared: BoolArray

    @property
    def last(self) -> IntArray:
        """Return the last hull of each run of hulls that share rows."""
        return np.append(np.flatnonzero(~self.shared)[1:], len(self.shared)) - 1

    def pieces(self, take: Callable[..., Relation], new: Relation, places: IntArray) -> Relation:
        """Return new rows with the remainders of cut ones before, between and after; hulls that share rows are one group."""
        n = len(self.shared)
        every = np.arange(n + 1)
        rests = Relation.concat(
            [
                take(np.minimum(places[:, 0], np.maximum(places[:, 1] - 1, 0)), new.keys, every),
                take(np.maximum(places[:, 1] - 1, 0), new.keys, every),
                new,
            ]
        )
        lo, hi = rests.lo.copy(), rests.hi.copy()
        rows: list[int] = []
        offsets = [0]
        begin, end = self.hulls.begin, self.hulls.end
        for i in range(n):
            if self.shared[i]:
                offsets.pop()
            if self.left[i]:
                if self.shared[i]:
                    lo[i] = (int(end.ref[i - 1]) - int(rests.ref[i])) / 1e6 + end.offset[i - 1]
                hi[i] = (int(begin.ref[i]) - int(rests.ref[i])) / 1e6 + begin.offset[i]
                if hi[i] > lo[i]:
                    rows.append(i)
            rows += range(2 * n + int(new.offsets[i]), 2 * n + int(new.offsets[i + 1]))
            if self.right[i] and not (i + 1 < n and self.shared[i + 1]):
                lo[n + i] = (int(end.ref[i]) - int(rests.ref[n + i])) / 1e6 + end.offset[i]
                rows.append(n + i)
            offsets.append(len(rows))
        chosen = np.array(rows, np.int64)
        keys = tuple(column.filter(pa.array(~self.shared)) for column in new.keys)
        made = rests._pick(chosen, keys, np.array(offsets, np.int64))
        return replace(made, lo=lo[chosen], hi=hi[chosen])


def _picked(relation: Relation, rows: IntArray, side: str) -> Instants:
    """Return an end of these rows; arbitrary values for rows that do not exist."""
    if not len(relation):
        return Instants(np.zeros(len(rows), np.int64), np.zeros(len(rows)))
    at = rows.clip(0, len(relation) - 1)
    return Instants(relation.ref[at], getattr(relation, side)[at])
