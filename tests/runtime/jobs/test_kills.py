"""A job in process that is killed before any of its file operations gives, started again, what it would have given without."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pulse.runtime.jobs.lock import LOCK
from pulse.runtime.jobs.result_log import read_changes
from pulse.runtime.jobs.spec import Job
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.climbing import climbing, climbing_job
from tests.store.killing import run

SINKS = {"parquet": {"kind": "parquet", "path": "out"}, "alert": {"kind": "alert", "path": "out"}}


def job_in(folder: Path, kind: str) -> Job:
    return climbing_job(folder, engine="local", checkpoint="state", sink=SINKS[kind])


def given(folder: Path, kind: str) -> Any:
    """The job's results."""
    if kind == "parquet":
        return read_changes(folder / "out").to_pylist()
    return [file.read_text() for file in sorted((folder / "out").glob("*.jsonl"))]


def names(folder: Path) -> set[str]:
    found = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    return {one for one in found if Path(one).name != LOCK}


@pytest.mark.parametrize("kind", SINKS)
def test_a_kill_before_any_file_operation_changes_no_results(kind: str, tmp_path: Path) -> None:
    before, whole = tmp_path / "before", tmp_path / "whole"
    before.mkdir()
    climbing(before / "in", files=3)
    shutil.copytree(before, whole)
    run_local(job_in(whole, kind))  # here, so that no process compiles or loads what others need too
    wanted, left = given(whole, kind), names(whole)
    assert wanted
    shutil.copytree(before, tmp_path / "counted")
    count = run(lambda: run_local(job_in(tmp_path / "counted", kind)), tmp_path / "counted")
    assert count is not None
    assert count > 20
    for last in range(count):
        folder = tmp_path / str(last)
        shutil.copytree(before, folder)
        assert run(lambda: run_local(job_in(folder, kind)), folder, last) is None  # noqa: B023  # it is run at once
        run(lambda: run_local(job_in(folder, kind)), folder)  # noqa: B023
        assert given(folder, kind) == wanted, f"killed before operation {last}"
        assert names(folder) == left, f"left behind when killed before operation {last}"
