"""Jobs in process, and what both engines share: sinks, alerts, figures."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.errors import ColumnTypeError
from pulse.runtime.jobs.alerts import Alerts
from pulse.runtime.jobs.file_source import SourceError, files_of
from pulse.runtime.jobs.sinks import AlertSink, ConsoleSink, ParquetSink, numbered, read_changes
from pulse.runtime.jobs.source_schema import columns_of
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import JobError
from pulse.runtime.predict.event_time import newest
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.state_schema import ALERTS
from pulse.runtime.predict.status import Status
from tests.runtime.jobs.climbing import SECOND, climbing, climbing_job


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_results_come_before_the_data(tmp_path: Path, format: str) -> None:
    climbing(tmp_path / "in", format)
    job = climbing_job(tmp_path, stream={"format": format})
    statuses: list[int] = []
    prediction = run_local(job, on_status=lambda status: statuses.append(status.tally.tuples))
    likely, certain = read_changes(tmp_path / "out").to_pylist()
    # Emitted with the first file, which ends at 9 s: from 15 s on, until the model's horizon.
    assert {(row["kind"], row["batch"], row["now"].second) for row in (likely, certain)} == {("+I", 0, 9)}
    assert (likely["lo"], certain["hi"]) == (15.0, 60.0)
    assert likely["hi"] == certain["lo"] == pytest.approx(15.1)
    assert statuses == [10, 20]
    assert (prediction.tally.validated, prediction.tally.changes) == (19, 2)


def test_streams_that_cannot_be_read_in_process_or_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"there is no parquet file in .*in yet; put one there, or list 'columns'"
    ):
        run_local(climbing_job(tmp_path))
    climbing(tmp_path / "in")
    with pytest.raises(JobError, match="expected files with engine 'local', got 'rate'"):
        run_local(climbing_job(tmp_path, stream={"source": "rate"}))
    with pytest.raises(JobError, match="AS OF is for stored models"):
        run_local(climbing_job(tmp_path, query="select id, x from S where x > 15 as of version 1"))
    with pytest.raises(JobError, match="'columns': expected types by name, as kafka does not provide them"):
        climbing_job(tmp_path, stream={"source": "kafka"})
    file = files_of(climbing_job(tmp_path).streams["S"])[1]
    file.write_bytes(file.read_bytes()[:200])
    os.utime(file, (1001, 1001))
    with pytest.raises(SourceError, match=r"1\.parquet: cannot be read as parquet, it may be truncated"):
        run_local(climbing_job(tmp_path))


def test_files_of_folders_by_pattern(tmp_path: Path) -> None:
    """A pattern may name files or folders, at any depth: those of a folder count as if it were given by itself."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        climbing(tmp_path / "in" / f"part={part}", files=part + 1)
    (tmp_path / "in" / "part=1" / "_SUCCESS").write_text("", encoding="utf-8")
    wanted = ["part=0/0.parquet", "part=1/0.parquet", "part=1/1.parquet"]
    for pattern, count in {"in": 3, "in/part=*": 3, "in/part=?/*.parquet": 3, "in/*/1.parquet": 1}.items():
        files = files_of(climbing_job(tmp_path, stream={"path": pattern}).streams["S"])
        assert [str(file.relative_to(tmp_path / "in")) for file in files] == wanted[-count:]


@pytest.mark.parametrize("name", ["now", "Batch", "position"])
def test_results_named_as_columns_of_the_changelog(tmp_path: Path, name: str) -> None:
    climbing(tmp_path / "in")
    query = f"select id, x as {name} from S where x > 15"
    with pytest.raises(JobError, match=f"columns now, batch, position of its own, got .*'{name}'"):
        run_local(climbing_job(tmp_path, query=query))


def test_tuples_set_aside_are_kept(tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    late = pa.table(
        {"id": ["a", None], "t": pa.array([0, 1], pa.timestamp("us")), "x": [0.0, 1.0], "v": [1.0, 1.0]}
    )
    pq.write_table(late, tmp_path / "in" / "2.parquet")
    run_local(climbing_job(tmp_path))
    found = pq.ParquetFile(tmp_path / "out" / "_aside" / "stream=S" / "batch=2" / "tuples.parquet").read()
    assert sorted(found.column("reason").to_pylist()) == ["late", "no key"]


def test_a_time_out_of_range_does_not_move_the_watermark(tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    job = climbing_job(tmp_path)
    wild = pa.table({"id": ["a"], "t": pa.array([2**62], pa.timestamp("us")), "x": [0.0], "v": [1.0]})
    file = tmp_path / "in" / "wild.parquet"
    pq.write_table(wild, file)
    os.utime(file, (1000.5, 1000.5))  # between the others
    prediction = run_local(job)
    assert prediction.now == 19 * SECOND
    assert (prediction.tally.aside, prediction.tally.validated) == (1, 19)
    for type_, at in ((pa.date32(), 1), (pa.timestamp("s"), 86_400), (pa.timestamp("ns"), 86_400 * 10**9)):
        times = pa.array([at, None], pa.int32() if type_ == pa.date32() else pa.int64()).cast(type_)
        assert newest({"S": pa.table({"t": times})}, predictor_of(job), None) == 86_400 * SECOND


# -- sinks ----------------------------------------------------------------------------------------------------

CHANGES = pa.schema(
    [
        ("id", pa.string()),
        ("ref", pa.timestamp("us")),
        ("lo", pa.float64()),
        ("hi", pa.float64()),
        ("kind", pa.string()),
    ]
)


def changes(*rows: tuple[str, float, float, str], batch: int = 0, now: int = 0) -> pa.Table:
    """From (kind, begin, end, id), in seconds."""
    table = pa.Table.from_pylist(
        [{"id": id_, "ref": 0, "lo": lo, "hi": hi, "kind": kind} for kind, lo, hi, id_ in rows],
        schema=CHANGES,
    )
    return numbered([(table, now)], CHANGES, batch)


def test_a_batch_written_again_replaces_itself(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.write(0, changes(("+I", 1, 2, "a")))
    sink.write(1, changes(("+I", 3, 4, "a"), ("-D", 1, 2, "a"), batch=1))
    sink.write(1, changes(("+I", 5, 6, "b"), batch=1))
    sink.write(2, changes(batch=2))
    found = read_changes(tmp_path)
    assert [(row["batch"], row["id"], row["lo"]) for row in found.to_pylist()] == [
        (0, "a", 1.0),
        (1, "b", 5.0),
    ]
    sink.write(1, changes(batch=1))
    assert len(read_changes(tmp_path)) == 1


def test_the_console_shows_kind_range_and_columns() -> None:
    out = io.StringIO()
    ConsoleSink(out).write(0, changes(("+I", 1.5, 2, "a")), 0)
    assert out.getvalue() == "+I [1970-01-01T00:00:01.500000Z, 1970-01-01T00:00:02.000000Z) id=a\n"


# -- alerts ---------------------------------------------------------------------------------------------------


def reported(alerts: Alerts, table: pa.Table, now: float) -> list[tuple[str, float | None, float | None]]:
    return [(one.what, one.until, one.lead) for one in alerts.take(table, int(now * SECOND))]


def test_an_alert_is_predicted_and_comes_true() -> None:
    alerts = Alerts(("id",))
    assert reported(alerts, changes(("+I", 100, 160, "a")), 40) == [("predicted", 60.0, None)]
    assert reported(alerts, changes(), 50) == []
    assert reported(alerts, changes(("-U", 100, 160, "a"), ("+U", 90, 150, "a")), 60) == [
        ("moved", 30.0, None)
    ]
    alerts = unpack_state(ALERTS, pack_state(ALERTS, alerts))
    assert reported(alerts, changes(), 95) == [("came true", None, 50.0)]
    # It goes on: the same condition, of which all was reported.
    assert (
        reported(alerts, changes(("-U", 96, 150, "a"), ("+U", 96, 150, "a"), ("+I", 150, 180, "a")), 96) == []
    )
    assert reported(alerts, changes(), 200) == []
    assert (alerts.held, alerts.known) == ({}, {})


def test_an_alert_is_withdrawn() -> None:
    alerts = Alerts(("id",))
    assert reported(alerts, changes(("+I", 10, 20, "a"), ("+I", 30, 40, "b")), 0) == [
        ("predicted", 10.0, None),
        ("predicted", 30.0, None),
    ]
    assert reported(alerts, changes(("-D", 10, 20, "a")), 5) == [("withdrawn", None, None)]
    assert reported(alerts, changes(("-D", 35, 40, "b")), 33) == [("came true", None, 30.0)]


def test_what_came_true_and_then_was_not_so_is_withdrawn() -> None:
    """Event time moves on with other keys; the tuples of this one come later and say otherwise."""
    alerts = Alerts(("id",))
    assert reported(alerts, changes(("+I", 10, 40, "a"), ("+I", 10, 40, "b")), 0)[0] == (
        "predicted",
        10.0,
        None,
    )
    assert reported(alerts, changes(), 20) == [("came true", None, 10.0)] * 2
    assert reported(alerts, changes(("-D", 10, 40, "a")), 21) == [("withdrawn", None, None)]
    # It did not begin at 10, but will at 30.
    assert reported(alerts, changes(("-D", 10, 30, "b")), 21) == [
        ("withdrawn", None, None),
        ("predicted", 9.0, None),
    ]
    assert reported(alerts, changes(), 35) == [("came true", None, 9.0)]
    assert reported(alerts, changes(("-D", 36, 40, "b")), 37) == []  # it ended


def test_conditions_that_become_one_are_not_withdrawn() -> None:
    alerts = Alerts(("id",))
    assert len(reported(alerts, changes(("+I", 10, 20, "a"), ("+I", 30, 40, "a")), 0)) == 2
    assert reported(alerts, changes(("+I", 20, 30, "a")), 5) == []


def test_what_has_ended_is_not_spoken_of_when_it_is_corrected() -> None:
    alerts = Alerts(("id",))
    assert reported(alerts, changes(("+I", 10, 20, "a")), 0) == [("predicted", 10.0, None)]
    assert reported(alerts, changes(("-U", 10, 20, "a"), ("+U", 10, 20, "a")), 25) == [
        ("came true", None, 10.0)
    ]
    assert reported(alerts, changes(("-U", 12, 15, "a"), ("+U", 12, 15, "a")), 60) == []
    assert reported(alerts, changes(("+I", 50, 55, "a")), 61) == [
        ("holds", None, 0.0)
    ]  # of that nothing was reported


def test_what_holds_already_was_not_foreseen() -> None:
    assert reported(Alerts(("id",)), changes(("+I", 3, 20, "a")), 5) == [("holds", None, 0.0)]


def test_alerts_of_a_batch_run_again_are_the_same(tmp_path: Path) -> None:
    first = AlertSink(("id",), str(tmp_path / "out"), str(tmp_path / "state"))
    first.write(0, changes(("+I", 10, 20, "a")), 0)
    first.write(1, changes(), 12 * SECOND)
    before = {file.name: file.read_text() for file in (tmp_path / "out").iterdir()}
    again = AlertSink(("id",), str(tmp_path / "out"), str(tmp_path / "state"))
    again.write(1, changes(), 12 * SECOND)
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == before
    alerts = [json.loads(text) for _, text in sorted(before.items())]
    assert [(one["alert"], one["id"]) for one in alerts] == [("predicted", "a"), ("came true", "a")]
    assert (alerts[0]["until"], alerts[1]["lead"]) == (10.0, 10.0)


def test_event_time_does_not_go_back_when_a_job_is_started_again(tmp_path: Path) -> None:
    """On Spark a run that was started again knows the times of the keys that came since, and those may lag."""
    AlertSink(("id",), str(tmp_path / "out"), str(tmp_path / "state")).write(0, changes(), 60 * SECOND)
    again = AlertSink(("id",), str(tmp_path / "out"), str(tmp_path / "state"))
    again.write(1, changes(("+I", 30, 90, "a")), 20 * SECOND)
    (line,) = (tmp_path / "out" / "batch=1.jsonl").read_text().splitlines()
    assert json.loads(line)["alert"] == "holds"


def test_alerts_of_a_batch_that_was_given_up_do_not_stay(tmp_path: Path) -> None:
    """A log of accents may have grown before the batch is run again, so that it says something else, or nothing."""
    sink = AlertSink(("id",), str(tmp_path / "out"), str(tmp_path / "state"))
    sink.write(0, changes(("+I", 10, 20, "a")), 0)
    sink.write(0, changes(), 0)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_alert_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    climbing(tmp_path / "in")
    run_local(climbing_job(tmp_path, sink={"kind": "alert"}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("predicted: id=a 1970-01-01T00:00:15.000000Z to")
    assert ", likely, certain from 1970-01-01T00:00:1" in lines[0]
    assert lines[0].endswith("in 6 s")
    assert lines[1].endswith("known 6 s ahead")


def test_figures_for_people_and_programs() -> None:
    status = Status()
    assert status.line().startswith("0 tuples, 0/s, 0.0 % validated")
    assert status.figures()["lag_seconds"] is None


def test_whole_numbers_at_first_are_no_reason_to_set_others_aside(tmp_path: Path) -> None:
    """The types of text are those of the first file that is there, which may be another one after every restart."""
    (tmp_path / "in").mkdir()
    for i, values in enumerate((["1", ""], ["1.5", "2"])):
        rows = [f"a,1970-01-01T00:00:{10 * i + j:02},{one},1" for j, one in enumerate(values)]
        file = tmp_path / "in" / f"{i}.csv"
        file.write_text("\n".join(["id,t,x,v", *rows]) + "\n", encoding="utf-8")
        os.utime(file, (1000 + i, 1000 + i))
    job = climbing_job(tmp_path, stream={"format": "csv"})
    assert columns_of(job.streams["S"]).field("x").type == pa.float64()
    assert columns_of(job.streams["S"]).field("v").type == pa.int64()
    prediction = run_local(job)
    assert (prediction.tally.tuples, prediction.tally.aside) == (4, 1)  # the one that is missing


def test_keys_that_begin_with_zeros_are_no_numbers(tmp_path: Path) -> None:
    """Of 007 and 7, read as numbers, one key would be made."""
    (tmp_path / "in").mkdir()
    lines = "id,t,x,v\n007,1970-01-01T00:00:00,20,0\n7,1970-01-01T00:00:01,30,0\n"
    (tmp_path / "in" / "0.csv").write_text(lines, encoding="utf-8")
    run_local(climbing_job(tmp_path, stream={"format": "csv"}))
    assert {(row["id"], row["x"][0]) for row in read_changes(tmp_path / "out").to_pylist()} == {
        ("007", 20.0),
        ("7", 30.0),
    }


@pytest.mark.parametrize(
    ("first", "later"), [("a", 5), (5, "5"), (5, 5.5)], ids=["number", "text", "fraction"]
)
def test_a_later_file_whose_keys_are_of_another_type_is_named(tmp_path: Path, first: Any, later: Any) -> None:
    (tmp_path / "in").mkdir()
    for f, key in enumerate((first, later)):
        times = pa.array([f * SECOND], pa.timestamp("us"))
        pq.write_table(
            pa.table({"id": [key], "t": times, "x": [20.0], "v": [0.0]}), tmp_path / "in" / f"{f}.parquet"
        )
        os.utime(tmp_path / "in" / f"{f}.parquet", (1000 + f, 1000 + f))
    with pytest.raises(
        ColumnTypeError, match=r"1\.parquet, column 'id': expected (string|int64), as in the first file"
    ):
        run_local(climbing_job(tmp_path))


def test_numbers_of_keys_may_be_written_otherwise(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for f, type_ in enumerate((pa.int64(), pa.int32(), pa.float64(), pa.null())):
        ids, times = (
            pa.array([None if type_ == pa.null() else 5], type_),
            pa.array([f * SECOND], pa.timestamp("us")),
        )
        pq.write_table(
            pa.table({"id": ids, "t": times, "x": [20.0 + f], "v": [1.0]}), tmp_path / "in" / f"{f}.parquet"
        )
        os.utime(tmp_path / "in" / f"{f}.parquet", (1000 + f, 1000 + f))
    prediction = run_local(climbing_job(tmp_path))
    assert (prediction.tally.tuples, prediction.tally.validated, prediction.tally.aside) == (4, 2, 1)


def test_nothing_is_made_up_for_what_nobody_reads(tmp_path: Path) -> None:
    """Values that the query does not read are not kept, so that of tuples set aside they are not known."""
    (tmp_path / "in").mkdir()
    lines = "id,t,x,y,v\na,1970-01-01T00:00:00,1.5,7.5,1\na,1970-01-01T00:00:01,,7.5,1\n"
    (tmp_path / "in" / "0.csv").write_text(lines, encoding="utf-8")
    stream = {"format": "csv", "accents": "x.log", "model": {"x": "linear", "y": "linear"}}
    run_local(climbing_job(tmp_path, stream=stream, checkpoint="kept"))
    (file,) = (tmp_path / "kept" / "aside").rglob("*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    assert (row["reason"], row["x"], row["y"]) == ("not finite", None, None)
