"""Positions to metres: one conformal projection per data set, chosen by the data's extent.

Every candidate is conformal (its scale is the same in all directions), so one number says how far distances are
off: the scale's largest departure from 1. It is balanced over the extent by a factor at the centre
(``+k_0``), which halves it. Candidates, of which the one with the smallest departure is taken:

* ``stere``, oblique stereographic: compact regions. Within a radius r of its centre the departure is
  (r/2R)²/2 = r²/8R²: 0.00001 % at 5 km, 0.08 % at 500 km.
* ``lcc``, a cone: regions wider than high, such as a continent's coasts. Departure about Δφ²/16.
* ``merc``, Mercator: the tropics, and the world, where no plane is good: from 60° S to 60° N it is off by up to a third.

The local azimuthal equidistant projection was measured, too: a sixth as fast, and no better at 500 km.
The bound holds for the distance of any two points, if the straight line between them lies within the extent.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.plane import Plane
from pulse.datasets.errors import ProjectionError

_GRID = 33  # points per side at which the scale is looked at; its extremes lie on the edge or in the middle
_TRIM = 1e-3  # the share of positions that may lie outside the extent, at each of its four sides
_MARGIN = 0.05  # by how much the extent is widened, in degrees
_EARTH = 6_371_000.0  # metres, the mean radius
_DEGREE = 111_195.0  # metres
_MOST_RADIUS = 5_000_000.0  # beyond, a region is a box only


class Extent(NamedTuple):
    """A box in degrees, and of it what lies within ``radius`` metres of its middle.

    ``east`` may exceed 180: a region across the antimeridian keeps west < east.
    """

    south: float
    north: float
    west: float
    east: float
    radius: float = np.inf

    def centre(self) -> tuple[float, float]:
        """Latitude and longitude of the middle."""
        return round((self.south + self.north) / 2, 4), round((self.west + self.east) / 2, 4)

    def holds(self, lat: FloatArray, lon: FloatArray) -> BoolArray:
        """Which positions lie in it."""
        inside: BoolArray = (lat >= self.south) & (lat <= self.north)
        inside &= (lon - self.west) % 360.0 <= self.east - self.west
        if np.isfinite(self.radius):
            inside &= _metres(self.centre(), lat, lon) <= self.radius
        return inside


@dataclass(frozen=True)
class Projection:
    """A projection as PROJ writes it, the extent it was chosen for, and its distortion there (0.001 is 0.1 %)."""

    crs: str
    extent: Extent
    distortion: float

    def __post_init__(self) -> None:
        _transformer(self.crs)

    def __str__(self) -> str:
        south, north, west, east, radius = self.extent
        disc = f", {radius / 1000:.0f} km around their middle" if np.isfinite(radius) else ""
        return (
            f"{self.crs}: distances within {100 * self.distortion:.2g} % "
            f"for latitudes {south:g} to {north:g}, longitudes {west:g} to {east:g}{disc}"
        )

    def forward(self, lat: FloatArray, lon: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Metres east and north of the centre; infinite where the projection has no image."""
        x, y = _transformer(self.crs)(lon, lat)
        return x, y

    def plane(self) -> Plane:
        """The box in the plane around the extent, with the largest distortion anywhere in it; and beyond it, as far again on
        each side as the box is long."""
        lat, lon = _grid(self.extent)
        x, y = self.forward(lat, lon)
        fine = np.isfinite(x) & np.isfinite(y)
        if not fine.any():
            return Plane(min(self.distortion, 1.0), 1.0)
        box = float(x[fine].min()), float(x[fine].max()), float(y[fine].min()), float(y[fine].max())
        inside = max(self.distortion, _box_distortion(self.crs, box))
        width, height = box[1] - box[0], box[3] - box[2]
        wide = box[0] - width, box[1] + width, box[2] - height, box[3] + height
        return Plane(min(inside, 1.0), min(max(inside, _box_distortion(self.crs, wide)), 1.0), *box)

    def outside(self, lat: FloatArray, lon: FloatArray) -> int:
        """How many positions lie outside the extent that the distortion is stated for."""
        known = np.isfinite(lat)
        return int(np.count_nonzero(known & ~self.extent.holds(lat, lon)))


def pyproj() -> Any:
    """The module, imported when it is first needed."""
    try:
        import pyproj as module
    except ImportError:
        raise ProjectionError(
            "projection: positions are projected to metres with pyproj, which is not installed; "
            "run: pip install 'pulse-stream[geo]'"
        ) from None
    return module


@functools.lru_cache(maxsize=16)
def _transformer(crs: str) -> Any:
    """A callable (lon, lat) → (x, y), made once per process."""
    module = pyproj()
    try:
        return module.Proj(crs)
    except module.exceptions.ProjError as e:
        raise ProjectionError(f"projection: PROJ does not understand {crs!r} ({e})") from None


def extent_of(lat: FloatArray, lon: FloatArray) -> Extent:
    """The smallest extent that holds all but 0.1 % of the positions at each side, a little widened.

    Stray positions are real in AIS; the few must not decide for the many. Longitudes are cut where the widest
    empty arc lies, so that a region across the antimeridian is one region.
    """
    if len(lat) == 0:
        raise ProjectionError(
            "projection: the first file holds no position to choose one by; give projection="
        )
    south, north = np.quantile(lat, [_TRIM, 1 - _TRIM])
    start = _widest_gap(lon)
    west, east = np.quantile((lon - start) % 360.0, [_TRIM, 1 - _TRIM]) + start
    turn = 360.0 * np.floor((west + 180.0) / 360.0)
    box = Extent(
        max(-90.0, round(float(south) - _MARGIN, 2)),
        min(90.0, round(float(north) + _MARGIN, 2)),
        round(float(west - turn) - _MARGIN, 2),
        round(float(min(east, west + 360 - 2 * _MARGIN) - turn) + _MARGIN, 2),
    )
    radius = float(np.quantile(_metres(box.centre(), lat, lon), 1 - _TRIM)) + _MARGIN * _DEGREE
    return box._replace(radius=float(np.ceil(radius / 1000) * 1000)) if radius < _MOST_RADIUS else box


def _metres(centre: tuple[float, float], lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Distances on the sphere from one point: good to half a percent, which is enough to delimit a region."""
    north, east = np.radians(lat - centre[0]) / 2, np.radians(lon - centre[1]) / 2
    chord = np.sin(north) ** 2 + np.cos(np.radians(lat)) * np.cos(np.radians(centre[0])) * np.sin(east) ** 2
    distance: FloatArray = 2 * _EARTH * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0)))
    return distance


def _widest_gap(lon: FloatArray) -> float:
    """The longitude, in whole degrees, at which the widest arc without positions ends."""
    counts = np.bincount(np.floor(lon % 360.0).astype(np.int64) % 360, minlength=360)
    filled = np.flatnonzero(counts > _TRIM * len(lon) / 10)
    gaps = np.diff(filled, append=filled[0] + 360)
    return float(filled[(int(np.argmax(gaps)) + 1) % len(filled)])


def choose(extent: Extent) -> Projection:
    """The projection with the least distortion over the extent."""
    best: Projection | None = None
    for definition in _candidates(extent):
        found = _balanced(definition, extent)
        if found is not None and (best is None or found.distortion < best.distortion):
            best = found
    if best is None:
        raise ProjectionError(
            f"projection: none suits the extent {tuple(extent)}; give projection= as PROJ writes it"
        )
    return best


def given(crs: str, extent: Extent) -> Projection:
    """A projection that the user chose, with its largest distortion over the extent, in any direction."""
    lat, lon = _grid(extent)
    scales = _scales(crs, lat, lon)
    if scales is None:
        raise ProjectionError(f"projection: {crs!r} has no image of all of {tuple(extent)}; choose another")
    return Projection(crs, extent, float(np.abs(scales - 1).max()))


def _candidates(extent: Extent) -> Iterator[str]:
    south, north, west, east, _ = extent
    lat_0, lon_0 = extent.centre()
    common = f"+lon_0={lon_0} +ellps=WGS84 +units=m"
    if east - west < 180:
        yield f"+proj=stere +lat_0={lat_0} {common}"
    sixth = (north - south) / 6
    if abs(lat_0) > 1 and max(abs(south), abs(north)) < 89 and south * north > 0:
        yield f"+proj=lcc +lat_1={round(south + sixth, 4)} +lat_2={round(north - sixth, 4)} +lat_0={lat_0} {common}"
    if max(abs(south), abs(north)) < 89:
        yield f"+proj=merc {common}"
    if south >= 45 or north <= -45:
        yield f"+proj=stere +lat_0={90 if south > 0 else -90} {common}"


def _balanced(definition: str, extent: Extent) -> Projection | None:
    """The projection with the factor that makes the scale's departures from 1 equal on both sides."""
    lat, lon = _grid(extent)
    scales = _scales(definition, lat, lon)
    if scales is None:
        return None
    low, high = float(scales.min()), float(scales.max())
    factor = round(2 / (low + high), 9)
    distortion = max(high * factor - 1, 1 - low * factor)
    return Projection(f"{definition} +k_0={factor:.9f}", extent, float(f"{distortion:.3g}") + 1e-9)


def _box_distortion(crs: str, box: tuple[float, float, float, float]) -> float:
    """The largest distortion in a box of the plane, by a grid of points with its edges; 1 where a part of it is no image.

    The scale is smooth, and within the box a little larger at most than at the points of so fine a grid: a hundredth is added.
    """
    mesh = np.meshgrid(np.linspace(box[0], box[1], _GRID), np.linspace(box[2], box[3], _GRID))
    lon, lat = _transformer(crs)(mesh[0].ravel(), mesh[1].ravel(), inverse=True)
    if not (np.isfinite(lat) & np.isfinite(lon)).all():
        return 1.0
    scales = _scales(crs, lat, lon)
    return 1.0 if scales is None else 1.01 * float(np.abs(scales - 1).max())


def _grid(extent: Extent) -> tuple[FloatArray, FloatArray]:
    """Points all over the extent, its edge included: the box's, and that of the disc."""
    south, north, west, east, radius = extent
    mesh = np.meshgrid(np.linspace(south, north, _GRID), np.linspace(west, east, _GRID))
    lat, lon = mesh[0].ravel(), mesh[1].ravel()
    if np.isfinite(radius):
        # A little further: the Earth is no sphere.
        (lat_0, lon_0), angle = extent.centre(), 1.01 * radius / _EARTH
        inside = _metres((lat_0, lon_0), lat, lon) <= radius
        heading = np.linspace(0, 2 * np.pi, 4 * _GRID)
        sine = np.sin(np.radians(lat_0)) * np.cos(angle) + np.cos(np.radians(lat_0)) * np.sin(angle) * np.cos(
            heading
        )
        rim = np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))
        across = np.cos(angle) - np.sin(np.radians(lat_0)) * sine
        turn = np.arctan2(np.sin(heading) * np.sin(angle) * np.cos(np.radians(lat_0)), across)
        lat = np.concatenate([lat[inside], np.clip(rim, south, north)])
        lon = np.concatenate([lon[inside], np.clip(lon_0 + np.degrees(turn), west, east)])
    return lat, (lon + 180.0) % 360.0 - 180.0


def _scales(definition: str, lat: FloatArray, lon: FloatArray) -> FloatArray | None:
    """The largest and smallest scale at each point, or None where one has no image."""
    module = pyproj()
    inside = np.clip(lat, -89.99, 89.99)  # derivatives at a pole itself are not defined
    try:
        factors = _transformer(definition).get_factors(lon, inside, errcheck=True)
    except module.exceptions.ProjError:
        return None
    scales: FloatArray = np.concatenate([factors.tissot_semimajor, factors.tissot_semiminor])
    return scales if np.isfinite(scales).all() and (scales > 0).all() else None
