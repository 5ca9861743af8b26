"""Job files: what they mean, and what is reported of those that mean nothing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pulse.runtime.jobs.toml import Job, JobError, job_of, read_job

WHOLE = """
query = "select symbol, price from S where price > :limit"
checkpoint = "state"
lateness = "5 s"
split = "equi"
buckets = 4

[parameters]
limit = 100

[streams.S]
source = "files"
path = "ticks"
format = "csv"
key = "symbol"
time = "t"
model = { price = "step" }
keep = ["venue"]
predict = "trend"
error = "1%"
horizon = "60 s"
options = { maxFilesPerTrigger = 2, header = true }

[sink]
kind = "parquet"
path = "out"

[spark]
sql.shuffle.partitions = 2
"spark.jars.packages" = "a:b:1"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def values(**stream: Any) -> dict[str, Any]:
    known = {
        "source": "files",
        "path": "in",
        "time": "t",
        "model": {"x": "step"},
        "horizon": 10,
    }
    return {"query": "select x from S", "streams": {"S": {**known, **stream}}}


def test_a_slip_in_a_key_that_is_needed_is_reported_to_be_one() -> None:
    wrong = values(horizn="60 s")
    del wrong["streams"]["S"]["horizon"]
    with pytest.raises(JobError, match=r"unknown 'horizn' in \[streams.S\]; did you mean 'horizon'\?$"):
        job_of(wrong)


def test_a_whole_job_is_read(tmp_path: Path) -> None:
    job = read_job(written(tmp_path, WHOLE))
    stream = job.streams["S"]
    assert (stream.key, stream.keep, stream.format, stream.predict) == (
        ("symbol",),
        ("venue",),
        "csv",
        "trend",
    )
    assert stream.options == {"maxFilesPerTrigger": "2", "header": "true"}
    assert stream.path == str(tmp_path / "ticks")
    assert (job.lateness, job.split, job.buckets, job.parameters) == (5_000_000, "equi", 4, {"limit": 100})
    assert (job.checkpoint, job.sink.path) == (str(tmp_path / "state"), str(tmp_path / "out"))
    assert job.aside == str(tmp_path / "state" / "aside")
    assert job.spark == {"spark.sql.shuffle.partitions": "2", "spark.jars.packages": "a:b:1"}
    assert pickle.loads(pickle.dumps(job)) == job


def test_a_query_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select x from S", encoding="utf-8")
    assert job_of({**values(), "query": "@q.sql"}, folder=tmp_path).query == "select x from S"
    with pytest.raises(JobError, match=r"job: query: cannot read @no\.sql"):
        job_of({**values(), "query": "@no.sql"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"sorce": "files"}, r"unknown 'sorce' in \[streams.S\]; did you mean 'source'\?"),
        ({"zzz": 1}, r"unknown 'zzz' in \[streams.S\]; there are source, key, time"),
        (
            {"source": "file"},
            r"\[streams.S\], 'source': expected one of files, .* got 'file'; did you mean 'files'",
        ),
        ({"horizon": "soon"}, r"\[streams.S\], 'horizon': expected a duration such as '10 s', got 'soon'"),
        ({"horizon": None}, r"'horizon': expected a duration such as '60 s'.*got nothing"),
        ({"model": {}}, r"'model': expected a table, got nothing"),
        ({"model": {"x": "stairs"}}, r"'model.x': expected one of step, linear, samples, got 'stairs'"),
        ({"key": [1]}, r"'key\[0\]': expected a name, got 1"),
        ({"key": 1}, r"'key': expected a name or a list of names, got 1"),
        ({"path": None}, r"'path': expected a text, got nothing"),
        ({"memory": 0}, r"'memory': expected a whole number above 0, got 0"),
        ({"predict": "guess"}, r"'predict': expected one of hold, trend"),
        ({"time": 3}, r"'time': expected a text, got 3"),
    ],
)
def test_what_is_wrong_with_a_stream_is_reported(change: dict[str, Any], reported: str) -> None:
    given = values(**change)
    for key, value in change.items():
        if value is None:
            del given["streams"]["S"][key]
    with pytest.raises(JobError, match=reported):
        job_of(given)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"streams": {}}, r"expected a table \[streams.NAME\]"),
        ({"split": "even"}, "there is no split 'even'; there are"),
        ({"sink": {"kind": "parquet"}}, r"\[sink\], 'path': expected a text"),
        ({"sink": {"knd": "parquet"}}, r"unknown 'knd' in \[sink\]; did you mean 'kind'\?"),
        ({"sink": "console"}, r"'sink': expected a table, got 'console'"),
        ({"engine": "flink"}, "'engine': expected one of spark, local, got 'flink'"),
        ({"buckets": True}, "'buckets': expected a whole number above 0, got True"),
        ({"lateness": -1}, "'lateness': expected a duration"),
        ({"chekpoint": "x"}, "unknown 'chekpoint' in the job; did you mean 'checkpoint'"),
    ],
)
def test_what_is_wrong_with_a_job_is_reported(change: dict[str, Any], reported: str) -> None:
    with pytest.raises(JobError, match=reported):
        job_of({**values(), **change})


def test_files_that_are_no_jobs(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"none\.toml: cannot read the job"):
        read_job(tmp_path / "none.toml")
    with pytest.raises(JobError, match=r"job\.toml: not valid TOML"):
        read_job(written(tmp_path, "query = "))


def test_the_fingerprint_is_of_what_results_depend_on() -> None:
    def of(given: dict[str, Any]) -> dict[str, Any]:
        job: Job = job_of(given)
        return job.fingerprint()

    assert of(values()) == of({**values(), "sink": {"kind": "alert"}, "spark": {"a": 1}})
    assert of(values()) == of(values(options={"maxFilesPerTrigger": 3}))
    for other in (values(error="2%"), values(horizon=11), {**values(), "buckets": 2}, values(keep=["y"])):
        assert of(other) != of(values())
