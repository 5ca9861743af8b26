"""Intersection: the times at which two inputs have the same row. A rewrite rule turns it into a join."""

from __future__ import annotations

from pulse.core.columns import Columns
from pulse.operators.accent_handling import Handling
from pulse.operators.node import Node, plan_node
from pulse.stream.propagation.signature import Signature


@plan_node
class Intersect(Node):
    """The times at which both inputs, which have the same columns, have the same row: equal keys and equal attributes."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Intersect(*inputs)

    @property
    def columns(self) -> Columns:
        return self.left.columns

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature.intersect())
