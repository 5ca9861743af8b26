"""Define what aggregates over windows and across keys share: one function of one attribute, per key of the output."""

from __future__ import annotations

from pulse.core.expression import Column, Expression
from pulse.operators.expressions.predicates import only_mentions
from pulse.operators.node import Node, Predicates, PushInto, Unary, plan_node
from pulse.operators.symbols import Degrees, GenericModel


@plan_node
class Aggregate(Unary):
    """``function`` of ``argument``, named ``output``."""

    function: str
    argument: str
    output: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the attributes that it is a function of."""
        return (self.argument,)

    # -- rewriting ------------------------------------------------------------------------------------------

    has_equation = False

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        # Predicates on the output depend on the aggregate; those on time refer to closing times.
        keys = self.columns.key_names
        below = tuple(one for one in predicates if only_mentions(one, keys))
        above = tuple(one for one in predicates if not only_mentions(one, keys))
        return self.with_inputs((push_into(self.input, below),)), above

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns({*self.arguments}),))

    # -- explain --------------------------------------------------------------------------------------------

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return GenericModel(column) if column == self.output else Column(column)
