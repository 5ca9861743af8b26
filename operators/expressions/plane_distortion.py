"""How far distances in a plane are off, row by row (:class:`pulse.core.plane.Plane`).

A distance ``d`` in the plane, which errs by ``e`` for its positions, is of a true one between ``(d - e) / (1 + s)`` and
``(d + e) / (1 - s)``, ``s`` being the distortion: so it errs by ``(e + d s) / (1 - s)``, and to compare it with a number ``c`` is
to take ``e + c s`` for its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.plane import Plane

MOST = 0.999  # of a distortion: beyond, nothing is known of a distance


def distortion(plane: Plane, x: Sequence[tuple[Any, Any]], y: Sequence[tuple[Any, Any]]) -> FloatArray:
    """Per row the distortion that holds for coordinates between these lows and highs (each one number, or one per row).

    >>> distortion(Plane(0.01, 0.5, -9.0, 9.0, -9.0, 9.0), [(0.0, np.array([1.0, 10.0]))], [(0.0, 0.0)]).tolist()
    [0.01, 0.5]
    """
    inside: Any = True
    for low, high in x:
        inside = inside & (np.asarray(low) >= plane.west) & (np.asarray(high) <= plane.east)
    for low, high in y:
        inside = inside & (np.asarray(low) >= plane.south) & (np.asarray(high) <= plane.north)
    found: FloatArray = np.where(inside, plane.distortion, min(plane.beyond, MOST))
    return found


def distorted(e: Any, d: Any, share: Any) -> Any:
    """The error of a distance ``d`` in the plane that errs by ``e`` there."""
    return (e + share * d) / (1.0 - share)
