"""Delay: the rows of the input, later by a duration: its value at ``t`` is the input's at ``t - by`` (``lag(x, by)``).

1 Transforms: moves the reference of each segment; coefficients and ranges stay as they are, so nothing is rounded.
2 Bounds: passes them on, drift included: the integral starts later by as much as the rows.
3 Inverts: passes the bound on to the row that was delayed.
4 Revises: a revised row revises the delayed one, and no other.
5 Accents: passes them on: values of any time are in the units in force at the time of the result.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.expression import Column, Expression, Parameter, columns_of
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.symmetry import Renaming
from pulse.operators.incremental.base import STATELESS, IncrementalOperator
from pulse.operators.incremental.delta import BeforeAfter, Delta, KeyRanges
from pulse.operators.inversion.fit import Fit
from pulse.operators.labels import duration
from pulse.operators.node import Duration, Node, Predicates, PushInto, Unary, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import Reach
from pulse.operators.symbols import Degrees, GenericModel
from pulse.operators.time_range import TimeRange


def delayed(relation: Relation, by: int) -> Relation:
    """Move all rows of a relation by microseconds."""
    return replace(relation, ref=relation.ref + by).with_squares(relation.squares)


class IncrementalDelay(IncrementalOperator):
    """Propagate deltas through a delay."""

    node: Delay

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        by = self.node.microseconds
        below = self.inputs[0].content(_moved(stretches, -by))
        return BeforeAfter(stretches, delayed(below.relation, by), below.before, below.after)

    def change(self) -> Delta:
        below, by = self.inputs[0].delta, self.node.microseconds
        assert below is not None
        self.count_mode(STATELESS, len(below))
        stretches, relation = _moved(below.stretches, by), delayed(below.relation, by)
        return replace(below, stretches=stretches, relation=relation, held=None)


def _moved(stretches: KeyRanges, by: int) -> KeyRanges:
    """Move ranges by microseconds; unbounded ends stay."""
    return KeyRanges(stretches.code, _instants(stretches.start, by), _instants(stretches.end, by))


def _instants(at: IntArray, by: int) -> IntArray:
    inside = (at > EARLIEST + abs(by)) & (at < LATEST - abs(by))
    return np.where(inside, at + by, at)


@plan_node
class Delay(Unary):
    """The rows of ``input``, later by a duration."""

    by: Duration

    # -- parameters -----------------------------------------------------------------------------------------

    durations: ClassVar = {"by": "lag"}

    @property
    def planned_once(self) -> bool:
        return not isinstance(self.by, Parameter)

    # -- evaluation -----------------------------------------------------------------------------------------

    @property
    def microseconds(self) -> int:
        """Return the delay, whose parameter must have its value."""
        assert isinstance(self.by, int)
        return self.by

    @property
    def looks_back(self) -> int:
        return self.microseconds

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return delayed(run.segments(self.input, possible), self.microseconds)

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        timed = tuple(one for one in predicates if self.columns.time in columns_of(one))
        return self.with_inputs((push_into(self.input, _without(predicates, timed)),)), timed

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted),))

    def prune_time(self, wanted: TimeRange) -> Node:
        return self.with_inputs((self.input.prune_time(wanted.before(self.by)),))

    def take_key_predicates(self, predicates: Predicates) -> tuple[Node, Predicates]:
        timed = tuple(one for one in predicates if self.columns.time in columns_of(one))
        below, rest = self.input.take_key_predicates(_without(predicates, timed))
        return self.with_inputs((below,)), (*rest, *timed)

    def equal_keys(self) -> dict[str, Hashable]:
        return self.input.equal_keys()

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Delay) or self.by != other.by:
            return None
        return self.input.names_in(other.input)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, (*above, self.by))
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    def stored_attribute(self, name: str) -> tuple[str, str] | None:
        return self.input.stored_attribute(name)

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling()

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "stateless", "a revised row is all it needs"
    maintained = IncrementalDelay

    @property
    def reach(self) -> Reach:
        return Reach(0, self.microseconds)

    @property
    def need(self) -> Reach:
        return Reach(self.microseconds, 0)

    @property
    def is_sized(self) -> bool:
        return isinstance(self.by, int)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Delay by {duration(self.by)}"

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return GenericModel(column) if column in self.columns.modelled else Column(column)


def _without(predicates: Predicates, others: Predicates) -> Predicates:
    return tuple(one for one in predicates if one not in others)
