"""The union: the segments of several inputs as one (semantics 3).

1 Transforms: rows of equal keys are put in the order of time. Two inputs that speak of one key at one time contradict
  what a stream is (semantics 1.3, 1.4) and are an error.
2 Bounds: passes them on. The drift of a key that several inputs share is lost, as each counts it from its own start.
3 Inverts: passes the bound on to the input that the row came from.
4 Revises: passes revisions on, without drift.
5 Accents: passes additions not yet made by the other input; holds drops and alterations until both have them
  (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pulse.core.keys import key_ranks
from pulse.core.segment.order import Ranges, find_overlap
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OverlappingInputsError


@dataclass(frozen=True)
class UnionOperator:
    """The segments of all inputs, which have the same columns."""

    def segments(self, relations: Sequence[Relation]) -> Relation:
        """All rows, by key and time."""
        names = relations[0].columns.names
        assert all(one.columns.names == names for one in relations), (
            "inputs of a union have one list of columns"
        )
        together = Relation.concat(relations)
        merged = together.merged()
        overlap = find_overlap(Ranges(merged.group, merged.ref, merged.lo, merged.hi))
        if overlap is not None:
            raise _two_speak(merged, overlap[1])
        ranks = key_ranks(list(together.keys), together.groups)
        some = np.diff(together.offsets) > 0
        shared = np.bincount(ranks[some], minlength=int(ranks.max(initial=-1)) + 1) > 1
        if not shared.any():
            return merged
        of_group = shared[key_ranks(list(merged.keys), merged.groups)]
        drift = {name: np.where(of_group[merged.group], np.inf, d) for name, d in merged.drift.items()}
        return replace(merged, drift=drift)

    def instants(self, relations: Sequence[Relation]) -> Relation:
        """The same of what streams of segments are at some instants, given as points of whole microseconds."""
        merged = Relation.concat(relations).merged()
        again = np.flatnonzero((np.diff(merged.ref) == 0) & (np.diff(merged.group) == 0))
        if len(again):
            raise _two_speak(merged, int(again[0]) + 1)
        return merged


def _two_speak(merged: Relation, row: int) -> OverlappingInputsError:
    return OverlappingInputsError(
        f"union: two inputs speak of {merged.where(row)}; tell them apart by a text column of their own "
        "(select 'a' as source, …)"
    )
