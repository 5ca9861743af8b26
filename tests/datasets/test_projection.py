from __future__ import annotations

import builtins
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.datasets.errors import ProjectionError
from pulse.datasets.projection import Extent, Projection, choose, extent_of
from pulse.datasets.projection import given as chosen_by_user

pyproj = pytest.importorskip("pyproj")
GEOD = pyproj.Geod(ellps="WGS84")


def errors(projection: Projection, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Relative errors of the distances of consecutive positions, against geodesics."""
    x, y = projection.forward(lat, lon)
    plane = np.hypot(np.diff(x), np.diff(y))
    _, _, true = GEOD.inv(lon[:-1], lat[:-1], lon[1:], lat[1:])
    far = np.asarray(true) > 1.0
    return np.asarray(plane[far] / np.asarray(true)[far] - 1)


@pytest.mark.parametrize("centre", [(0.0, 0.0), (40.7, -74.0), (-34.0, 151.0), (57.0, 179.9), (78.0, 15.0)])
def test_within_500_km_distances_are_within_a_thousandth(centre: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    far = 500_000 * np.sqrt(rng.random(4000))
    lon, lat, _ = GEOD.fwd(np.full(4000, centre[1]), np.full(4000, centre[0]), rng.uniform(0, 360, 4000), far)
    lat, lon = np.asarray(lat), np.asarray(lon)
    projection = choose(extent_of(lat, lon))
    assert projection.crs.startswith("+proj=stere")
    assert projection.outside(lat, lon) <= 40  # a thousandth at each side may be strays
    found = errors(projection, lat, lon)
    assert projection.distortion < 1e-3
    assert np.abs(found).max() <= projection.distortion + 1e-6
    # Near pairs, too: what encounters are made of.
    x_lon, x_lat, _ = GEOD.fwd(lon, lat, rng.uniform(0, 360, 4000), np.full(4000, 500.0))
    x, y = projection.forward(lat, lon)
    x2, y2 = projection.forward(np.asarray(x_lat), np.asarray(x_lon))
    assert np.abs(np.hypot(x2 - x, y2 - y) / 500.0 - 1).max() <= projection.distortion + 1e-5


@given(
    south=st.floats(-80, 75),
    height=st.floats(0.01, 40),
    west=st.floats(-180, 180),
    width=st.floats(0.01, 90),
)
def test_the_stated_distortion_holds_for_near_points(
    south: float, height: float, west: float, width: float
) -> None:
    extent = Extent(south, min(84.0, south + height), west, west + width)
    projection = choose(extent)
    rng = np.random.default_rng(0)
    lat = rng.uniform(extent.south, extent.north, 200)
    lon = (rng.uniform(extent.west, extent.east, 200) + 180) % 360 - 180
    lon2, lat2, _ = GEOD.fwd(lon, lat, rng.uniform(0, 360, 200), np.full(200, 10.0))
    (x, y), (x2, y2) = projection.forward(lat, lon), projection.forward(np.asarray(lat2), np.asarray(lon2))
    assert np.isfinite(x).all()
    off = np.hypot(x2 - x, y2 - y) / 10.0 - 1
    assert np.abs(off).max() <= projection.distortion * 1.01 + 1e-5
    assert projection == choose(extent)
    assert pickle.loads(pickle.dumps(projection)) == projection
    assert projection.outside(lat, lon) <= 2  # rounding at the edge


def test_a_region_across_the_antimeridian_is_one_region() -> None:
    lon = np.array([179.0, 179.5, -179.5, -179.0] * 100)
    extent = extent_of(np.full(400, 10.0), lon)
    assert extent.east - extent.west < 3
    x, _ = choose(extent).forward(np.full(4, 10.0), lon[:4])
    assert (np.diff(x) > 0).all()


def test_a_few_stray_positions_do_not_decide() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(40, 41, 100_000), rng.uniform(-75, -74, 100_000)
    lat[:50], lon[:50] = 0.0, 0.0
    extent = extent_of(lat, lon)
    assert extent.south > 39.8
    assert extent.east < -73.8
    assert choose(extent).outside(lat, lon) >= 50


@pytest.mark.parametrize(
    ("extent", "kind", "most"),
    [
        (Extent(40, 41, -75, -74), "stere lcc", 1e-4),
        (Extent(17, 49, -158, -64), "lcc", 0.025),
        (Extent(-5, 5, -180, 180), "merc", 0.005),
        (Extent(-60, 60, -180, 180), "merc", 0.34),
        (Extent(70, 90, -180, 180), "stere", 0.02),
    ],
)
def test_what_suits_which_extent(extent: Extent, kind: str, most: float) -> None:
    projection = choose(extent)
    assert projection.crs.split()[0].removeprefix("+proj=") in kind.split()
    assert projection.distortion < most
    assert "distances within" in str(projection)


def test_a_projection_of_ones_own() -> None:
    utm = chosen_by_user("+proj=utm +zone=18 +ellps=WGS84", Extent(40, 41, -75, -74))
    assert 3e-4 < utm.distortion < 5e-4  # UTM is 0.04 % short at its middle
    with pytest.raises(ProjectionError, match="PROJ cannot parse"):
        Projection("+proj=nonsense", Extent(0, 1, 0, 1), 0.0)
    with pytest.raises(ProjectionError, match="no position to choose"):
        extent_of(np.empty(0), np.empty(0))


def test_without_pyproj_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyproj":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ProjectionError, match=r"pip install 'pulse-stream\[geo\]'"):
        Projection("+proj=merc +lat_ts=12.345", Extent(0, 1, 0, 1), 0.0)
