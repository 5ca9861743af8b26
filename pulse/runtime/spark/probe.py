"""Probe Spark: for ``pulse doctor``, start it and run a kernel in a worker; for benchmarks, measure the cost of a stateful
operator that drops its rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pulse.core.errors import PulseError
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.runtime.spark.session import session

_ROWS = 1000


@dataclass(frozen=True)
class Trial:
    """The duration of the start and of the run, or the problem."""

    start_seconds: float
    run_seconds: float
    version: str
    problem: str | None = None


def try_spark() -> Trial:
    """Start a local session, evaluate polynomials in a worker, check the sum, stop the session."""
    begin = time.perf_counter()
    try:
        spark = session("local[1]", "pulse-doctor")
        started = time.perf_counter()
        try:
            version = spark.version
            total = spark.range(_ROWS).mapInArrow(_line, "y double").groupBy().sum("y").collect()[0][0]
        finally:
            spark.stop()
    except (PulseError, PySparkException, Py4JError, OSError) as e:
        return Trial(0.0, 0.0, "", f"{type(e).__name__}: {e}")
    ended = time.perf_counter()
    wanted = float(sum(1 + 2 * x for x in range(_ROWS)))
    problem = None if total == wanted else f"a kernel in a worker gave {total}, expected {wanted}"
    return Trial(started - begin, ended - started, version, problem)


def _line(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Evaluate the polynomial ``1 + x * t`` at ``t = 2`` for every row's ``x``."""
    for batch in batches:
        x = batch.column(0).to_numpy().astype(np.float64)
        yield pa.record_batch({"y": evaluate(np.stack([np.ones_like(x), x], axis=1), 2.0)})


class Dropping(StatefulProcessor):
    """A stateful operator that drops its rows; it stores and emits their number."""

    def init(self, handle: Any) -> None:
        self._kept = handle.getValueState("kept", "rows long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Count the rows of one place in one micro-batch (called by Spark)."""
        count = sum(len(frame) for frame in rows)
        before = int(self._kept.get()[0]) if self._kept.exists() else 0
        self._kept.update((before + count,))
        yield pd.DataFrame({"place": [int(key[0])], "rows": [count]})

    def close(self) -> None:
        """Do nothing: no resource is open."""


def dropped(frame: DataFrame, place: str = "place") -> DataFrame:
    """Pass a streaming frame through :class:`Dropping`, grouped by an integer column; returns the number of rows of each."""
    return frame.groupBy(place).transformWithStateInPandas(
        Dropping(), "place int, rows long", "append", "none"
    )
