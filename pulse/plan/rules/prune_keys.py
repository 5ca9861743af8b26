"""Read only the keys that are needed."""

from __future__ import annotations

from pulse.operators.node import Node, transform


def prune_keys(plan: Node) -> Node:
    """Move conjuncts directly above a scan that compare its keys with constants into the scan.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> print(show(prune_keys(Filter(scan, Comparison("=", Column("S.k"), Constant("IBM"))))))
    Scan S as S where S.k = 'IBM'
    """
    return transform(plan, lambda node: node.prune_keys())
