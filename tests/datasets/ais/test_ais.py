"""AIS of three kinds: golden files, codes, filters, projection, cuts."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ColumnTypeError, PulseError, UnknownColumnError
from pulse.datasets.ais.any import Ais
from pulse.datasets.ais.parquet import AisParquet
from pulse.datasets.ais.text import AisDanish, AisMarineCadastre
from pulse.datasets.counts import Counts
from pulse.datasets.errors import (
    DatasetError,
    EncodingError,
    ProjectionError,
    UnknownFormatError,
    ValueParseError,
)
from pulse.datasets.projection import Projection
from tests.datasets.conftest import rows_and_counts, table_of

pyproj = pytest.importorskip("pyproj")
GEOD = pyproj.Geod(ellps="WGS84")
Write = Callable[[str, str | bytes], str]
Read = Callable[..., list[dict[str, Any]]]

OLD = """\
MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,IMO,CallSign,VesselType,Status,Length,Width,Draft,Cargo,TransceiverClass
367000001,2022-06-20T00:00:04,40.5,-74.0,10.4,149.9,152.0,"SMITH, JOHN",IMO1,V7,70,0,192,30,7.6,70,A
367000002,2022-06-20T00:00:05,40.6,-74.1,102.3,360.0,511.0,,,,,,,,,,B
367000003,2022-06-20T00:00:06,91.0,181.0,0.0,0.0,511.0,,,,,,,,,,B
,2022-06-20T00:00:07,40.5,-74.0,0.0,0.0,511.0,,,,,,,,,,B
367000005,2022-06-20T00:00:08,,-74.0,0.0,0.0,511.0,,,,,,,,,,B
367000001,2022-06-20T00:00:09,40.501,-74.0,10.4,149.9,152.0,"SMITH, JOHN",IMO1,V7,70,0,192,30,7.6,70,A
"""
NEW = """\
mmsi,base_date_time,longitude,latitude,sog,cog,heading,vessel_name,imo,call_sign,\
vessel_type,status,length,width,draft,cargo,transceiver
367000001,2025-01-01 00:00:04,-74.0,40.5,10.4,149.9,152,X,IMO1,V7,70,0,192,30,7.6,70,A
367000001,2025-01-01 00:00:14,-74.0,40.501,10.4,149.9,152,X,IMO1,V7,70,0,192,30,7.6,70,A
"""
DANISH = """# Timestamp,Type of mobile,MMSI,Latitude,Longitude,Navigational status,ROT,SOG,COG,Heading,IMO,Callsign,Name,Ship type
31/12/2023 00:00:00,Class A,219000001,55.5,11.0,Under way using engine,0.0,12.1,90.0,91,Unknown,Unknown,"Ærø, den",Cargo
31/12/2023 00:00:01,Base Station,2190047,55.6,11.1,Unknown,,,,,Unknown,,,Undefined
31/12/2023 00:00:02,Class B,219000002,91.0,0.0,Unknown,,,,,Unknown,,,Undefined
31/12/2023 00:00:03,Class B,219000003,55.6,11.2,Unknown,,,,,Unknown,,,Undefined
31/12/2023 00:00:04,AtoN,992191000,55.6,11.3,Unknown,,,,,Unknown,,,Undefined
"""
COLUMNS = ["mmsi", "t", "x", "y", "lat", "lon", "sog", "cog"]


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "Vessel_ID": pa.array([str(100 + i % 3) for i in range(100)]),
            "timestamp": pa.array(range(100), pa.timestamp("s")),
            "Latitude": pa.array([91.0, None, *rng.uniform(50, 51, 98)], pa.float32()),
            "LON": pa.array(rng.uniform(3, 4, 100)),
            "sog": pa.array([1] * 99 + [None], pa.int32()),
            "name": pa.array(["a"] * 100),
        }
    )
    pq.write_table(table, tmp_path / "ais.parquet", row_group_size=30)
    return str(tmp_path / "ais.parquet")


def test_marinecadastre_golden(write: Write, read: Read) -> None:
    path = write("AIS_2022_06_20.csv", OLD)
    fmt = AisMarineCadastre().prepare(path)
    counts = Counts()
    aside: list[pa.RecordBatch] = []
    rows = read(
        fmt, path, [*COLUMNS, "heading", "vessel_name", "transceiver", "length"], counts, aside=aside.append
    )
    assert [row["mmsi"] for row in rows] == [367000001, 367000002, 367000001]
    assert rows[0]["t"] == datetime.datetime(2022, 6, 20, 0, 0, 4)
    assert (rows[0]["vessel_name"], rows[0]["transceiver"], rows[0]["length"]) == ("SMITH, JOHN", "A", 192.0)
    assert [rows[1][name] for name in ("sog", "cog", "heading")] == [None, None, None]
    assert counts == Counts(6, 3, {"no position": 2, "no MMSI": 1})
    assert [r["reason"] for b in aside for r in b.to_pylist()] == ["no position", "no MMSI", "no position"]
    _, _, true = GEOD.inv(-74.0, 40.5, -74.0, 40.501)
    assert np.hypot(rows[2]["x"] - rows[0]["x"], rows[2]["y"] - rows[0]["y"]) == pytest.approx(true, rel=1e-5)


def test_the_names_of_2025_are_the_same_columns(write: Write, read: Read) -> None:
    old, new = write("old.csv", OLD), write("new.csv", NEW)
    fmt = AisMarineCadastre().prepare([old, new])
    assert fmt.schema(new).names == fmt.schema(old).names
    rows = read(fmt, [old, new], COLUMNS)
    assert len(rows) == 5
    assert rows[3]["t"] == datetime.datetime(2025, 1, 1, 0, 0, 4)
    assert (rows[3]["x"], rows[3]["y"]) == (rows[0]["x"], rows[0]["y"])


def test_danish_golden(write: Write, read: Read) -> None:
    path = write("aisdk-2023-12-31.csv", DANISH)
    fmt = AisDanish().prepare(path)
    counts = Counts()
    rows = read(fmt, path, [*COLUMNS, "vessel_name", "type_of_mobile"], counts)
    assert [(r["mmsi"], r["t"].second, r["vessel_name"]) for r in rows] == [
        (219000001, 0, "Ærø, den"),
        (219000003, 3, ""),
    ]
    assert counts == Counts(5, 2, {"not of the classes kept": 2, "no position": 1})
    everyone = read(AisDanish(classes=None), path, ["mmsi"])
    assert [r["mmsi"] for r in everyone] == [219000001, 2190047, 219000003, 992191000]
    kept = read(replace(fmt, drop_no_position=False), path, COLUMNS)
    assert [(r["lat"], r["x"]) for r in kept if r["mmsi"] == 219000002] == [(91.0, None)]
    assert "kept: type of mobile Class A, Class B" in fmt.statements()


def test_danish_in_latin_1(write: Write, read: Read) -> None:
    path = write("old.csv", DANISH.encode("latin-1"))
    with pytest.raises(EncodingError, match=r"old\.csv, line 2, column 'Name': not utf-8"):
        read(AisDanish(), path, ["mmsi", "vessel_name"])
    assert read(AisDanish(encoding="latin-1"), path, ["vessel_name"])[0]["vessel_name"] == "Ærø, den"


def test_parquet_of_other_names(parquet: str, read: Read) -> None:
    fmt = AisParquet().prepare(parquet)
    assert fmt.schema(parquet).names == ["mmsi", "t", "x", "y", "lat", "lon", "sog", "name"]
    counts = Counts()
    rows = read(fmt, parquet, [*COLUMNS[:-1], "name"], counts, batch_rows=7)
    assert counts.removed == {"no position": 2}
    assert counts.kept == len(rows) == 98
    assert rows[0]["mmsi"] == 102
    assert table_of(fmt, parquet, fmt.schema(parquet).names).schema == fmt.schema(parquet)


def test_ais_tells_the_kinds_apart_and_mixes_them(write: Write, parquet: str) -> None:
    paths = [write("a.csv", OLD), write("b.csv", NEW), write("c.csv", DANISH), parquet]
    fmt = Ais().prepare(paths)
    assert isinstance(fmt.projection, Projection)
    units = fmt.units(paths)
    assert [u.ordinal for u in units] == list(range(len(units)))
    counts = Counts()
    again = pickle.loads(pickle.dumps(fmt))
    rows = [
        r
        for u in units
        for b in again.batches(u, ["mmsi", "t", "x", "y"], counts=counts)
        for r in b.to_pylist()
    ]
    assert len(rows) == counts.kept == 3 + 2 + 2 + 98
    # Europe, in a projection chosen for New York.
    assert counts.remarked == {"outside the projection's extent": 100}
    assert (fmt.key, fmt.time) == (("mmsi",), "t")
    with pytest.raises(DatasetError, match=r"d\.csv: expected the header of AIS data"):
        Ais().prepare(write("d.csv", "a,b\n1,2\n"))


def test_a_projection_of_ones_own(write: Write, read: Read) -> None:
    path = write("a.csv", OLD)
    fmt = Ais(projection="+proj=utm +zone=18 +ellps=WGS84").prepare(path)
    assert isinstance(fmt.projection, Projection)
    assert fmt.projection.distortion < 5e-4
    (row, *_) = read(fmt, path, ["x", "y"])
    assert (row["x"], row["y"]) == pytest.approx(pyproj.Proj("+proj=utm +zone=18 +ellps=WGS84")(-74.0, 40.5))
    assert fmt.prepare(path) is fmt
    with pytest.raises(UnknownFormatError, match="projection: expected PROJ text"):
        Ais(projection=18)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [OLD, DANISH])
@given(cut=st.integers(1, 500))
def test_cuts_do_not_change_rows_or_counts(
    text: str, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"cuts{len(text)}.csv"
    path.write_text(text)
    whole = Ais().prepare(path)

    assert rows_and_counts(replace(whole, range_bytes=cut), path, COLUMNS) == rows_and_counts(
        whole, path, COLUMNS
    )


@pytest.mark.parametrize(
    ("text", "old", "new", "error", "match"),
    [
        (OLD, "00:00:06", "00:66:06", ValueParseError, r"a\.csv, line 4, column 'BaseDateTime': .* got '2022-06-20T00:66:06'"),
        (OLD, "2022-06-20T00:00:06", "", ValueParseError, r"line 4, column 'BaseDateTime'"),
        (OLD, "40.6", "N40", ValueParseError, r"line 3, column 'LAT': expected a number, got 'N40'"),
        (OLD, "LON", "LNG", UnknownColumnError, r"no column 'lon'.*There are: 'MMSI'"),
        (DANISH, "31/12/2023 00:00:03", "12/31/2023 00:00:03", ValueParseError, r"line 5, column '# Timestamp'"),
        (DANISH, "Type of mobile", "Kind", UnknownColumnError, "no column 'type_of_mobile'"),
        (OLD, "367000002,", "36x,", ValueParseError, "column 'MMSI': expected a whole number, got '36x'"),
    ],
)  # fmt: skip
def test_bad_lines(
    write: Write, read: Read, text: str, old: str, new: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        read(Ais(), write("a.csv", text.replace(old, new, 1)), ["mmsi", "t", "lat", "lon"])


def test_bad_parquet(tmp_path: Path, read: Read) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"mmsi": ["a"], "t": pa.array([0], pa.timestamp("s")), "lat": [1.0], "lon": [1.0]}), path
    )
    with pytest.raises(ColumnTypeError, match=r"row group 0, column 'mmsi': expected int64, got"):
        read(Ais(), path, ["mmsi"])
    pq.write_table(pa.table({"mmsi": [1], "lat": [1.0]}), path)
    with pytest.raises(UnknownColumnError, match="no column 't'"):
        Ais().prepare(path)


def test_what_needs_preparing_says_so(write: Write, read: Read) -> None:
    path = write("a.csv", OLD)
    with pytest.raises(ProjectionError, match=r"call prepare\(paths\) once"):
        read(Ais(), path, ["x"])
    assert len(read(Ais(), path, ["lat"])) == 3
    nobody = write("b.csv", "".join(OLD.splitlines(keepends=True)[i] for i in (0, 3)))
    with pytest.raises(ProjectionError, match="no row has a position"):
        Ais().prepare(nobody)
    assert not any("x, y" in one for one in Ais().statements())


@given(text=st.text(max_size=150), keep=st.integers(0, 3), danish=st.booleans())
def test_any_text_reads_or_is_a_pulse_error(
    text: str, keep: int, danish: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-ais.csv"
    head = "".join((DANISH if danish else OLD).splitlines(keepends=True)[:keep])
    path.write_bytes((head + text).encode("utf-8", "surrogatepass"))
    counts = Counts()
    try:
        fmt = Ais().prepare(path)
        for unit in fmt.units(path):
            for _ in fmt.batches(unit, COLUMNS, counts=counts):
                pass
    except PulseError as e:
        assert str(e)  # noqa: PT017 - any other exception fails the test
    assert counts.rows >= counts.kept


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("ais_nyharbor_20201201_07", 1e-5),
        ("ais_sbchannel_20180601_04", 1e-3),
        ("ais_us_20220103_0000_0029", 0.03),
    ],
)
def test_recorded_positions(recorded: Path, name: str, most: float) -> None:
    path = str(recorded / f"{name}.parquet")
    fmt = Ais().prepare(path)
    assert isinstance(fmt.projection, Projection)
    assert fmt.projection.distortion < most
    counts = Counts()
    rng = np.random.default_rng(0)
    for unit in fmt.units(path):
        for batch in fmt.batches(unit, ["lat", "lon", "x", "y"], counts=counts):
            lat, lon, x, y = (column.to_numpy() for column in batch.columns)
            inside = np.flatnonzero(fmt.projection.extent.holds(lat, lon))
            i, j = rng.choice(inside, (2, 500))
            plane = np.hypot(x[i] - x[j], y[i] - y[j])
            _, _, true = GEOD.inv(lon[i], lat[i], lon[j], lat[j])
            near = (np.asarray(true) > 1) & (np.asarray(true) < 200_000)
            assert (
                np.abs(plane[near] / np.asarray(true)[near] - 1).max(initial=0)
                < fmt.projection.distortion + 1e-6
            )
    assert counts.kept == counts.rows == pq.read_metadata(path).num_rows
    assert sum(counts.remarked.values()) < 0.006 * counts.rows
