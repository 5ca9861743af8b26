"""Predictive jobs on Structured Streaming: the same results as in process, whatever the buckets, restarts and bad tuples."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulse.core.errors import PulseError
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.jobs.checkpoint import CheckpointError, write_fingerprint
from pulse.runtime.jobs.sinks import KafkaSink, NullSink, read_changes
from pulse.runtime.jobs.sources import SourceError, predictor_of
from pulse.runtime.jobs.toml import Job, JobError, job_of
from pulse.runtime.predict import spark_driver
from pulse.runtime.predict.batch_store import latest_before
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spark_driver import Listener, runs_in_buckets, start
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.state_schema import BOUNDS
from pulse.runtime.predict.status import Status
from tests.runtime.jobs.running_jobs import (
    FIG_1,
    FILTER,
    MACD,
    NEAR,
    arrive,
    aside,
    final,
    in_process,
    object_job,
    objects,
    ran,
    rows,
    tick_job,
    ticks,
)
from tests.waiting import LONGEST


def test_buckets_give_what_one_process_gives(spark: SparkSession, tmp_path: Path) -> None:
    ticks(tmp_path / "in")
    job = tick_job(tmp_path)
    assert runs_in_buckets(predictor_of(job))
    details: list[dict[str, Any]] = []
    listener = Listener(details.append)
    spark.streams.addListener(listener)
    try:
        status = ran(spark, job)
        end = time.monotonic() + LONGEST
        while sum(one["tuples"] for one in details) < 480 and time.monotonic() < end:
            time.sleep(0.02)  # Spark tells its listeners when it likes
    finally:
        spark.streams.removeListener(listener)
    found = read_changes(tmp_path / "out")
    assert len(found) > 5
    assert final(found, ("symbol",), "price") == final(in_process(job), ("symbol",), "price")
    assert (status.tally.tuples, status.batches, status.now) == (480, 3, 119_000_000)
    assert status.validated > 0.8
    assert [one["tuples"] for one in details] == [160] * 3
    # Nothing new: nothing more.
    assert ran(spark, job).tally.tuples == 0
    assert read_changes(tmp_path / "out").equals(found)


def test_groups_are_predicted_where_their_keys_are_dealt(spark: SparkSession, tmp_path: Path) -> None:
    folder = ticks(tmp_path / "plain", 2)
    for f, file in enumerate(sorted(folder.glob("*.parquet"))):
        table = pq.ParquetFile(file).read()
        venue = pa.array([f"v{int(one[1]) % 2}" for one in table["symbol"].to_pylist()])
        (tmp_path / "in").mkdir(exist_ok=True)
        arrive(tmp_path / "in", f, table.append_column("venue", venue))
    job = tick_job(tmp_path, "select venue, max(price) as top from S group by venue")
    job = replace(job, streams={"S": replace(job.streams["S"], key=("venue", "symbol"))})
    assert runs_in_buckets(predictor_of(job))
    status = ran(spark, job)
    found = read_changes(tmp_path / "out")
    assert len(found) > 5
    assert final(found, ("venue",), "top") == final(in_process(job), ("venue",), "top")
    assert status.tally.tuples == 320


def test_a_batch_that_failed_after_its_results_were_written_gives_them_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    ticks(tmp_path / "in")
    job = tick_job(tmp_path, MACD, buckets=1)

    def fail(batch: int, changes: pa.Table) -> None:
        if batch == 1:
            raise RuntimeError("the driver goes down here")

    with pytest.raises(Exception, match="the driver goes down here"):
        ran(spark, job, on_batch=fail)
    assert read_changes(tmp_path / "out").column("batch").to_numpy().max() == 1
    ran(spark, job)
    found = read_changes(tmp_path / "out")
    assert len(found) > 5
    assert rows(found) == rows(in_process(job))


def test_pairs_are_solved_in_the_places_of_a_second_stage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects(tmp_path / "in", 2)
    job = object_job(tmp_path, NEAR, "O", cell=120)
    assert not runs_in_buckets(predictor_of(job))
    places: list[int] = []

    def counted(parts: list[tuple[pa.Table, int]], standing: ContinuousQuery) -> list[tuple[pa.Table, int]]:
        places.append(len(parts))
        return coalesced(parts, standing)

    monkeypatch.setattr(spark_driver, "coalesced", counted)
    status = ran(spark, job)
    assert max(places) > 1
    found, expected = read_changes(tmp_path / "out"), in_process(job)
    assert len(found) > 5
    assert final(found, ("one", "other")) == final(expected, ("one", "other"))
    assert (status.tally.tuples, status.tally.changes) == (120, len(found))


@pytest.mark.skipif(not os.environ.get("PULSE_FULL"), reason="the same without Spark is in test_stages")
def test_two_streams_meet(spark: SparkSession, tmp_path: Path) -> None:
    objects(tmp_path / "in", 2)
    job = object_job(tmp_path, FIG_1, "AB")
    status = ran(spark, job)
    found, expected = read_changes(tmp_path / "out"), in_process(job)
    assert len(found) > 5
    assert final(found, ("a", "b")) == final(expected, ("a", "b"))
    assert status.tally.tuples == 240


def test_bounds_come_back_to_the_validators(spark: SparkSession, tmp_path: Path) -> None:
    ticks(tmp_path / "in", 2)
    query = "select max(price) as top from S error within 2%"
    job = tick_job(tmp_path, query)
    loose = job.streams["S"]
    job = replace(job, streams={"S": replace(loose, error=None)})
    status = ran(spark, job)
    kept = sorted((tmp_path / "checkpoint" / "bounds").glob("[0-9]*"))
    assert [int(one.name) for one in kept] == [0, 1]
    assert latest_before(BOUNDS, tmp_path / "checkpoint" / "bounds", 0) is None
    found = latest_before(BOUNDS, tmp_path / "checkpoint" / "bounds", 1)
    assert found is not None
    batch, allotted = found
    assert batch == 0
    bounds = allotted["S"].of((pa.array(["s0", "s3"]),))["price"]
    # s3 makes the maximum, of 2 % of which it may take no more; s0 lies far below and may wander until it matters.
    assert 0 < bounds[1] < 0.02 * 107
    assert bounds[1] < bounds[0] < 20
    assert status.tally.changes > 0


def test_bad_tuples_are_kept_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    folder = ticks(tmp_path / "in", 1)
    bad = pa.table(
        {
            "symbol": ["s1", None, "s2", "s2", "s1"],
            "t": pa.array([50_000_000, 50_000_000, None, 51_000_000, 3_000_000], pa.timestamp("us")),
            "price": [100.0, 1.0, 2.0, float("nan"), 99.0],
        }
    )
    arrive(folder, 1, bad)
    job = tick_job(tmp_path)
    status = ran(spark, job)
    found = {row["reason"]: row["price"] for row in aside(tmp_path)}
    assert set(found) == {"no key", "no time", "not finite", "late"}
    assert (found["no key"], found["no time"], found["late"]) == (1.0, 2.0, 99.0)
    assert (status.tally.aside, status.tally.tuples) == (4, 165)
    assert final(read_changes(tmp_path / "out"), ("symbol",)) == final(in_process(job), ("symbol",))


def test_a_truncated_file_is_named_and_once_replaced_the_job_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = ticks(tmp_path / "in")
    job = tick_job(tmp_path)
    whole = (folder / "part-001.parquet").read_bytes()
    (folder / "part-001.parquet").write_bytes(whole[: len(whole) // 2])
    os.utime(folder / "part-001.parquet", (1_000_001, 1_000_001))
    with pytest.raises(SourceError, match=r"part-001\.parquet: cannot be read"):
        ran(spark, job)
    (folder / "part-001.parquet").write_bytes(whole)
    os.utime(folder / "part-001.parquet", (1_000_001, 1_000_001))
    ran(spark, job)
    assert final(read_changes(tmp_path / "out"), ("symbol",)) == final(in_process(job), ("symbol",))


def test_a_changed_query_on_an_old_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    ticks(tmp_path / "in", 1)
    write_fingerprint(tick_job(tmp_path))
    write_fingerprint(tick_job(tmp_path, FILTER.replace(" from", "\n  from")))
    for changed, reported in (
        (tick_job(tmp_path, FILTER.replace("103", "104")), "query was '.*103', is '.*104'"),
        (tick_job(tmp_path, buckets=5), "buckets was 3, is 5"),
    ):
        with pytest.raises(CheckpointError, match=reported):
            start(spark, changed, once=True)


def test_any_streaming_frame_is_a_source_and_any_function_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    ticks(tmp_path / "in", 1)
    stream = {
        "source": "frame",
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "error": "1%",
        "horizon": 20,
    }
    values = {
        "query": FILTER,
        "checkpoint": "checkpoint",
        "buckets": 1,
        "streams": {"S": stream},
        "sink": {"kind": "none"},
    }
    job = job_of(values, folder=tmp_path)
    with pytest.raises(JobError, match="source 'frame' is for frames given to start"):
        start(spark, job)
    columns = "symbol string, t timestamp_ntz, price double, more int"
    frame = spark.readStream.schema(columns).parquet(str(tmp_path / "in")).where("price > 0")
    taken: list[pa.Table] = []
    status = ran(spark, job, frames={"S": frame}, on_batch=lambda _, changes: taken.append(changes))
    assert status.tally.tuples == 160
    expected = in_process(tick_job(tmp_path))
    assert final(pa.concat_tables(taken), ("symbol",), "price") == final(expected, ("symbol",), "price")


def test_without_its_connector_kafka_says_what_to_add(spark: SparkSession, tmp_path: Path) -> None:
    stream = {
        "source": "kafka",
        "options": {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "ticks"},
        "columns": {"symbol": "string", "t": "timestamp[us]", "price": "double"},
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "error": "1%",
        "horizon": 20,
    }
    job = job_of({"query": FILTER, "checkpoint": "checkpoint", "streams": {"S": stream}}, folder=tmp_path)
    with pytest.raises(SourceError, match=r"spark\.jars\.packages.*spark-sql-kafka-0-10_2\.13:4\."):
        start(spark, job, once=True)
    sink = KafkaSink(spark, {"topic": "results"})
    with pytest.raises(SourceError, match=r"\[sink\]: Spark's Kafka connector is missing"):
        sink.write(0, pa.table({"id": ["a"]}), 0)


def turned(folder: Path, *, names: tuple[str, ...], file: str = "0.csv", at: int = 1000) -> None:
    """Ticks as CSV with their columns in this order, and lines among them that do not parse."""
    rows = [
        {"symbol": f"s{k % 2}", "t": f"2024-01-01 10:00:{k:02d}", "price": str(100 + k % 3), "venue": "v"}
        for k in range(20)
    ]
    rows[5]["t"] = "10 o'clock"
    rows[7]["price"] = "cheap"
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows), names[0], ""]
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / file).write_text("\n".join(lines), encoding="utf-8")
    os.utime(folder / "in" / file, (at, at))


def csv_job(folder: Path) -> Job:
    job = tick_job(folder, "select symbol, price from S where price > 100.5")
    columns = {"symbol": "string", "t": "timestamp[us]", "price": "double"}
    stream = replace(job.streams["S"], format="csv", columns=columns, error="0.01")
    return replace(job, streams={"S": stream})


def test_csv_is_read_by_the_names_in_its_header(spark: SparkSession, tmp_path: Path) -> None:
    turned(tmp_path, names=("price", "venue", "t", "symbol"))
    job = csv_job(tmp_path)
    status = ran(spark, job)
    expected = in_process(job)
    assert expected.num_rows > 4
    assert final(read_changes(tmp_path / "out"), ("symbol",), "price") == final(
        expected, ("symbol",), "price"
    )
    # A line that does not parse is a tuple that lacks something, in both engines.
    local: list[Status] = []
    apart = replace(job, checkpoint=None, sink=replace(job.sink, path=str(tmp_path / "local")))
    run_local(apart, sink=NullSink(), on_status=local.append)
    assert (status.tally.tuples, status.tally.aside) == (21, 3)
    assert (local[-1].tally.tuples, local[-1].tally.aside) == (21, 3)
    kept = pq.ParquetFile(tmp_path / "local/_aside/stream=S/batch=0/tuples.parquet").read().to_pylist()
    assert sorted(row["reason"] for row in kept) == sorted(row["reason"] for row in aside(tmp_path))
    # Spark goes by place: a later file of another order is named, not misread.
    turned(tmp_path, names=("t", "price", "symbol", "venue"), file="1.csv", at=1001)
    with pytest.raises(SourceError, match=r"1\.csv: its header is not that of the stream's first file"):
        ran(spark, job)


def test_csv_that_lacks_a_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    turned(tmp_path, names=("venue", "t", "symbol"))
    for go in (lambda: ran(spark, csv_job(tmp_path)), lambda: in_process(csv_job(tmp_path))):
        with pytest.raises(PulseError, match=r"0\.csv: there is no column 'price'"):
            go()
