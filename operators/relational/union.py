"""Union: merge the segments of several inputs (semantics 3).

1 Transforms: sorts rows of equal keys by time. Two inputs with segments of one key at one time violate
  the definition of a stream (semantics 1.3, 1.4) and are an error.
2 Bounds: passes them on. The drift of a key that several inputs share is lost, as each counts it from its own start.
3 Inverts: passes the bound on to the input that the row came from.
4 Revises: passes revisions on, without drift.
5 Accents: passes additions that the other input has not made yet; holds drops and alterations until both have them
  (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pulse.core.columns import Columns
from pulse.core.expression import Column, Expression
from pulse.core.keys import key_ranks
from pulse.core.segment.order import Ranges, find_overlap
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OverlappingInputsError
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.symmetry import called
from pulse.operators.inversion.sources import Source
from pulse.operators.node import Duration, Node, Predicates, PushInto, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.incremental_union import IncrementalUnion
from pulse.operators.symbols import Degrees, GenericModel
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class UnionOperator:
    """A union of inputs that have the same columns."""

    def segments(self, relations: Sequence[Relation]) -> Relation:
        """Merge all rows, sorted by key and time."""
        names = relations[0].columns.names
        assert all(one.columns.names == names for one in relations), (
            "inputs of a union must have the same columns"
        )
        together = Relation.concat(relations)
        merged = together.merged()
        overlap = find_overlap(Ranges(merged.group, merged.ref, merged.lo, merged.hi))
        if overlap is not None:
            raise OverlappingInputsError.at(merged.where(overlap[1]))
        ranks = key_ranks(list(together.keys), together.groups)
        some = np.diff(together.offsets) > 0
        shared = np.bincount(ranks[some], minlength=int(ranks.max(initial=-1)) + 1) > 1
        if not shared.any():
            return merged
        of_group = shared[key_ranks(list(merged.keys), merged.groups)]
        drift = {name: np.where(of_group[merged.group], np.inf, d) for name, d in merged.drift.items()}
        return replace(merged, drift=drift)

    def instants(self, relations: Sequence[Relation]) -> Relation:
        """Merge streams of segments at some instants, given as points of whole microseconds."""
        merged = Relation.concat(relations).merged()
        again = np.flatnonzero((np.diff(merged.ref) == 0) & (np.diff(merged.group) == 0))
        if len(again):
            raise OverlappingInputsError.at(merged.where(int(again[0]) + 1))
        return merged


@plan_node
class Union(Node):
    """The segments of all inputs, which have the same columns. A key that two inputs have at the same time is an error."""

    members: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Union(inputs)

    @property
    def columns(self) -> Columns:
        return self.members[0].columns

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    passes_instants = True

    @property
    def samples_inputs(self) -> bool:
        return self.closes

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return UnionOperator().segments([run.segments(one, possible) for one in self.members])

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        return UnionOperator().instants([run.instants(one, every) for one in self.members])

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        names = [self.names_by_place(one) for one in self.members]
        own = [tuple(called(p, here) for p in predicates) for here in names]
        return Union(tuple(map(push_into, self.members, own))), ()

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        """Leave members in place if all are of one stream and name its stored key by the same columns; else exchange by key."""
        members, places = zip(*(one.place(placing, ()) for one in self.members), strict=True)
        first = places[0]
        found = {
            (place.source, place.positions(one.columns.key_names))
            for one, place in zip(members, places, strict=True)
        }
        if len(found) == 1 and first.source is not None and first.parts is not None:
            return self.with_inputs(members), first
        exchanged = tuple(Exchange(one, one.columns.key_names) for one in members)
        return self.with_inputs(exchanged), Placement.exchanged(self.columns.key_names)

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        own = self.columns.modelled
        every = [dict(zip(own, one.columns.modelled, strict=True)) for one in self.members]
        return tuple(Source.renamed(i, names) for i, names in enumerate(every))

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature.union(len(self.members)))

    # -- revisions ------------------------------------------------------------------------------------------

    separates_keys = False
    revision_modes = "stateless", "a revised row is all it needs"
    maintained = IncrementalUnion

    # -- explain --------------------------------------------------------------------------------------------

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return GenericModel(column) if column in self.columns.modelled else Column(column)
