"""Merge consecutive filters into one."""

from __future__ import annotations

from pulse.core.expression import all_of
from pulse.operators.node import Node, transform
from pulse.operators.relational.filter import Filter


def merge_filters(plan: Node) -> Node:
    """Merge a filter on a filter into one with both predicates, the inner one's first.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> low, high = (Comparison(r, Column("S.x"), Constant(k)) for r, k in [(">", 1), ("<", 9)])
    >>> print(show(merge_filters(Filter(Filter(scan, low), high))))
    Filter S.x > 1 and S.x < 9
      Scan S as S
    """
    return transform(plan, _merged)


def _merged(node: Node) -> Node:
    if isinstance(node, Filter) and isinstance(node.input, Filter):
        return Filter(node.input.input, all_of((node.input.predicate, node.predicate)))
    return node
