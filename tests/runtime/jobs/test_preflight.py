"""What of a job is refused before Spark is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pulse
from pulse.cli import app
from pulse.operators.inversion import split_heuristics
from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.preflight import check_for_spark
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.jobs.toml_tables import JobError
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.running_jobs import FILTER, ticks
from tests.runtime.jobs.streams import TICK_STREAM


def job(folder: Path, **more: Any) -> Job:
    """A job over ticks in this folder."""
    tables = {
        "query": FILTER,
        "checkpoint": "state",
        "streams": {"S": TICK_STREAM},
        "sink": {"kind": "parquet", "path": "out"},
        **more,
    }
    return job_of(tables, folder=folder)


def no_spark(*_: Any, **__: Any) -> Any:
    """In the place of what starts Spark."""
    raise AssertionError("Spark was started")


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here may start Spark."""
    monkeypatch.setattr("pulse.runtime.spark.session.session", no_spark)


@pytest.mark.usefixtures("without_spark")
def test_a_checkpoint_of_the_other_engine_is_refused_before_spark_starts(tmp_path: Path) -> None:
    ticks(tmp_path / "in", 1)
    run_local(job(tmp_path, engine="local"))
    with pytest.raises(
        CheckpointError, match=r"is of engine 'local'; engine 'spark' cannot resume its state"
    ):
        pulse.Session(engine="spark").run(job(tmp_path))
    file = tmp_path / "job.toml"
    file.write_text(
        f'query = "{FILTER}"\ncheckpoint = "state"\n[streams.S]\nsource = "files"\npath = "in"\nformat = "parquet"\n'
        'key = "symbol"\ntime = "t"\nmodel = { price = "step" }\nerror = "1%"\nhorizon = "60 s"\n'
        '[sink]\nkind = "parquet"\npath = "out"\n'
    )
    details = CliRunner().invoke(app, ["run", str(file), "--engine", "spark", "--once"])
    assert isinstance(details.exception, CheckpointError)


@pytest.mark.usefixtures("without_spark")
def test_a_changed_job_is_refused_before_spark_starts_and_nothing_is_written(tmp_path: Path) -> None:
    ticks(tmp_path / "in", 1)
    before = job(tmp_path)
    check_for_spark(before)
    assert not (tmp_path / "state").exists()
    from pulse.runtime.jobs.checkpoint import write_fingerprint

    write_fingerprint(before)
    with pytest.raises(CheckpointError, match="is of another job"):
        pulse.Session(engine="spark").run(replace(before, split="equi"))


@pytest.mark.usefixtures("without_spark")
def test_a_split_of_ones_own_is_refused_on_spark_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry is that of the process that registered it; workers have their own."""
    monkeypatch.setattr(split_heuristics, "_SPLITS", dict(split_heuristics._SPLITS))
    split_heuristics.register(
        "halves", lambda key, c, bound, inputs: [bound / len(inputs) / i.sensitivity for i in inputs]
    )
    ticks(tmp_path / "in", 1)
    mine = job(tmp_path, split="halves", query=f"{FILTER} error within 1%")
    with pytest.raises(
        JobError, match=r"split 'halves' is registered in this process only, .*engine = 'local'"
    ):
        pulse.Session(engine="spark").run(mine)
    assert run_local(replace(mine, engine="local")).tally.changes > 0


def test_built_in_splits_are_known_everywhere() -> None:
    for name in split_heuristics.BUILT_IN:
        split_heuristics.check_known_to_workers(name)
    with pytest.raises(split_heuristics.SplitError, match="there is no split 'fair'"):
        split_heuristics.check_known_to_workers("fair")
