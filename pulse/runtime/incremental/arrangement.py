"""Connection points: the recent history of an arc in memory, by key, from which it is replayed and which revisions correct (7.3).

A point knows its keys by **codes**, numbers in the order in which they were met. Finding rows is O(log n) a region,
correcting is O(rows of the key). A revision is first worked out against what the point holds
(:meth:`ConnectionPoint.exchanged`) and put in place when all operators are done (:meth:`ConnectionPoint.commit`): one that
fails on its way leaves everything as it was.
Operators see the content as it is after the revision, beside what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.regions import EARLIEST, Regions
from pulse.core.time import format_duration, format_instant
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.runtime.incremental.arrangement_buffers import KeyBuffers
from pulse.runtime.incremental.arrangement_splice import Hulls
from pulse.runtime.incremental.delta import (
    GRACE,
    BeforeAfter,
    Changed,
    Delta,
    KeyRanges,
    concat_ranges,
    extents,
    hull,
    keys_at,
)
from pulse.store.errors import HistoryGoneError

_SHORTER = 16  # microseconds that rows are kept longer than is promised: reading asks for a little more than is needed


class RevisionError(PulseError, ValueError):
    """A revision that does not say what it is about."""


class ConnectionPoint:
    """The rows of an arc, at rest, by key and time.

    ``keep`` is how much is kept, in microseconds before the watermark that :meth:`advance` is told; None for all.
    """

    def __init__(self, relation: Relation, *, keep: int | None = None, in_order: bool = False) -> None:
        # In order, groups have the codes 0, 1, … as they are, also those without rows.
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
        """How many keys were met."""
        return len(self._codes)

    def codes(self, keys: Sequence[pa.Array], n: int, *, add: bool = False) -> IntArray:
        """The codes of keys given as columns; -1 where one is not known, unless it is to be added."""
        known = self._codes
        found = [known.get(key, -1) for key in _tuples(keys, n)]
        if add and -1 in found:
            fresh = dict.fromkeys(
                key for key, code in zip(_tuples(keys, n), found, strict=True) if code == -1
            )
            first = len(known)
            known.update((key, first + i) for i, key in enumerate(fresh))
            self._rows.add_keys(len(fresh))
            columns = zip(*fresh, strict=True)
            self.keys = tuple(
                pa.concat_arrays([old, pa.array(list(values), old.type)])
                for old, values in zip(self.keys, columns, strict=True)
            )
            found = [known[key] for key in _tuples(keys, n)]
        return np.array(found, np.int64)

    # -- reading --------------------------------------------------------------------------------------------

    def count(self, stretches: KeyRanges) -> IntArray:
        """How many rows overlap each stretch."""
        places = self._locate(stretches)
        counts: IntArray = places[:, 1] - places[:, 0]
        return counts

    def middle(self) -> tuple[int, int]:
        """The code with most rows, and an instant in the middle of them; there are rows."""
        rows = self._rows
        code = int(np.argmax(rows.stop - rows.begin))
        return code, int(rows.data["start"][(rows.begin[code] + rows.stop[code]) // 2])

    def read(self, regions: Regions) -> Relation:
        """The rows that overlap the regions, whole; a group for each region, in their order. Unknown keys have none."""
        code = self.codes(regions.keys, len(regions))
        known = np.flatnonzero(code >= 0)
        self._check(regions.start)
        places = np.zeros((len(code), 2), np.int64)
        places[known] = self._locate(KeyRanges(code, regions.start, regions.end).take(known))
        rows, offsets = concat_ranges(places)
        return self._rows.take(rows, regions.keys, offsets)

    def content(self, stretches: KeyRanges, wanted: BoolArray | None = None) -> BeforeAfter:
        """What there is around stretches before and after the pending revision; of codes that are not ``wanted``, nothing."""
        self._check(stretches.start, GRACE)
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
        """All rows, by key."""
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
        """That nothing is asked for that is gone; ``grace`` of it was asked for to be safe only."""
        needed = int(start.min()) + grace if len(start) else self.since
        if needed + _SHORTER * (grace > 0) < self.since:
            raise HistoryGoneError(
                f"connection point: history from {format_instant(needed)} on is needed, but it is kept only from "
                f"{format_instant(self.since)} on, {format_duration(self.since - needed)} too short; keep more of it"
            )

    # -- correcting -----------------------------------------------------------------------------------------

    def correct(self, changed: Changed) -> Delta:
        """Take a revision in: what it changed. What is held rules where it differs from what the revision says was old."""
        delta = self.pend(changed)
        self.commit()
        return delta

    def pend(self, changed: Changed) -> Delta:
        """Work a revision out and show it to who reads the content; nothing is put in place yet."""
        regions = changed.regions
        self._check(regions.start)
        code = self.codes(regions.keys, len(regions), add=True)
        old, new = (self._by_region(one, regions, code) for one in (changed.old, changed.new))
        some = np.flatnonzero((np.diff(old.offsets) > 0) | (np.diff(new.offsets) > 0))
        if len(some) < len(code):
            code, old, new = code[some], old.select_groups(some), new.select_groups(some)
        delta = self.exchanged(code, old, new)
        self._pending = delta
        return delta

    def _by_region(self, relation: Relation, regions: Regions, code: IntArray) -> Relation:
        """The rows of a relation, a group for each region."""
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
            raise RevisionError(f"revision: {where} lies in none of the regions that it is said to be of")
        by = np.argsort(found, kind="stable")
        offsets = np.searchsorted(found[by], np.arange(n + 1))
        return relation._pick(rows[by], tuple(regions.keys), offsets)

    def propose(self, delta: Delta) -> Delta:
        """As :meth:`pend`, for what an operator says changed on its output."""
        found = self.exchanged(delta.stretches.code, delta.old_rows, delta.new_rows)
        self._pending = found
        return found

    def pend_nothing(self) -> None:
        """Nothing of this arc is revised."""
        none, ranges = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
        self._pending = Delta(
            KeyRanges(none, none, none), Relation.empty(self.columns), ranges, ranges, ranges
        )

    @property
    def pending(self) -> Delta:
        """The revision that is being worked on."""
        assert self._pending is not None
        return self._pending

    def drop(self) -> None:
        """Forget the pending revision."""
        self._pending = None

    def commit(self) -> None:
        """Put the pending revision in place."""
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
        """Forget what ended more than ``keep`` before the watermark."""
        if self.keep is None or watermark - self.keep <= self.since:
            return
        self.since = watermark - self.keep
        n = self.groups
        oldest = np.full(n, self.since - _SHORTER, np.int64)
        ever = KeyRanges(np.arange(n), oldest, np.full(n, 1 << 62))
        self._rows.begin = self._locate(ever)[:, 0].copy()

    def exchanged(self, code: IntArray, old: Relation, new: Relation) -> Delta:
        """The delta that puts ``new`` where ``old`` was, a group each for every code given, in terms of the rows held.

        The held rows that lie in the time of either give way; one that reaches beyond it is cut, and the rest stays as a row.
        """
        hulls = Hulls.of(old, new)
        if len(code) > 1:
            order = np.lexsort((*hulls.order, code))
            code, new, hulls = code[order], new.select_groups(order), hulls.take(order)
        data = self._rows.data
        places = hulls.trimmed(self._locate(KeyRanges(code, *hulls.around)), data)
        cuts = hulls.cuts(places, data, code)
        new = _like(new, self.columns, self._keys_of(code))
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
    """Keys as tuples of plain values."""
    return list(zip(*(column.to_pylist() for column in keys), strict=True)) if keys else [()] * n


def _with_revised(
    found: BeforeAfter, delta: Delta, places: IntArray, near: tuple[IntArray, IntArray, IntArray]
) -> BeforeAfter:
    """The content of held rows, which lie at ``places``, and after it that of the stretches which ``near`` says are revised.

    Of the new rows, as of those held, the ones that overlap a stretch: a row that stayed is in both, or in neither.
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
    """Which stretches others (ascending, apart) come near; for every stretch the first of them and the one after the last."""
    starts = np.searchsorted(others.code, stretches.code, "left")
    ends = np.searchsorted(others.code, stretches.code, "right")
    spans = np.stack([starts, ends], axis=1)
    found = locate(others.start, others.end, spans, np.stack([stretches.start, stretches.end], axis=1))
    return np.flatnonzero(found[:, 1] > found[:, 0]), found[:, 0], found[:, 1]


def _like(relation: Relation, columns: Columns, keys: tuple[pa.Array, ...]) -> Relation:
    """The rows with all the attributes of ``columns``: drift that is not given is not known."""
    given = relation.drift
    drift = {
        name: given[name] if name in given else np.full(len(relation), np.inf) for name in columns.modelled
    }
    return replace(relation, columns=columns, keys=keys, drift=drift, lineage=None)
