"""Types that files reported once are kept with the checkpoint: a job goes on with them whatever becomes of the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulse.runtime.jobs.checkpoint import CheckpointError, known_columns
from pulse.runtime.jobs.file_source import SourceError
from pulse.runtime.jobs.source_schema import resolve_types, same_types, type_names
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spark_driver import start
from pulse.runtime.predict.status import Status
from tests.runtime.jobs.climbing import climbing, climbing_job
from tests.runtime.jobs.test_dead_letters import text

HEAD = "id,t,x,v,note"
TYPES = {"id": "int64", "t": "timestamp[us]", "x": "double", "v": "int64", "note": "string"}


def line(second: int, key: object, v: object = 1) -> str:
    return f"{key},1970-01-01T00:00:{second:02},{second},{v},n"


def text_job(folder: Path, **stream: Any) -> Job:
    return climbing_job(
        folder, stream={"format": "csv", "options": {}, **stream}, checkpoint="state", engine="local"
    )


def test_an_empty_folder_is_no_error_where_types_are_known(tmp_path: Path) -> None:
    first = text(tmp_path / "in", "0.csv", HEAD, line(0, 1), line(1, 1))
    run_local(text_job(tmp_path))
    assert known_columns(text_job(tmp_path)) == {"S": {**TYPES, "t": "timestamp[us]"}}
    first.unlink()
    assert run_local(text_job(tmp_path)).tally.tuples == 2
    (tmp_path / "in").rmdir()
    assert run_local(text_job(tmp_path)).tally.tuples == 2
    with pytest.raises(SourceError, match="there is no csv file"):
        run_local(replace(text_job(tmp_path), checkpoint=None))


def test_types_stay_those_of_the_first_file(tmp_path: Path) -> None:
    """Keys that looked like text are text, also after a file whose keys look whole has become the first."""
    first = text(tmp_path / "in", "0.csv", HEAD, line(0, "x1"))
    run_local(text_job(tmp_path))
    first.unlink()
    text(tmp_path / "in", "1.csv", HEAD, line(1, 1), at=1001)
    text(tmp_path / "in", "2.csv", HEAD, line(2, "x1"), at=1002)
    reported: list[Status] = []
    run_local(text_job(tmp_path), on_status=reported.append)
    assert (reported[-1].tally.tuples, reported[-1].tally.aside) == (2, 0)


def test_listing_what_was_found_is_no_other_job(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", HEAD, line(0, 1))
    run_local(text_job(tmp_path))
    needed = {name: type_ for name, type_ in TYPES.items() if name != "note"}
    for columns in (TYPES, needed, {"v": " int64", **{k: v for k, v in needed.items() if k != "v"}}):
        assert run_local(text_job(tmp_path, columns=columns)).tally.tuples == 1
    assert run_local(text_job(tmp_path)).tally.tuples == 1  # and back
    with pytest.raises(CheckpointError, match=r"streams\.S\.columns\.?.* was None"):
        run_local(text_job(tmp_path, columns={**needed, "v": "double"}))


def test_accents_may_speak_of_all_columns(tmp_path: Path) -> None:
    """So that fewer columns are another job where there are accents."""
    text(tmp_path / "in", "0.csv", HEAD, line(0, 1))
    accents = {"accents": "x.log"}
    run_local(text_job(tmp_path, **accents))
    run_local(text_job(tmp_path, columns=TYPES, **accents))
    needed = {name: type_ for name, type_ in TYPES.items() if name != "note"}
    with pytest.raises(CheckpointError, match="is of another job"):
        run_local(text_job(tmp_path, columns=needed, **accents))


def test_parquet_is_known_too(tmp_path: Path) -> None:
    climbing(tmp_path / "in")
    job = climbing_job(tmp_path, checkpoint="state", engine="local")
    run_local(job)
    for file in (tmp_path / "in").iterdir():
        file.unlink()
    assert run_local(job).tally.tuples == 20


def test_what_cannot_be_written_is_only_there(tmp_path: Path) -> None:
    stream = climbing_job(tmp_path).streams["S"]
    own = {
        "id": pa.dictionary(pa.int8(), pa.string()),
        "t": pa.timestamp("ns"),
        "x": pa.float32(),
        "v": pa.float64(),
    }
    more = {"tags": pa.list_(pa.string()), "nothing": pa.null(), "price": pa.decimal128(9, 2)}
    assert type_names(stream, pa.schema({**own, **more})) == {
        "id": "string",
        "t": "timestamp[ns]",
        "x": "float",
        "v": "double",
        "tags": "null",
        "nothing": "null",
        "price": "decimal128(9, 2)",
    }
    assert (
        type_names(stream, pa.schema({**own, "v": pa.list_(pa.float64())})) is None
    )  # which other tests check
    assert type_names(stream, pa.schema({"id": pa.string()})) is None


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", HEAD, line(0, 1))
    run_local(text_job(tmp_path))
    for damage in ("[1]", '{"S": 3}', "{"):
        (tmp_path / "state" / "_pulse_columns.json").write_text(damage, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"_pulse_columns\.json: corrupt checkpoint file"):
            run_local(text_job(tmp_path))


def test_a_checkpoint_from_before_learns_its_types(tmp_path: Path) -> None:
    text(tmp_path / "in", "0.csv", HEAD, line(0, 1))
    run_local(text_job(tmp_path))
    (tmp_path / "state" / "_pulse_columns.json").unlink()
    run_local(text_job(tmp_path))
    assert json.loads((tmp_path / "state" / "_pulse_columns.json").read_text())["S"] == TYPES


def test_on_spark_an_empty_folder_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    first = text(tmp_path / "in", "0.csv", HEAD, line(0, 1), line(1, 1))
    job = replace(text_job(tmp_path), engine="spark", buckets=2)
    start(spark, job, once=True).wait()
    first.unlink()
    start(spark, job, once=True).wait()
    text(tmp_path / "in", "1.csv", HEAD, line(2, 1), line(3, "x1"), at=2_000_000_000)
    running = start(spark, job, once=True)
    running.wait()
    assert (running.status.tally.tuples, running.status.tally.aside) == (2, 1)


def test_same_types() -> None:
    assert same_types({"a": "timestamp[us]"}, {"a": "timestamp[us]", "b": "int64"}, all_of_them=False)
    assert not same_types({"a": "timestamp[us]"}, {"a": "timestamp[us]", "b": "int64"}, all_of_them=True)
    assert same_types({"a": "int64"}, {"a": "int64", "nested": "null"}, all_of_them=True)
    assert not same_types({"c": "int64"}, {"a": "int64"}, all_of_them=False)


def test_columns_that_are_listed_stay(tmp_path: Path) -> None:
    job = text_job(tmp_path, columns=TYPES)
    assert resolve_types(job) == (job, {})


def test_types_of_parquet_in_process(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table(
        {"id": ["a"], "t": pa.array([0], pa.timestamp("us")), "x": [1.0], "v": [1.0], "n": [[1]]}
    )
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    typed, types = resolve_types(climbing_job(tmp_path))
    plain = {"id": "string", "t": "timestamp[us]", "x": "double", "v": "double"}
    assert typed.streams["S"].columns == types["S"] == {**plain, "n": "null"}
