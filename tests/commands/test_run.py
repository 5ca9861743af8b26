"""``pulse run``: a job from a file, its figures, and what is reported of a job that cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pulse import cli
from pulse.core.errors import PulseError
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import read_job
from pulse.runtime.predict.spark_driver import start
from tests.runtime.jobs.climbing import TOML


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    t = pa.array([i * 1_000_000 for i in range(10)], pa.timestamp("us"))
    table = pa.table({"id": ["a"] * 10, "t": t, "x": [float(i) for i in range(10)], "v": [1.0] * 10})
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    file = tmp_path / "job.toml"
    file.write_text(TOML, encoding="utf-8")
    return file


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["run", *map(str, arguments)])
    if isinstance(result.exception, PulseError):
        raise result.exception
    return result.exit_code, result.output


def test_for_people(job: Path) -> None:
    code, output = run(job, "--once")
    assert code == 0
    assert output.startswith("done: 10 tuples, ")
    assert "90.0 % validated, 0 violations, 1 solves, 2 results" in output
    assert len(read_changes(job.parent / "out")) == 2


def test_for_programs(job: Path) -> None:
    code, output = run(job, "--once", "--json")
    (figures,) = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert (figures["tuples"], figures["validated"], figures["changes"], figures["now"]) == (
        10,
        9,
        2,
        "1970-01-01T00:00:09.000000Z",
    )


def restless(folder: Path, values: list[float]) -> Path:
    """A job that keeps an attribute with these values, one a tuple."""
    (folder / "in").mkdir()
    n = len(values)
    t = pa.array([i * 1_000_000 for i in range(n)], pa.timestamp("us"))
    table = pa.table({"id": ["a"] * n, "t": t, "x": [1.0] * n, "heading": values})
    pq.write_table(table, folder / "in" / "0.parquet")
    file = folder / "job.toml"
    file.write_text(RESTLESS, encoding="utf-8")
    return file


RESTLESS = """
query = "select id, x, heading from S where x > 0"
engine = "local"
checkpoint = "checkpoint"

[streams.S]
source = "files"
path = "in"
key = ["id"]
time = "t"
model = { x = "linear" }
keep = ["heading"]
error = 0.5
horizon = "10 s"

[sink]
kind = "parquet"
path = "out"
"""


def test_an_attribute_that_is_kept_and_changes_with_every_tuple_is_hinted_at(tmp_path: Path) -> None:
    file = restless(tmp_path, [float(i) for i in range(200)])
    code, output = run(file, "--once")
    assert code == 0
    assert "0.0 % validated" in output
    assert (
        "hint: 100 % of the tuples change an attribute that is kept, and every change ends a model" in output
    )
    assert "(S keeps heading): model what changes so often, or leave it out of keep" in output


def test_an_attribute_that_is_kept_and_seldom_changes_is_no_matter(tmp_path: Path) -> None:
    code, output = run(restless(tmp_path, [float(i // 50) for i in range(200)]), "--once")
    assert code == 0
    assert "hint" not in output


def test_what_is_wrong_is_reported(job: Path) -> None:
    with pytest.raises(PulseError, match="--engine flink: expected one of spark, local"):
        run(job, "--engine", "flink")
    job.write_text(TOML.replace("horizon", "horizn"), encoding="utf-8")
    with pytest.raises(PulseError, match=r"unknown 'horizn' in \[streams.S\]; did you mean 'horizon'"):
        run(job, "--once")
    chosen = job.with_name("other.toml")
    chosen.write_text(TOML, encoding="utf-8")
    with pytest.raises(PulseError, match="'checkpoint': expected a folder"):
        start(None, read_job(chosen))  # type: ignore[arg-type]  # refused before it is looked at


def test_the_engine_of_the_environment(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other command: before what the job says, behind --engine."""
    job.write_text(TOML.replace('engine = "local"', 'engine = "spark"'), encoding="utf-8")
    monkeypatch.setenv("PULSE_ENGINE", "local")
    assert run(job, "--once")[1].startswith("done: 10 tuples, ")
    monkeypatch.setenv("PULSE_ENGINE", "flink")
    with pytest.raises(PulseError, match="--engine flink: expected one of spark, local"):
        run(job, "--once")
    assert run(job, "--once", "--engine", "local")[0] == 0
