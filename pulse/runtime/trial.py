"""A trial run of Spark for ``pulse doctor``: starts it and lets a worker run a kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pulse.core.errors import PulseError
from pulse.kernels.polynomial import evaluate
from pulse.runtime.spark import session

_ROWS = 1000


@dataclass(frozen=True)
class Trial:
    """How long the start and the run took, or what went wrong."""

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
    """The polynomial ``1 + x * t`` at ``t = 2`` for every row's ``x``."""
    for batch in batches:
        x = batch.column(0).to_numpy().astype(np.float64)
        yield pa.record_batch({"y": evaluate(np.stack([np.ones_like(x), x], axis=1), 2.0)})
