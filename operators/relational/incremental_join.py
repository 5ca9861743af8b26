"""Propagate deltas through a join: evaluate the pairs of a changed key where it changed.

A pair's results can change where either side did. There both sides are needed, before and after; rows of the unchanged side come
from its connection point or a replay. Pairs get codes on first use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.expression import TRUE
from pulse.kernels.pieces.align import Cells
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import DOWNSTREAM, UPSTREAM, IncrementalOperator
from pulse.operators.incremental.delta import (
    END_MARGIN,
    BeforeAfter,
    Delta,
    KeyRanges,
    extend_to_rows,
)
from pulse.operators.relational.equi_join import (
    all_pairs,
    common_cells,
    equal_pairs,
    joined,
    matching_pairs,
    named,
    split_condition,
)
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.proximity_join import PairJoin

if TYPE_CHECKING:
    from pulse.operators.relational.join import Join


class IncrementalJoin(IncrementalOperator):
    """A join: its codes are pairs of the inputs' codes."""

    node: Join

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._code: dict[tuple[int, int], int] = {}
        self._pairs: IntArray = np.zeros((0, 2), np.int64)
        self._assigned = (-1, -1)  # the inputs' numbers of codes when all pairs got theirs
        self._matched = (-1, -1)  # the inputs' numbers of codes when equal keys were matched
        self._partners: tuple[IntArray, IntArray] = (np.zeros(0, np.int64),) * 2
        self._keys_only, self._rest = (
            (TRUE, self.node.condition)
            if self.node.equal
            else split_condition(self.node.condition, self.node.left.columns, self.node.right.columns)
        )

    # -- keys -----------------------------------------------------------------------------------------------

    def keys(self) -> tuple[pa.Array, ...]:
        of_left, of_right = (pa.array(np.ascontiguousarray(self._pairs[:, side])) for side in (0, 1))
        left, right = (arc.keys() for arc in self.inputs)
        return (*(key.take(of_left) for key in left), *(key.take(of_right) for key in right))

    def count(self) -> int:
        return len(self._pairs)

    def codes(self) -> IntArray:
        left, right = (arc.bare() for arc in self.inputs)
        if self.node.equal:
            pairs = self._equal()
        else:
            pairs = all_pairs(left, right)
            pairs = pairs if self._keys_only == TRUE else matching_pairs(left, right, pairs, self._keys_only)
        some = [np.isin(pairs[:, side], arc.codes()) for side, arc in enumerate(self.inputs)]
        return self.codes_of_pairs(pairs[some[0] & some[1]])

    def assign_codes(self) -> None:
        super().assign_codes()
        counts = self.inputs[0].count(), self.inputs[1].count()
        if counts != self._assigned:
            self.codes()
            self._assigned = counts

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        cut = len(self.node.left.columns.key)
        left, right = self.inputs
        return self.codes_of_pairs(
            np.stack([left.codes_of(keys[:cut], n), right.codes_of(keys[cut:], n)], axis=1)
        )

    def codes_of_pairs(self, pairs: IntArray) -> IntArray:
        """Return the codes of pairs ``(P, 2)`` of both sides' codes, adding new ones."""
        known = self._code
        before = len(known)
        found = [known.setdefault(pair, len(known)) for pair in map(tuple, pairs.tolist())]
        if len(known) > before:
            fresh = np.array(list(known)[before:], np.int64).reshape(-1, 2)
            self._pairs = np.concatenate([self._pairs, fresh])
        return np.array(found, np.int64)

    def _equal(self) -> IntArray:
        """Return all pairs with equal keys, ordered by the left."""
        for arc in self.inputs:
            arc.assign_codes()
        counts = self.inputs[0].count(), self.inputs[1].count()
        if counts != self._matched:
            pairs = equal_pairs(self.inputs[0].bare(), self.inputs[1].bare(), self.node.equal)
            self._matched = counts
            self._partners = pairs, pairs[np.argsort(pairs[:, 1], kind="stable")]
        return self._partners[0]

    # -- rows -----------------------------------------------------------------------------------------------

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        return self._evaluated(stretches)

    def estimate(self, stretches: KeyRanges) -> IntArray:
        if self.point is not None:
            return super().estimate(stretches)
        wide = stretches.widened(*self.node.reach)
        sides = [
            arc.estimate(replace(wide, code=self._pairs[wide.code, side]))
            for side, arc in enumerate(self.inputs)
        ]
        return 2 * (sides[0] + sides[1])

    def change(self) -> Delta:
        found = []
        for side, arc in enumerate(self.inputs):
            assert arc.delta is not None
            if len(arc.delta):
                pairs, of = self._partnered(side, arc.delta)
                widened = arc.delta.stretches.take(of).widened(*self.node.reach)
                found.append(KeyRanges(self.codes_of_pairs(pairs), widened.start, widened.end))
        mode = DOWNSTREAM if all(arc.point is not None for arc in self.inputs) else UPSTREAM
        self.count_mode(mode, self.revised)
        return self.evaluated_again(KeyRanges.concat(found).merged(), self._evaluated)

    def _partnered(self, side: int, delta: Delta) -> tuple[IntArray, IntArray]:
        """Return the pairs that changed stretches of a side take part in, and the stretch of each."""
        if self.node.equal:
            self._equal()
            table = self._partners[side]
            first = np.searchsorted(table[:, side], delta.stretches.code)
            last = np.searchsorted(table[:, side], delta.stretches.code, "right")
            counts = last - first
            of = np.repeat(np.arange(len(delta)), counts)
            at = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of]
            return table[at], of
        if self.node.near is None:
            return self._by_condition(side, delta)
        return self._near(side, delta)

    def _by_condition(self, side: int, delta: Delta) -> tuple[IntArray, IntArray]:
        others = self.inputs[1 - side].codes()
        n = len(delta)
        of = np.repeat(np.arange(n), len(others))
        pairs = np.empty((len(of), 2), np.int64)
        pairs[:, side], pairs[:, 1 - side] = delta.stretches.code[of], np.tile(others, n)
        if self._keys_only == TRUE:
            return pairs, of
        left, right = (arc.bare() for arc in self.inputs)
        known = matching_pairs(left, right, np.unique(pairs, axis=0), self._keys_only)
        width = self.inputs[1].count() + 1
        kept = np.isin(pairs[:, 0] * width + pairs[:, 1], known[:, 0] * width + known[:, 1])
        return pairs[kept], of[kept]

    def _near(self, side: int, delta: Delta) -> tuple[IntArray, IntArray]:
        """Return the partners that come near around a changed stretch, before or after: within its window."""
        assert self.node.near is not None
        window = self.node.reach.after + END_MARGIN
        wide = delta.stretches.widened(window, window)
        mine = self.inputs[side].content(wide)
        others = self.inputs[1 - side].codes()
        n = len(delta)
        of_other = np.repeat(np.arange(n), len(others))
        requested = KeyRanges(np.tile(others, n), wide.start[of_other], wide.end[of_other])
        theirs = self.inputs[1 - side].content(requested)
        stretch_mine = np.empty(mine.relation.groups, np.int64)
        for groups in (mine.before, mine.after):
            stretch_mine[groups] = np.arange(n)
        stretch_theirs = np.empty(theirs.relation.groups, np.int64)
        code_theirs = np.empty(theirs.relation.groups, np.int64)
        for groups in (theirs.before, theirs.after):
            stretch_theirs[groups], code_theirs[groups] = of_other, requested.code
        sides = (
            (mine.relation, theirs.relation, stretch_mine, stretch_theirs),
            (theirs.relation, mine.relation, stretch_theirs, stretch_mine),
        )
        left, right, of_left, of_right = sides[side]
        operator = PairJoin(self.node.nearness(left, right), self.node.condition, self.node.columns)
        near = operator.pairs(left, right)
        near = near[of_left[near[:, 0]] == of_right[near[:, 1]]]
        of = of_left[near[:, 0]]
        pairs = np.empty_like(near)
        pairs[:, side], pairs[:, 1 - side] = delta.stretches.code[of], code_theirs[near[:, 1 - side]]
        both = np.unique(np.column_stack([pairs, of]), axis=0)
        return both[:, :2], both[:, 2]

    def _evaluated(self, stretches: KeyRanges) -> BeforeAfter:
        window = self.node.reach.after
        if window:
            # The kept part of a row depends on the window around it, so the stretches are extended to whole rows first.
            stretches = (
                self._around_rows(stretches).widened(window + END_MARGIN, window + END_MARGIN).merged()
            )
        sides = []
        for side, arc in enumerate(self.inputs):
            requested = np.column_stack([self._pairs[stretches.code, side], stretches.start, stretches.end])
            place = np.arange(len(requested))
            if len(requested) > 1:
                requested, place = np.unique(requested, axis=0, return_inverse=True)
                place = place.reshape(-1)
            mine = arc.content(KeyRanges(*(np.ascontiguousarray(requested[:, i]) for i in range(3))))
            sides.append((mine.relation, mine.before[place], mine.after[place]))
        (left, before_left, after_left), (right, before_right, after_right) = sides
        revised = np.flatnonzero((before_left != after_left) | (before_right != after_right))
        n = len(stretches)
        pairs = np.empty((n + len(revised), 2), np.int64)
        pairs[:n, 0], pairs[:n, 1] = before_left, before_right
        pairs[n:, 0], pairs[n:, 1] = after_left[revised], after_right[revised]
        made = self._joined(left, right, pairs)
        after = np.arange(n)
        after[revised] = n + np.arange(len(revised))
        return BeforeAfter(stretches, made, np.arange(n), after)

    def _joined(self, left: Relation, right: Relation, pairs: IntArray) -> Relation:
        """Join pairs of groups; every pair is a group, also one without rows."""
        left, right = named(left, right, self.node.columns)
        cells: Cells
        if self.node.equal:
            cells = common_cells(left, right, pairs)
        else:
            near = self.node.nearness(left, right)
            cells = PairJoin(near, self.node.condition, self.node.columns).cells(left, right, pairs)
        made = joined(left, right, pairs, cells, self.node.columns)
        if made.groups < len(pairs):
            of_left, of_right = (pa.array(np.ascontiguousarray(pairs[:, side])) for side in (0, 1))
            keys = (*(key.take(of_left) for key in left.keys), *(key.take(of_right) for key in right.keys))
            made = replace(made, keys=keys, offsets=cells.offsets)
        if self._rest == TRUE:
            return made
        return FilterOperator(self._rest, self.possible).segments(made)

    def _around_rows(self, stretches: KeyRanges) -> KeyRanges:
        """Extend stretches to the rows of either side that overlap them."""
        start, end = stretches.start.copy(), stretches.end.copy()
        for side, arc in enumerate(self.inputs):
            mine = arc.content(replace(stretches, code=self._pairs[stretches.code, side]))
            extend_to_rows(mine, np.arange(len(stretches)), start, end)
        return KeyRanges(stretches.code, start, end).merged()
