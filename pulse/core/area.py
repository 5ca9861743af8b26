"""Hold an area of the plane: polygons with holes, as a function of positions takes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse.core.expression import Expression


@dataclass(frozen=True)
class Area(Expression):
    """A polygon, or several, in the coordinates of the positions that it is compared with.

    ``wkb`` is its geometry as well-known binary. Its edges lie within ``tolerance`` of the area that was meant, in each
    coordinate: edges that are straight in degrees are curves in a projection, which are drawn as short straight ones. ``label``
    stands for it in texts.
    """

    wkb: bytes
    tolerance: float = 0.0
    label: str = field(default="area", compare=False)

    def __str__(self) -> str:
        return self.label
