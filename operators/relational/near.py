"""Limit the pairs of a join to those that a bound on their distance requires near each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from pulse.core.columns import Columns
from pulse.core.expression import Column, Constant, Expression, Function, Parameter
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
    points, reach = _points(value, set(left.modelled), set(right.modelled)), _reach(value, bound)
    return None if points is None or reach is None else Near(*points, reach, window)


def _points(
    value: Expression, left: set[str], right: set[str]
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    match value:
        case Function("distance" | "distance2", (Column(x1), Column(y1), Column(x2), Column(y2))):
            if {x1, y1} <= left and {x2, y2} <= right:
                return (x1, y1), (x2, y2)
            if {x1, y1} <= right and {x2, y2} <= left:
                return (x2, y2), (x1, y1)
    return None


def _reach(value: Expression, bound: Expression) -> Expression | None:
    squares = isinstance(value, Function) and value.name == "distance2"
    if isinstance(bound, Parameter):
        return None if squares else bound
    if not isinstance(bound, Constant) or isinstance(bound.value, (str, bool)) or bound.value < 0:
        return None
    if not squares:
        return bound
    root = math.sqrt(bound.value)
    return Constant(int(root)) if isinstance(bound.value, int) and root == int(root) else Constant(root)
