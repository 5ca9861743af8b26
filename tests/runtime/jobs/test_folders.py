"""A job's folders: one run at a time, results of one job only, and no link in them that is followed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.folders import IDENTITY, CheckpointInUseError, OthersResultsError, claim_folders
from pulse.runtime.jobs.lock import LOCK
from pulse.runtime.jobs.result_log import RESULTS, SET_ASIDE, read_changes, read_holds
from pulse.runtime.jobs.spec import Job
from pulse.runtime.jobs.toml_tables import JobError
from pulse.runtime.predict.local_driver import run_local
from pulse.session import Session
from pulse.store.errors import LinkedFileError
from tests.commands.running import runner
from tests.runtime.jobs.climbing import QUERY, TOML, climbing, climbing_job

OTHER = QUERY.replace("15", "5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose ``in`` the job reads."""
    climbing(tmp_path / "in")
    return tmp_path


def job_in(folder: Path, **more: Any) -> Job:
    """The job in process, with a checkpoint ``state``, unless options differ, and results in ``out``."""
    return climbing_job(folder, **{"engine": "local", "checkpoint": "state", **more})


def files(folder: Path) -> dict[str, bytes]:
    found = {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    return {name: data for name, data in found.items() if Path(name).name != LOCK}


# -- one run at a time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_second_run_is_refused_and_reported_who_has_the_checkpoint(folder: Path, kept: bool) -> None:
    job = job_in(folder) if kept else climbing_job(folder, engine="local")
    refused: list[CheckpointInUseError] = []

    def second(*_: object) -> None:
        with pytest.raises(CheckpointInUseError) as caught:
            run_local(job)
        refused.append(caught.value)

    run_local(job, on_batch=second)
    assert len(refused) == 2
    what = "checkpoint" if job.checkpoint else "folder of results"
    assert f"the {what} {folder}" in str(refused[0])
    assert f"in use (a run of job, process {os.getpid()} on " in str(refused[0])
    run_local(job)  # and when the first has ended it may


def test_a_run_in_another_process_is_refused_and_a_killed_one_holds_nothing(folder: Path) -> None:
    (folder / "job.toml").write_text(f'checkpoint = "state"\n{TOML}')
    code = (
        "import sys, time\nfrom pulse.runtime.jobs.toml import read_job\n"
        "from pulse.runtime.predict.local_driver import run_local\n"
        "def first(*_):\n    print('at work', flush=True)\n    time.sleep(600)\n"
        f"run_local(read_job({str(folder / 'job.toml')!r}), on_batch=first)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "at work\n"
        with pytest.raises(CheckpointInUseError, match=rf"process {other.pid} on "):
            run_local(job_in(folder))
        other.kill()
    run_local(job_in(folder))
    assert read_holds(folder / "out").num_rows == 2  # likely, then certain


def test_the_command_refuses_a_second_run_without_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.toml").write_text(f'checkpoint = "state"\n{TOML}')
    with claim_folders(job_in(folder), "local"):
        done = runner(monkeypatch, capsys)("run", folder / "job.toml", "--once")
    assert done.code == 2
    assert "is in use (a run of job, process" in done.err
    assert "Traceback" not in done.err


# -- results of one job ---------------------------------------------------------------------------------------


def test_results_of_another_job_are_not_written_into(folder: Path) -> None:
    run_local(job_in(folder))
    before = files(folder / "out")
    assert before
    with pytest.raises(
        CheckpointError, match=r"run it as a job of its own, .* the results in .*out belong to the job"
    ):
        run_local(job_in(folder, query=OTHER))
    with pytest.raises(
        OthersResultsError,
        match=r"out holds results of another job \(select id, x .* give this one another 'path' in its",
    ):
        run_local(job_in(folder, query=OTHER, checkpoint="state2"))
    assert files(folder / "out") == before
    run_local(job_in(folder))
    run_local(job_in(folder, query=OTHER, checkpoint="state2", sink={"kind": "parquet", "path": "out2"}))
    assert read_changes(folder / "out2").num_rows


def test_a_checkpoint_begun_anew_does_not_mix_with_the_results_of_the_one_before(folder: Path) -> None:
    run_local(job_in(folder))
    shutil.rmtree(folder / "state")
    with pytest.raises(
        OthersResultsError, match=r"an earlier checkpoint in .*state, since removed.* remove that folder"
    ):
        run_local(job_in(folder))
    shutil.rmtree(folder / "out")
    run_local(job_in(folder))


@pytest.mark.parametrize("key", ["path", "aside"])
def test_a_stored_model_is_no_place_for_results(folder: Path, key: str) -> None:
    asked: dict[str, Any] = {"key": "id", "time": "t", "model": {"x": "linear"}, "error": 0}
    Session(engine="local").fit(folder / "in" / "0.parquet", **asked, out=folder / "m")
    before = files(folder / "m")
    sink = {"kind": "parquet", "path": "out", key: "m"}
    with pytest.raises(OthersResultsError, match=f"m is a stored model; .* give this job another '{key}'"):
        run_local(job_in(folder, sink=sink))
    assert files(folder / "m") == before


@pytest.mark.parametrize("key", ["checkpoint", "path", "aside"])
@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_a_file_in_the_place_of_a_folder_is_refused_in_words(folder: Path, key: str, name: str) -> None:
    (folder / "taken").write_text("mine")
    sink = {"kind": "parquet", "path": "out", **({} if key == "checkpoint" else {key: name})}
    more = {"checkpoint": name} if key == "checkpoint" else {}
    with pytest.raises(
        JobError, match=rf"'{key}': expected a folder to write to, got .*{name}, .*name another"
    ):
        run_local(job_in(folder, sink=sink, **more))
    assert (folder / "taken").read_text() == "mine"


def test_a_checkpoint_that_moves_with_its_results_goes_on(folder: Path) -> None:
    run_local(job_in(folder))
    (folder / "state").rename(folder / "kept")
    (folder / "out").rename(folder / "results")
    run_local(job_in(folder, checkpoint="kept", sink={"kind": "parquet", "path": "results"}))


def test_a_job_without_a_checkpoint_replaces_its_own_results_only(folder: Path) -> None:
    run_local(climbing_job(folder, engine="local"))
    before = files(folder / "out")
    run_local(climbing_job(folder, engine="local"))
    assert files(folder / "out") == before
    with pytest.raises(OthersResultsError, match="another job"):
        run_local(climbing_job(folder, engine="local", query=OTHER))
    with pytest.raises(OthersResultsError, match="a run without a checkpoint"):
        run_local(job_in(folder))


def test_alerts_and_rows_set_aside_belong_to_a_job_as_well(folder: Path) -> None:
    alert = {"kind": "alert", "path": "alerts", "aside": "aside"}
    run_local(job_in(folder, sink=alert))
    assert (folder / "alerts" / RESULTS).is_file()
    assert (folder / "aside" / SET_ASIDE).is_file()
    with pytest.raises(OthersResultsError, match="alerts holds results of a run on another checkpoint"):
        run_local(job_in(folder, sink=alert, checkpoint="state2"))
    with pytest.raises(OthersResultsError, match=r"aside holds rows set aside of .* another 'aside'"):
        run_local(job_in(folder, sink={**alert, "path": "alerts2"}, checkpoint="state2"))


def test_results_that_say_nothing_of_their_job_are_taken_over_with_their_checkpoint_only(
    folder: Path,
) -> None:
    """Both were written before folders recorded whose they are."""
    run_local(job_in(folder))
    (folder / "out" / RESULTS).unlink()
    with pytest.raises(OthersResultsError, match="of an unknown job"):
        run_local(job_in(folder, checkpoint="state2"))
    (folder / "state" / IDENTITY).unlink()
    run_local(job_in(folder))
    assert (
        json.loads((folder / "out" / RESULTS).read_text())["id"] == (folder / "state" / IDENTITY).read_text()
    )


# -- links ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["local", "local/state", "local/.state", "_pulse_job.json", LOCK, "alerts", "aside"]
)
def test_links_in_a_checkpoint_are_not_followed(folder: Path, name: str) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "000000000001").write_text("dear reader")
    job = job_in(folder)
    run_local(job)
    place = folder / "state" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(mine if "." not in name and name != LOCK and "/" not in name else mine / "000000000001")
    with pytest.raises(LinkedFileError, match="expected a file or folder of the checkpoint's own"):
        run_local(job)
    assert files(mine) == {"000000000001": b"dear reader"}


def test_links_among_results_are_not_followed(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "changes.parquet").write_text("dear reader")
    (folder / "out").mkdir()
    (folder / "out" / "batch=0").symlink_to(folder / "mine")
    with pytest.raises(LinkedFileError, match="batch=0: expected a file or folder of the job's own"):
        run_local(job_in(folder))
    with pytest.raises(LinkedFileError, match="batch=0"):
        read_changes(folder / "out")
    assert files(folder / "mine") == {"changes.parquet": b"dear reader"}


def test_a_draft_that_is_a_link_is_replaced_and_not_written_through(folder: Path) -> None:
    (folder / "letter").write_text("dear reader")
    run_local(job_in(folder))
    shutil.rmtree(folder / "state" / "local")
    (file,) = (folder / "out").glob("batch=*/changes.parquet")
    (file.parent / ".changes.parquet").symlink_to(folder / "letter")
    run_local(job_in(folder))
    assert (folder / "letter").read_text() == "dear reader"
    assert not (file.parent / ".changes.parquet").is_symlink()


# -- on Spark -------------------------------------------------------------------------------------------------


def test_spark_takes_one_run_at_a_time_as_well(folder: Path, spark: Any) -> None:
    from pulse.runtime.predict.spark_driver import start

    job = climbing_job(folder, checkpoint="state")
    running = start(spark, job)
    try:
        with pytest.raises(CheckpointInUseError, match=f"in use .*process {os.getpid()}"):
            start(spark, job)
    finally:
        running.stop()
    again = start(spark, job, once=True)
    again.query.awaitTermination()  # as one who never asks the run itself
    start(spark, job, once=True).wait()
    assert read_changes(folder / "out").num_rows
    with pytest.raises(OthersResultsError, match="another job"):
        start(spark, climbing_job(folder, checkpoint="state2", query=OTHER))
