"""Scales of projections against geodesics on WGS84, whatever ellipsoid, sphere or unit the projection uses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.plane import UNBOUNDED
from pulse.datasets.errors import ProjectionError
from pulse.datasets.scale_factors import departure_in_box, scale_factors

pyproj = pytest.importorskip("pyproj")

from pulse.datasets.projection import Extent, Projection, in_metres  # noqa: E402
from pulse.datasets.projection import given as chosen_by_user  # noqa: E402
from pulse.operators.functions.plane_distortion import distance_error, distortion  # noqa: E402

GEOD = pyproj.Geod(ellps="WGS84")
PAIRS = 200


def outside(projection: Projection, seed: int, longest: float = 20_000.0) -> tuple[int, int]:
    """Count pairs of near positions, and those whose geodesic is farther from their distance in the plane than stated."""
    rng = np.random.default_rng(seed)
    extent, plane = projection.extent, projection.plane()
    lat = rng.uniform(extent.south, extent.north, PAIRS)
    lon = (rng.uniform(extent.west, extent.east, PAIRS) + 180) % 360 - 180
    true = 10.0 ** rng.uniform(1, np.log10(longest), PAIRS)
    lon2, lat2, _ = GEOD.fwd(lon, lat, rng.uniform(0, 360, PAIRS), true)
    (x, y), (x2, y2) = projection.forward(lat, lon), projection.forward(np.asarray(lat2), np.asarray(lon2))
    apart = np.hypot(x2 - x, y2 - y)
    share = distortion(plane, [(x, x), (x2, x2)], [(y, y), (y2, y2)])
    coordinates = (
        8 * 2.0**-52 * (np.abs(x) + np.abs(y))
    )  # rounding of the coordinates, which a model has in its own errors
    error = distance_error(coordinates, apart, share)
    beyond = np.abs(apart - true) > error
    beyond |= (true < (apart - coordinates) / (1 + share)) & (share < UNBOUNDED)
    return len(true), int(np.count_nonzero(beyond))


@st.composite
def projections(draw: st.DrawFn) -> tuple[str, Extent]:
    south, west = round(draw(st.floats(-70, 65)), 3), round(draw(st.floats(-175, 165)), 3)
    height, width = draw(st.floats(0.02, 6)), draw(st.floats(0.02, 8))
    extent = Extent(south, south + height, west, west + width)
    lat_0, lon_0 = (
        round(south + height * draw(st.floats(-0.5, 1.5)), 3),
        round(west + width * draw(st.floats(-0.5, 1.5)), 3),
    )
    zone = int((west + 180) // 6) + 1
    figure = draw(
        st.sampled_from(
            [
                "+ellps=WGS84",
                "+R=6371000",
                "+R=6378137",
                "+ellps=clrk66",
                "+ellps=bessel",
                "+a=6380000 +b=6350000",
            ]
        )
    )
    units = draw(
        st.sampled_from(
            ["", "+units=m", "+units=km", "+units=us-ft", "+units=ft", "+to_meter=0.9144", "+units=kmi"]
        )
    )
    factor = draw(st.floats(0.5, 1.8))
    parallels = sorted((round(south - 0.1, 3), round(south + height + 0.1, 3)))
    cone = f"+proj=lcc +lat_1={parallels[0]} +lat_2={parallels[1]} +lat_0={lat_0} +lon_0={lon_0}"
    text = draw(
        st.sampled_from(
            [
                "EPSG:3857",
                "EPSG:3395",
                f"+proj=utm +zone={zone} {'+south ' if south < 0 else ''}+ellps=WGS84 {units}",
                f"+proj=utm +zone={zone} +datum=NAD27 {units}",
                f"+proj=tmerc +lat_0={lat_0} +lon_0={lon_0} +k={factor} {figure} {units}",
                f"+proj=stere +lat_0={lat_0} +lon_0={lon_0} +k={factor} {figure} {units}",
                f"+proj=merc +lon_0={lon_0} +lat_ts={abs(lat_0) % 80} {figure} {units}",
                f"+proj=laea +lat_0={lat_0} +lon_0={lon_0} {figure} {units}",
                f"+proj=aeqd +lat_0={lat_0} +lon_0={lon_0} {figure} {units}",
                f"+proj=eqc +lat_ts={lat_0} +lon_0={lon_0} {figure} {units}",
                f"+proj=sinu +lon_0={lon_0} {figure} {units}",
                f"{cone if abs(parallels[0] + parallels[1]) > 1 else '+proj=merc'} {figure} {units}",
            ]
        )
    )
    return text, extent


@given(chosen=projections(), seed=st.integers(0, 2**32 - 1))
def test_near_distances_lie_within_the_stated_error_of_the_geodesic(
    chosen: tuple[str, Extent], seed: int
) -> None:
    compared, wrong = outside(chosen_by_user(*chosen), seed)
    assert (compared, wrong) == (PAIRS, 0)


@pytest.mark.parametrize(
    ("crs", "lat"),
    [
        ("EPSG:3857", 15.3),  # a sphere that latitudes of WGS84 are put on: its own factors miss 0.6 %
        ("+proj=tmerc +lat_0=34 +lon_0=-120 +R=6371000", 34.1),
        ("EPSG:2229", 34.1),  # US survey feet
        ("+proj=tmerc +lat_0=34 +lon_0=-120 +ellps=WGS84 +units=km", 34.1),
        ("EPSG:26711", 34.1),  # NAD27
        ("+proj=tmerc +lat_0=34 +lon_0=-120 +k=0.0001 +ellps=WGS84", 34.1),
        ("EPSG:3857", 80.0),  # stretches by 5.8
    ],
)
def test_the_distortion_of_a_given_projection_is_against_wgs84_in_metres(crs: str, lat: float) -> None:
    projection = chosen_by_user(crs, Extent(lat - 0.1, lat + 0.1, -120.2, -119.8))
    for seed in range(5):
        assert outside(projection, seed) == (PAIRS, 0)
    lon2, lat2, _ = GEOD.fwd(-120, lat, 0, 502.5)
    (x, x2), (y, y2) = projection.forward(np.array([lat, lat2]), np.array([-120.0, lon2]))
    stated = projection.distortion
    assert 502.5 * (1 - stated) <= np.hypot(x2 - x, y2 - y) <= 502.5 * (1 + stated)


def test_units_are_converted_and_coordinates_without_a_plane_are_refused() -> None:
    assert in_metres("EPSG:3857") == "EPSG:3857"
    feet, metres = in_metres("EPSG:2229"), "+proj=lcc +lat_0=33.5 +lon_0=-118"
    assert feet.startswith(metres)
    assert "+units=m" in feet.split()
    assert "us-ft" not in feet
    for crs in ("EPSG:4326", "+proj=longlat +ellps=WGS84", "EPSG:4978"):
        with pytest.raises(
            ProjectionError, match=r"expected a projection to a plane in metres.*give one such as"
        ):
            chosen_by_user(crs, Extent(0, 1, 0, 1))


def test_scales_of_pole_antimeridian_and_places_without_an_image() -> None:
    polar = pyproj.Proj("+proj=stere +lat_0=90 +ellps=WGS84")
    found = scale_factors(polar, np.array([90.0, 89.99, 89.0]), np.array([0.0, 170.0, -50.0]))
    assert found is not None
    assert np.abs(found - 1).max() < 1e-4
    mercator = pyproj.Proj("+proj=merc +ellps=WGS84")
    found = scale_factors(mercator, np.zeros(3), np.array([180.0, -180.0, 179.9999]))
    assert found is not None
    assert np.abs(found - 1).max() < 1e-9
    gnomonic = pyproj.Proj("+proj=gnom +lat_0=0 +lon_0=0 +R=6371000")
    assert scale_factors(gnomonic, np.array([0.0]), np.array([120.0])) is None
    cone = pyproj.Proj("+proj=lcc +lat_1=30 +lat_2=50 +lat_0=40 +lon_0=0 +ellps=WGS84")
    x, y = cone(np.array([-179.0, 179.0]), np.array([40.0, 40.0]))
    box = float(x[0]), float(x[1]), float(y[0]) - 1e5, float(y[0]) + 1e5  # across the gap of the cone
    assert departure_in_box(cone, lambda a, b: cone(a, b, inverse=True), box, 33) == (UNBOUNDED, 0.0)


def test_a_pair_across_the_edge_of_a_map_of_the_world_is_not_certainly_far() -> None:
    plane = chosen_by_user("+proj=merc +ellps=WGS84", Extent(-5, 5, -180, 180)).plane()
    x, _ = pyproj.Proj("+proj=merc +ellps=WGS84")(np.array([-179.99, 179.99]), np.zeros(2))
    assert distortion(plane, [(x[0], x[0]), (x[1], x[1])], [(0.0, 0.0), (0.0, 0.0)]) == UNBOUNDED


def test_far_pairs_along_an_edge_of_the_extent_lie_within_the_stated_error() -> None:
    compared = wrong = 0
    for crs, extent in (
        ("+proj=merc +ellps=WGS84", Extent(-60, 60, -60, 60)),
        ("+proj=tmerc +lon_0=0 +ellps=WGS84", Extent(30, 60, -20, 20)),
        ("EPSG:3857", Extent(50, 60, 0, 30)),
    ):
        for seed in range(5):
            found = outside(chosen_by_user(crs, extent), seed, longest=3e6)
            compared, wrong = compared + found[0], wrong + found[1]
        north = np.full(20, extent.north)
        east = np.linspace(extent.west + 1, extent.east, 20)
        projection = chosen_by_user(crs, extent)
        (x, x2), (y, y2) = zip(
            projection.forward(north, np.full(20, extent.west)), projection.forward(north, east), strict=True
        )
        share = distortion(projection.plane(), [(x, x), (x2, x2)], [(y, y), (y2, y2)])
        _, _, true = GEOD.inv(np.full(20, extent.west), north, east, north)
        apart = np.hypot(x2 - x, y2 - y)
        compared, wrong = compared + 20, wrong + int(np.count_nonzero(np.asarray(true) < apart / (1 + share)))
    assert (compared, wrong) == (3 * (5 * PAIRS + 20), 0)
