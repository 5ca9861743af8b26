"""Read only the times that are needed."""

from __future__ import annotations

from pulse.operators.node import Node
from pulse.operators.time_range import TimeRange


def prune_time(plan: Node) -> Node:
    """Turn comparisons of the time with instants into the range that scans read, earlier by the windows in between.

    A conjunct directly above a scan that the range ``[start, end)`` expresses exactly (``>=`` and ``<``) is dropped; others
    stay: above a window they refer to its closing times.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Instant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> print(show(prune_time(Filter(scan, Comparison(">=", Column("S.t"), Instant(0))))))
    Scan S as S from '1970-01-01T00:00:00.000000Z'
    """
    return plan.prune_time(TimeRange())
