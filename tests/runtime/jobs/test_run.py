"""`Session.run`: one way in for jobs, whatever they are given as, on both engines."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import PulseError, SessionError
from pulse.runtime.jobs.alerts import Alerts
from pulse.runtime.jobs.folders import CheckpointInUseError
from pulse.runtime.jobs.result_log import ResultsError
from pulse.runtime.jobs.run import JobBatch
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import JobError, job_of
from pulse.runtime.predict.status import Status
from tests.runtime.jobs.climbing import TOML, climbing, climbing_tables
from tests.waiting import LONGEST


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> pulse.Session:
    monkeypatch.delenv("PULSE_ENGINE", raising=False)
    return pulse.Session(engine="local")


def test_a_file_tables_and_a_job_are_the_same(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    (tmp_path / "job.toml").write_text(TOML, encoding="utf-8")
    of_file = session.run(tmp_path / "job.toml")
    of_tables = session.run(climbing_tables(), folder=tmp_path)
    of_job = session.run(
        job_of({**climbing_tables(), "sink": {"kind": "parquet", "path": "more"}}, folder=tmp_path)
    )
    for run in (of_file, of_tables, of_job):
        assert run.changes().num_rows == run.holds().num_rows == 2
        assert run.changes().equals(of_file.changes())
        assert run.aside().num_rows == 0
        assert not run.active
        assert run.wait()
        assert run.status.tally.tuples == 20
    assert of_file.holds().to_pandas()["hi"].max() == 60.0


def test_it_says_what_it_is(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    run = session.run(climbing_tables(), folder=tmp_path)
    assert repr(run).startswith("JobRun('job', engine='local'; done: 20 tuples, ")
    assert "<td" in run._repr_html_()
    again = session.run(climbing_tables(checkpoint="state"), folder=tmp_path)
    again = session.run(climbing_tables(checkpoint="state"), folder=tmp_path)
    assert repr(again) == "JobRun('job', engine='local'; done: no tuples)"
    assert "no tuples" in again._repr_html_()


def test_results_stay_with_the_checkpoint(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in", files=1)
    session.run(climbing_tables(checkpoint="state"), folder=tmp_path)
    shutil.rmtree(tmp_path / "in")
    climbing(tmp_path / "in", files=3)
    (tmp_path / "in" / "0.parquet").unlink()
    run = session.run(climbing_tables(checkpoint="state"), folder=tmp_path)
    assert run.status.tally.tuples == 20
    assert set(run.changes().column("batch").to_pylist()) == {0}
    assert run.holds().num_rows == 2
    assert run.job.sink.path == str(tmp_path / "state" / "results")


def test_a_job_without_results_has_their_columns(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    given = climbing_tables()
    run = session.run({**given, "query": "select id, x from S where x > 1000"}, folder=tmp_path)
    assert (run.holds().num_rows, run.changes().num_rows) == (0, 0)
    some = session.run(given, folder=tmp_path)
    assert run.holds().column_names == some.holds().column_names
    assert set(run.changes().column_names) == set(some.changes().column_names)


@pytest.mark.parametrize("more", [{}, {"checkpoint": "state"}])
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_job_on_an_empty_folder_has_the_columns_of_results_and_dead_letters(
    session: pulse.Session, tmp_path: Path, format: str, more: dict[str, str]
) -> None:
    stream = {
        "source": "files",
        "path": "in",
        "format": format,
        "key": "id",
        "time": "t",
        "model": {"x": "step"},
    }
    columns = {"id": "string", "t": "timestamp[us]", "x": "double"}
    stream |= {"error": 0.1, "horizon": "10 s", "columns": columns}
    given = {"query": "select id, x from S where x > 5", "engine": "local", "streams": {"S": stream}, **more}
    (tmp_path / "in").mkdir()
    empty = session.run(given, folder=tmp_path)
    found = empty.holds(), empty.changes(), empty.aside()
    assert [table.num_rows for table in found] == [0, 0, 0]
    times = np.array(["2024-01-01T00:00:00", "2024-01-01T00:00:05", "2024-01-01T00:00:02"], "datetime64[us]")
    rows = pa.table({"id": ["a", "a", "a"], "t": times, "x": [1.0, 6.0, 7.0]})
    if format == "csv":
        pc.write_csv(rows, tmp_path / "in" / "0.csv")
    else:
        pq.write_table(rows, tmp_path / "in" / "0.parquet")
    full = session.run(given, folder=tmp_path)
    later = full.holds(), full.changes(), full.aside()
    assert [table.num_rows > 0 for table in later] == [True, True, True]  # the last tuple is late
    assert [table.schema.names for table in found] == [table.schema.names for table in later]
    assert [table.schema.types for table in found] == [table.schema.types for table in later]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_sampling_clause_is_refused(session: pulse.Session, tmp_path: Path, engine: str) -> None:
    """A job gives segments: to ignore the clause would be no answer to what was asked."""
    climbing(tmp_path / "in")
    given = {**climbing_tables(), "query": "select id, x from S sample every 10"}
    with pytest.raises(JobError, match=r"SAMPLE EVERY is for stored models; .* leave the clause out"):
        session.run(given, folder=tmp_path)
    job = job_of({**given, "engine": engine}, folder=tmp_path)
    with pytest.raises(JobError, match="SAMPLE EVERY"):
        predictor_of(job, dealt=engine == "spark")


def test_a_rank_is_refused_as_such(session: pulse.Session, tmp_path: Path) -> None:
    """Without its sampling clause it would be no query at all: to leave that out is no advice."""
    climbing(tmp_path / "in")
    given = {**climbing_tables(), "query": "select id, x from S top 1 by x sample every 10"}
    with pytest.raises(
        PulseError, match=r"'top 1 by x' is decided at sampled instants, .* leave it out, or rank"
    ):
        session.run(given, folder=tmp_path)


def test_batches_are_reported_with_their_time(session: pulse.Session, tmp_path: Path) -> None:
    """So that alerts know how late it is also where nothing changed."""
    climbing(tmp_path / "in")
    alerts, reported, batches, figures = Alerts(("id",)), [], list[JobBatch](), list[int]()

    def listen(batch: JobBatch) -> None:
        batches.append(batch)
        assert batch.now is not None
        reported.extend(alerts.take(batch.changes, batch.now))

    def note(status: Status) -> None:
        figures.append(status.tally.tuples)

    session.run(climbing_tables(), folder=tmp_path, on_batch=listen, on_status=note)
    assert [(one.number, one.changes.num_rows, one.now) for one in batches] == [
        (0, 2, 9_000_000),
        (1, 0, 19_000_000),
    ]
    assert [one.what for one in reported] == ["predicted", "came true"]
    assert figures == [10, 20]


def test_rows_set_aside_are_kept_for_whoever_asks(session: pulse.Session, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("id,t,x,v\na,1970-01-01T00:00:00,n/a,1\n", encoding="utf-8")
    given = climbing_tables()
    given["streams"]["S"]["format"] = "csv"
    given["streams"]["S"]["columns"] = {"id": "string", "t": "timestamp[us]", "x": "double", "v": "double"}
    (row,) = session.run(given, folder=tmp_path).aside().to_pylist()
    assert (row["stream"], row["reason"], row["line"]) == ("S", "not finite", 2)


def test_in_the_background_until_it_is_stopped(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in", files=1)
    with session.run(climbing_tables(), folder=tmp_path, once=False) as run:
        until(lambda: run.status.batches == 1)
        assert run.active
        assert not run.wait(0.01)
        assert "running" in repr(run)
        shutil.copy(tmp_path / "in" / "0.parquet", tmp_path / "in" / "1.parquet")
        until(lambda: run.status.batches == 2)
    assert not run.active
    assert run.changes().num_rows == 2


def test_what_goes_wrong_in_the_background_is_reported_to_who_waits(
    session: pulse.Session, tmp_path: Path
) -> None:
    climbing(tmp_path / "in", files=1)
    run = session.run(climbing_tables(), folder=tmp_path, once=False)
    until(lambda: run.status.batches == 1)
    (tmp_path / "in" / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(PulseError, match=r"1\.parquet: cannot be read as parquet"):
        run.wait(LONGEST)
    assert not run.active
    assert "failed, wait() raises why" in repr(run)
    run.stop()  # once is enough


def test_a_second_run_in_the_background_is_refused_when_it_is_started(
    session: pulse.Session, tmp_path: Path
) -> None:
    climbing(tmp_path / "in", files=1)
    given = climbing_tables(checkpoint="state")
    with session.run(given, folder=tmp_path, once=False) as run:
        with pytest.raises(CheckpointInUseError, match="takes one run at a time"):
            session.run(given, folder=tmp_path, once=False)
        until(lambda: run.status.batches == 1)


def test_the_engine_is_the_sessions_or_else_the_jobs(
    session: pulse.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    climbing(tmp_path / "in")
    (tmp_path / "job.toml").write_text(TOML, encoding="utf-8")
    assert pulse.Session().run(tmp_path / "job.toml").job.engine == "local"  # as the job says
    (tmp_path / "job.toml").write_text(TOML.replace('engine = "local"', 'engine = "spark"'), encoding="utf-8")
    assert session.run(tmp_path / "job.toml").job.engine == "local"
    monkeypatch.setenv("PULSE_ENGINE", "local")
    assert pulse.Session().run(tmp_path / "job.toml").job.engine == "local"


def test_what_cannot_be_run(session: pulse.Session, tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    with pytest.raises(SessionError, match=r"run: expected a job: the path of a TOML file, .* got int"):
        session.run(3)  # type: ignore[arg-type]
    with pytest.raises(
        SessionError, match=r"job\.toml are relative to the file; folder is for jobs given as tables"
    ):
        session.run(tmp_path / "job.toml", folder=tmp_path)
    with pytest.raises(JobError, match=r"nowhere\.toml: cannot read the job"):
        session.run(tmp_path / "nowhere.toml")
    with pytest.raises(SessionError, match="frames are Spark's; expected engine 'spark', got 'local'"):
        session.run(climbing_tables(), folder=tmp_path, frames={"S": None})
    run = session.run(climbing_tables(sink={"kind": "none"}), folder=tmp_path)
    with pytest.raises(ResultsError, match=r"went to its sink, 'none', and are not kept; leave the sink out"):
        run.changes()


def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same tables, without a checkpoint of their own, and a frame."""
    climbing(tmp_path / "in")
    here = pulse.Session(engine="local").run(climbing_tables(), folder=tmp_path)
    session = pulse.Session(engine="spark", spark=spark)
    batches: list[JobBatch] = []
    there = session.run(climbing_tables(buckets=2), folder=tmp_path, on_batch=batches.append)
    assert there.status.tally.tuples == 20
    assert there.holds().drop_columns(["certainty"]).equals(here.holds().drop_columns(["certainty"]))
    assert [(one.number, one.now) for one in batches] == [(0, 9_000_000), (1, 19_000_000)]
    assert "engine='spark'; done: 20 tuples" in repr(there)
    frame = spark.readStream.schema("id string, t timestamp, x double, v double").parquet(
        str(tmp_path / "in")
    )
    given = climbing_tables(buckets=2)
    given["streams"]["S"] |= {"source": "frame", "options": {}}
    given["streams"]["S"].pop("path")
    with session.run(given, folder=tmp_path, frames={"S": frame}, once=False) as run:
        until(lambda: run.status.tally.tuples == 20)
        assert run.active
    assert not run.active
    assert run.holds().num_rows == 2


def until(reached: Any) -> None:
    end = time.monotonic() + LONGEST
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)
