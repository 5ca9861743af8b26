"""A worker or an executor is killed in the middle of a job: the result is that of one process, as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import Job
from tests.cluster.gates import Gate, GatedParquet, executor_of, worker_of
from tests.cluster.standalone import Cluster
from tests.runtime.execution import asking
from tests.runtime.fit import test_spark_driver
from tests.runtime.jobs.running_jobs import MACD, final, in_process, ran, rows, tick_job, ticks

KILLS = pytest.mark.parametrize("victim", [executor_of, worker_of], ids=["executor", "worker"])
Victim = Callable[[Cluster], Callable[[str], int]]


@KILLS
def test_a_fit(spark: SparkSession, cluster: Cluster, victim: Victim, tmp_path: Path) -> None:
    """The unit that is half read has written nothing yet, and those before it lie on the disk of who is killed."""
    data = test_spark_driver.walk(6000)
    paths = test_spark_driver.files(tmp_path / "in", data, [2500, 4100])
    asked = {**test_spark_driver.ASKED, "keep_tuples": True}
    gate = Gate(str(tmp_path / "gate"))
    gated = GatedParquet(key="k", time="t", gate=gate.folder, gated=5)
    with gate.kills(victim(cluster)) as killed:
        model = pulse.Session(spark=spark).fit(paths, **asked, format=gated, out=tmp_path / "model")
    assert len(killed) == 1
    test_spark_driver.same(model, pulse.Session(engine="local").fit(paths, **asked))
    assert [path.name for path in model.path.rglob("*.tmp")] == []
    assert [path.name for path in tmp_path.glob(".*")] == []


@KILLS
def test_a_query_with_an_exchange(
    spark: SparkSession, cluster: Cluster, victim: Victim, tmp_path: Path
) -> None:
    """Killed after the shuffle: parcels that were on its disk are made again."""
    model = asking.tracks(tmp_path / "v")
    asked = {"streams": {"V": model}}
    gate = Gate(str(tmp_path / "gate"))
    frame = pulse.Session(spark=spark).sql(asking.FOLLOWING, **asked).tuples()
    gated = frame.mapInArrow(gate, frame.schema)
    with gate.kills(victim(cluster)) as killed:
        found = gated.toArrow()
    assert len(killed) == 1
    wanted = asking.local().sql(asking.FOLLOWING, **asked).to_arrow()
    assert wanted.num_rows > 0
    assert asking.rows_of(found) == asking.rows_of(wanted)


@KILLS
def test_a_predictive_job(spark: SparkSession, cluster: Cluster, victim: Victim, tmp_path: Path) -> None:
    """Its state was on the executor; another takes it up from the checkpoint, in the same micro-batch."""
    gate = Gate(str(tmp_path / "gate"))

    def late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("t")[0].value > 40_000_000:
                gate.pass_through()
            yield batch

    with gate.kills(victim(cluster)) as killed:
        _run(spark, tmp_path / "killed", late)
    assert len(killed) == 1
    found = read_changes(tmp_path / "killed" / "out")
    job = _run(spark, tmp_path / "alive", late)  # the gate stands open now
    assert rows(found) == rows(read_changes(tmp_path / "alive" / "out"))
    held = final(found, ("symbol",))
    assert len(held) > 50
    assert held == final(in_process(job), ("symbol",))


def _run(spark: SparkSession, folder: Path, through: Any) -> Job:
    """A job over files of ticks, three micro-batches, in two buckets."""
    ticks(folder / "in")
    columns = "symbol string, t timestamp_ntz, price double"
    reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    whole = tick_job(folder, MACD, buckets=2)
    job = replace(whole, streams={"S": replace(whole.streams["S"], source="frame")})
    ran(spark, job, frames={"S": reader.parquet(str(folder / "in")).mapInArrow(through, columns)})
    return whole
