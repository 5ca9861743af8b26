"""The plane that positions on the Earth were projected to: by how much distances in it are off.

Of a conformal projection the scale at a place is the same in all directions: a short way of true length ``s`` has the length
``k s`` in the plane. Where ``|k - 1| <= distortion`` all along a straight way of length ``d`` in the plane, its true length lies
between ``d / (1 + distortion)`` and ``d / (1 - distortion)``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

_FIELDS = 6


class Plane(NamedTuple):
    """``distortion`` holds in the box from ``west, south`` to ``east, north`` (metres in the plane), ``beyond`` outside of it."""

    distortion: float
    beyond: float
    west: float = -math.inf
    east: float = math.inf
    south: float = -math.inf
    north: float = math.inf

    @classmethod
    def of(cls, fields: Any) -> Plane:
        """From a list of numbers, as a manifest holds them; an open side is null."""
        given = [None if one is None else float(one) for one in fields]
        if len(given) != _FIELDS or given[0] is None or given[1] is None:
            raise ValueError(f"plane: expected {_FIELDS} numbers, got {fields!r}")
        sides = [
            open_side if one is None else one
            for one, open_side in zip(given[2:], (-math.inf, math.inf, -math.inf, math.inf), strict=True)
        ]
        if not 0.0 <= given[0] <= given[1] <= 1.0:
            raise ValueError(f"plane: expected distortions from 0 to 1, the smaller first, got {given[:2]}")
        return cls(given[0], given[1], *sides)

    def to_list(self) -> list[float | None]:
        """As :meth:`of` takes it."""
        return [one if math.isfinite(one) else None for one in self]
