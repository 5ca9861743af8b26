"""Represent how far an operator reaches in time (semantics 7.4)."""

from __future__ import annotations

from typing import NamedTuple


class Reach(NamedTuple):
    """Microseconds before and after a range."""

    before: int
    after: int

    def plus(self, other: Reach) -> Reach:
        """Add two consecutive reaches.

        >>> Reach(0, 3).plus(Reach(2, 2))
        Reach(before=2, after=5)
        """
        return Reach(self.before + other.before, self.after + other.after)

    def over(self, other: Reach) -> Reach:
        """Return the larger reach on each side."""
        return Reach(max(self.before, other.before), max(self.after, other.after))


NONE = Reach(0, 0)
