"""From where on one series is cheaper than another.

Between two measured points both are taken to be straight lines in logarithms of both axes, which powers of x are: the time a
tuple takes by segments falls like 1/x, that of tuples is flat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Crossover:
    """Where two series cross within the range that both were measured in.

    ``at`` are the x's, in order; ``first``: whether ours is the cheaper one before the first of them (or throughout). Each
    crossing turns that round. ``low`` and ``high`` are the ends of the range.
    """

    at: tuple[float, ...]
    first: bool
    low: float
    high: float

    @property
    def last(self) -> bool:
        """Whether ours is the cheaper one at the end of the range."""
        return self.first == (len(self.at) % 2 == 0)

    @property
    def x(self) -> float | None:
        """From where on ours stays cheaper: 0 where it always is, None where it is not at the end of the range."""
        if not self.last:
            return None
        return self.at[-1] if self.at else 0.0

    def words(self, over: str = "") -> str:
        """What ours is, in the words of x: ``cheaper from 7.6 tuples per segment``."""
        end = f" {over}" if over else ""
        if not self.at:
            return f"{'always' if self.first else 'never'} cheaper, from {_number(self.low)} to {_number(self.high)}{end}"
        points = ", ".join(_number(x) for x in self.at)
        if len(self.at) > 1:
            return f"crossing at {points}{end}, and {'cheaper' if self.last else 'dearer'} beyond"
        return f"cheaper {'from' if self.last else 'up to'} {points}{end}"

    def short(self) -> str:
        """For a cell: ``from 7.6``, ``up to 50``, ``always``, ``never``, or all places where it turns."""
        if not self.at:
            return "always" if self.first else "never"
        if len(self.at) > 1:
            return f"{'from' if self.last else 'up to'} {_number(self.at[-1])} ({len(self.at)} crossings)"
        return f"{'from' if self.last else 'up to'} {_number(self.at[0])}"


def crossover(ours: Mapping[float, float], theirs: Mapping[float, float]) -> Crossover | None:
    """Where the cost of ``ours`` (by x) goes below that of ``theirs``; None where they share no range of x.

    Either may be measured at other x's than the other. At equal cost ours is not the cheaper one.
    """
    x = _shared(sorted(ours), sorted(theirs))
    if not x:
        return None
    gap = _logs(ours, x) - _logs(theirs, x)
    cheaper = gap < 0
    at = []
    for i in np.flatnonzero(cheaper[1:] != cheaper[:-1]).tolist():
        low, high = math.log(x[i]), math.log(x[i + 1])
        at.append(math.exp(low + (high - low) * gap[i] / (gap[i] - gap[i + 1])))
    return Crossover(tuple(at), bool(cheaper[0]), x[0], x[-1])


def _shared(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    if not ours or not theirs:
        return []
    low, high = max(ours[0], theirs[0]), min(ours[-1], theirs[-1])
    if low <= 0:
        raise ValueError(f"crossovers are sought in logarithms, of x above 0; got {low}")
    return sorted({x for x in (*ours, *theirs) if low <= x <= high})


def _logs(series: Mapping[float, float], x: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    known = sorted(series)
    return np.interp(np.log(x), np.log(known), np.log([series[one] for one in known]))


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
