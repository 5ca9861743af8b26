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

from pulse.runtime.io.lenient_text import Dialect
from pulse.runtime.jobs.dead_letters import aside_folder, concat_rows, read_aside, reasons
from pulse.runtime.jobs.result_log import ResultsError, read_changes
from pulse.runtime.jobs.spark_lines import LineReader, is_plain
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spark_driver import start
from pulse.session import Session
from tests.runtime.jobs.climbing import climbing_job

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


def test_lines_that_a_fit_refuses_are_set_aside_whole(tmp_path: Path) -> None:
    """Two keys whose bytes are no text, and a number with a comma: nothing is made of them."""
    file = text(tmp_path / "in", "0.csv", *FIRST, "b,1970-01-01T00:00:02,1,5,1", "b,1970-01-01T00:00:03,7")
    odd = [b"A%c,1970-01-01T00:00:04,%d,1" % (0xE8 + i, i) for i in range(2)]
    file.write_bytes(file.read_bytes() + b"\n".join(odd) + b"\n")
    run_local(local(tmp_path, CSV))
    rows = read_aside(tmp_path / "state" / "aside").to_pylist()
    assert [(row["line"], row["id"], row["x"]) for row in rows] == [
        (line, None, None) for line in (4, 5, 6, 7)
    ]
    assert [row["reason"] for row in rows] == [
        "does not parse: expected 4 fields, got 5 in 'b,1970-01-01T00:00:02,1,5,1'",
        "does not parse: expected 4 fields, got 3 in 'b,1970-01-01T00:00:03,7'",
        r"does not parse: expected text in UTF-8, got b'A\xe8,1970-01-01T00:00:04,0,1'",
        r"does not parse: expected text in UTF-8, got b'A\xe9,1970-01-01T00:00:04,1,1'",
    ]
    assert [(one.reason, one.rows) for one in reasons(tmp_path / "state" / "aside")] == [
        ("does not parse", 4)
    ]


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
        "deletion of a tuple that is not recorded": ("1.csv", 6),
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
    assert places(tmp_path / "state" / "aside") == {
        "does not parse": ("0.json", 3),
        "not finite": ("0.json", 4),
    }


def test_keys_of_json_with_half_a_surrogate_pair_are_set_aside(tmp_path: Path) -> None:
    """Such a text has no UTF-8: it ended the job."""
    rows = [
        {"id": key, "t": "1970-01-01 00:00:00", "x": 0.0, "v": 1.0} for key in ("a", "k\ud800", "k\ud801")
    ]
    text(tmp_path / "in", "0.json", *map(json.dumps, rows))
    run_local(local(tmp_path, {**CSV, "format": "json"}))
    found = read_aside(tmp_path / "state" / "aside").to_pylist()
    assert [row["line"] for row in found] == [2, 3]
    assert [row["reason"].partition(", got")[0] for row in found] == [
        "does not parse: expected a JSON object"
    ] * 2


def test_texts_that_stand_for_no_number_are_keys_as_they_are_for_a_fit(tmp_path: Path) -> None:
    lines = [f"{key},1970-01-01T00:00:00,0,1" for key in ("NA", "null", "nan", "b")]
    text(tmp_path / "in", "0.csv", FIRST[0], *lines)
    job = local(tmp_path, CSV, query="select id, x from S where x < 15")
    assert run_local(job).tally.tuples == len(lines)
    assert not (tmp_path / "state" / "aside").exists()
    asked: dict[str, Any] = {"key": "id", "time": "t", "model": {"x": "step"}, "error": 0}
    model = Session(engine="local").fit(tmp_path / "in" / "0.csv", **asked, out=tmp_path / "m")
    assert model.read().to_arrow()["id"].to_pylist() == ["NA", "b", "nan", "null"]


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


ODD = [
    b"b,1970-01-01T00:00:02,1,5,1",  # a number with a comma
    b"b,1970-01-01T00:00:03,7",
    b"",
    b"A\xe8,1970-01-01T00:00:04,0,1",  # two keys that are no text
    b"A\xe9,1970-01-01T00:00:04,1,1",
    b'"c,c",1970-01-01T00:00:05,3,1',
    b'"c ""d""",1970-01-01T00:00:05, 4 ,1',
    b"c\\,1970-01-01T00:00:05,5,1",
    b"  ",
    b"d,1970-01-01T00:00:06,NaN,1",
    b"d,1970-01-01T00:00:07,6,x",
    b"d,1970-01-01 00:00:08.5,6,1",
    b'"d,1970-01-01T00:00:09,6,1',
    b"\xff",
    "ä,1970-01-01T00:00:09,8,1".encode(),
    b"NA,1970-01-01T00:00:09,8,1",  # a key, as it is for a fit
]


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("header", [True, False])
def test_both_engines_make_the_same_of_every_line(
    spark: SparkSession, tmp_path: Path, ends: bytes, header: bool
) -> None:
    """Rows set aside with their lines, and results: of three files in two batches, one with a mark of its encoding."""
    files = [[one.encode() for one in FIRST[1:]], ODD, [b"", b"a,1970-01-01T00:00:20,30,1", b"a,,"]]
    for i, lines in enumerate(files):
        file = text(tmp_path / "in", f"{i}.csv")
        head = [FIRST[0].encode()] if header else []
        file.write_bytes((b"\xef\xbb\xbf" if i == 2 else b"") + ends.join([*head, *lines]) + ends)
        os.utime(file, (1000 + i, 1000 + i))
    options = {"maxFilesPerTrigger": "2", "header": str(header).lower()}
    asides, changes = same_on_both_engines(spark, tmp_path, {**CSV, "options": options})
    assert (len(asides), len(changes) > 1) == (9, True)


def same_on_both_engines(
    spark: SparkSession, folder: Path, stream: dict[str, Any]
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Run a job over a folder's files on each engine; the rows set aside and the changes, which are those of both."""
    found = []
    for engine in ("local", "spark"):
        given = {
            "stream": stream,
            "checkpoint": f"{engine}/state",
            "sink": {"kind": "parquet", "path": f"{engine}/out"},
        }
        job = climbing_job(folder, **given, buckets=1)
        if engine == "local":
            run_local(job)
        else:
            start(spark, job, once=True).wait()
        rows = [
            (row["line"], Path(row["file"]).name, row["reason"], row["id"], row["t"], row["x"])
            for row in read_aside(folder / engine / "state" / "aside").to_pylist()
        ]
        found.append((rows, read_changes(folder / engine / "out").to_pylist()))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    return found[0]


def test_both_engines_make_the_same_of_every_line_of_json(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that are no text must not become one; what is no object, or of another type, is set aside with its line."""
    good = [b'{"id": "a", "t": "1970-01-01T00:00:0%d", "x": %d, "v": 1}' % (i, i) for i in range(3)]
    odd = [
        b'{"id": "A\xe8", "t": "1970-01-01T00:00:04", "x": 0, "v": 1}',  # two keys that are no text
        b'{"id": "A\xe9", "t": "1970-01-01T00:00:04", "x": 1, "v": 1}',
        b"",
        b"{",
        b"null",
        b"[1, 2]",
        b'{"id": "a", "t": "1970-01-01T00:00:05", "x": "n/a", "v": 1}',
        b'{"id": "a", "t": "1970-01-01T00:00:06", "x": 6, "v": 1, "more": {"y": 1}}',
        b'{"t": "1970-01-01T00:00:07", "x": 7, "v": 1}',
        b'{"id": "\\ud800", "t": "1970-01-01T00:00:08", "x": 8, "v": 1}',
    ]
    for i, lines in enumerate([good, odd, [b'{"id": "a", "t": "1970-01-01T00:00:20", "x": 30, "v": 1}']]):
        file = text(tmp_path / "in", f"{i}.json")
        file.write_bytes((b"\xef\xbb\xbf" if i == 2 else b"") + b"\n".join(lines) + b"\n")
        os.utime(file, (1000 + i, 1000 + i))
    stream = {**CSV, "format": "json", "options": {"maxFilesPerTrigger": "2"}}
    asides, changes = same_on_both_engines(spark, tmp_path, stream)
    assert sorted(row[0] for row in asides) == [1, 2, 4, 5, 6, 7, 9, 10]
    assert len(changes) > 1


@pytest.mark.parametrize("what", ["kind", "accents"])
def test_lines_of_revisions_and_beside_accents_on_spark_too(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    head, first, mark = f"{what},{FIRST[0]}", FIRST[1:], "+I" if what == "kind" else ""
    text(tmp_path / "in", "0.csv", head, *(f"{mark},{one}" for one in first))
    odd = ["no accent,,1970-01-01T00:00:02,,"] if what == "accents" else ["-D,a,1970-01-01T00:00:01,7,1"]
    bad = [*(f"{mark},{one}" if one else one for one in BAD), f"{mark},a,1970-01-01T00:00:05,1,5,1"]
    text(tmp_path / "in", "1.csv", head, *bad, *odd, at=1001)
    columns = {what: "string", **CSV["columns"]}  # type: ignore[dict-item]
    stream = {**CSV, "columns": columns, what: what, "options": {}}
    run_local(local(tmp_path, stream))
    expected = sorted(
        (row["reason"], row["line"]) for row in read_aside(tmp_path / "state/aside").to_pylist()
    )
    sink = {"kind": "parquet", "path": "far"}
    job = climbing_job(tmp_path, stream=stream, checkpoint="spark", buckets=1, sink=sink)
    start(spark, job, once=True).wait()
    found = sorted((row["reason"], row["line"]) for row in read_aside(tmp_path / "spark/aside").to_pylist())
    assert found == expected
    assert len(found) >= 5


def test_lines_of_a_later_part_of_a_file_have_no_number() -> None:
    reader = LineReader(pa.schema([("id", pa.string()), ("x", pa.float64())]), Dialect())
    batch = pa.record_batch(
        {
            "value": pa.array([b"id,x", b"a,1", b" ", b"b,2", b"c,3,3", b"d,4"], pa.binary()),
            "_modified": pa.array([1] * 6, pa.int64()),
            "_origin": ["file:///0"] * 3 + ["file:///1"] * 3,
            "_block": pa.array([0] * 3 + [100] * 3, pa.int64()),
        }
    )
    more = batch.slice(1, 1)
    rows = [row for one in reader(iter([batch, more])) for row in one.to_pylist()]
    assert [(row["id"], row["x"], row["_pulse_row"], row["_block"]) for row in rows] == [
        ("a", 1.0, 0, 0),
        ("b", 2.0, None, 100),
        (None, None, None, 100),
        ("d", 4.0, None, 100),
        ("a", 1.0, 1, 0),
    ]


def test_other_options_are_for_the_reader_of_spark() -> None:
    assert is_plain("csv", {"maxFilesPerTrigger": "1", "SEP": ";", "header": "false"})
    assert not is_plain("csv", {"nullValue": "none"})
    assert not is_plain("csv", {"sep": "||"})
    assert is_plain("json", {"maxFilesPerTrigger": "1"})
    assert not is_plain("json", {"multiLine": "true"})


def test_reasons_are_counted_by_what_they_begin_with(tmp_path: Path) -> None:
    never = [f"-D,a,1970-01-01T00:00:0{i},7,1" for i in range(3)]
    text(tmp_path / "in", "0.csv", f"op,{FIRST[0]}", *(f"+I,{one}" for one in FIRST[1:]), *never, "+I,,,,")
    run_local(local(tmp_path, KINDS))
    folder = tmp_path / "state" / "aside"
    assert [(one.reason, one.rows) for one in reasons(folder)] == [
        ("deletion of a tuple that is not recorded", 3),
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
    with pytest.raises(ResultsError, match="rows that the job sets aside are not stored"):
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
    assert concat_rows([texts, numbers]).to_pylist() == [{"id": "a", "x": "1"}, {"id": "1", "x": "2"}]
    assert concat_rows([texts, pa.table({"x": [2], "y": [3]})]).column("x").to_pylist() == [1.0, 2.0]
