"""Propagate deltas through an aggregate across keys: it needs all keys of a group where one of them changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import UPSTREAM
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, extend_to_rows
from pulse.operators.incremental.derived_keys import DerivedKeys

if TYPE_CHECKING:
    from pulse.operators.across.across import Across
    from pulse.operators.across.base import AcrossKeys

STRETCH = "#stretch"
"""A key column that separates stretches, and old and new, while groups are formed."""


class IncrementalAcross(DerivedKeys):
    """An aggregate across the keys of a group: all of them are needed where one changed."""

    node: Across

    def key_columns(self, side: int) -> tuple[pa.Array, ...]:
        names = self.node.input.columns.key_names
        wanted = self.node.columns.key_names
        return tuple(
            column for name, column in zip(names, self.inputs[0].keys(), strict=True) if name in wanted
        )

    def _operator(self, node: Across) -> AcrossKeys:
        return node.operator(points=True if self.at_instants else None)

    def change(self) -> Delta:
        return self.changed(UPSTREAM)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        found, of = self._members(stretches)
        if self._operator(self.node).needs_whole_rows and len(found.relation):
            # A row is whole only if all rows that it may be part of, or that end where it begins, are known over their full time.
            start, end = stretches.start.copy(), stretches.end.copy()
            extend_to_rows(found, of, start, end)
            stretches = KeyRanges(stretches.code, start, end).widened(END_MARGIN, END_MARGIN).merged()
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
        requested, of = self.requested(0, stretches)
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
        made = self._operator(node).segments(keyed)
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
