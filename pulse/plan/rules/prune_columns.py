"""Read only the attributes that are used."""

from __future__ import annotations

from pulse.operators.node import Node


def prune_columns(plan: Node) -> Node:
    """Restrict scans and inner projections to the columns used above them; the plan's own columns stay.

    The right sides of MODEL clauses count as use. Members of a union, which must have the same columns, keep all of theirs.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> print(show(prune_columns(Window(scan, "avg", "S.x", "a", 10_000_000, None))))
    Window a = avg(S.x) over 10 s
      Scan S as S (x)
    """
    return plan.prune_columns(set(plan.columns.names))
