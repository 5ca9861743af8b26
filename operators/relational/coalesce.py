"""Coalesce: the rows of one input, and where it has none those of another, key by key.

1 Transforms: each instant of a key has the first input's row, or where that has none the second's
  (:mod:`pulse.operators.data.overlay`). More inputs are nested.
2 Bounds: a row keeps its own. Where the first's is not certain, some truths have the second's, and the bound covers both.
3 Inverts: passes the bound on to both inputs.
4 Revises: where either input changed, both are read again.
5 Accents: as a union (semantics 8.2): additions pass where the other input has made them; drops and alterations are held until
  both inputs have them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import Column, Expression, columns_of
from pulse.core.keys import key_ranks
from pulse.operators.accent_handling import Handling
from pulse.operators.data.overlay import overlay
from pulse.operators.data.relation import Relation
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.symmetry import called
from pulse.operators.incremental.base import DOWNSTREAM, UPSTREAM, overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, extend_to_rows
from pulse.operators.incremental.derived_keys import DerivedKeys
from pulse.operators.inversion.sources import Source
from pulse.operators.node import Duration, Node, Predicates, PushInto, is_selective, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.exchange import by_equal_keys
from pulse.operators.symbols import Degrees, GenericModel
from pulse.stream.propagation.frame import ALL_NAMES
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class CoalesceOperator:
    """The rows of two inputs with these ``columns``, the first's before the second's; ``tuples`` count one by one."""

    columns: Columns
    tuples: bool = False

    def segments(self, first: Relation, second: Relation) -> Relation:
        """Overlay the groups of equal keys; keys in order."""
        rows = self.together((first, second))
        ranks = key_ranks(list(rows.keys), rows.groups)
        distinct, place = np.unique(ranks, return_index=True)
        group = np.searchsorted(distinct, ranks)
        pairs = np.full((len(distinct), 2), -1)
        side = (np.arange(rows.groups) >= first.groups).astype(np.int64)
        pairs[group, side] = np.arange(rows.groups)
        index = pa.array(place)
        made = overlay(rows, pairs, tuple(key.take(index) for key in rows.keys), tuples=self.tuples)
        return made.without_empty_groups() if rows.keys else made

    def together(self, inputs: tuple[Relation, ...]) -> Relation:
        """Return the groups of all inputs, those of the first before those of the second."""
        return Relation.concat([one.only(self.columns) for one in inputs])


class IncrementalCoalesce(DerivedKeys):
    """Propagate deltas through a coalesce: where one input changed, rows of both are overlaid again."""

    node: Coalesce

    def change(self) -> Delta:
        return self.changed(DOWNSTREAM if all(arc.point is not None for arc in self.inputs) else UPSTREAM)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        # Rows around a stretch are cut by all that overlap these, so that what is kept is what it is anywhere.
        around = self._around_rows(stretches)
        wide = self._around_rows(around)
        n = len(wide)
        before, after = np.full((n, 2), -1), np.full((n, 2), -1)
        relations: list[Relation] = []
        groups = 0
        for side in range(2):
            content, some = self._content(side, wide)
            relations.append(content.relation)
            before[some, side], after[some, side] = content.before + groups, content.after + groups
            groups += content.relation.groups
        again = np.flatnonzero((before != after).any(axis=1))
        place = np.arange(n)
        place[again] = n + np.arange(len(again))
        index = pa.array(np.concatenate([wide.code, wide.code[again]]))
        keys = tuple(column.take(index) for column in self.keys())
        operator = CoalesceOperator(self.node.columns, self.at_instants or self.node.columns.points)
        pairs = np.concatenate([before, after[again]])
        rows = operator.together(tuple(relations))
        made = overlay(rows, pairs, keys, tuples=operator.tuples, apart=True)
        made = made if self.possible else made.without_possible()
        return replace(overlapping(BeforeAfter(around, made, np.arange(n), place)), stretches=stretches)

    def _content(self, side: int, stretches: KeyRanges) -> tuple[BeforeAfter, IntArray]:
        """Return an input's content around own stretches, for those whose key it has, and which they are."""
        own = self.own(side)
        theirs = np.full(len(self._code), -1, np.int64)
        theirs[own] = np.arange(len(own))
        code = theirs[stretches.code]
        some = np.flatnonzero(code >= 0)
        return self.inputs[side].content(
            KeyRanges(code[some], stretches.start[some], stretches.end[some])
        ), some

    def _around_rows(self, stretches: KeyRanges) -> KeyRanges:
        """Extend stretches to the rows of either side that overlap them: rows there cut these."""
        start, end = stretches.start.copy(), stretches.end.copy()
        for side in range(2):
            content, some = self._content(side, stretches)
            extend_to_rows(content, some, start, end)
        return KeyRanges(stretches.code, start, end).widened(END_MARGIN, END_MARGIN)


@plan_node
class Coalesce(Node):
    """The rows of ``first``, and of ``second`` where ``first`` has none of the key; both have the same columns."""

    first: Node
    second: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.first, self.second

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Coalesce(*inputs)

    @property
    def columns(self) -> Columns:
        return self.first.columns

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    passes_instants = True
    why_not_in_jobs = (
        "coalesce: whether the first stream has a value at an instant is known in a job only once its next tuple has come, so a "
        "prediction would take the second's too early; store both streams, and query the models"
    )

    @property
    def samples_inputs(self) -> bool:
        return self.closes

    @property
    def _in_doubt(self) -> bool:
        """Return whether rows of an input may be uncertain: then certainty depends also on possible ones."""
        return any(map(is_selective, self.inputs))

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        below = possible or self._in_doubt
        first, second = (run.segments(one, below) for one in self.inputs)
        made = CoalesceOperator(self.columns, self.columns.points).segments(first, second)
        return made if possible else made.without_possible()

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        below = run.possible or self._in_doubt
        first, second = (run.instants(one, every, possible=below) for one in self.inputs)
        made = CoalesceOperator(first.columns, tuples=True).segments(first, second)
        return made if run.possible else made.without_possible()

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        # Which side counts depends on the key and the time alone; values are compared above.
        fixed = {*self.columns.key_names, self.columns.time}
        own = tuple(one for one in predicates if columns_of(one) <= fixed)
        there = {self.columns.time: self.second.columns.time}
        sides = push_into(self.first, own), push_into(self.second, tuple(called(one, there) for one in own))
        return Coalesce(*sides), tuple(one for one in predicates if one not in own)

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs(tuple(one.prune_columns(wanted) for one in self.inputs))

    def equal_keys(self) -> dict[str, Hashable]:
        return {name: name for name in self.columns.key_names}

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        first, second = (one.place(placing, ()) for one in self.inputs)
        inputs, together = by_equal_keys(
            first, second, tuple((name, name) for name in self.columns.key_names)
        )
        return self.with_inputs(inputs), together

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        names = {name: name for name in self.columns.modelled}
        return Source.renamed(0, names), Source.renamed(1, names)

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature("coalesce", merge=ALL_NAMES, sides=2))

    # -- revisions ------------------------------------------------------------------------------------------

    separates_keys = False
    takes_possible = True
    revision_modes = "downstream or upstream", "the other side's rows are stored on its arc, or replayed"
    maintained = IncrementalCoalesce

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return "Coalesce"

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return GenericModel(column) if column in self.columns.modelled else Column(column)
