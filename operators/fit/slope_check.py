"""Estimate how many constants a sloping truth needs, and reject a fit that would fail or yield far more segments than tuples.

A constant within ``e`` of a line covers ``2 e`` of its rise. With a bound ``e(y) = max(p |y|, f)`` on the value, a line from
``y0`` to ``y1`` needs ``∫ dy / (2 e(y))`` constants: infinitely many where ``e`` is zero and the line is not level. A bound
``d`` on the integral needs parts of ``sqrt(8 d / slope)`` seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.schema import Truth
from pulse.core.time import format_instant
from pulse.kernels.fit.truth_intervals import POINT, Intervals
from pulse.operators.fit.spec import FitSpec

MOST_OF_ONE = 10_000
"""Most constants allowed between two tuples; more would not be a useful approximation."""

MOST_PER_TUPLE = 64
"""Most constants allowed per tuple, on average over the tuples fitted together."""


KeyLookup = Callable[[int], tuple[object, ...]]
"""A function that returns the key of a number, called only when an error names one."""


def too_steep(t: Any, v: Any, found: Intervals, spec: FitSpec, key_of: KeyLookup) -> str | None:
    """Return an error message if constants (degree 0) cannot follow a ``linear`` truth within its bounds, else None.

    The message names the steepest line.
    """
    straight = [a for a, (_, truth) in enumerate(spec.schema.modelled) if truth is Truth.LINEAR]
    index = found.index[found.flag < POINT]
    if spec.degree != 0 or not straight or not len(index):
        return None
    seconds = (t[index[:, 1]] - t[index[:, 0]]) / 1e6
    needed = np.zeros(len(index))
    for a in straight:
        y0, y1 = v[a, index[:, 0]], v[a, index[:, 1]]
        share, floor, drift_share, drift_floor = spec.bounds[a]
        if spec.error[a] is not None:
            needed = np.maximum(needed, constants_between(y0, y1, share, floor))
        if spec.drift[a] is not None:
            largest = np.maximum(drift_share * np.maximum(np.abs(y0), np.abs(y1)), drift_floor)
            with np.errstate(divide="ignore", invalid="ignore"):
                parts = np.sqrt(np.abs(y1 - y0) * seconds / (8.0 * largest))
            needed = np.maximum(needed, np.where(largest > 0.0, parts, 0.0))
    worst, total = int(np.argmax(needed)), float(needed.sum())
    if needed[worst] <= MOST_OF_ONE and total <= MOST_OF_ONE + MOST_PER_TUPLE * len(index):
        return None
    opener, ender, key = index[worst]
    count = "no number of constants" if np.isinf(needed[worst]) else f"about {needed[worst]:,.0f} constants"
    values = ", ".join(f"{v[a, opener]:g} to {v[a, ender]:g}" for a in straight)
    return (
        f"fit: key {key_of(int(key))!r} after {format_instant(int(t[opener]))}: piecewise constants cannot follow a sloping "
        f"truth within the bound: from {values} until the next tuple takes {count}"
        f"{'' if np.isinf(total) else f', all {len(index):,} lines together about {total:,.0f}'}; use lines (degree 1, or auto), "
        'or a wider bound, or one with a floor ("0.05% or 0.001")'
    )


def constants_between(y0: FloatArray, y1: FloatArray, share: float, floor: float) -> FloatArray:
    """Estimate how many constants within ``max(share |y|, floor)`` the lines from ``y0`` to ``y1`` need; 0 for a level line.

    >>> constants_between(np.array([0.0, 5.0]), np.array([10.0, 5.0]), 0.0, 0.5).tolist()
    [10.0, 0.0]
    >>> constants_between(np.array([-1.0, 1.0]), np.array([1.0, np.e]), 0.01, 0.0).round(1).tolist()
    [inf, 50.0]
    """
    level = y0 == y1
    if share >= 1.0:
        return np.zeros(len(y0))  # the constant zero lies within |y| of every y
    with np.errstate(divide="ignore", invalid="ignore"):
        if share == 0.0:
            return np.where(level, 0.0, np.abs(y1 - y0) / (2.0 * floor))
        ratio = np.log((1.0 + share) / (1.0 - share))
        if floor == 0.0:
            away = y0 * y1 > 0.0
            return np.where(
                level, 0.0, np.where(away, np.abs(np.log(y1 / np.where(away, y0, 1.0))) / ratio, np.inf)
            )
        turn = floor / share  # the magnitude from which the bound grows
        a, b = (
            np.clip(y, -turn, turn) / (2.0 * floor)
            + np.sign(y) * np.log(np.maximum(np.abs(y) / turn, 1.0)) / ratio
            for y in (y0, y1)
        )
    return np.where(level, 0.0, np.abs(b - a))
