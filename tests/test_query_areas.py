"""``inside`` in queries: against the tuples in fractions, stored and predicted, in process and on Spark, revised and swept."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import PulseError
from pulse.datasets.errors import AreaError
from pulse.language import LanguageError
from pulse.operators.parameters import ParameterError
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import JobError
from tests.operators.functions.test_area_edges import edges_of, exactly_inside
from tests.runtime.execution.asking import SECOND, START, local, rows_of, table, tracks, vessels
from tests.runtime.jobs.running_jobs import final, in_process, object_job, objects, ran
from tests.store.documents import fields_of, rewrite

BAY = "POLYGON ((40 -60, 330 -60, 330 400, 190 120, 40 400, 40 -60), (90 0, 160 20, 120 60, 90 0))"
THERE = "select id, x, y from V where inside(x, y, :area)"


def truth_at(data: pa.Table, times: list[int]) -> set[tuple[int, int]]:
    """Vessels and microseconds at which straight lines between the reports lie in the bay, exactly."""
    edges, found = edges_of(BAY), set()
    for vessel in sorted(set(data["id"].to_pylist())):
        own = [row for row in data.to_pylist() if row["id"] == vessel]
        at = [
            int(v)
            for v in data.filter(pa.compute.equal(data["id"], vessel))["t"].cast(pa.int64()).to_pylist()
        ]
        for t in times:
            i = int(np.searchsorted(at, t, "right")) - 1
            if not 0 <= i < len(at) - 1:
                continue
            share = Fraction(t - at[i], at[i + 1] - at[i])
            x, y = (
                Fraction(own[i][name]) + share * (Fraction(own[i + 1][name]) - Fraction(own[i][name]))
                for name in ("x", "y")
            )
            if exactly_inside(edges, x, y):
                found.add((vessel, t))
    return found


def kinds_at(segments: pa.Table, times: list[int]) -> dict[tuple[int, int], str]:
    found = {}
    for row in segments.to_pylist():
        ref = int(pa.scalar(row["ref"], pa.timestamp("us")).value)
        begin, end = ref + Fraction(row["lo"]) * SECOND, ref + Fraction(row["hi"]) * SECOND
        found |= {(row["id"], t): row["certainty"] for t in times if begin <= t < end}
    return found


@pytest.mark.parametrize("query", [THERE, THERE.replace("inside", "not inside")])
def test_the_truth_lies_between_certain_and_possible(query: str) -> None:
    data = vessels(count=10, reports=40, seed=5)
    model = tracks(data=data)
    times = [START + 333_333 * i for i in range(1, 450, 3)]
    held = truth_at(data, times)
    every = {(v, t) for v in set(data["id"].to_pylist()) for t in times if t < START + 39 * 4 * SECOND}
    truth = held if query == THERE else every - held
    answer = local().sql(query, streams={"V": model}, area=BAY, possible=True)
    found = kinds_at(answer.segments(), times)
    assert {at for at, kind in found.items() if kind == "certain"} <= truth <= set(found)
    counts = {
        kind: sum(1 for one in found.values() if one == kind) for kind in ("certain", "likely", "possible")
    }
    assert min(counts.values()) > 3
    sampled = local().sql(f"{query} sample every 1 s", streams={"V": model}, area=BAY, possible=True).tuples()
    at_tuples = dict(
        zip(
            zip(sampled["id"].to_pylist(), sampled["t"].cast(pa.int64()).to_pylist(), strict=True),
            sampled["certainty"].to_pylist(),
            strict=True,
        )
    )
    whole = sorted({t for _, t in at_tuples})
    assert kinds_at(answer.segments(), whole) == at_tuples


def test_a_value_has_the_bound_of_what_is_certain() -> None:
    model = tracks(data=vessels(count=10, reports=40, seed=5))
    text = "select id, inside(x, y, :area) as there from V"
    rows = local().sql(text, streams={"V": model}, area=BAY).segments().to_pylist()
    assert {(row["there"][0], row["there_err"]) for row in rows} == {
        (0.0, 0.0),
        (0.0, 1.0),
        (1.0, 0.0),
        (1.0, 1.0),
    }
    inside = local().sql(THERE, streams={"V": model}, area=BAY).segments().to_pylist()
    total = sum(row["hi"] - row["lo"] for row in rows if row["there"][0] == 1.0)
    assert total == pytest.approx(sum(row["hi"] - row["lo"] for row in inside))


def test_spark_gives_what_is_given_in_process(spark: SparkSession) -> None:
    asked: dict[str, Any] = {"streams": {"V": tracks()}, "area": BAY}
    for text in (THERE, f"{THERE} sample every 1 s with possible"):
        here, there = local().sql(text, **asked), pulse.Session(spark=spark).sql(text, **asked)
        assert rows_of(there.to_arrow()) == rows_of(here.to_arrow())


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_job_foretells_the_entrance(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    objects(tmp_path / "in")
    box = "POLYGON ((-100 -100, 100 -100, 100 100, -100 100, -100 -100))"
    job = object_job(tmp_path, THERE.replace("V", "O"), "O", parameters={"area": box})
    changes = in_process(job)
    found = final(changes, ("id",), "x")
    assert len(found) > 20
    # Results begin after the newest tuple that they were computed from: the entrance is known ahead of time.
    ahead = [
        row
        for row in changes.to_pylist()
        if row["kind"] == "+I" and row["lo"] > 0 and row["certainty"] != "possible"
    ]
    assert ahead
    if engine == "spark":
        ran(request.getfixturevalue("spark"), job)
        assert final(read_changes(tmp_path / "out"), ("id",), "x") == found


def test_files_of_areas_are_found_in_the_folder_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = "POLYGON ((-100 -100, 100 -100, 100 100, -100 100, -100 -100))"
    folder, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    objects(folder / "in")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    text = THERE.replace("V", "O")
    with pytest.raises(JobError, match=r"\[parameters\] area: .*there is no .*job/harbour.wkt$"):
        object_job(folder, text, "O", parameters={"area": "harbour.wkt"})
    (elsewhere / "harbour.wkt").write_text(box)
    with pytest.raises(
        JobError, match=r"there is no .*job/harbour.wkt, though the working directory .*elsewhere has one"
    ):
        object_job(folder, text, "O", parameters={"area": "harbour.wkt"})
    (folder / "harbour.wkt").write_text(box)
    found = in_process(object_job(folder, text, "O", parameters={"area": "harbour.wkt"}))
    given = in_process(object_job(folder, text, "O", parameters={"area": box}))
    assert found.num_rows > 5
    assert found.equals(given)


def test_a_sweep_tries_several_areas() -> None:
    wide = "POLYGON ((-1000 -1000, 1000 -1000, 1000 1000, -1000 1000, -1000 -1000))"
    sweep = local().sweep(THERE, streams={"V": tracks()}, area=[BAY, wide])
    seconds = dict(zip(*(sweep.summary()[name].to_pylist() for name in ("area", "seconds")), strict=True))
    assert set(seconds) == {BAY, wide}
    assert seconds[wide] == pytest.approx(8 * 96.0)
    assert 0.0 < seconds[BAY] < seconds[wide]


def test_a_revision_changes_what_it_touches(tmp_path: Path) -> None:
    data = vessels(count=3, reports=10)
    model = local().fit(
        data,
        key="id",
        time="t",
        model={"x": "linear", "y": "linear"},
        error=0.5,
        keep_tuples=True,
        out=tmp_path / "v",
    )
    row = data.to_pylist()[5]
    moved = {**row, "x": 60.0, "y": 10.0}
    revision = pa.Table.from_pylist([{"kind": "-U", **row}, {"kind": "+U", **moved}])
    local().revise(model, revision, keep=True)
    asked: dict[str, Any] = {"streams": {"V": tmp_path / "v"}, "area": BAY}
    revised = local().sql(THERE, version=2, **asked).segments()
    corrected = data.to_pandas()
    corrected.loc[5, ["x", "y"]] = 60.0, 10.0
    fresh = tracks(data=pa.Table.from_pandas(corrected, schema=data.schema, preserve_index=False))
    times = [START + 250_000 * i for i in range(1, 140)]
    certain = {at for at, kind in kinds_at(revised, times).items() if kind == "certain"}
    again = local().sql(THERE, streams={"V": fresh}, area=BAY, possible=True).segments()
    assert certain <= set(kinds_at(again, times))
    changes = local().revised(THERE, 1, **asked).segments()
    assert set(changes["id"].to_pylist()) == {row["id"]}


def test_bounds_for_a_query_and_slack() -> None:
    model = tracks()
    answer = local().sql(f"{THERE} error within 5", streams={"V": model}, area=BAY)
    assert answer.segments().num_rows > 0


def test_degrees_are_projected_as_the_fit_did(tmp_path: Path) -> None:
    import pyproj

    crs = "+proj=stere +lat_0=40.7 +lon_0=-74 +ellps=WGS84 +units=m +k_0=1.0"
    n = 50
    lon, lat = np.linspace(-74.05, -73.95, n), np.full(n, 40.7)
    x, y = pyproj.Proj(crs)(lon, lat)
    rows = {"id": [1] * n, "t": [START + SECOND * i for i in range(n)], "x": x.tolist(), "y": y.tolist()}
    model = tracks(tmp_path / "v", table(rows, id=pa.int32(), x=pa.float64(), y=pa.float64()))
    harbour = {
        "type": "Polygon",
        "coordinates": [[[-74, 40.6], [-73.9, 40.6], [-73.9, 40.8], [-74, 40.8], [-74, 40.6]]],
    }
    with pytest.raises(AreaError, match="projection of the model's positions is not known"):
        local().sql(THERE, streams={"V": model}, area=harbour)
    fields = fields_of(tmp_path / "v")
    assert fields["statements"] == []
    note = f"x, y: metres, {crs}: distances within 0.01 % for latitudes 40 to 41"
    rewrite(tmp_path / "v", {**fields, "statements": [note]})
    (row,) = local().sql(THERE, streams={"V": tmp_path / "v"}, area=harbour).episodes().to_pylist()
    entered = START + (0.05 / 0.1) * (n - 1) * SECOND
    start = int(pa.scalar(row["start"], pa.timestamp("us")).value)
    assert start == pytest.approx(entered, abs=20_000)
    assert row["certainty"] == "likely"
    assert row["cores"] == 1


def test_what_is_written_wrongly_is_pointed_at() -> None:
    asked: dict[str, Any] = {"streams": {"V": tracks()}}
    with pytest.raises(LanguageError, match="expected a parameter for the area"):
        local().sql("select id from V where inside(x, y, 5)", **asked)
    with pytest.raises(LanguageError, match="inside takes 3 argument"):
        local().sql("select id from V where inside(x, y)", **asked)
    with pytest.raises(ParameterError, match="no value for :area"):
        local().sql(THERE, **asked)
    with pytest.raises(AreaError, match="area :area: expected WKT"):
        local().sql(THERE, area="nowhere", **asked)
    with pytest.raises(PulseError, match="not valid: Self-intersection"):
        local().sql(THERE, area="POLYGON ((0 0, 10 10, 10 0, 0 10, 0 0))", **asked)
    degrees = table(
        {"id": [1, 1], "t": [START, START + SECOND], "lat": [1.0, 2.0], "lon": [3.0, 3.0]},
        id=pa.int32(),
        lat=pa.float64(),
        lon=pa.float64(),
    )
    model = local().fit(degrees, key="id", time="t", model={"lat": "linear", "lon": "linear"}, error=0.001)
    with pytest.raises(LanguageError, match=r"longitude first: inside\(lon, lat, …\)"):
        local().sql("select id from V where inside(lat, lon, :area)", streams={"V": model}, area=BAY)
    box = shapely.box(2, 1.5, 4, 9).__geo_interface__
    (row,) = (
        local()
        .sql("select id from V where inside(lon, lat, :area)", streams={"V": model}, area=box)
        .episodes()
        .to_pylist()
    )
    assert row["duration"] == pytest.approx(0.5)
