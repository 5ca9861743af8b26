"""Helpers of rewrite rules: change the expressions of a node, and follow a column down a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pulse.core.expression import Column, Expression, columns_of, renamed
from pulse.core.schema import Role
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan

Change = Callable[[Expression], Expression]


def change_predicates(node: Node, change: Change) -> Node:
    """Change the predicates of a node (not of its inputs): a filter's, a join's condition, a scan's keys."""
    if isinstance(node, Filter):
        return replace(node, predicate=change(node.predicate))
    if isinstance(node, Join):
        return replace(node, condition=change(node.condition))
    if isinstance(node, Scan):
        return replace(node, keys=change(node.keys))
    return node


def change_outputs(node: Node, change: Change) -> Node:
    """Change the outputs of a projection, except where that would change an output's role.

    ``x * 1`` of a key ``x`` is modelled, ``x`` is a key: such an output stays.
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
    """Rewrite an expression over a projection's outputs to one over its input."""
    names: dict[str, Expression] = {node.time: Column(node.input.columns.time)}
    return renamed(expression, names | dict(node.outputs))


def only_mentions(expression: Expression, names: tuple[str, ...]) -> bool:
    """Check that no other columns occur."""
    return columns_of(expression) <= set(names)
