"""Limit the pairs of a join to those that a bound on their distance requires near each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pulse.core.columns import Columns
from pulse.core.expression import Constant, Expression, Function
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Duration
from pulse.operators.parameters import NodePart


@dataclass(frozen=True)
class Near(NodePart):
    """Two positions that a predicate requires within ``reach`` of each other, for the grid of a pair join.

    ``left`` and ``right`` are the columns (x, y) of each side. ``window`` is 0 where the predicate bounds the distance at the
    instant itself; else microseconds: it bounds the average over a window that long, so the smallest distance in it.
    ``stretch`` is the factor by which the plane of the positions may lengthen a distance (:class:`pulse.core.plane.Plane`).
    """

    left: tuple[str, str]
    right: tuple[str, str]
    reach: Expression
    window: Duration = 0
    stretch: float = 1.0

    durations: ClassVar = {"window": "window size"}

    def prunes_more(self, other: Near | None) -> bool:
        """Check whether it leaves fewer pairs: at the instant fewer than over a window, then those of the smaller reach."""
        if other is None or (self.window == 0) != (other.window == 0):
            return other is None or self.window == 0
        return (
            self.window == other.window
            and isinstance(self.reach, Constant)
            and isinstance(other.reach, Constant)
            and self.reach.value < other.reach.value  # type: ignore[operator]
        )


def near_by(
    value: Expression, bound: Expression, window: Duration, left: Columns, right: Columns
) -> Near | None:
    """Return the positions that ``value < bound`` requires near each other; None if it is no distance of the two sides.

    The reach is a distance of the models: the search for possible answers adds the errors of the positions.
    """
    found = rules_of(value).nearness(value, bound) if isinstance(value, Function) else None
    if found is None:
        return None
    one, other, reach = found
    if {*one} <= set(right.modelled) and {*other} <= set(left.modelled):
        one, other = other, one
    inside = {*one} <= set(left.modelled) and {*other} <= set(right.modelled)
    return Near(one, other, reach, window) if inside else None
