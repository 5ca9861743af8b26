"""Evaluate an intersection as the join of its inputs with all columns equal."""

from __future__ import annotations

from pulse.operators.node import Node, transform


def intersect_as_join(plan: Node) -> Node:
    """Rewrite every intersection as a join and a projection.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.intersect import Intersect
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((("k", pa.string()),), ("x",)))
    >>> print(show(intersect_as_join(Intersect(scan, scan))))
    Project S.k, S.x; time S.t
      Join on S.k = S.k_other where S.x = S.x_other
        Scan S as S
        Project S.k_other = S.k, S.x_other = S.x; time S.t
          Scan S as S
    """
    return transform(plan, lambda node: node.expanded())
