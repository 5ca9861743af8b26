"""Measure by how much a projection stretches lengths, against WGS84.

Positions are latitudes and longitudes on WGS84, whatever ellipsoid, sphere or unit a projection uses. So the scale is measured on
the plane coordinates themselves: with their derivatives by latitude ``φ`` and longitude ``λ``, the matrix

    [ x_λ / (N cos φ)    x_φ / M ]
    [ y_λ / (N cos φ)    y_φ / M ]

maps a step of one metre on WGS84 to the plane, with the radii of curvature ``M`` along the meridian and ``N`` across it. Its
singular values are the largest and the smallest scale at the place. PROJ's own factors are relative to the projection's ellipsoid
and ignore its unit, which is why they are not used.

Derivatives are central differences of fourth order over 640 m: their truncation is below 1e-11, their rounding below 1e-9 for
coordinates up to 10,000 km (:data:`ROUNDING`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.plane import UNBOUNDED

Forward = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""From longitudes and latitudes in degrees to coordinates in the plane, infinite where there are none."""

ROUNDING = 2e-9  # of a scale: what differences of coordinates and PROJ's own arithmetic may be off by
_SEMIMAJOR, _FLATTENING = 6_378_137.0, 1 / 298.257223563  # WGS84, metres
_SQUARED_ECCENTRICITY = _FLATTENING * (2 - _FLATTENING)
_STEP = 1e-4  # radians
_LONGEST = 5e-3  # radians of longitude: near a pole a step of this is shorter than the others
_POLE = 89.98  # degrees: the stencil of a place beyond would reach over the pole
_KINK = 1e-4  # relative difference of the slopes over one and over two steps from which on a coordinate jumps between them
_SAFETY = 2.0  # on what second differences and gradients of a grid say of places between its points


def scale_factors(forward: Forward, lat: FloatArray, lon: FloatArray) -> FloatArray | None:
    """Return the largest and the smallest scale at each place, shape ``(2, n)``; None where a place has no image.

    At an edge of the map, where longitudes wrap around, the scale beside it is measured.

    >>> degrees = lambda lon, lat: (lon, lat)
    >>> (1 / scale_factors(degrees, np.array([0.0]), np.array([0.0]))).round().T.tolist()
    [[110574.0, 111319.0]]
    """
    lat = np.clip(lat, -_POLE, _POLE)
    phi = np.radians(lat)
    east = np.degrees(np.minimum(_STEP / np.cos(phi), _LONGEST))
    found, smooth = _measure(forward, lat, lon, east)
    for shift in (3.0, -3.0):
        bad = np.flatnonzero(~smooth)
        if len(bad) == 0:
            break
        found[:, bad], smooth[bad] = _measure(forward, lat[bad], lon[bad] + shift * east[bad], east[bad])
    usable = smooth.all() and np.isfinite(found).all() and (found > 0).all()
    return found if usable else None


def _measure(forward: Forward, lat: FloatArray, lon: FloatArray, east: FloatArray) -> tuple[Any, Any]:
    """Return the scales at each place, and whether the coordinates are smooth around it."""
    north = np.full(len(lat), np.degrees(_STEP))
    by_lon, smooth = _slopes(lambda k: forward(_turned(lon + k * east), lat), east)
    by_lat, also = _slopes(lambda k: forward(_turned(lon), lat + k * north), north)
    w = np.sqrt(1 - _SQUARED_ECCENTRICITY * np.sin(np.radians(lat)) ** 2)
    across = _SEMIMAJOR / w * np.cos(np.radians(lat))
    along = _SEMIMAJOR * (1 - _SQUARED_ECCENTRICITY) / w**3
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = by_lon / across, by_lat / along
        # (s1 + s2)^2 and (s1 - s2)^2 of the singular values s1 >= s2, without cancellation.
        plus = np.hypot(a[0] + b[1], b[0] - a[1])
        minus = np.hypot(a[0] - b[1], b[0] + a[1])
        found = np.stack([(plus + minus) / 2, np.abs(plus - minus) / 2])
    return found, smooth & also


def _slopes(image: Callable[[float], Any], step: FloatArray) -> tuple[FloatArray, Any]:
    """Return the derivatives of both coordinates, in metres per radian, and where one and two steps agree on them."""
    with np.errstate(invalid="ignore", over="ignore"):
        near, far = (np.stack(image(k)) - np.stack(image(-k)) for k in (1.0, 2.0))
        size = np.hypot(*near)
        smooth = np.hypot(*(far / 2 - near)) <= _KINK * size
        slopes: FloatArray = (8 * near - far) / (12 * np.radians(step))
    return slopes, smooth


def _turned(lon: FloatArray) -> FloatArray:
    turned: FloatArray = (lon + 180.0) % 360.0 - 180.0
    return turned


def largest_departure(scales: FloatArray) -> float:
    """Return the largest departure of scales from 1, with their rounding and a hundredth for places between those measured."""
    return 1.01 * float(np.abs(scales - 1).max()) + ROUNDING


def departure_in_box(
    forward: Forward, inverse: Forward, box: tuple[float, float, float, float], points: int
) -> tuple[float, float]:
    """Return the largest departure of the scale from 1 in a box of the plane, and the largest gradient of its logarithm.

    It is measured on a grid that includes the edges. Between its points the scale may exceed theirs by an eighth of its second
    differences, which is added twice. :data:`UNBOUNDED` and 0 if a point has no image, or is the image of another place: then the
    box contains a gap of the map.
    """
    width, height = (box[1] - box[0]) / (points - 1), (box[3] - box[2]) / (points - 1)
    mesh = np.meshgrid(np.linspace(box[0], box[1], points), np.linspace(box[2], box[3], points))
    x, y = mesh[0].ravel(), mesh[1].ravel()
    lon, lat = inverse(x, y)
    nowhere = UNBOUNDED, 0.0
    if not (np.isfinite(lat) & np.isfinite(lon)).all():
        return nowhere
    back = forward(lon, lat)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.hypot(back[0] - x, back[1] - y)
    inner = np.zeros((points, points), bool)
    inner[1:-1, 1:-1] = True  # on the edges longitudes may wrap around
    if not (off[inner.ravel()] <= 1e-3 * max(width, height)).all():
        return nowhere
    scales = scale_factors(forward, lat, lon)
    if scales is None:
        return nowhere
    grid = scales.reshape(2, points, points)
    between = sum(float(np.abs(np.diff(grid, 2, axis=axis)).max()) / 8 for axis in (1, 2))
    slope = np.gradient(np.log(grid), axis=(1, 2))
    bend = float(np.hypot(slope[0] / max(height, 1e-9), slope[1] / max(width, 1e-9)).max())
    return min(largest_departure(scales) + _SAFETY * between, UNBOUNDED), _SAFETY * bend
