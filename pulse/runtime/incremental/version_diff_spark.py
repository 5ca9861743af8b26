"""Compute revisions of a query's results on Spark, as a lazy DataFrame that never collects to the driver.

::

    pieces ──mapInArrow, an incremental view each──> changes           no shuffle
    old and new, each through its fragments                           where units differ: all results change
        ──cogroup by the results' keys──> changes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulse.runtime.execution import spark_driver
from pulse.runtime.incremental.version_diff import VersionDiff, compare
from pulse.runtime.incremental.version_diff_modes import changes
from pulse.runtime.spark.arrow_frames import fitted_to_spark, spark_struct

_COGROUP = "_all"  # the cogroup column of results without a key


def frame(spark: SparkSession, job: VersionDiff) -> DataFrame:
    """Return the revisions as a lazy frame."""
    pieces = job.pieces()
    schema = spark_struct(job.schema)
    if not pieces:
        return spark.createDataFrame([], schema)
    if job.same_units:
        count = len(pieces)
        return spark.range(0, count, 1, numPartitions=count).mapInArrow(_work(pieces), schema)
    return _cogrouped(spark, job)


def _work(pieces: list[VersionDiff]) -> spark_driver.Work:
    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for one in changes(pieces[number])[0].to_batches():
                    if one.num_rows:
                        yield fitted_to_spark(one)

    return work


def _cogrouped(spark: SparkSession, job: VersionDiff) -> DataFrame:
    """Evaluate both versions, cogroup them by the results' keys and compare."""
    sides = [spark_driver.frame(spark, one).withColumn(_COGROUP, F.lit(0)) for one in job.answers()]
    keys = [_COGROUP, *(name for name, _ in job.columns.key)]
    old, new = (side.groupBy(*keys) for side in sides)
    return old.cogroup(new).applyInArrow(_compare(job), spark_struct(job.schema))


def _compare(job: VersionDiff) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def compared(left: pa.Table, right: pa.Table) -> pa.Table:
        batches = compare(job, left, right).combine_chunks().to_batches()
        fitted = [fitted_to_spark(one) for one in batches]
        empty = fitted_to_spark(pa.RecordBatch.from_pylist([], schema=job.schema))
        return pa.Table.from_batches(fitted or [empty])

    return compared
