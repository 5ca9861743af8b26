"""Distances in the plane of a projection: by how much they are off counts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pulse
from pulse.core.expression import Column, Comparison, Constant, Function
from pulse.core.plane import Plane
from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.functions.plane_distortion import distortion
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.scan import scans
from tests.operators.computing import compute
from tests.operators.relational.test_filter import one_row, spans

pyproj = pytest.importorskip("pyproj")

from pulse.datasets.projection import choose, extent_of, given  # noqa: E402
from tests.store.documents import fields_of, rewrite  # noqa: E402

GEOD = pyproj.Geod(ellps="WGS84")
MERCATOR = "+proj=merc +lon_0=11 +k_0=1 +ellps=WGS84 +units=m"  # stretches by 1 / cos(latitude)


def track(x: float, y: float, plane: Plane | None):
    row = one_row([x])
    return replace(
        row,
        columns=replace(row.columns, modelled=("x", "y")),
        models={"x": np.array([[x]]), "y": np.array([[y]])},
        err={"x": np.zeros(1), "y": np.zeros(1)},
        drift={},
    ), Function("distance", (Column("x"), Column("y"), Constant(0), Constant(0)), plane)


@pytest.mark.parametrize(("at", "code"), [(470.0, 3), (490.0, 2), (510.0, 1), (530.0, None)])
def test_a_comparison_leaves_room_for_the_distortion(at: float, code: int | None) -> None:
    rows, distance = track(at, 0.0, Plane(0.037, 0.5))
    made = FilterOperator(Comparison("<", distance, Constant(500)), possible=True).segments(rows)
    assert [found for *_, found in spans(made)] == ([] if code is None else [code])


def test_a_distance_has_the_distortion_in_its_error() -> None:
    rows, distance = track(300.0, 400.0, Plane(0.01, 0.5, -350.0, 350.0, -450.0, 450.0))
    (err,) = compute(rows, [("d", distance)]).err["d"]
    assert 500.0 * 0.01 / 0.99 <= err <= 500.0 * 0.01 / 0.99 * 1.001 + 1e-3
    (square,) = compute(rows, [("d", replace(distance, name="distance2"))]).err["d"]
    assert square >= (500.0 / 0.99) ** 2 - 500.0**2
    outside = compute(track(3000.0, 400.0, distance.plane)[0], [("d", distance)]).err["d"][0]
    assert outside >= np.hypot(3000.0, 400.0) * 0.5 / 0.5
    assert distortion(Plane(0.1, 0.3, 0.0, 1.0), [(0.2, 0.4)], [(9.0, 9.0)]).tolist() == 0.1


@pytest.mark.parametrize("south", [-30.0, 0.0, 55.0])
def test_true_distances_lie_within_what_the_plane_allows(south: float) -> None:
    random = np.random.default_rng(7)
    lat, lon = random.uniform(south, south + 2, 400), random.uniform(9.0, 13.0, 400)
    extent = extent_of(lat, lon)
    compared = 0
    for projection in (choose(extent), given(MERCATOR, extent)):
        plane = projection.plane()
        x, y = projection.forward(lat, lon)
        share = distortion(plane, [(x[:-1], x[:-1]), (x[1:], x[1:])], [(y[:-1], y[:-1]), (y[1:], y[1:])])
        apart = np.hypot(np.diff(x), np.diff(y))
        _, _, true = GEOD.inv(lon[:-1], lat[:-1], lon[1:], lat[1:])
        compared += len(true)
        assert (true <= apart / (1 - share)).all()
        assert (true >= apart / (1 + share)).all()
        assert (share <= 0.9).all() or south > 50
    assert compared == 798


def model_of_two(session: pulse.Session, folder: Path, given: str | None = None) -> Any:
    """Two vessels 502.5 m apart; at latitude 15.6 Mercator with its scale kept at latitude 0 is off by 3.8 %, here shrunk."""
    shrunk = MERCATOR.replace("+k_0=1 ", "+k_0=0.93 ")
    lon, lat, _ = GEOD.fwd(11.0, 15.6, 90.0, 502.5)
    lines = ["MMSI,BaseDateTime,LAT,LON"]
    for second in range(0, 60, 10):
        lines += [
            f"1,2024-01-01T00:00:{second:02d},15.6,11.0",
            f"2,2024-01-01T00:00:{second:02d},{lat},{lon}",
        ]
    path = folder / "ais.csv"
    path.write_text("\n".join(lines) + "\n")
    from pulse.datasets.ais.any import Ais

    return session.fit(
        str(path),
        format=Ais(projection=given or shrunk),
        model={"x": "linear", "y": "linear"},
        error=0.001,
        out=str(folder / "model"),
    )


def test_a_pair_beyond_a_level_is_not_certainly_within_it(tmp_path: Path) -> None:
    session = pulse.Session(engine="local")
    model = model_of_two(session, tmp_path)
    plane = model.manifest.schema.plane
    assert plane is not None
    assert plane.distortion > 0.03
    text = (
        "select A.mmsi as a, B.mmsi as b from S as A join S as B on (A.mmsi < B.mmsi) "
        "where distance(A.x, A.y, B.x, B.y) < 500"
    )
    found = session.sql(text, streams={"S": model}, possible=True).segments()
    assert found.column("certainty").to_pylist() != []
    assert "certain" not in found.column("certainty").to_pylist()
    reopened = pulse.open(model.path) if hasattr(pulse, "open") else session.open(model.path)
    assert reopened.manifest.schema.plane == plane


@pytest.mark.parametrize(
    "crs", ["EPSG:3857", "+proj=tmerc +lat_0=15 +lon_0=11 +R=6371000", "+proj=tmerc +lon_0=11 +units=us-ft"]
)
def test_a_distance_in_a_plane_of_another_figure_or_unit_holds_the_geodesic(tmp_path: Path, crs: str) -> None:
    session = pulse.Session(engine="local")
    model = model_of_two(session, tmp_path, crs)
    text = "select A.mmsi as a, B.mmsi as b, {} from S as A join S as B on (A.mmsi < B.mmsi)"
    shown = session.sql(text.format("distance(A.x, A.y, B.x, B.y) as d"), streams={"S": model}).segments()
    for row in shown.to_pylist():
        assert abs(row["d"][0] - 502.5) <= row["d_err"] < 0.1 * 502.5
    for condition in ("> 503", "< 502", "> 510", "< 490"):
        asked = text.format("A.x as x") + f" where distance(A.x, A.y, B.x, B.y) {condition}"
        found = session.sql(asked, streams={"S": model}, possible=True).segments()
        assert "certain" not in found.column("certainty").to_pylist()


def test_a_model_from_before_planes_were_noted_answers_by_its_statement(tmp_path: Path) -> None:
    session = pulse.Session(engine="local")
    noted = model_of_two(session, tmp_path).manifest.schema.plane
    fields = fields_of(tmp_path / "model")
    assert fields["schema"].pop("plane") == noted.to_list()
    rewrite(tmp_path / "model", fields)
    (stated,) = re.findall(r"distances within (\S+) %", " ".join(fields["statements"]))
    old = session.open(str(tmp_path / "model"))
    share = old.manifest.schema.plane.distortion
    assert share == pytest.approx(1.05 * float(stated) / 100.0)
    text = (
        "select A.mmsi as a, B.mmsi as b, distance(A.x, A.y, B.x, B.y) as d "
        "from S as A join S as B on (A.mmsi < B.mmsi)"
    )
    for row in session.sql(text, streams={"S": old}).segments().to_pylist():
        assert row["d_err"] >= row["d"][0] * share / (1 - share)
        assert abs(row["d"][0] - 502.5) <= row["d_err"] < 0.1 * 502.5
    rewrite(tmp_path / "model", {**fields, "statements": []})
    bare = session.open(str(tmp_path / "model"))
    assert bare.manifest.schema.plane is None
    assert session.sql(text, streams={"S": bare}).segments().column("d_err")[0].as_py() < 0.1


def test_a_text_asked_again_is_in_the_plane_of_the_streams_it_is_asked_of() -> None:
    schema = StreamSchema.of(key={"id": "string"}, time="t", modelled={"x": "linear", "y": "linear"})
    found = []
    for plane in (None, Plane(0.001, 0.5), Plane(0.2, 0.5)):
        query = parse("select id, distance(x, y, 0, 0) as d from S", {"S": replace(schema, plane=plane)}, ())
        found.append([scan.stored.plane for scan in scans(query.plan)])
    assert found == [[None], [Plane(0.001, 0.5)], [Plane(0.2, 0.5)]]


def test_a_schema_keeps_its_plane_and_old_ones_have_none() -> None:
    schema = StreamSchema.of(key={"id": "string"}, time="t", modelled={"x": "linear", "y": "linear"})
    assert StreamSchema.from_json(schema.to_json()).plane is None
    plane = Plane(0.001, 0.5, -1.0, 1.0, -2.0, 2.0)
    kept = StreamSchema.from_json(replace(schema, plane=plane).to_json())
    assert kept.plane == plane
    assert kept == schema
