"""Bound the distortion of distances in a plane, row by row (:class:`pulse.core.plane.Plane`).

If a distance in the plane is ``d ± e``, the true one lies between ``(d - e) / (1 + s)`` and ``(d + e) / (1 - s)``, with the
distortion ``s``. So the error of ``d`` is ``(e + d s) / (1 - s)``, and a comparison of ``d`` with a number ``c`` uses the error
``e + c s``. From ``s = 1`` on the true distance has no upper bound; a comparison ``d > c`` still may be certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.plane import FAR, UNBOUNDED, Plane

_BENT = 25.0  # (bend d)^2 / 8 beyond which nothing is known, so that the exponential stays small


def distortion(plane: Plane, x: Sequence[tuple[Any, Any]], y: Sequence[tuple[Any, Any]]) -> FloatArray:
    """Return per row the distortion for coordinates between these lows and highs (each one number, or one per row).

    >>> distortion(Plane(0.01, 0.5, -9.0, 9.0, -9.0, 9.0), [(0.0, np.array([1.0, 10.0, 99.0]))], [(0.0, 0.0)]).tolist()
    [0.01, 0.5, 1000000000000.0]
    """
    sides = (plane.west, plane.east), (plane.south, plane.north)
    inside = _within(sides, x, y)
    found: FloatArray = np.where(inside, plane.distortion, plane.beyond)
    if not np.all(inside):
        wide = [
            (2 * low - high, 2 * high - low) if np.isfinite(high - low) else (low, high)
            for low, high in sides
        ]
        found = np.where(inside | _within(wide, x, y), found, UNBOUNDED)
    far = np.hypot(_farthest(x), _farthest(y))
    bent = np.square(plane.bend * far) / 8
    with np.errstate(invalid="ignore"):
        growth = np.expm1(np.minimum(bent, _BENT))
        found = found + (1.0 + found) * growth
        near = (bent <= _BENT) & (far <= FAR)
    return np.where(near, np.minimum(found, UNBOUNDED), UNBOUNDED)


def _within(
    sides: Sequence[tuple[float, float]], x: Sequence[tuple[Any, Any]], y: Sequence[tuple[Any, Any]]
) -> Any:
    inside: Any = True
    for (least, most), spans in zip(sides, (x, y), strict=True):
        for low, high in spans:
            inside = inside & (np.asarray(low) >= least) & (np.asarray(high) <= most)
    return inside


def _farthest(spans: Sequence[tuple[Any, Any]]) -> Any:
    """Return how far apart two of the coordinates may be."""
    lows, highs = ([np.asarray(one[i]) for one in spans] for i in (0, 1))
    return np.maximum(highs[0] - lows[-1], highs[-1] - lows[0])


def distance_error(e: Any, d: Any, share: Any) -> Any:
    """Return the error of a distance ``d`` whose positions contribute the error ``e``, with distortion ``share``."""
    bounded = np.asarray(share) < 1.0
    error = (e + share * d) / np.where(bounded, 1.0 - share, 1.0)
    return np.where(bounded, error, UNBOUNDED * (e + d))
