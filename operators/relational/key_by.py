"""Key by: make unmodelled attributes part of the key, so that results are grouped by them (semantics 1.3, 3.7).

1 Transforms: no equation. The rows of a key are divided by the values of the attributes, which are constant within a segment.
  A null is a value of its own, as in SQL's GROUP BY.
2 Bounds: stay. The drift of a key with several values is lost, as its rows have holes where the value is another.
3 Inverts: passes the bound on; a key with several values gets the tightest.
4 Revises: a revised row is all it needs; one whose value changes moves to another key.
5 Accents: pass; the attributes keep the values that were stored.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import decoded
from pulse.core.columns import Columns
from pulse.core.expression import Expression, columns_of
from pulse.core.keys import key_ranks
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import positions
from pulse.operators.node import Duration, Node, Predicates, PushInto, Unary, plan_node
from pulse.operators.output.sampling import sample
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.incremental_key_by import IncrementalKeyBy


@dataclass(frozen=True)
class KeyByOperator:
    """A division of keys by the values of the unmodelled attributes ``names``; ``columns`` are those of the output."""

    names: tuple[str, ...]
    columns: Columns

    def segments(self, relation: Relation) -> Relation:
        """Divide the rows of each key by value, in the order of the values."""
        values = [relation.unmodelled[name] for name in self.names]
        rank = key_ranks(values, len(relation))
        order = np.lexsort((rank, relation.group))  # stable: rows of one value stay sorted by time
        group, rank = relation.group[order], rank[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (group[1:] != group[:-1]) | (rank[1:] != rank[:-1])
        first = np.flatnonzero(begins)
        at, row = pa.array(group[first]), pa.array(order[first])
        keys = (
            *(column.take(at) for column in relation.keys),
            *(decoded(column.take(row)) for column in values),
        )
        made = relation._pick(order, keys, np.append(first, len(order)))
        divided = np.bincount(group[first], minlength=relation.groups) > 1
        return replace(
            made,
            columns=replace(self.columns, points=relation.columns.points),
            drift={name: np.where(divided[group], np.inf, d) for name, d in made.drift.items()},
            unmodelled={name: made.unmodelled[name] for name in self.columns.unmodelled_names},
        )


@plan_node
class KeyBy(Unary):
    """The input with unmodelled attributes, by their ``names``, as further key columns."""

    names: tuple[str, ...]

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        more = tuple((name, before.type_of(name)) for name in self.names)
        rest = tuple((name, type_) for name, type_ in before.unmodelled if name not in self.names)
        return replace(before, key=(*before.key, *more), unmodelled=rest)

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    passes_instants = True

    @property
    def samples_inputs(self) -> bool:
        return self.closes

    @property
    def operator(self) -> KeyByOperator:
        """Return the operator over segments."""
        return KeyByOperator(self.names, self.columns)

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return self.operator.segments(run.segments(self.input, possible))

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        if self.closes and run.carries_instants(self):
            return replace(sample(run.instants(self, every), every), columns=self.columns)
        return sample(run.segments(self), every)

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        return self.operator.segments(run.instants(self.input, every))

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        return self.with_inputs((push_into(self.input, predicates),)), ()

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted | set(self.names)),))

    def take_key_predicates(self, predicates: Predicates) -> tuple[Node, Predicates]:
        mine = tuple(one for one in predicates if columns_of(one) & set(self.names))
        below, rest = self.input.take_key_predicates(tuple(one for one in predicates if one not in mine))
        return self.with_inputs((below,)), (*rest, *mine)

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        return self.with_inputs((self.input.bound_pairs(value, bound, window),))

    def equal_keys(self) -> dict[str, Hashable]:
        return {**self.input.equal_keys(), **{name: name for name in self.names}}

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, above)
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        own = relation.keys[: len(below.keys)]
        return positions(own, below.keys, relation.groups, below.groups)

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    def stored_attribute(self, name: str) -> tuple[str, str] | None:
        return self.input.stored_attribute(name)

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling()

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "stateless", "a revised row is all it needs"
    maintained = IncrementalKeyBy

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Key by {', '.join(self.names)}"
