"""Propagate deltas through unions and aggregates across keys, where several input keys make one output key.

A union gives the rows of all inputs; an aggregate needs all keys of a group where one of them changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.segment.order import Ranges, find_overlap, time_order
from pulse.operators.across.across import Across
from pulse.operators.data.relation import Relation
from pulse.operators.relational.union import overlap_error
from pulse.runtime.incremental.delta import (
    GRACE,
    BeforeAfter,
    Delta,
    KeyRanges,
    changed_apart,
    concat_ranges,
    extents,
)
from pulse.runtime.incremental.operators.base import STATELESS, UPSTREAM, IncrementalOperator

STRETCH = "#stretch"
"""A key column that separates stretches, and old and new, while groups are formed."""


class _Coded(IncrementalOperator):
    """An operator whose keys derive from its inputs' keys: codes go by value, in the order of first appearance."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._code: dict[tuple[Any, ...], int] = {}
        self._of: list[IntArray] = [np.zeros(0, np.int64) for _ in self.inputs]  # own code per input code

    def _columns(self, side: int) -> tuple[pa.Array, ...]:
        """Return the columns of an input's keys that form the own keys."""
        return self.inputs[side].keys()

    def own(self, side: int) -> IntArray:
        """Return the own codes of all codes of an input."""
        arc, known = self.inputs[side], self._code
        have, n = len(self._of[side]), arc.count()
        if have < n:
            columns = [column.slice(have).to_pylist() for column in self._columns(side)]
            rows = list(zip(*columns, strict=True)) if columns else [()] * (n - have)
            fresh = [known.setdefault(row, len(known)) for row in rows]
            self._of[side] = np.concatenate([self._of[side], np.array(fresh, np.int64)])
        return self._of[side]

    def keys(self) -> tuple[pa.Array, ...]:
        for side in range(len(self.inputs)):
            self.own(side)
        types = [type_ for _, type_ in self.node.columns.key]
        columns = list(zip(*self._code, strict=True)) if self._code else [()] * len(types)
        return tuple(pa.array(list(values), type_) for values, type_ in zip(columns, types, strict=True))

    def count(self) -> int:
        for side in range(len(self.inputs)):
            self.own(side)
        return len(self._code)

    def codes(self) -> IntArray:
        found = [self.own(side)[arc.codes()] for side, arc in enumerate(self.inputs)]
        return np.unique(np.concatenate(found))

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        self.count()
        rows = zip(*(column.to_pylist() for column in keys), strict=True) if keys else [()] * n
        return np.array([self._code[row] for row in rows], np.int64)

    def estimate(self, stretches: KeyRanges) -> IntArray:
        if self.point is not None:
            return super().estimate(stretches)
        total = np.zeros(len(stretches), np.int64)
        for side, arc in enumerate(self.inputs):
            requested, of = self._requested(side, stretches)
            np.add.at(total, of, arc.estimate(requested))
        return 2 * total

    def _requested(self, side: int, stretches: KeyRanges) -> tuple[KeyRanges, IntArray]:
        """Return the stretches of an input's keys behind own stretches, and the own stretch of each."""
        codes = self.inputs[side].codes()
        own = self.own(side)[codes]
        order = np.argsort(own, kind="stable")
        codes, own = codes[order], own[order]
        first, last = np.searchsorted(own, stretches.code), np.searchsorted(own, stretches.code, "right")
        at, offsets = concat_ranges(np.stack([first, last], axis=1))
        of = np.repeat(np.arange(len(stretches)), np.diff(offsets))
        return KeyRanges(codes[at], stretches.start[of], stretches.end[of]), of

    def _affected(self) -> KeyRanges:
        """Return the stretches in which an input changed, under own codes."""
        parts = []
        for side, arc in enumerate(self.inputs):
            assert arc.delta is not None
            parts.append(replace(arc.delta.stretches, code=self.own(side)[arc.delta.stretches.code]))
        code, start, end = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("code", "start", "end")
        )
        return KeyRanges(code, start, end).merged()

    def _changed(self, mode: str) -> Delta:
        revised = sum(len(arc.delta) for arc in self.inputs if arc.delta is not None)
        self.flow.modes[mode] = self.flow.modes.get(mode, 0) + revised
        affected = self._affected()
        if self.point is None:
            affected = affected.widened(*self.margin).merged()
        made, delta = changed_apart(self.replay, affected)
        if self.point is None:
            self.cache = made
        return delta


class IncrementalUnion(_Coded):
    """A union: the rows of all inputs. Its drift is unknown: each input counts it from its own start."""

    def change(self) -> Delta:
        return self._changed(STATELESS)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        n = len(stretches)
        relations: list[Relation] = []
        before: list[IntArray] = []
        after: list[IntArray] = []
        shift = 0
        for side, arc in enumerate(self.inputs):
            own = self.own(side)
            theirs = np.full(len(self._code), -1, np.int64)
            theirs[own] = np.arange(len(own))
            code = theirs[stretches.code]
            some = np.flatnonzero(code >= 0)
            mine = arc.content(KeyRanges(code[some], stretches.start[some], stretches.end[some]))
            relations.append(mine.relation)
            for into, groups in ((before, mine.before), (after, mine.after)):
                into.append(np.stack([some, groups + shift], axis=1))
            shift += mine.relation.groups
        whole = Relation.concat([replace(one, columns=self.node.columns) for one in relations])
        revised = np.zeros(n, bool)
        for old, new in zip(before, after, strict=True):
            revised[old[old[:, 1] != new[:, 1], 0]] = True
        again = np.flatnonzero(revised)
        place = np.arange(n)
        place[again] = n + np.arange(len(again))
        later = np.concatenate(after)
        later = later[revised[later[:, 0]]]
        later[:, 0] = place[later[:, 0]]
        made = self._combined(whole, np.concatenate([*before, later]), n + len(again), stretches, again)
        return BeforeAfter(stretches, made, np.arange(n), place)

    def _combined(
        self, whole: Relation, groups: IntArray, n: int, stretches: KeyRanges, again: IntArray
    ) -> Relation:
        """Combine groups ``groups[:, 1]`` into groups ``groups[:, 0]``, rows by time."""
        groups = groups[np.argsort(groups[:, 0], kind="stable")]
        old = whole.offsets
        rows, _ = concat_ranges(np.stack([old[groups[:, 1]], old[groups[:, 1] + 1]], axis=1))
        rank = np.repeat(groups[:, 0], old[groups[:, 1] + 1] - old[groups[:, 1]])
        order = time_order(Ranges(rank, whole.ref[rows], whole.lo[rows], whole.hi[rows]))
        rows = rows if order is None else rows[order]
        index = pa.array(np.concatenate([stretches.code, stretches.code[again]]))
        keys = tuple(column.take(index) for column in self.keys())
        made = whole._pick(rows, keys, np.searchsorted(rank, np.arange(n + 1)))
        overlap = find_overlap(Ranges(made.group, made.ref, made.lo, made.hi))
        if overlap is not None:
            raise overlap_error(made, overlap[1])
        return replace(made, drift={})


class IncrementalAcross(_Coded):
    """An aggregate across the keys of a group: all of them are needed where one changed."""

    node: Across

    def _columns(self, side: int) -> tuple[pa.Array, ...]:
        names = self.node.input.columns.key_names
        wanted = self.node.columns.key_names
        return tuple(
            column for name, column in zip(names, self.inputs[0].keys(), strict=True) if name in wanted
        )

    def change(self) -> Delta:
        return self._changed(UPSTREAM)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        found, of = self._members(stretches)
        if self.node.function in ("min", "max") and len(found.relation):
            # A row of an envelope is whole only if all rows that it may be part of are known over their full time.
            start, end = stretches.start.copy(), stretches.end.copy()
            first, last = extents(found.relation)
            for groups in (found.before, found.after):
                begin, stop = found.relation.offsets[groups], found.relation.offsets[groups + 1]
                some = np.flatnonzero(stop > begin)
                np.minimum.at(start, of[some], first[begin[some]])
                np.maximum.at(end, of[some], last[stop[some] - 1])
            stretches = KeyRanges(stretches.code, start, end).widened(GRACE, GRACE).merged()
            found, of = self._members(stretches)
        n = len(stretches)
        changed = np.zeros(n, bool)
        changed[of[found.before != found.after]] = True
        again = np.flatnonzero(changed)
        place = np.arange(n)
        place[again] = n + np.arange(len(again))
        later = np.flatnonzero(changed[of])
        groups = np.concatenate([found.before, found.after[later]])
        numbers = np.concatenate([of, place[of[later]]])
        return BeforeAfter(
            stretches, self._aggregated(found.relation, groups, numbers, n + len(again)), np.arange(n), place
        )

    def _members(self, stretches: KeyRanges) -> tuple[BeforeAfter, IntArray]:
        """Return the content of all keys of each stretch's group, and the stretch of each."""
        requested, of = self._requested(0, stretches)
        return self.inputs[0].content(requested), of

    def _aggregated(self, relation: Relation, groups: IntArray, numbers: IntArray, n: int) -> Relation:
        """Aggregate ``groups`` by their numbers: group ``i`` of the result is that of number ``i``."""
        columns = relation.columns
        chosen = relation.select_groups(groups)
        keyed = replace(
            chosen,
            columns=replace(columns, key=((STRETCH, pa.int64()), *columns.key)),
            keys=(pa.array(numbers), *chosen.keys),
        )
        node = replace(self.node, by=(STRETCH, *self.node.by))
        made = node.operator().segments(keyed)
        found = made.keys[0].to_numpy()
        # A number without results has a group without rows.
        counts = np.zeros(n, np.int64)
        counts[found] = np.diff(made.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        where = np.zeros(n, np.int64)
        where[found] = np.arange(len(found))
        keys = made.keys[1:]
        if len(found) < n:
            keys = tuple(column.take(pa.array(where)) for column in keys) if len(found) else keys
        elif not (np.diff(found) > 0).all():
            made = made.select_groups(np.argsort(found, kind="stable"))
            keys, offsets = made.keys[1:], made.offsets
        return replace(made, columns=self.node.columns, keys=keys, offsets=offsets)
