"""Propagate deltas through a union: it has the rows of all inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.segment.order import Ranges, find_overlap, time_order
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OverlappingInputsError
from pulse.operators.incremental.base import STATELESS
from pulse.operators.incremental.delta import BeforeAfter, Delta, KeyRanges, concat_ranges
from pulse.operators.incremental.derived_keys import DerivedKeys


class IncrementalUnion(DerivedKeys):
    """A union: the rows of all inputs. Its drift is unknown: each input counts it from its own start."""

    def change(self) -> Delta:
        return self.changed(STATELESS)

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
            raise OverlappingInputsError.at(made.where(overlap[1]))
        return replace(made, drift={})
