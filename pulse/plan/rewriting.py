"""What rewrite rules share: changing the expressions of a node, and following a column down a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pulse.core.expression import Column, Expression, columns_of, renamed
from pulse.core.schema import Role
from pulse.plan.nodes import Filter, Join, Node, Project, Scan

Change = Callable[[Expression], Expression]


def change_predicates(node: Node, change: Change) -> Node:
    """The node (not its inputs) with its predicates changed: a filter's, a join's condition, a scan's keys."""
    if isinstance(node, Filter):
        return replace(node, predicate=change(node.predicate))
    if isinstance(node, Join):
        return replace(node, condition=change(node.condition))
    if isinstance(node, Scan):
        return replace(node, keys=change(node.keys))
    return node


def change_outputs(node: Node, change: Change) -> Node:
    """The node with the outputs of a projection changed, except where that would give an output another role.

    ``x * 1`` of a key ``x`` is modelled, ``x`` is a key: such an output stays as it is.
    """
    if not isinstance(node, Project):
        return node
    before = node.input.columns
    outputs = []
    for name, expression in node.outputs:
        changed = change(expression)
        became_a_column = isinstance(changed, Column) and changed != expression
        if became_a_column and isinstance(changed, Column) and before.role(changed.name) is not Role.MODELLED:
            changed = expression
        outputs.append((name, changed))
    return replace(node, outputs=tuple(outputs))


def below_project(expression: Expression, node: Project) -> Expression:
    """An expression over what a projection gives, as one over what it takes."""
    names: dict[str, Expression] = {node.time: Column(node.input.columns.time)}
    return renamed(expression, names | dict(node.outputs))


def only_mentions(expression: Expression, names: tuple[str, ...]) -> bool:
    """Whether no other columns occur."""
    return columns_of(expression) <= set(names)
