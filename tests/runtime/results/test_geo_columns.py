"""Positions in degrees: against the reports in degrees, on the ellipsoid; files that other programs read; engines alike."""

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
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.io.table_writer import ResultOutputError
from pulse.runtime.results.geo_columns import GeoError
from pulse.store.model import Model
from tests.runtime.execution.asking import SECOND, START, local, tracks

ALL = "select mmsi, x, y from V sample every 10 s"
WEST = "select mmsi, x, y from V where x < 0"
PAIRS = """select R.mmsi as a, S.mmsi as b, R.x as R_x, R.y as R_y, S.x as S_x, S.y as S_y from V R join V S on (R.mmsi < S.mmsi)
sample every 30 s"""


def reports() -> pa.Table:
    """Vessels that cross a harbour on curves, a report every ten seconds."""
    rows: dict[str, list[Any]] = {"mmsi": [], "t": [], "lat": [], "lon": []}
    for i in range(3):
        s = np.arange(60)
        rows["mmsi"] += [366_000_001 + i] * len(s)
        rows["t"] += [START + 10 * SECOND * int(k) for k in s]
        rows["lat"] += (40.65 + 0.01 * i + 0.002 * np.sin(s / 9)).tolist()
        rows["lon"] += (-74.05 + 0.0015 * s).tolist()
    types = {"mmsi": pa.int64(), "t": pa.timestamp("us"), "lat": pa.float64(), "lon": pa.float64()}
    return pa.table({name: pa.array(values, types[name]) for name, values in rows.items()})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("geo")
    pq.write_table(reports().sort_by("t"), folder / "ais.parquet")
    return local().fit(
        folder / "ais.parquet", format="ais", model={"x": "linear", "y": "linear"}, error=15, out=folder / "v"
    )


def test_tuples_are_where_the_reports_are(stored: Model) -> None:
    found = local().sql(ALL, streams={"V": stored}).geo().tuples()
    assert found.column_names[-3:] == ["lon", "lat", "geometry"]
    truth = {(row["mmsi"], row["t"]): (row["lon"], row["lat"]) for row in reports().to_pylist()}
    geodesic, seen = pyproj.Geod(ellps="WGS84"), 0
    for row in found.to_pylist():
        lon, lat = truth[row["mmsi"], row["t"]]
        far = geodesic.inv(lon, lat, row["lon"], row["lat"])[2]
        assert far <= np.hypot(row["x_err"], row["y_err"]) * 1.001 + 1e-3
        point = shapely.from_wkb(row["geometry"])
        assert (point.x, point.y) == (row["lon"], row["lat"])
        seen += 1
    assert seen > 100


def test_episodes_are_lines(stored: Model) -> None:
    answer = local().sql(WEST, streams={"V": stored})
    plain, found = answer.episodes(), answer.geo().episodes()
    assert found.select(plain.column_names).equals(plain)
    assert found.num_rows == 3
    for row in found.to_pylist():
        line = shapely.from_wkb(row["geometry"])
        assert line.geom_type == "LineString"
        assert line.coords[0] == (row["lon_start"], row["lat_start"])
        assert line.coords[-1] == (row["lon_end"], row["lat_end"])
        assert (np.diff(shapely.get_coordinates(line)[:, 0]) > 0).all()  # eastward, in order of time
        assert len(line.coords) > 2


def test_an_episode_of_no_length_is_a_line_of_two_points(stored: Model) -> None:
    found = (
        local()
        .sql("select mmsi, x, y from V where x = 0", streams={"V": stored})
        .geo()
        .episodes()
        .to_pylist()
    )
    assert [len(shapely.from_wkb(row["geometry"]).coords) for row in found] == [2, 2, 2]


def test_several_positions_and_no_rows(stored: Model) -> None:
    found = local().sql(PAIRS, streams={"V": stored}).geo().tuples()
    assert found.column_names[-5:] == ["R_lon", "R_lat", "S_lon", "S_lat", "geometry"]
    assert found.num_rows > 10
    for text in (WEST, f"{WEST} sample every 1 s"):
        answer = local().sql(text.replace("x < 0", "x < -1e9"), streams={"V": stored}).geo()
        assert (answer.to_arrow().num_rows, answer.episodes().num_rows) == (0, 0)


def test_files_for_other_programs(stored: Model, tmp_path: Path) -> None:
    answer = local().sql(ALL, streams={"V": stored}).geo()
    answer.write(str(tmp_path / "a.parquet"))
    geo = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"geo"])
    assert geo["columns"][geo["primary_column"]] == {"encoding": "WKB", "geometry_types": ["Point"]}
    assert pq.read_table(tmp_path / "a.parquet").num_rows == answer.tuples().num_rows
    assert answer.write(str(tmp_path / "a.geojson"), episodes=True) == 3
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert {one["geometry"]["type"] for one in features} == {"LineString"}
    assert features[0]["properties"]["start"].endswith("Z")
    assert "geometry" not in features[0]["properties"]
    none = local().sql(WEST.replace("x < 0", "x < -1e9"), streams={"V": stored}).geo()
    assert none.write(str(tmp_path / "none.geojson"), episodes=True) == 0
    assert json.loads((tmp_path / "none.geojson").read_text())["features"] == []
    # An area that was written is one that is read: the hull of the first track.
    hull = shapely.to_geojson(
        shapely.buffer(shapely.from_geojson(json.dumps(features[0]["geometry"])), 0.001)
    )
    inside = (
        local()
        .sql("select mmsi from V where inside(x, y, :area)", streams={"V": stored}, area=hull)
        .episodes()
    )
    assert set(inside["mmsi"].to_pylist()) == {features[0]["properties"]["mmsi"]}


def test_spark_gives_what_is_given_in_process(spark: SparkSession, stored: Model, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"streams": {"V": stored}}
    here, there = (one.sql(ALL, **asked).geo() for one in (local(), pulse.Session(spark=spark)))
    order = [("mmsi", "ascending"), ("t", "ascending")]
    assert there.to_arrow().sort_by(order).to_pylist() == here.to_arrow().sort_by(order).to_pylist()
    there.write(str(tmp_path / "a.parquet"), episodes=True)
    assert b"geo" in pq.read_schema(tmp_path / "a.parquet").metadata
    there.write(str(tmp_path / "a.geojson"))
    assert len(json.loads((tmp_path / "a.geojson").read_text())["features"]) == here.tuples().num_rows


def test_what_has_no_positions_is_refused(stored: Model, tmp_path: Path) -> None:
    with pytest.raises(GeoError, match="expected positions, columns x and y"):
        local().sql("select mmsi, x from V sample every 1 s", streams={"V": stored}).geo().tuples()
    with pytest.raises(GeoError, match="no projection on record"):
        local().sql("select id, x, y from V sample every 1 s", streams={"V": tracks()}).geo().tuples()
    with pytest.raises(GeoError, match="a column 'lon', which is added"):
        local().sql(
            "select mmsi, x, y, x + 1 as lon from V sample every 1 s", streams={"V": stored}
        ).geo().tuples()
    with pytest.raises(ResultOutputError, match="GeoJSON needs positions in degrees; add --geo"):
        local().sql(ALL, streams={"V": stored}).write(str(tmp_path / "a.geojson"))
    with pytest.raises(ResultOutputError, match="CSV cannot hold geometry"):
        local().sql(ALL, streams={"V": stored}).geo().write(str(tmp_path / "a.csv"))
