"""Propagate deltas through sampling: the rows of an operator at multiples of the view's ``every``, as points.

Operators above that work instant by instant then test and compute at these instants, as a query for tuples does: a predicate on
values holds from the begin of its range on, but perhaps not at the begin itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pulse.core.arrays import IntArray
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import STATELESS, Flow, IncrementalOperator, overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, changed_rows, nothing
from pulse.operators.output.sampling import as_points, sample


class GridSample(IncrementalOperator):
    """The output of its only input, an operator of the same node, at multiples of the view's ``every``."""

    at_instants = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.view.every is not None
        self.every = self.view.every
        self.flow = Flow(f"Sample of {self.node.label}")

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        wide = stretches.widened(END_MARGIN, END_MARGIN)
        rows = overlapping(self.inputs[0].content(wide))
        start, end = np.empty((2, rows.relation.groups), np.int64)
        for groups in (rows.before, rows.after):
            start[groups], end[groups] = wide.start, wide.end
        made = self.applied(_narrowed(rows.relation, start, end))
        return overlapping(BeforeAfter(stretches, made, rows.before, rows.after))

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.count_mode(STATELESS, len(below))
        times, every = below.stretches, self.every
        first, last = -(-times.start // every) * every, (times.end - 1) // every * every
        some = np.flatnonzero(last >= first)
        if not len(some):
            return nothing(self.node.columns, absorbed=len(below))
        affected = KeyRanges(times.code[some], first[some], last[some] + 1)
        self.cache = self.replay(affected.widened(*self.margin).merged())
        return changed_rows(self.cache)

    def applied(self, relation: Relation) -> Relation:
        points = as_points(sample(relation, self.every), groups=relation.groups)
        return replace(points, columns=self.node.columns, keys=relation.keys)


def _narrowed(relation: Relation, start: IntArray, end: IntArray) -> Relation:
    """Cut the rows, which overlap the range of their group, to it: only these instants are sampled."""
    first, last = (((at[relation.group] - relation.ref) / 1e6) for at in (start, end))
    return replace(relation, lo=np.maximum(relation.lo, first), hi=np.minimum(relation.hi, last))
