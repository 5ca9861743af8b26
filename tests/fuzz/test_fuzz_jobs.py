"""Jobs and what they keep: TOML of any shape, and checkpoints that were damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.encoding.types import form_of
from pulse.core.errors import PulseError
from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job, job_of, read_job
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.state_codec import StateError, pack_state, unpack_state
from tests.fuzz.harness import (
    NASTY,
    a_share,
    answer,
    damaged_bytes,
    damaged_text,
    damaged_tree,
    json_values,
    put,
)
from tests.runtime.jobs.climbing import climbing

STREAM = {
    "source": "files",
    "path": "in",
    "format": "parquet",
    "key": "id",
    "time": "t",
    "model": {"x": "linear"},
    "columns": {"id": "string", "t": "timestamp[us]", "x": "double", "v": "double"},
    "keep": ["v"],
    "error": "1%",
    "horizon": "60 s",
    "memory": 4,
    "predict": "trend",
    "revisions": "10 min",
    "options": {"maxFilesPerTrigger": 1},
}
GOOD = {
    "query": "select id, x from S where x > :c",
    "streams": {"S": STREAM},
    "sink": {"kind": "parquet", "path": "out", "options": {}, "aside": "aside"},
    "parameters": {"c": 5},
    "checkpoint": "checkpoint",
    "engine": "local",
    "split": "equi",
    "buckets": 2,
    "lateness": "10 s",
    "trigger": "1 s",
    "spark": {"spark.sql.shuffle.partitions": 2},
    "cell": 5.0,
}
TOML = """
query = "select id, x from S where x > 5"
checkpoint = "checkpoint"
[streams.S]
source = "files"
path = "in"
key = "id"
time = "t"
model = { x = "linear" }
columns = { id = "string", t = "timestamp[us]", x = "double" }
error = "1%"
horizon = "60 s"
[streams.S.options]
maxFilesPerTrigger = 1
[sink]
kind = "parquet"
path = "out"
"""


def use(made: Job | PulseError) -> None:
    """Bind the job's query to its streams, as its start does."""
    if isinstance(made, Job):
        answer(made.fingerprint)
        answer(predictor_of, made)


@given(damaged_tree(GOOD))
def test_a_damaged_job_is_read_or_refused(values: Any) -> None:
    if isinstance(values, dict):
        use(answer(job_of, values, folder="/nowhere"))


@given(json_values, st.sampled_from(list(GOOD)), st.sampled_from(list(STREAM)))
def test_what_is_no_job_is_refused(value: Any, key: str, within: str) -> None:
    use(answer(job_of, {**GOOD, key: value}, folder="/nowhere"))
    use(answer(job_of, {**GOOD, "streams": {"S": {**STREAM, within: value}}}, folder="/nowhere"))


@given(text=damaged_text(TOML))
def test_damaged_toml_is_read_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    use(answer(read_job, put(folder, "job.toml", text.encode("utf-8", "surrogatepass"))))


def test_strange_toml_is_read_or_refused(tmp_path: Path) -> None:
    for nasty in NASTY:
        for text in (
            nasty,
            f"query = {nasty}",
            f'query = "{nasty}"',
            f"[{nasty}]",
            f"{nasty} = 1",
            TOML.replace("x", nasty),
        ):
            use(answer(read_job, put(tmp_path, "job.toml", text.encode())))
    use(answer(read_job, put(tmp_path, "job.toml", b"a = " + b"[" * 100_000)))
    use(answer(read_job, put(tmp_path, "job.toml", b"\xff\xfe")))
    use(answer(read_job, tmp_path))


# -- checkpoints ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has run once, and has one file more to read."""
    folder = tmp_path_factory.mktemp("ran")
    climbing(folder / "in")
    run_local(job(folder))
    shutil.copy(folder / "in" / "1.parquet", folder / "in" / "2.parquet")
    return folder


def job(folder: Path) -> Job:
    stream = {name: value for name, value in STREAM.items() if name != "columns"}
    values = {**GOOD, "streams": {"S": stream}, "sink": {"kind": "alert", "path": "alerts"}}
    return job_of(values, folder=folder)


def again(ran: Path, folder: Path, name: str, data: bytes | None) -> Any:
    """Run the job again after a file of its checkpoint was exchanged, or taken away."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ran, folder)
    text = (folder / "checkpoint" / "local" / "next").read_text(encoding="utf-8")
    (folder / "checkpoint" / "local" / "next").write_text(
        text.replace(str(ran), str(folder)), encoding="utf-8"
    )
    fingerprint = folder / "checkpoint" / "_pulse_job.json"
    fingerprint.write_text(
        fingerprint.read_text(encoding="utf-8").replace(str(ran), str(folder)), encoding="utf-8"
    )
    file = folder / "checkpoint" / name
    file.unlink() if data is None else file.write_bytes(data)
    return answer(run_local, job(folder))


def kept(ran: Path) -> list[str]:
    folder = ran / "checkpoint"
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_a_checkpoint_is_gone_on_from(ran: Path, tmp_path: Path) -> None:
    name = "local/state"
    found = again(ran, tmp_path / "again", name, (ran / "checkpoint" / name).read_bytes())
    assert not isinstance(found, PulseError), found


@a_share
@given(data=st.data())
def test_a_damaged_checkpoint_is_refused_or_gone_on_from(
    ran: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(kept(ran)))
    good = (ran / "checkpoint" / name).read_bytes()
    again(ran, tmp_path_factory.getbasetemp() / "again", name, data.draw(damaged_bytes(good)))


def test_a_checkpoint_without_one_of_its_files(ran: Path, tmp_path: Path) -> None:
    for name in kept(ran):
        again(ran, tmp_path / "again", name, None)
        again(ran, tmp_path / "again", name, b"")


def test_damaged_state_is_reported_by_its_file(ran: Path, tmp_path: Path) -> None:
    good = (ran / "checkpoint" / "local" / "state").read_bytes()
    found = again(ran, tmp_path / "again", "local/state", good[:-1])
    assert isinstance(found, CheckpointError)
    assert "local/state: corrupt or truncated state: checksum mismatch" in str(found)


KEPT = 3, {"S": ["a", "b"]}, list(range(50))
FORM = form_of("numbers", tuple[int, dict[str, list[str]], list[int]], ())


@given(damaged_bytes(pack_state(FORM, KEPT)))
def test_no_byte_of_state_changes_unnoticed(data: bytes) -> None:
    found = answer(unpack_state, FORM, data)
    assert isinstance(found, StateError) or found == KEPT


# -- tuples of a running job ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["parquet", "csv", "json"])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A job's folder with two files to read, and what they are."""
    folder = tmp_path_factory.mktemp(f"fresh-{request.param}")
    climbing(folder / "in", format=request.param)
    return folder, request.param


@a_share
@given(data=st.data())
def test_a_job_reads_damaged_files_or_refuses_them(fresh: tuple[Path, str], data: st.DataObject) -> None:
    folder, format = fresh
    files = [folder / "in" / f"{number}.{format}" for number in (0, 1)]
    good = [file.read_bytes() for file in files]
    stream = {name: value for name, value in STREAM.items() if name != "columns"}
    values = {**GOOD, "streams": {"S": {**stream, "format": format}}, "sink": {"kind": "none"}}
    del values["checkpoint"]
    number = data.draw(st.integers(0, 1))
    try:
        files[number].write_bytes(data.draw(damaged_bytes(good[number])))
        answer(lambda: run_local(job_of(values, folder=folder)))
    finally:
        for file, whole in zip(files, good, strict=True):
            file.write_bytes(whole)


def test_a_job_reads_good_files(fresh: tuple[Path, str]) -> None:
    folder, format = fresh
    stream = {name: value for name, value in STREAM.items() if name != "columns"}
    made = job_of(
        {**GOOD, "streams": {"S": {**stream, "format": format}}, "checkpoint": "kept"}, folder=folder
    )
    assert not isinstance(answer(run_local, made), PulseError)
