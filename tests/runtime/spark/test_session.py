"""The session: its settings, that workers import Pulse, and what happens to a second call."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.runtime.spark.session import session, settings


def _doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        x = batch.column(0).to_numpy().astype(np.float64)
        yield pa.record_batch({"y": evaluate(np.stack([np.zeros_like(x), x], axis=1), 2.0)})


def test_workers_run_kernels(spark: SparkSession) -> None:
    rows = spark.range(1000).mapInArrow(_doubled, "y double").groupBy().sum("y").collect()
    assert rows[0][0] == 2 * sum(range(1000))


@pytest.mark.here
def test_workers_use_this_interpreter(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pulse

        for _ in batches:
            yield pa.record_batch({"python": [sys.executable], "pulse": [pulse.__file__]})

    import pulse

    rows = spark.range(1, numPartitions=1).mapInArrow(where, "python string, pulse string").collect()
    assert [tuple(row) for row in rows] == [(sys.executable, pulse.__file__)]


@pytest.mark.here
def test_settings_of_the_running_session(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.streaming.stateStore.encodingFormat") == "avro"
    assert "RocksDB" in str(spark.conf.get("spark.sql.streaming.stateStore.providerClass"))
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_timestamps_are_utc(spark: SparkSession) -> None:
    assert spark.sql("select cast(timestamp '1970-01-01 00:00:01' as long)").collect()[0][0] == 1


def test_a_second_call_gives_the_same_session(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    with caplog.at_level(logging.WARNING):
        again = session(**{"spark.sql.adaptive.enabled": "false", "spark.driver.memory": "9g"})
    try:
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
        assert "spark.driver.memory stays 1g" in caplog.text
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", str(before))


@pytest.mark.here
def test_nothing_is_left_in_the_working_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark.range(3).write.saveAsTable("kept_elsewhere")
    assert spark.table("kept_elsewhere").count() == 3
    spark.sql("drop table kept_elsewhere")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_gets_no_loopback_address() -> None:
    assert "spark.driver.host" in settings(local=True)
    assert "spark.driver.host" not in settings(local=False)
    assert "spark.sql.shuffle.partitions" not in settings(local=False)
