"""Read only the times that are needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pulse.core.expression import Column, Comparison, Expression, Instant, all_of, conjuncts
from pulse.operators.node import Duration, Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.window import Window

SLACK = 1_000_000
"""An extra second beyond a window's size, so that rounding cannot make its first result reach before the cut."""


@dataclass(frozen=True)
class Times:
    """A range ``[start, end)`` in microseconds; None: unbounded."""

    start: int | None = None
    end: int | None = None

    def within(self, predicates: Iterable[Expression], time: str) -> Times:
        """Narrow the range to the conjuncts on the time. ``<= b`` and ``= b`` end one microsecond after b."""
        start, end = self.start, self.end
        for predicate in predicates:
            match predicate:
                case Comparison(relation, Column(name), Instant(at)) if name == time:
                    if relation in (">", ">=", "="):
                        start = at if start is None else max(start, at)
                    if relation in ("<", "<=", "="):
                        last = at if relation == "<" else at + 1
                        end = last if end is None else min(end, last)
        return Times(start, end)

    def before(self, size: Duration) -> Times:
        """Return the range that windows closing in this range look back on; unbounded for a size that is not known yet."""
        known = self.start is not None and isinstance(size, int)
        return Times(self.start - size - SLACK if known else None, self.end)  # type: ignore[operator]


def prune_time(plan: Node) -> Node:
    """Turn comparisons of the time with instants into the range that scans read, earlier by the windows in between.

    A conjunct directly above a scan that the range ``[start, end)`` expresses exactly (``>=`` and ``<``) is dropped; others
    stay: above a window they refer to its closing times.

    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> print(show(prune_time(Filter(scan, Comparison(">=", Column("S.t"), Instant(0))))))
    Scan S as S from '1970-01-01T00:00:00.000000Z'
    """
    return _pruned(plan, Times())


def _pruned(node: Node, times: Times) -> Node:
    match node:
        case Scan():
            start, end = node.start, node.end
            if times.start is not None:
                start = times.start if start is None else max(start, times.start)
            if times.end is not None:
                end = times.end if end is None else min(end, times.end)
            return replace(node, start=start, end=end)
        case Filter():
            own = conjuncts(node.predicate)
            time = node.columns.time
            below = _pruned(node.input, times.within(own, time))
            kept = [p for p in own if not (isinstance(below, Scan) and _exact(p, time))]
            return Filter(below, all_of(kept)) if kept else below
        case Window():
            return node.with_inputs((_pruned(node.input, times.before(node.size)),))
    inputs = tuple(_pruned(one, times) for one in node.inputs)
    return node if inputs == node.inputs else node.with_inputs(inputs)


def _exact(predicate: Expression, time: str) -> bool:
    match predicate:
        case Comparison(">=" | "<", Column(name), Instant()):
            return name == time
    return False
