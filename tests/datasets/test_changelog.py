"""Changelogs and change events: kinds by any name, text, and what does not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.errors import ColumnTypeError
from pulse.core.schema import StreamSchema
from pulse.datasets.changelog import read_changelog_files
from pulse.datasets.debezium import read_debezium
from pulse.datasets.errors import DatasetError, EmptyInputError, UnknownFormatError
from pulse.datasets.revision_readers import detect_reader, read_revisions

Write = Callable[[str, str | bytes], str]
SCHEMA = StreamSchema.of(
    key={"symbol": "string"}, time="t", modelled={"price": "step"}, unmodelled={"lots": "int64"}
)
CSV = (
    "kind,symbol,t,price,lots,seen\n"
    "+I,IBM,2018-01-02 10:00:00,25,1,2018-01-03 00:00:00\n"
    "UPDATE_BEFORE,IBM,2018-01-02 10:00:00,25,1,\n"
    "update_after,IBM,2018-01-02 10:00:00,22.5,1,2018-01-04\n"
    "d,IBM,2018-01-02 10:00:00.5,1e3,2,\n"
)


def test_csv(write: Write) -> None:
    path = write("log.csv", CSV)
    got = read_changelog_files(path, SCHEMA, known="seen")
    assert got.revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U", "-D"]
    assert got.revisions.table.column("price").to_pylist() == [25.0, 25.0, 22.5, 1000.0]
    assert [str(v) for v in got.revisions.table.column("known").to_pylist()] == [
        "2018-01-03 00:00:00",
        "2018-01-04 00:00:00",
        "2018-01-04 00:00:00",
        "None",
    ]
    assert got.aside.num_rows == 0
    assert detect_reader(path) == "changelog"


def test_rows_that_do_not_read_are_kept_aside(write: Write) -> None:
    path = write(
        "log.csv",
        "kind,symbol,t,price,lots\n"
        "+I,IBM,2018-01-02 10:00:00,25,1\n"
        "+I,IBM,yesterday,25,1\n"
        "-U,IBM,2018-01-02 10:00:00,25,1\n"
        "+U,IBM,2018-01-02 10:00:00,cheap,1\n"
        "+U,IBM,2018-01-02 10:00:00,24,1\n"
        "+I,IBM,2018-01-02 10:00:00,25\n"
        "-D,,2018-01-02 10:00:00,25,1\n"
        "?,IBM,2018-01-02 10:00:00,25,1.5\n",
    )
    got = read_changelog_files(path, SCHEMA)
    assert len(got.revisions) == 1
    reasons = "\n".join(got.aside.column("reason").to_pylist())
    assert got.aside.num_rows == 7
    for what in (
        "'t': expected timestamp[us], got 'yesterday'",
        "'price': expected double, got 'cheap'",
        "its +U",
        "expected 5 fields, got 4",
        "a value of 'symbol', got none",
        "'lots': expected int64, got '1.5'",
    ):
        assert what in reasons
    assert got.aside.column_names == ["kind", "known", "symbol", "t", "price", "lots", "reason"]


def test_parquet_and_empty_files(tmp_path: Path, write: Write) -> None:
    table = pa.table(
        {
            "op": ["c", "d"],
            "symbol": pa.array(["a", "b"]).dictionary_encode(),
            "t": pa.array([1, 2]),
            "price": pa.array([1, 2]),
            "lots": pa.array([1, 2], pa.int16()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    got = read_changelog_files(str(tmp_path / "a.parquet"), SCHEMA, time_unit="s")
    assert got.revisions.table.column("kind").to_pylist() == ["+I", "-D"]
    assert got.revisions.times.tolist() == [1_000_000, 2_000_000]
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    assert len(read_changelog_files(str(tmp_path / "b.parquet"), SCHEMA, time_unit="s").revisions) == 0
    with pytest.raises(EmptyInputError):
        read_changelog_files(write("c.csv", ""), SCHEMA)
    with pytest.raises(ColumnTypeError, match="time_unit="):
        read_changelog_files(str(tmp_path / "a.parquet"), SCHEMA)


def test_columns_that_are_not_there_are_named(write: Write) -> None:
    with pytest.raises(DatasetError, match="column 'kind' of"):
        read_changelog_files(write("a.csv", "symbol,t\nIBM,2018-01-01\n"), SCHEMA)
    with pytest.raises(DatasetError, match="no column 'price'"):
        read_changelog_files(write("b.csv", "kind,symbol,t\n+I,IBM,2018-01-01\n"), SCHEMA)
    with pytest.raises(DatasetError, match="name the reader"):
        detect_reader(write("c.csv", "symbol,t\nIBM,2018-01-01\n"))
    with pytest.raises(UnknownFormatError, match="did you mean 'changelog'"):
        read_revisions(write("d.csv", CSV), SCHEMA, reader="changelogs")


def row(price: float, t: int = 1_000_000) -> dict[str, object]:
    return {"symbol": "IBM", "t": t, "price": price, "lots": 3}


EVENTS = [
    {"op": "c", "before": None, "after": row(25.0), "ts_ms": 5000},
    {"op": "u", "before": row(25.0), "after": row(22.0), "ts_ms": 6000},
    {"op": "d", "before": row(22.0), "after": None, "ts_ms": 7000},
    {"op": "r", "before": None, "after": row(1.0), "ts_ms": 8000},
    {"op": "u", "before": None, "after": row(2.0), "ts_ms": 9000},
    {"op": "d", "before": None, "after": None, "ts_ms": 9000},
    {"op": "t", "before": None, "after": None, "ts_ms": 9000},
    {"op": None, "before": None, "after": None, "ts_ms": None},
]


@pytest.mark.parametrize("wrapped", [False, True])
def test_debezium(write: Write, wrapped: bool) -> None:
    lines = [json.dumps({"payload": event} if wrapped else event) for event in EVENTS]
    path = write("events.jsonl", "\n".join(lines) + "\n")
    assert detect_reader(path) == "debezium"
    got = read_revisions(path, SCHEMA, time_unit="us")
    assert got.revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U", "-D", "+I"]
    assert got.revisions.table.column("price").to_pylist() == [25.0, 25.0, 22.0, 22.0, 1.0]
    assert got.revisions.known.tolist() == [5_000_000, 6_000_000, 7_000_000, 8_000_000]
    assert got.revisions.times.tolist() == [1_000_000] * 5
    reasons = got.aside.column("reason").to_pylist()
    assert len(reasons) == 4
    assert "'u' without 'before'" in reasons[0]
    assert "'d' without 'before'" in reasons[1]
    assert "got 't'" in reasons[2]
    assert "tombstone" in reasons[3]


def test_debezium_without_before_at_all(write: Write) -> None:
    path = write("events.jsonl", json.dumps({"op": "c", "after": row(25.0)}) + "\n")
    got = read_debezium(path, SCHEMA, time_unit="us")
    assert (len(got.revisions), got.aside.num_rows) == (1, 0)
    with pytest.raises(DatasetError, match="'op', 'before' and 'after'"):
        read_debezium(write("log.csv", CSV), SCHEMA)
    with pytest.raises(DatasetError, match="no 'since'"):
        read_debezium(path, SCHEMA, known="since", time_unit="us")


def test_json_lines_that_do_not_read_are_kept_aside(write: Write) -> None:
    def line(kind: str, price: object = 25.0, **more: object) -> str:
        return json.dumps(
            {"kind": kind, "symbol": "IBM", "t": "2018-01-02 10:00:00", "price": price, "lots": 1, **more}
        )

    path = write(
        "log.jsonl",
        "\n".join(
            [
                line("+I"),
                '{"kind": "+I", "symbol": ',
                line("+I", "cheap"),
                line("-U", 25),
                line("+U", 22.0),
                "",
                "[1, 2]",
                line("-U"),
                line("+U", lots={"a": 1}),
                line("-U", True),
                line("+U", 23.0),
                line("-D", lots=1 << 70),
                line("-U", 24.0),
                "garbage",
                "garbage",
                line("+U", 26.0),
                line("-D", 22.0),
            ]
        ),
    )
    got = read_changelog_files(path, SCHEMA)
    assert got.revisions.table.column("kind").to_pylist() == ["+I", "-U", "+U", "-D"]
    assert got.revisions.table.column("price").to_pylist() == [25.0, 25.0, 22.0, 22.0]
    reasons = got.aside.column("reason").to_pylist()
    assert got.aside.column("kind").to_pylist() == ["-U", "+U", "-U", "+U", *[None] * 8]
    assert got.aside.column("price").to_pylist() == [25.0, 23.0, 24.0, 26.0, *[None] * 8]
    lines = [int(reason.partition("line ")[2].partition(":")[0]) for reason in reasons]
    assert lines == [9, 10, 14, 15, *(2, 3, 7, 9, 10, 12, 14, 15)]
    for reported in (
        "malformed: line 2: not JSON: {",
        "malformed: line 3: 'price': expected a number, got \"cheap\"",
        "malformed: line 7: expected a JSON object, got [1, 2]",
        "malformed: expected the new value (+U) of this -U in the row after it, got line 9: 'lots': expected a number, got {",
        "malformed: line 9: 'lots': expected a number, got {",
        "malformed: expected the old value (-U) of this +U in the row before it, got line 15: not JSON",
    ):
        assert any(reason.startswith(reported) for reason in reasons), reported
    assert detect_reader(path) == "changelog"
    with pytest.raises(
        DatasetError, match=r"b\.jsonl: no line reads as a JSON object; malformed: line 1: not JSON"
    ):
        read_changelog_files(write("b.jsonl", "nothing\n"), SCHEMA)


def test_a_line_that_is_no_utf8_is_kept_aside(write: Write) -> None:
    row = b'{"%s": "+I", "symbol": "%s", "t": "2018-01-02 10:00:00", "price": 25.0, "lots": 1}'
    lines = [row % (b"\xebind", b"IBM"), row % (b"kind", b"IBM"), row % (b"kind", b"IB\xff")]
    found = read_changelog_files([write("log.jsonl", b"\n".join(lines))], SCHEMA)
    assert found.revisions.table.column("symbol").to_pylist() == ["IBM"]
    reasons = found.aside.column("reason").to_pylist()
    assert [one[:27] for one in reasons] == ["malformed: line 1: not UTF-", "malformed: line 3: not UTF-"]


def test_a_line_with_half_a_surrogate_pair_is_kept_aside(write: Write) -> None:
    """It has no UTF-8, and raised what Python raises."""
    row = '{"kind": "+I", "symbol": "%s", "t": "2018-01-02 10:00:00", "price": 25.0, "lots": 1}'
    found = read_changelog_files([write("log.jsonl", "\n".join([row % r"IB\ud800", row % "IBM"]))], SCHEMA)
    assert found.revisions.table.column("symbol").to_pylist() == ["IBM"]
    assert found.aside.column("reason").to_pylist()[0].startswith("malformed: line 1: not UTF-8")


def test_of_two_names_of_the_kind_the_one_as_it_is_written_counts(write: Write) -> None:
    rows = "Kind,kind,symbol,t,price,lots\nodd,+I,IBM,2018-01-02 10:00:00,25,1\n"
    found = read_changelog_files([write("log.csv", rows)], SCHEMA)
    assert (found.revisions.table.column("symbol").to_pylist(), found.aside.num_rows) == (["IBM"], 0)


def test_events_of_another_kind_are_kept_aside(write: Write) -> None:
    good = {"op": "c", "before": None, "after": row(25.0), "ts_ms": 5000}
    bad = {**good, "after": {**row(25.0), "price": "cheap"}}
    path = write(
        "events.jsonl", "\n".join(json.dumps(one) for one in (good, bad, {**good, "after": 3}, good))
    )
    got = read_debezium(path, SCHEMA, time_unit="us")
    assert len(got.revisions) == 2
    assert got.aside.column("reason").to_pylist() == [
        "malformed: line 2: 'after.price': expected a number, got \"cheap\"",
        "malformed: line 3: 'after': expected an object, got 3",
    ]


def test_errors_name_the_file_and_what_to_say(write: Write) -> None:
    path = write("events.jsonl", json.dumps({"op": "c", "before": None, "after": row(25.0), "ts_ms": 5000}))
    with pytest.raises(
        ColumnTypeError, match=r"events\.jsonl, column 't', row 1: expected a time, got .*--time-unit"
    ):
        read_debezium(path, SCHEMA)
    with pytest.raises(
        DatasetError, match=r"no column 'symbol', which revisions of this stream need \(kind, symbol, t"
    ):
        read_changelog_files(write("b.csv", "kind,t,price,lots\n+I,2018-01-01,1,1\n"), SCHEMA)


def test_debezium_with_a_time_that_is_none_on_one_side(write: Write) -> None:
    """Arrow infers text for the side with it and timestamps for the other."""
    schema = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
    good = {"symbol": "IBM", "t": "2014-01-02T09:30:00", "price": 187.2}
    events = [
        {"op": "c", "before": None, "after": good, "ts_ms": 1},
        {"op": "u", "before": {**good, "t": "2014,01-02T09:30:00"}, "after": good, "ts_ms": 2},
    ]
    path = write("e.jsonl", "\n".join(json.dumps(one) for one in events))
    got = read_debezium(path, schema)
    assert got.revisions.table.column("kind").to_pylist() == ["+I"]
    assert got.aside.column("kind").to_pylist() == ["-U", "+U"]
    assert "'t': expected timestamp[us], got '2014,01-02T09:30:00'" in got.aside.column("reason")[0].as_py()
