"""Intersection: find the times at which two inputs have the same row, by a join with all columns equal.

1 Transforms: times at which both inputs have a row of the same key with the same values. Differences of models are solved for
  zero (semantics 3.2): identical models hold on their common range, models that cross hold at an instant, a point.
2 Bounds: a row has those of the first input. It is ``certain`` where both certify equality, that is where their
  errors are 0; ``likely`` where the models are equal; ``possible`` where their tubes overlap (semantics 3.9).
3 Inverts: through the join to the first input, and by inference to the compared attributes of the second (semantics 4.3).
4 Revises: like a join with a condition; a revised row of either input adds or retracts a result.
5 Accents: its own signature, that of a union: everything is merged (semantics 8.2, paper §6.2). So accents are propagated in
  the plan before its rewriting.
"""

from __future__ import annotations

from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison, all_of
from pulse.operators.accent_handling import Handling
from pulse.operators.node import Node, plan_node
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
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

    # -- rewriting ------------------------------------------------------------------------------------------

    has_equation = True

    def expanded(self) -> Node:
        columns = self.columns
        names = (*columns.key_names, *columns.modelled, *columns.unmodelled_names)
        suffix = "_other"
        while any(name.endswith(suffix) for name in names):
            suffix = f"_{suffix}"
        others = {name: f"{name}{suffix}" for name in names}
        right = Project(self.right, tuple((others[name], Column(name)) for name in names), columns.time)
        equal = tuple((name, others[name]) for name in columns.key_names)
        compared = names[len(equal) :]
        condition = all_of(Comparison("=", Column(name), Column(others[name])) for name in compared)
        return Project(
            Join(self.left, right, equal, condition),
            tuple((name, Column(name)) for name in names),
            columns.time,
            hidden=tuple((other, name) for name, other in equal),
        )

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature.intersect())
