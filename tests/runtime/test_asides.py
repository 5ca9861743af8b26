"""Rows that a job set aside say where they are from, in both engines, and are read again by reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulse.runtime.asides import aside_folder, concatenated, read_aside, reasons
from pulse.runtime.predictive import start
from pulse.runtime.predictive_job import Job
from pulse.runtime.predictive_local import run_local
from pulse.runtime.results import ResultsError
from tests.runtime.climbing import climbing_job

CSV = {"format": "csv", "columns": {"id": "string", "t": "timestamp[us]", "x": "double", "v": "double"}}
KINDS = {**CSV, "kind": "op", "columns": {"op": "string", **CSV["columns"]}}  # type: ignore[dict-item]
FIRST = ["id,t,x,v", "a,1970-01-01T00:00:00,0,1", "a,1970-01-01T00:00:01,1,1"]
BAD = [",1970-01-01T00:00:02,2,1", "a,noon,3,1", "", "a,1970-01-01T00:00:04,n/a,1"]


def text(folder: Path, name: str, *lines: str, at: int = 1000) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.utime(folder / name, (at, at))
    return folder / name


def local(folder: Path, stream: dict[str, Any], **more: Any) -> Job:
    return climbing_job(folder, stream={**stream, "options": {}}, checkpoint="state", engine="local", **more)


def places(folder: Path) -> dict[str, tuple[str, int | None]]:
    """File and line by reason."""
    return {
        row["reason"].partition(":")[0]: (Path(row["file"]).name, row.get("line"))
        for row in read_aside(folder).to_pylist()
    }


def test_csv_names_file_and_line(tmp_path: Path) -> None:
    """Of two files in one batch, with a blank line in the second."""
    text(tmp_path / "in", "0.csv", *FIRST)
    text(tmp_path / "in", "1.csv", FIRST[0], *BAD, at=1001)
    run_local(local(tmp_path, CSV))
    assert places(tmp_path / "state" / "aside") == {
        "no key": ("1.csv", 2),
        "no time": ("1.csv", 3),
        "not finite": ("1.csv", 5),
    }
    assert read_aside(tmp_path / "state" / "aside").column_names[-2:] == ["file", "line"]


def test_with_revisions_too(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", f"op,{FIRST[0]}", *(f"+I,{one}" for one in FIRST[1:]))
    gone = "-D,a,1970-01-01T00:00:01,7,1"
    text(
        tmp_path / "in",
        "1.csv",
        f"op,{FIRST[0]}",
        *(f"+I,{one}" if one else one for one in BAD),
        gone,
        at=1001,
    )
    run_local(local(tmp_path, KINDS))
    assert places(tmp_path / "state" / "aside") == {
        "no key": ("1.csv", 2),
        "no time": ("1.csv", 3),
        "not finite": ("1.csv", 5),
        "deletion of what never was": ("1.csv", 6),
    }


def test_and_with_accents(tmp_path: Path) -> None:
    head = f"note,{FIRST[0]}"
    text(tmp_path / "in", "0.csv", head, *(f",{one}" for one in FIRST[1:]))
    accents = [
        '"[[true, alter(x, 2 * y, y / 2)]]",,1970-01-01T00:00:02,,',
        "no accent,,1970-01-01T00:00:02,,",
    ]
    text(tmp_path / "in", "1.csv", head, *accents, *(f",{one}" if one else one for one in BAD), at=1001)
    columns = {"note": "string", **CSV["columns"]}  # type: ignore[dict-item]
    run_local(local(tmp_path, {**CSV, "columns": columns, "accents": "note"}))
    found = places(tmp_path / "state" / "aside")
    lines = {file_and_line for reason, file_and_line in found.items() if not reason.startswith("no ")}
    assert lines >= {("1.csv", 3), ("1.csv", 7)}  # what is no accent, and what is no number
    assert (found["no key"], found["no time"]) == (("1.csv", 4), ("1.csv", 5))


def test_lines_of_json(tmp_path: Path) -> None:
    good = json.dumps({"id": "a", "t": "1970-01-01 00:00:00", "x": 0.0, "v": 1.0})
    text(tmp_path / "in", "0.json", good, "", "{", '{"id": "a", "t": "1970-01-01 00:00:02"}')
    run_local(local(tmp_path, {**CSV, "format": "json"}))
    assert places(tmp_path / "state" / "aside") == {"no key": ("0.json", 3), "not finite": ("0.json", 4)}


def test_parquet_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        t = pa.array([10 * number * 1_000_000, None], pa.timestamp("us"))
        table = pa.table({"id": ["a", "a"], "t": t, "x": [0.0, 1.0], "v": [0.0, 0.0]})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    run_local(local(tmp_path, {}))
    rows = read_aside(tmp_path / "state" / "aside").to_pylist()
    assert [Path(row["file"]).name for row in rows] == ["0.parquet", "1.parquet"]
    assert "line" not in rows[0]


def test_a_column_of_the_name_is_left_as_it_is(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", "id,t,x,file", "a,1970-01-01T00:00:00,n/a,theirs")
    columns = {"id": "string", "t": "timestamp[us]", "x": "double", "file": "string"}
    query = "select id, x from S where x > 15"
    run_local(local(tmp_path, {**CSV, "columns": columns, "keep": ["file"]}, query=query))
    (row,) = read_aside(tmp_path / "state" / "aside").to_pylist()
    assert row["file"] == "theirs"
    assert "_pulse_file" not in row


def test_on_spark_they_name_the_file(spark: SparkSession, tmp_path: Path) -> None:
    text(tmp_path / "in it", "0.csv", *FIRST)
    text(tmp_path / "in it", "1.csv", FIRST[0], *BAD, at=1001)
    stream = {**CSV, "path": "in it", "options": {}}
    job = climbing_job(tmp_path, stream=stream, checkpoint="state", buckets=2)
    start(spark, job, once=True).wait()
    where = str(tmp_path / "in it" / "1.csv")
    found = {row["reason"]: row["file"] for row in read_aside(tmp_path / "state" / "aside").to_pylist()}
    assert found == {"no key": where, "no time": where, "not finite": where}


def test_reasons_are_counted_by_what_they_begin_with(tmp_path: Path) -> None:
    never = [f"-D,a,1970-01-01T00:00:0{i},7,1" for i in range(3)]
    text(tmp_path / "in", "0.csv", f"op,{FIRST[0]}", *(f"+I,{one}" for one in FIRST[1:]), *never, "+I,,,,")
    run_local(local(tmp_path, KINDS))
    folder = tmp_path / "state" / "aside"
    assert [(one.reason, one.rows) for one in reasons(folder)] == [
        ("deletion of what never was", 3),
        ("no key", 1),
    ]
    assert [one.rows for one in reasons(folder, begins="No Key")] == [1]
    assert reasons(folder, begins="late") == []


def test_where_they_lie(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", FIRST[0], *BAD)
    run_local(local(tmp_path, CSV))
    folder = tmp_path / "state" / "aside"
    assert aside_folder(tmp_path / "state") == aside_folder(folder) == folder
    with pytest.raises(ResultsError, match="got nothing"):
        aside_folder(tmp_path / "nowhere")
    with pytest.raises(
        ResultsError, match="expected rows that were set aside, folders stream=<name>, got something else"
    ):
        aside_folder(tmp_path / "in")
    file = tmp_path / "job.toml"
    written = (
        'query = "select id, x from S"\n{}\n[streams.S]\nsource = "files"\npath = "in"\nkey = "id"\ntime = "t"\n'
        'model = {{ x = "step" }}\nerror = 1\nhorizon = "1 s"\n'
    )
    file.write_text(written.format(""), encoding="utf-8")
    with pytest.raises(ResultsError, match="what the job sets aside is not kept"):
        aside_folder(file)
    file.write_text(written.format('checkpoint = "state"'), encoding="utf-8")
    assert aside_folder(file) == folder
    file.write_text(written.format('checkpoint = "new"'), encoding="utf-8")
    assert aside_folder(file) is None
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "_pulse_job.json").write_text("{}", encoding="utf-8")
    assert aside_folder(tmp_path / "clean") is None


def test_streams_whose_columns_nothing_unites() -> None:
    texts, numbers = pa.table({"id": ["a"], "x": [1.0]}), pa.table({"id": [1], "x": [2]})
    assert concatenated([texts, numbers]).to_pylist() == [{"id": "a", "x": "1"}, {"id": "1", "x": "2"}]
    assert concatenated([texts, pa.table({"x": [2], "y": [3]})]).column("x").to_pylist() == [1.0, 2.0]
