"""Remove nodes that change nothing, and merge those that one node can replace."""

from __future__ import annotations

from pulse.operators.node import Node, transform


def merge_nodes(plan: Node) -> Node:
    """Remove filters that are always true and projections that change nothing, and merge a filter with one below it.

    The inner filter's predicate comes first.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.project import Project
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> low, high = (Comparison(r, Column("S.x"), Constant(k)) for r, k in [(">", 1), ("<", 9)])
    >>> print(show(merge_nodes(Filter(Filter(Project(scan, (("S.x", Column("S.x")),), "S.t"), low), high))))
    Filter S.x > 1 and S.x < 9
      Scan S as S
    """
    return transform(plan, lambda node: node.merged())
