"""Pass needs down and volatility up between an operator's output and the columns of its inputs that it is computed from.

Every modelled column of an output comes from some :class:`Source`: an input, with an expression over its columns. Needs, the
volatility and the static derivation of fits (:mod:`pulse.plan.required_fit`) all follow the sources of each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.expression import Column, Expression
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import Needs, gather, group_min, smaller
from pulse.operators.inversion.split_heuristics import SplitInput

if TYPE_CHECKING:
    from pulse.operators.node import Node


class Source(NamedTuple):
    """The input of this number, and the expression over its columns that each output column takes from it."""

    input: int
    columns: Mapping[str, Expression]

    @classmethod
    def renamed(cls, input: int, names: Mapping[str, str]) -> Source:
        """Return a source whose columns are passed under new names: the input's by the output's."""
        return cls(input, {name: Column(own) for name, own in names.items()})


class Volatilities(Protocol):
    """The volatility of the columns inside a plan; empty if no stream's is known."""

    def segments(self, node: Node) -> Relation:
        """Return the output of a node."""

    def groups(self, node: Node) -> Needs:
        """Return the volatility per group of the node's relation."""

    def rows(self, node: Node) -> Mapping[str, FloatArray]:
        """Return the volatility per row of the node's relation."""

    def of_stream(self, stream: str, relation: Relation) -> Needs:
        """Return the volatility of a stream's attributes per group of its relation."""

    def of_expression(self, node: Node, expression: Expression) -> FloatArray:
        """Return the volatility of an expression over a node's columns, per group of its relation."""


Limited = Callable[[Expression, IntArray, FloatArray], None]
"""A callback for every expression whose error is limited: the limits of parts of rows, and the row of each part."""


class Inversion(Protocol):
    """The inversion of bounds down a plan, as operators see it."""

    @property
    def inferences(self) -> bool:
        """Return whether the existence of results counts and not only their values."""

    @property
    def volatility(self) -> Volatilities:
        """Return the volatility of the columns inside the plan."""

    def segments(self, node: Node) -> Relation:
        """Return the output of a node."""

    def require(self, stream: str, relation: Relation, needs: Needs) -> None:
        """Record the needs of a stream's attributes, per group of its relation."""

    def allot(self, question: SplitInput) -> FloatArray:
        """Split bounds on outputs among the inputs that cause them."""

    def shares(self, node: Node, needs: Sequence[tuple[Expression, FloatArray]]) -> Needs:
        """Split needs of expressions over a node's columns, per group of its relation, among these columns."""

    def decision_shares(
        self,
        rows: Relation,
        predicate: Expression,
        volatility: Mapping[str, FloatArray],
        *,
        empty_only: bool = False,
        limited: Limited | None = None,
    ) -> Needs:
        """Return per group how far each modelled column may move without changing the predicate's answer.

        With ``empty_only``, rows that have a result are unconstrained. ``limited`` receives all limits that the shares satisfy.
        """

    def tolerated(self, size: float) -> float:
        """Return the error that a predicate's comparison with this value may have."""

    def linear_legs(self, expression: Expression, columns: Sequence[str]) -> list[dict[str, float]] | None:
        """Return the factors of the sums whose hypotenuse is an expression's error: one if linear, None if not."""


def pass_needs(node: Node, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
    """Return the needs of a node's inputs: the smallest of the groups of its output that come from each of theirs."""
    out: list[Needs] = [{} for _ in node.inputs]
    for i, source in enumerate(node.sources):
        one = node.inputs[source.input]
        below = inversion.segments(one)
        place = node.source_groups(i, relation, below)
        made: list[tuple[Expression, FloatArray]] = []
        for name in needs:
            if name not in source.columns:
                continue
            expression, need = source.columns[name], group_min(needs[name], place, below.groups)
            if isinstance(expression, Column):
                out[source.input] = smaller(out[source.input], {expression.name: need})
            else:
                made.append((expression, need))
        if made:
            out[source.input] = smaller(out[source.input], inversion.shares(one, made))
    return tuple(out)


def pass_volatility(node: Node, known: Volatilities, relation: Relation) -> Needs:
    """Return the volatility of a node's output: the largest of those that its groups come from."""
    out: Needs = {}
    for i, source in enumerate(node.sources):
        one = node.inputs[source.input]
        place = node.source_groups(i, relation, known.segments(one))
        own = known.groups(one)
        for name, expression in source.columns.items():
            if not isinstance(expression, Column):
                values = known.of_expression(one, expression)
            elif expression.name in own:
                values = own[expression.name]
            else:
                continue
            moved = gather(values, place)
            out[name] = np.fmax(out[name], moved) if name in out else moved
    return out
