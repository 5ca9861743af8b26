"""Hold the recent history of an arc in memory, by key, for replay and correction: a connection point (semantics 7.3).

Keys have **codes**, numbers in the order of first appearance. Finding rows takes O(log n) per region, correcting O(rows of the
key). A revision is first computed against the held rows (:meth:`ConnectionPoint.replacement_delta`) and committed when all
operators are done (:meth:`ConnectionPoint.commit`): one that fails on its way changes nothing. Operators see the content before
and after the revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST, format_duration, format_instant
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.incremental.arrangement_buffers import KeyBuffers
from pulse.operators.incremental.arrangement_splice import Hulls
from pulse.operators.incremental.delta import (
    END_MARGIN,
    BeforeAfter,
    Changed,
    Delta,
    KeyRanges,
    concat_ranges,
    hull,
    keys_at,
    nothing,
)

_MANY = 8  # keys are many if there are no more than so many others for each
_SHORTER = 16  # microseconds of extra history, since reads request a little more than they need


class HistoryDroppedError(PulseError, LookupError):
    """Rows are needed that are no longer kept."""


class RevisionError(PulseError, ValueError):
    """A revision that does not match its regions or streams."""


class ConnectionPoint:
    """The rows of an arc, at rest, by key and time.

    ``keep``: the history kept, in microseconds before the watermark of :meth:`advance`; None for all.
    """

    def __init__(self, relation: Relation, *, keep: int | None = None, in_order: bool = False) -> None:
        # With in_order, groups keep the codes 0, 1, …, also those without rows.
        merged = relation if in_order else relation.without_empty_groups().merged()
        self.columns, self.keep, self.since = relation.columns, keep, EARLIEST
        self.keys: tuple[pa.Array, ...] = merged.keys
        self._codes: dict[tuple[Any, ...], int] = {}
        self._codes.update((key, code) for code, key in enumerate(_tuples(merged.keys, merged.groups)))
        self._rows = KeyBuffers(merged)
        self._pending: Delta | None = None
        if not merged.keys and not self._codes:
            self._codes[()] = 0
            self._rows.add_keys(1)

    def __len__(self) -> int:
        return int((self._rows.stop - self._rows.begin).sum())

    @property
    def groups(self) -> int:
        """Return the number of keys with codes."""
        return len(self._codes)

    def codes(self, keys: Sequence[pa.Array], n: int, *, add: bool = False) -> IntArray:
        """Return the codes of keys given as columns; -1 for unknown keys, unless ``add`` gives them codes."""
        found = self._found(keys, n)
        missing = np.flatnonzero(found < 0)
        if add and len(missing):
            known, index = self._codes, pa.array(missing)
            named = _tuples([column.take(index) for column in keys], len(missing))
            first, fresh = len(known), dict.fromkeys(named)
            known.update((key, first + i) for i, key in enumerate(fresh))
            self._rows.add_keys(len(fresh))
            columns = zip(*fresh, strict=True)
            self.keys = tuple(
                pa.concat_arrays([old, pa.array(list(values), old.type)])
                for old, values in zip(self.keys, columns, strict=True)
            )
            found[missing] = [known[key] for key in named]
        return found

    def _found(self, keys: Sequence[pa.Array], n: int) -> IntArray:
        """Return the codes of keys, -1 for unknown ones: many by a hash of all keys, few by the dictionary of codes."""
        if len(keys) == 1 and _MANY * n > self.groups:
            found = pc.index_in(keys[0].cast(self.keys[0].type), value_set=self.keys[0])
            return np.array(found.fill_null(-1), np.int64)
        return np.array([self._codes.get(key, -1) for key in _tuples(keys, n)], np.int64)

    # -- reading --------------------------------------------------------------------------------------------

    def count(self, stretches: KeyRanges) -> IntArray:
        """Count the rows that overlap each stretch."""
        places = self._locate(stretches)
        counts: IntArray = places[:, 1] - places[:, 0]
        return counts

    def middle(self) -> tuple[int, int]:
        """Return the code with most rows, and an instant in the middle of them; the point must have rows."""
        rows = self._rows
        code = int(np.argmax(rows.stop - rows.begin))
        return code, int(rows.data["start"][(rows.begin[code] + rows.stop[code]) // 2])

    def read(self, regions: Regions) -> Relation:
        """Read the rows that overlap the regions, whole; a group per region, in their order, empty for unknown keys."""
        code = self.codes(regions.keys, len(regions))
        known = np.flatnonzero(code >= 0)
        self._check(regions.start)
        places = np.zeros((len(code), 2), np.int64)
        places[known] = self._locate(KeyRanges(code, regions.start, regions.end).take(known))
        rows, offsets = concat_ranges(places)
        return self._rows.take(rows, regions.keys, offsets)

    def content(self, stretches: KeyRanges, wanted: BoolArray | None = None) -> BeforeAfter:
        """Return the rows around stretches before and after the pending revision; none for codes that are not ``wanted``."""
        self._check(stretches.start, END_MARGIN)
        places = self._locate(stretches)
        if wanted is not None:
            places[~wanted[stretches.code]] = 0
        keys = self._keys_of(stretches.code)
        rows, offsets = concat_ranges(places)
        held = self._rows.take(rows, keys, offsets)
        every = np.arange(len(stretches))
        delta = self._pending
        if delta is None or not len(delta):
            return BeforeAfter(stretches, held, every, every)
        revised, first, last = _overlapping(stretches, delta.stretches)
        if wanted is not None:
            revised = revised[wanted[stretches.code[revised]]]
        if not len(revised):
            return BeforeAfter(stretches, held, every, every)
        found = BeforeAfter(stretches, held, every, every)
        return _with_revised(found, delta, places, (revised, first, last))

    def everything(self) -> Relation:
        """Return all rows, by key."""
        rows, offsets = concat_ranges(np.stack([self._rows.begin, self._rows.stop], axis=1))
        return self._rows.take(rows, self.keys, offsets).without_empty_groups().merged()

    def _keys_of(self, codes: IntArray) -> tuple[pa.Array, ...]:
        return keys_at(self.keys, codes)

    def _locate(self, stretches: KeyRanges) -> IntArray:
        rows = self._rows
        spans = np.empty((len(stretches), 2), np.int64)
        spans[:, 0], spans[:, 1] = rows.begin[stretches.code], rows.stop[stretches.code]
        ranges = np.empty((len(stretches), 2), np.int64)
        ranges[:, 0], ranges[:, 1] = stretches.start, stretches.end
        return locate(rows.data["start"], rows.data["end"], spans, ranges)

    def _check(self, start: IntArray, grace: int = 0) -> None:
        """Raise if dropped history is requested; ``grace`` of the request is a safety margin only."""
        needed = int(start.min()) + grace if len(start) else self.since
        if needed + _SHORTER * (grace > 0) < self.since:
            raise HistoryDroppedError(
                f"connection point: history from {format_instant(needed)} on is needed, but it is kept only from "
                f"{format_instant(self.since)} on, {format_duration(self.since - needed)} too short; keep more of it"
            )

    # -- correcting -----------------------------------------------------------------------------------------

    def correct(self, changed: Changed) -> Delta:
        """Apply a revision and return its delta. The held rows prevail where they differ from the revision's old rows."""
        delta = self.pend(changed)
        self.commit()
        return delta

    def pend(self, changed: Changed) -> Delta:
        """Compute a revision's delta and make it visible to :meth:`content`, without committing it."""
        regions = changed.regions
        self._check(regions.start)
        code = self.codes(regions.keys, len(regions), add=True)
        old, new = (self._by_region(one, regions, code) for one in (changed.old, changed.new))
        some = np.flatnonzero((np.diff(old.offsets) > 0) | (np.diff(new.offsets) > 0))
        if len(some) < len(code):
            code, old, new = code[some], old.select_groups(some), new.select_groups(some)
        delta = self.replacement_delta(code, old, new)
        self._pending = delta
        return delta

    def _by_region(self, relation: Relation, regions: Regions, code: IntArray) -> Relation:
        """Regroup a relation's rows, a group per region."""
        if len(regions) == 1 and relation.groups == 1:
            return replace(relation, keys=tuple(regions.keys))
        own = self.codes(relation.keys, relation.groups, add=True)
        start, end = extents(relation)
        time, of_row = (start + end) // 2, own[relation.group]
        n, m = len(regions), len(relation)
        order = np.lexsort(
            (
                np.repeat([0, 1], [n, m]),
                np.concatenate([regions.start, time]),
                np.concatenate([code, of_row]),
            )
        )
        region = np.maximum.accumulate(np.where(order < n, np.arange(n + m), 0))
        region = order[region]  # the last region before each row, in this order
        rows, found = order[order >= n] - n, region[order >= n]
        at = np.minimum(found, n - 1)
        within = (found < n) & (code[at] == of_row[rows]) & (time[rows] < regions.end[at])
        if not within.all():
            where = relation.where(int(rows[within.argmin()]))
            raise RevisionError(
                f"revision: {where} lies outside the revision's regions; give a region that contains it"
            )
        by = np.argsort(found, kind="stable")
        offsets = np.searchsorted(found[by], np.arange(n + 1))
        return relation._pick(rows[by], tuple(regions.keys), offsets)

    def propose(self, delta: Delta) -> Delta:
        """Compute and show the delta of an operator's output change, like :meth:`pend`."""
        found = self.replacement_delta(delta.stretches.code, delta.old_rows, delta.new_rows)
        self._pending = found
        return found

    def pend_nothing(self) -> None:
        """Set an empty pending revision."""
        self._pending = nothing(self.columns)

    @property
    def pending(self) -> Delta:
        """Return the pending revision."""
        assert self._pending is not None
        return self._pending

    def drop(self) -> None:
        """Discard the pending revision."""
        self._pending = None

    def commit(self) -> None:
        """Apply the pending revision to the held rows."""
        delta, self._pending = self._pending, None
        if delta is None or not len(delta):
            return
        assert delta.held is not None
        fresh = self._rows.numbers(delta.new_rows)
        sizes = np.concatenate([[0], np.cumsum(delta.new[:, 1] - delta.new[:, 0])]).tolist()
        held, code = delta.held.tolist(), delta.stretches.code
        cuts = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(code)]
        for i, j in pairwise(cuts):
            pieces: list[tuple[dict[str, Any] | None, int, int]] = [(None, held[i][0], held[i][0])]
            for k in range(i, j):
                pieces.append((None, pieces[-1][2] if k == i else held[k - 1][1], held[k][0]))
                pieces.append((fresh, sizes[k], sizes[k + 1]))
            pieces.append((None, held[j - 1][1], held[j - 1][1]))
            self._rows.splice(int(code[i]), pieces)

    def advance(self, watermark: int) -> None:
        """Drop rows that ended more than ``keep`` before the watermark."""
        if self.keep is None or watermark - self.keep <= self.since:
            return
        self.since = watermark - self.keep
        n = self.groups
        oldest = np.full(n, self.since - _SHORTER, np.int64)
        ever = KeyRanges(np.arange(n), oldest, np.full(n, LATEST))
        self._rows.begin = self._locate(ever)[:, 0].copy()

    def replacement_delta(self, code: IntArray, old: Relation, new: Relation) -> Delta:
        """Compute the delta that replaces ``old`` by ``new``, a group each per code, in terms of the held rows.

        Held rows within the time of either are withdrawn; one that extends beyond it is cut, and the rest stays as a row.
        """
        hulls = Hulls.of(old, new)
        if len(code) > 1:
            order = np.lexsort((*hulls.order, code))
            code, new, hulls = code[order], new.select_groups(order), hulls.take(order)
        data = self._rows.data
        places = hulls.trimmed(self._locate(KeyRanges(code, *hulls.around)), data)
        cuts = hulls.cuts(places, data, code)
        new = like(new, self.columns, self._keys_of(code))
        if cuts is not None:
            shared = cuts.shared
            new = cuts.pieces(self._rows.take, new, places)
            code, places = code[~shared], np.stack([places[~shared, 0], places[cuts.last, 1]], axis=1)
        rows, offsets = concat_ranges(places)
        held = self._rows.take(rows, self._keys_of(code), offsets)
        whole = Relation.concat([held, new])
        was = np.stack([offsets[:-1], offsets[1:]], axis=1)
        now = np.stack([new.offsets[:-1], new.offsets[1:]], axis=1) + len(held)
        start, end = hull(whole, was, now)
        return Delta(KeyRanges(code, start, end), whole, was, now, places)


def _tuples(keys: Sequence[pa.Array], n: int) -> list[tuple[Any, ...]]:
    """Convert keys to tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in keys), strict=True)) if keys else [()] * n


def _with_revised(
    found: BeforeAfter, delta: Delta, places: IntArray, near: tuple[IntArray, IntArray, IntArray]
) -> BeforeAfter:
    """Append to the content of held rows, at ``places``, the groups after the revision of the stretches revised by ``near``.

    New rows, like held ones, are those that overlap a stretch: a row that stays is in both, or in neither.
    """
    assert delta.held is not None
    held, stretches = found.relation, found.stretches
    revised, first, last = near
    of = np.repeat(revised, last[revised] - first[revised])
    concerned, _ = concat_ranges(np.stack([first[revised], last[revised]], axis=1))
    times = np.stack([stretches.start[of], stretches.end[of]], axis=1)
    fresh = iter((locate(*extents(delta.relation), delta.new[concerned], times) + len(held)).tolist())
    withdrawn = iter(delta.held[concerned].tolist())
    ranges: list[tuple[int, int]] = []
    sizes = []
    for s in revised.tolist():
        at, end = int(places[s, 0]), int(places[s, 1])
        shift = int(held.offsets[s]) - at
        before = len(ranges)
        for _ in range(first[s], last[s]):
            gone, stays = next(withdrawn)
            if gone > at:
                ranges.append((at + shift, min(gone, end) + shift))
            begin, stop = next(fresh)
            ranges.append((begin, stop))
            at = max(at, stays)
        if end > at:
            ranges.append((at + shift, end + shift))
        sizes.append(sum(b - a for a, b in ranges[before:]))
    more, _ = concat_ranges(np.array(ranges, np.int64).reshape(-1, 2))
    again = zip(held.keys, keys_at(held.keys, revised), strict=True)
    made = Relation.concat([held, delta.relation])._pick(
        np.concatenate([np.arange(len(held)), more]),
        tuple(pa.concat_arrays(pair) for pair in again),
        np.concatenate([held.offsets, len(held) + np.cumsum(sizes)]),
    )
    after = found.after.copy()
    after[revised] = len(stretches) + np.arange(len(revised))
    return BeforeAfter(stretches, made, found.before, after)


def _overlapping(stretches: KeyRanges, others: KeyRanges) -> tuple[IntArray, IntArray, IntArray]:
    """Return the stretches that ``others`` (ascending, disjoint) overlap; per stretch the first of them and one past the last."""
    starts = np.searchsorted(others.code, stretches.code, "left")
    ends = np.searchsorted(others.code, stretches.code, "right")
    spans = np.stack([starts, ends], axis=1)
    found = locate(others.start, others.end, spans, np.stack([stretches.start, stretches.end], axis=1))
    return np.flatnonzero(found[:, 1] > found[:, 0]), found[:, 0], found[:, 1]


def like(relation: Relation, columns: Columns, keys: tuple[pa.Array, ...]) -> Relation:
    """Give the rows all attributes of ``columns``: missing drift becomes infinite."""
    given = relation.drift
    drift = {
        name: given[name] if name in given else np.full(len(relation), np.inf) for name in columns.modelled
    }
    return replace(relation, columns=columns, keys=keys, drift=drift, lineage=None)
