"""Checkpoints: a run in process goes on where the last one ended, however it ended; other jobs and engines are refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.runtime.jobs.checkpoint import CheckpointError, write_fingerprint
from pulse.runtime.jobs.sinks import ParquetSink, read_changes
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.status import Status
from tests.runtime.jobs.streams import ONE_FILE, file_stream

SECOND = 1_000_000


def part(folder: Path, number: int) -> None:
    """Ten seconds of two prices that move every four, and one tuple that comes late to be inserted."""
    folder.mkdir(exist_ok=True)
    times = [10 * number + k for k in range(10)] + ([10 * number - 3] if number else [])
    table = pa.table(
        {
            "id": [one for _ in times for one in ("a", "b")],
            "t": pa.array([t * SECOND for t in times for _ in range(2)], pa.timestamp("us")),
            "x": [float(t // 4 % 5) + k for t in times for k in (0, 1)],
        }
    )
    pq.write_table(table, folder / f"{number}.parquet")
    os.utime(folder / f"{number}.parquet", (1000 + number, 1000 + number))


def job(folder: Path, **more: object) -> Job:
    stream = file_stream(
        "id", {"x": "step"}, path="../in", error=0.1, horizon="20 s", revisions="30 s", options=ONE_FILE
    )
    values = {
        "query": "select id, avg(x) as m from S[size 6 advance 1] having avg(x) > 1.5",
        "checkpoint": "checkpoint",
        "engine": "local",
        "streams": {"S": stream},
        "sink": {"kind": "parquet", "path": "out"},
    }
    folder.mkdir(exist_ok=True)
    return job_of({**values, **more}, folder=folder)


def test_runs_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    statuses: list[Status] = []
    for number in range(4):
        part(tmp_path / "in", number)
        prediction = run_local(job(tmp_path / "by_and_by"), on_status=statuses.append)
    whole = run_local(replace(job(tmp_path / "at_once"), checkpoint=None))
    details = read_changes(tmp_path / "by_and_by" / "out")
    assert details.num_rows > 10
    assert details.equals(read_changes(tmp_path / "at_once" / "out"))
    assert prediction.results().equals(whole.results())
    assert [one.tally.tuples for one in statuses] == [20, 22, 22, 22]
    assert prediction.tally == whole.tally
    again = run_local(job(tmp_path / "by_and_by"))
    assert again.results().equals(whole.results())
    assert read_changes(tmp_path / "by_and_by" / "out").equals(details)


def test_a_batch_that_was_given_up_is_run_again_with_its_files(tmp_path: Path) -> None:
    for number in range(3):
        part(tmp_path / "in", number)
    mine = job(tmp_path / "mine")
    sink = ParquetSink(str(tmp_path / "mine" / "out"))

    def stops(batch: int, changes: pa.Table) -> None:
        if batch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(mine, sink=sink, on_batch=stops)
    assert json.loads((tmp_path / "mine/checkpoint/local/next").read_text())["batch"] == 1
    # What has come since, even if it looks older, belongs to later batches.
    part(tmp_path / "in", 3)
    os.utime(tmp_path / "in" / "3.parquet", (999, 999))
    run_local(mine, sink=sink)
    os.utime(tmp_path / "in" / "3.parquet", (1001.5, 1001.5))
    run_local(replace(job(tmp_path / "whole"), checkpoint=None))
    assert read_changes(tmp_path / "mine" / "out").equals(read_changes(tmp_path / "whole" / "out"))


def test_checkpoints_of_other_jobs_and_engines_are_refused(tmp_path: Path) -> None:
    part(tmp_path / "in", 0)
    mine = job(tmp_path / "mine")
    run_local(mine)
    with pytest.raises(CheckpointError, match="lateness was 10 s, is 5 s"):
        run_local(job(tmp_path / "mine", lateness="5 s"))
    with pytest.raises(
        CheckpointError, match=r"is of engine 'local'; engine 'spark' cannot resume its state"
    ):
        write_fingerprint(mine, "spark")
    other = job(tmp_path / "other")
    (tmp_path / "other" / "checkpoint" / "spark").mkdir(parents=True)
    with pytest.raises(
        CheckpointError,
        match=r"run the job with engine 'spark', or as a job of its own, with a new checkpoint",
    ):
        run_local(other)
