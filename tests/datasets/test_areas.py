"""Areas in all their forms: where they lie, what is ambiguous, what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely

from pulse.core.area import Area
from pulse.datasets.areas import DEGREES, TOLERANCE, read_area
from pulse.datasets.errors import AreaError

CRS = "+proj=stere +lat_0=40.7 +lon_0=-74 +ellps=WGS84 +units=m +k_0=1.0"
HARBOUR = [[-74.1, 40.6], [-73.9, 40.6], [-73.9, 40.8], [-74.1, 40.8], [-74.1, 40.6]]
GEOJSON: dict[str, Any] = {"type": "Polygon", "coordinates": [HARBOUR]}
WKT = "POLYGON ((-74.1 40.6, -73.9 40.6, -73.9 40.8, -74.1 40.8, -74.1 40.6))"
METRES = "POLYGON ((0 0, 1000 0, 1000 1000, 0 0))"


def shape(area: Area) -> Any:
    return shapely.from_wkb(area.wkb)


def read(value: Any, crs: str = CRS, **more: Any) -> Area:
    return read_area(value, name="area", crs=crs, **more)


def geoparquet(path: Path, column: dict[str, Any], geometries: list[bytes | None]) -> Path:
    table = pa.table({"geometry": pa.array(geometries, pa.binary())})
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


def test_all_forms_in_degrees_are_the_same(tmp_path: Path) -> None:
    wanted = read(GEOJSON)
    (tmp_path / "a.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": GEOJSON}]})
    )
    (tmp_path / "a.wkt").write_text(f"SRID=4326;{WKT}\n")
    binary = shapely.to_wkb(shapely.from_wkt(WKT))
    stored = geoparquet(tmp_path / "a.parquet", {"encoding": "WKB", "geometry_types": []}, [binary, None])
    named = geoparquet(
        tmp_path / "b.parquet",
        {"encoding": "WKB", "crs": pyproj.CRS(DEGREES).to_json_dict()},
        [binary],
    )
    forms: list[Any] = [
        json.dumps(GEOJSON),
        {"type": "Feature", "geometry": GEOJSON, "properties": {}},
        {"type": "GeometryCollection", "geometries": [GEOJSON]},
        f"SRID=4326;{WKT}",
        str(tmp_path / "a.geojson"),
        tmp_path / "a.wkt",
        stored,
        str(named),
        wanted,
    ]
    for form in forms:
        assert shape(read(form)).equals_exact(shape(wanted), 1e-6), form
        assert read(form).tolerance == TOLERANCE


def test_edges_in_degrees_are_curves_in_the_projection() -> None:
    area = read({"type": "Polygon", "coordinates": [[[-78, 38], [-70, 38], [-70, 43], [-78, 43], [-78, 38]]]})
    polygon, project = shape(area), pyproj.Proj(CRS)
    assert shapely.get_num_coordinates(polygon) > 100
    share = np.linspace(0, 1, 5001)
    for (a, b), (c, d) in (((-78, 38), (-70, 38)), ((-70, 38), (-70, 43)), ((-70, 43), (-78, 43))):
        x, y = project(a + share * (c - a), b + share * (d - b))
        far = shapely.distance(shapely.boundary(polygon), shapely.points(x, y))
        assert far.max() < TOLERANCE


def test_other_systems_are_converted() -> None:
    to = pyproj.Transformer.from_crs(DEGREES, "EPSG:32618", always_xy=True)
    utm = shapely.transform(shapely.from_wkt(WKT), lambda c: np.column_stack(to.transform(*c.T)))
    found, wanted = shape(read(f"SRID=32618;{utm.wkt}")), shape(read(GEOJSON))
    # Straight in one projection is not straight in the other; corners are the same.
    assert shapely.hausdorff_distance(found, wanted) < 30.0
    corners = shapely.points(np.column_stack(pyproj.Proj(CRS)(*np.array(HARBOUR).T)))
    assert shapely.distance(shapely.boundary(found), corners).max() < 0.1


def test_own_coordinates_stay_as_they_are() -> None:
    for form, crs in (
        (f"SRID=0;{METRES}", CRS),
        (METRES, CRS),
        (METRES, ""),
        (shapely.from_wkt(METRES), CRS),
    ):
        area = read(form, crs)
        assert shape(area).equals_exact(shapely.MultiPolygon([shapely.from_wkt(METRES)]), 0.0)
        assert area.tolerance == 0.0
    small = "SRID=0;POLYGON ((0 0, 10 0, 10 10, 0 0))"
    assert shape(read(small)).area == 50.0
    assert shape(read(GEOJSON, "", in_degrees=True)).bounds == (-74.1, 40.6, -73.9, 40.8)
    assert shape(read(WKT, "", in_degrees=True)).bounds == (-74.1, 40.6, -73.9, 40.8)


def test_parts_that_overlap_are_one_area() -> None:
    parts = "GEOMETRYCOLLECTION (POLYGON ((0 0, 400 0, 400 400, 0 400, 0 0)), POLYGON ((200 200, 600 200, 600 600, 200 200)))"
    found = shape(read(parts))
    assert found.is_valid
    assert found.area == pytest.approx(400**2 + 400 * 400 / 2 - 200 * 200 / 2)


BOW = "POLYGON ((0 0, 1000 1000, 1000 0, 0 1000, 0 0))"


@pytest.mark.parametrize(
    ("value", "crs", "reported"),
    [
        (WKT, CRS, r"area :area: its coordinates may be degrees.*SRID=4326.*SRID=0"),
        (GEOJSON, "", r"in degrees, and the projection of the model's positions is not known"),
        (BOW, CRS, r"not valid: Self-intersection\[500 500\]"),
        ("POINT (1 2)", CRS, r"expected polygons, got a Point"),
        ("POLYGON EMPTY", CRS, r"holds no polygon"),
        ("POLYGON ((0 0, 1", CRS, r"not WKT"),
        ("{", CRS, r"not GeoJSON"),
        ({"type": "Polygon"}, CRS, r"not GeoJSON"),
        ({**GEOJSON, "crs": 5}, CRS, r"'crs' of GeoJSON: expected a named system"),
        ({**GEOJSON, "crs": {"properties": {"name": "EPSG:99999"}}}, CRS, r"unknown coordinate system"),
        ("nowhere.geojson", CRS, r"there is no file 'nowhere.geojson'"),
        (5, CRS, r"expected WKT .* got 5 \(int\)"),
        (
            {"type": "Polygon", "coordinates": [[[179, 1], [-179, 1], [-179, 2], [179, 1]]]},
            CRS,
            r"crosses the antimeridian; split the polygon there",
        ),
        ({"type": "Polygon", "coordinates": [[[0, 0], [900, 0], [0, 900], [0, 0]]]}, CRS, r"are no degrees"),
        (
            {"type": "Polygon", "coordinates": [[[105, -50], [107, -50], [107, -30], [105, -50]]]},
            "+proj=ortho +lat_0=40.7 +lon_0=-74 +ellps=WGS84",
            r"no image in the model's projection",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(value: Any, crs: str, reported: str) -> None:
    with pytest.raises(AreaError, match=reported):
        read(value, crs)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    binary = shapely.to_wkb(shapely.from_wkt(WKT))
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"x": [1]}), plain)
    (tmp_path / "no.parquet").write_text("no")
    (tmp_path / "no.txt").write_text("hello")
    for path, reported in (
        (plain, "no GeoParquet metadata"),
        (tmp_path / "no.parquet", "no Parquet file"),
        (tmp_path / "no.txt", "it begins with 'hello'"),
        (geoparquet(tmp_path / "e.parquet", {"encoding": "point"}, [binary]), "encoded as 'point'"),
        (geoparquet(tmp_path / "w.parquet", {"encoding": "WKB"}, [b"abc"]), "no WKB"),
        (geoparquet(tmp_path / "u.parquet", {"encoding": "WKB", "crs": None}, [binary]), "may be degrees"),
    ):
        with pytest.raises(AreaError, match=reported):
            read(path)
