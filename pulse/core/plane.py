"""Bound the distortion of distances in the plane that positions on the Earth were projected to.

A short path of true length ``s`` (in metres on WGS84) has the length ``k s`` in the plane, with a scale ``k`` that depends on
place and direction. Where ``|k - 1| <= distortion`` in a box, a straight path of length ``d`` in it has a true length of at most
``d / (1 - distortion)``. The shortest path is curved in the plane, by up to ``bend = max |grad ln k|``. So it leaves the box by
at most about ``bend d^2 / 8``, where the scale is larger by a factor of at most ``exp((bend d)^2 / 8)``: the true distance is at
least ``d / (1 + distortion) / exp((bend d)^2 / 8)``. Farther than :data:`FAR` apart, the shortest path may cross an edge of the
map.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

UNBOUNDED = 1e12  # a distortion that excludes nothing: the scale is not known
FAR = 1e7  # metres in the plane
_FIELDS = 6  # in models of older versions; later ones have ``bend``, too


class Plane(NamedTuple):
    """A plane with ``distortion`` in the box from ``west, south`` to ``east, north`` (metres in the plane), ``beyond`` outside.

    ``beyond`` holds as far again on each side as the box is long; farther away nothing is known. ``crs`` is the projection in
    PROJ notation, empty where it is not known.
    """

    distortion: float
    beyond: float
    west: float = -math.inf
    east: float = math.inf
    south: float = -math.inf
    north: float = math.inf
    bend: float = 0.0
    crs: str = ""

    @classmethod
    def of(cls, fields: Any) -> Plane:
        """Build a plane from a list of numbers, as stored in a manifest; an open side is null.

        Older versions wrote 1 for every distortion from 1 on.

        >>> Plane.of([0.01, 1.0, None, None, None, None])[:2]
        (0.01, 1000000000000.0)
        """
        given = [None if one is None else float(one) for one in fields]
        bend = given.pop() if len(given) == _FIELDS + 1 else 0.0
        if len(given) != _FIELDS or given[0] is None or given[1] is None or bend is None:
            raise ValueError(f"plane: expected {_FIELDS} or {_FIELDS + 1} numbers, got {fields!r}")
        near, far = given[0], given[1]
        west, east, south, north = (
            open_side if one is None else one
            for one, open_side in zip(given[2:], (-math.inf, math.inf, -math.inf, math.inf), strict=True)
        )
        if not (0.0 <= near <= far <= UNBOUNDED and bend >= 0.0):
            raise ValueError(f"plane: expected distortions of at least 0, the smaller first, got {given[:2]}")
        inside, beyond = (UNBOUNDED if one == 1.0 else one for one in (near, far))
        return cls(inside, max(inside, beyond), west, east, south, north, bend)

    def to_list(self) -> list[float | None]:
        """Return the list that :meth:`of` takes, without the projection."""
        box = self.west, self.east, self.south, self.north
        numbers = (self.distortion, self.beyond, *box, self.bend)
        return [one if math.isfinite(one) else None for one in numbers]
