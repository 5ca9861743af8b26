"""Run the tasks of a revision on Spark: one per touched set of files, through Arrow; each returns its figures as JSON."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from pulse.runtime.revise.task import Done, ReviseJob, revise_units
from pulse.runtime.spark.arrow_frames import over_numbers
from pulse.runtime.spark.errors import translated
from pulse.runtime.spark.progress import watched

_DONE = "done"


def run(spark: SparkSession, job: ReviseJob, progress: Callable[[int, int], None] | None) -> list[Done]:
    """Apply a job's revisions with Spark's workers."""
    results = over_numbers(
        spark,
        len(job.tasks),
        lambda number: [pa.RecordBatch.from_pydict({_DONE: [revise_units(job, number).to_json()]})],
        T.StructType([T.StructField(_DONE, T.StringType())]),
    )
    with translated(), watched(spark, progress) if progress is not None else nullcontext():
        return [Done.of_json(text) for text in results.toArrow().column(_DONE).to_pylist()]
