"""What a predictive job survives: a killed driver, a killed worker, a burst. Nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import read_job
from tests.runtime.jobs.running_jobs import (
    FILTER,
    MACD,
    arrive,
    final,
    in_process,
    ran,
    rows,
    tick_job,
    ticks,
)
from tests.waiting import LONGEST

FULL = bool(os.environ.get("PULSE_FULL"))

JOB = f"""
query = "{MACD}"
checkpoint = "checkpoint"
buckets = 1

[streams.S]
source = "files"
path = "in"
key = "symbol"
time = "t"
model = {{ price = "step" }}
error = "1%"
horizon = "20 s"
options = {{ maxFilesPerTrigger = 1 }}

[sink]
kind = "parquet"
path = "out"

[spark]
sql.shuffle.partitions = 2
driver.memory = "1g"
"""


def killed(job: Path, batch: int, after: float, master: str = "local[2]") -> None:
    """Run the job in a process of its own and kill all of it, some seconds after a batch was begun."""
    begun = job.parent / "checkpoint" / "spark" / "offsets" / str(batch)
    with (job.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pulse.cli", "run", str(job), "--once", "--master", master],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + LONGEST
            while not begun.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(after)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert begun.exists(), (job.parent / "log").read_text()


def test_a_driver_killed_once(spark: SparkSession, tmp_path: Path) -> None:
    """The short one: the next run has a committed batch before it, one given up, and one to come."""
    moment = float(np.random.default_rng(7).uniform(0.0, 0.5))
    ticks(tmp_path / "in", 3)
    file = tmp_path / "job.toml"
    # One worker to start each time.
    short = JOB.replace(MACD, FILTER).replace("partitions = 2", "partitions = 1")
    file.write_text(short, encoding="utf-8")
    killed(file, 1, moment, master="local[1]")
    job = read_job(file)
    ran(spark, job)
    found = read_changes(tmp_path / "out")
    assert len(found) > 5
    assert rows(found) == rows(in_process(job))


@pytest.mark.skipif(
    not FULL, reason="starts Spark in a process of its own for every moment; PULSE_FULL=1 runs it"
)
@pytest.mark.parametrize("seed", range(6))
def test_a_driver_killed_at_a_random_moment(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ticks(tmp_path / "in", 4)
    file = tmp_path / "job.toml"
    file.write_text(JOB, encoding="utf-8")
    killed(file, int(rng.integers(0, 3)), float(rng.uniform(0.0, 1.5)))
    job = read_job(file)
    ran(spark, job)
    found = read_changes(tmp_path / "out")
    assert len(found) > 5
    assert rows(found) == rows(in_process(job))


def test_a_worker_killed_in_the_middle_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    ticks(tmp_path / "in")
    marker = tmp_path / "died"

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("t")[0].value > 40_000_000 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    columns = "symbol string, t timestamp_ntz, price double"
    reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(tmp_path / "in")).mapInArrow(dying, columns)
    whole = tick_job(tmp_path, MACD, buckets=1)
    job = replace(whole, streams={"S": replace(whole.streams["S"], source="frame")})
    with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
        ran(spark, job, frames={"S": frame})
    assert marker.exists()
    ran(spark, job, frames={"S": frame})
    assert rows(read_changes(tmp_path / "out")) == rows(in_process(whole))


def test_a_burst_is_taken_in_one_batch(spark: SparkSession, tmp_path: Path) -> None:
    folder = ticks(tmp_path / "in", 1)
    t = np.repeat(np.arange(40_000, 80_000, 25), 4)
    k = np.tile(np.arange(4), 1600)
    burst = {
        "symbol": [f"s{one}" for one in k],
        "t": pa.array(t * 1000, pa.timestamp("us")),
        "price": 100 + k + 3 * np.sin(t / 12_000 + k),
    }
    arrive(folder, 1, pa.table(burst))
    job = tick_job(tmp_path)
    status = ran(spark, job)
    assert (status.tally.tuples, status.tally.aside) == (160 + 6400, 0)
    assert final(read_changes(tmp_path / "out"), ("symbol",), "price") == final(
        in_process(job), ("symbol",), "price"
    )
