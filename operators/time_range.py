"""Represent the range of times that a query needs of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pulse.core.expression import Column, Comparison, Expression, Instant, Parameter

SLACK = 1_000_000
"""An extra second beyond a window's size, so that rounding cannot make its first result reach before the cut."""


@dataclass(frozen=True)
class TimeRange:
    """A range ``[start, end)`` in microseconds; None: unbounded."""

    start: int | None = None
    end: int | None = None

    def within(self, other: TimeRange) -> TimeRange:
        """Return the times in both ranges.

        >>> TimeRange(3, None).within(TimeRange(1, 5))
        TimeRange(start=3, end=5)
        """
        starts = [one for one in (self.start, other.start) if one is not None]
        ends = [one for one in (self.end, other.end) if one is not None]
        return TimeRange(max(starts, default=None), min(ends, default=None))

    def where(self, predicates: Iterable[Expression], time: str) -> TimeRange:
        """Narrow the range to predicates on the time. ``<= b`` and ``= b`` end one microsecond after b."""
        narrowed = self
        for predicate in predicates:
            match predicate:
                case Comparison(relation, Column(name), Instant(at)) if name == time:
                    start = at if relation in (">", ">=", "=") else None
                    end = at if relation == "<" else at + 1 if relation in ("<=", "=") else None
                    narrowed = narrowed.within(TimeRange(start, end))
        return narrowed

    def before(self, size: int | Parameter) -> TimeRange:
        """Return the range that windows closing in this range look back on; unbounded for a size that is not known yet."""
        if self.start is None or not isinstance(size, int):
            return TimeRange(None, self.end)
        return TimeRange(self.start - size - SLACK, self.end)
