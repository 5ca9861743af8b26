"""Project positions to metres: one conformal projection per data set, chosen by the data's extent.

Every candidate is conformal (its scale is the same in all directions), so one number bounds the error of distances: the scale's
largest departure from 1. It is balanced over the extent by a factor at the centre (``+k_0``), which halves it. The candidate
with the smallest departure is taken:

* ``stere``, oblique stereographic: compact regions. Within a radius r of its centre the departure is
  (r/2R)²/2 = r²/8R²: 0.00001 % at 5 km, 0.08 % at 500 km.
* ``lcc``, a cone: regions wider than high, such as a continent's coasts. Departure about Δφ²/16.
* ``merc``, Mercator: the tropics, and the world, where no plane is good: from 60° S to 60° N it is off by up to a third.

The local azimuthal equidistant projection was measured, too: a sixth as fast, and no better at 500 km. The bound holds for the
distance of any two points, if the straight line between them lies within the extent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.plane import UNBOUNDED, Plane
from pulse.datasets.errors import ProjectionError
from pulse.datasets.scale_factors import departure_in_box, largest_departure, scale_factors

_GRID = 33  # points per side at which the scale is evaluated; its extremes lie on the edge or in the middle
_TRIM = 1e-3  # the share of positions that may lie outside the extent, at each of its four sides
_MARGIN = 0.05  # degrees by which the extent is widened
_EARTH = 6_371_000.0  # metres, the mean radius
_DEGREE = 111_195.0  # metres
_MOST_RADIUS = 5_000_000.0  # beyond it, a region is a box only


class Extent(NamedTuple):
    """A box in degrees, limited to ``radius`` metres around its middle.

    ``east`` may exceed 180: a region across the antimeridian keeps west < east.
    """

    south: float
    north: float
    west: float
    east: float
    radius: float = np.inf

    def centre(self) -> tuple[float, float]:
        """Return latitude and longitude of the middle."""
        return round((self.south + self.north) / 2, 4), round((self.west + self.east) / 2, 4)

    def holds(self, lat: FloatArray, lon: FloatArray) -> BoolArray:
        """Return which positions lie in it."""
        inside: BoolArray = (lat >= self.south) & (lat <= self.north)
        inside &= (lon - self.west) % 360.0 <= self.east - self.west
        if np.isfinite(self.radius):
            inside &= _metres(self.centre(), lat, lon) <= self.radius
        return inside


@dataclass(frozen=True)
class Projection:
    """A projection in PROJ notation, the extent it was chosen for, and its distortion there (0.001 is 0.1 %)."""

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
        """Return metres east and north of the centre; infinite where the projection has no image."""
        x, y = _transformer(self.crs)(lon, lat)
        return x, y

    def plane(self) -> Plane:
        """Return the box in the plane around the extent, with its largest distortion, and that of a box three times as long."""
        lat, lon = _grid(self.extent)
        x, y = self.forward(lat, lon)
        fine = np.isfinite(x) & np.isfinite(y)
        if not fine.any():
            return Plane(UNBOUNDED, UNBOUNDED)
        box = float(x[fine].min()), float(x[fine].max()), float(y[fine].min()), float(y[fine].max())
        inside, bend = _in_box(self.crs, box)
        inside = max(inside, min(self.distortion, UNBOUNDED))
        width, height = box[1] - box[0], box[3] - box[2]
        wide = box[0] - width, box[1] + width, box[2] - height, box[3] + height
        beyond, bend_beyond = _in_box(self.crs, wide)
        # Where only the wide box has places without an image, its bend is not known; beyond is unbounded then.
        return Plane(inside, max(inside, beyond), *box, max(bend, bend_beyond))

    def outside(self, lat: FloatArray, lon: FloatArray) -> int:
        """Count the positions outside the extent of the stated distortion."""
        known = np.isfinite(lat)
        return int(np.count_nonzero(known & ~self.extent.holds(lat, lon)))


def pyproj() -> Any:
    """Import the module when it is first needed."""
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
    """Return a callable (lon, lat) → (x, y), built once per process."""
    module = pyproj()
    try:
        return module.Proj(crs)
    except module.exceptions.ProjError as e:
        raise ProjectionError(f"projection: PROJ cannot parse {crs!r} ({e})") from None


def extent_of(lat: FloatArray, lon: FloatArray) -> Extent:
    """Return the smallest extent that holds all but 0.1 % of the positions at each side, slightly widened.

    AIS contains stray positions; they must not determine the extent. Longitudes are cut at the widest empty arc, so that a
    region across the antimeridian is one region.
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
    """Return distances on the sphere from one point: accurate to half a percent, which is enough to delimit a region."""
    north, east = np.radians(lat - centre[0]) / 2, np.radians(lon - centre[1]) / 2
    chord = np.sin(north) ** 2 + np.cos(np.radians(lat)) * np.cos(np.radians(centre[0])) * np.sin(east) ** 2
    distance: FloatArray = 2 * _EARTH * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0)))
    return distance


def _widest_gap(lon: FloatArray) -> float:
    """Return the longitude, in whole degrees, at which the widest arc without positions ends."""
    counts = np.bincount(np.floor(lon % 360.0).astype(np.int64) % 360, minlength=360)
    filled = np.flatnonzero(counts > _TRIM * len(lon) / 10)
    gaps = np.diff(filled, append=filled[0] + 360)
    return float(filled[(int(np.argmax(gaps)) + 1) % len(filled)])


def choose(extent: Extent) -> Projection:
    """Return the projection with the least distortion over the extent."""
    found = [_balanced(definition, extent) for definition in _candidates(extent)]
    usable = [one for one in found if one is not None]
    if not usable:
        raise ProjectionError(
            f"projection: none suits the extent {tuple(extent)}; give projection= as PROJ writes it"
        )
    return min(usable, key=lambda one: one.distortion)


def given(crs: str, extent: Extent) -> Projection:
    """Return a projection that the user chose, with its largest distortion over the extent, in any direction."""
    crs = in_metres(crs)
    lat, lon = _grid(extent)
    scales = _scales(crs, lat, lon)
    if scales is None:
        raise ProjectionError(f"projection: {crs!r} has no image of all of {tuple(extent)}; choose another")
    return Projection(crs, extent, min(largest_departure(scales), UNBOUNDED))


def in_metres(crs: str) -> str:
    """Return the projection as it is if its unit is the metre, else as PROJ text with ``+units=m``.

    >>> in_metres("EPSG:25832"), in_metres("+proj=merc +ellps=WGS84 +units=km").split()[-2]
    ('EPSG:25832', '+units=m')
    """
    system = _transformer(crs).crs
    if not system.is_projected:
        raise ProjectionError(
            f"projection: expected a projection to a plane in metres, got {crs!r} ({system.type_name}); "
            "give one such as EPSG:25832, or none to have it chosen"
        )
    units = [(axis.unit_name, axis.unit_conversion_factor) for axis in system.axis_info[:2]]
    if all(factor == 1.0 for _, factor in units):
        return crs
    text = re.sub(r"\+(units|to_meter)=\S+", "", _transformer(crs).srs)
    text = " ".join([*(part for part in text.split() if part != "+no_defs"), "+units=m", "+no_defs"])
    if any(axis.unit_conversion_factor != 1.0 for axis in _transformer(text).crs.axis_info[:2]):
        raise ProjectionError(
            f"projection: {crs!r} is in {units[0][0]}, expected metres; give it as PROJ text with +units=m"
        )
    return text


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
    """Return the projection with the factor that makes the scale's departures from 1 equal on both sides."""
    lat, lon = _grid(extent)
    scales = _scales(definition, lat, lon)
    if scales is None:
        return None
    low, high = float(scales.min()), float(scales.max())
    factor = round(2 / (low + high), 9)
    distortion = largest_departure(scales * factor)
    return Projection(f"{definition} +k_0={factor:.9f}", extent, float(f"{1.005 * distortion:.3g}"))


def _in_box(crs: str, box: tuple[float, float, float, float]) -> tuple[float, float]:
    transform = _transformer(crs)
    return departure_in_box(transform, functools.partial(transform, inverse=True), box, _GRID)


def _grid(extent: Extent) -> tuple[FloatArray, FloatArray]:
    """Return points all over the extent, including the edges of the box and of the disc."""
    south, north, west, east, radius = extent
    mesh = np.meshgrid(np.linspace(south, north, _GRID), np.linspace(west, east, _GRID))
    lat, lon = mesh[0].ravel(), mesh[1].ravel()
    if np.isfinite(radius):
        # Slightly further: the Earth is no sphere.
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
    """Return the largest and smallest scale at each point, or None where one has no image."""
    return scale_factors(_transformer(definition), lat, lon)
