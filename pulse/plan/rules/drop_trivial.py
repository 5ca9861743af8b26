"""Remove nodes that change nothing."""

from __future__ import annotations

from pulse.core.expression import Column
from pulse.operators.node import Node, transform
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.project import Project
from pulse.plan.rules.constant_folding import is_truth


def drop_trivial(plan: Node) -> Node:
    """Remove filters that are always true and projections that change nothing.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import TRUE
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> print(show(drop_trivial(Filter(Project(scan, (("S.x", Column("S.x")),), "S.t"), TRUE))))
    Scan S as S
    """
    return transform(plan, _without)


def _without(node: Node) -> Node:
    if isinstance(node, Filter) and is_truth(node.predicate, True):
        return node.input
    if (
        isinstance(node, Project)
        and node.columns == node.input.columns
        and all(expression == Column(name) for name, expression in node.outputs)
    ):
        return node.input
    return node
