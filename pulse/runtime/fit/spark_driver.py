"""Fit on Spark: files without a tuple crossing into the JVM, any DataFrame through Arrow.

::

    units ──mapInArrow──> parts (segments, first and newest tuple per key) ──shuffle by key──> stitched, written ──> manifest
     (file, row group)      a hundredth of the tuples                                            by the workers      by the driver

Where files overlap in time, a later file's tuples that lie before an earlier one's newest are late (semantics 2.5).
Which units hold such tuples is only known after the fit, so the fit then runs once more, and each such unit receives the
watermarks of its predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulse.core.schema import StreamSchema
from pulse.datasets.counts import Counts
from pulse.operators.fit.stitch import PART, UNIT
from pulse.runtime.fit.pipeline import FitOutcome, Job, run_fit
from pulse.runtime.fit.speed_limit import FOUND, continued_from, removed_rows, without_unreachable
from pulse.runtime.fit.worker import FileJob, FitJob, fit_unit, summary_schema, write_part
from pulse.runtime.spark.arrow_frames import over_numbers, spark_struct
from pulse.runtime.spark.errors import translated

_SEGMENTS_PER_PARTITION = 2_000_000
_TUPLES_PER_SEGMENT = 4  # a cautious guess, for a lossless fit of ticks


def fit_files(spark: SparkSession, job: FileJob, old_ends: pa.Table | None, partitions: int) -> FitOutcome:
    """Fit files into the job's staging folder."""
    job = _checked(spark, job, old_ends, partitions)

    def parts(job: FileJob) -> DataFrame:
        return over_numbers(spark, len(job.units), partial(_fitted, job), _parts_schema(job.spec.schema))

    return _run(spark, job, parts, old_ends, partitions)


def _checked(spark: SparkSession, job: FileJob, old_ends: pa.Table | None, partitions: int) -> FileJob:
    """Find the positions that are not reachable, by key."""
    if job.spec.speed_limit is None:
        return job
    schema = job.spec.schema
    columns = [
        *schema.key,
        (schema.time, pa.timestamp("us")),
        *((one, pa.float64()) for one in job.spec.speed_limit.names),
    ]
    rows = over_numbers(spark, len(job.units), job.positions, spark_struct(pa.schema([*columns, *FOUND])))
    keys = [F.col(f"`{name}`") for name in schema.key_names]
    by_key = rows.repartition(partitions, *keys) if keys else rows.coalesce(1)
    last = continued_from(job, old_ends)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from removed_rows(job, batches, last).combine_chunks().to_batches()

    with translated():
        return without_unreachable(job, by_key.mapInArrow(work, spark_struct(FOUND)).toArrow())


def fit_frame(
    spark: SparkSession, job: FitJob, frame: DataFrame, old_ends: pa.Table | None, partitions: int
) -> FitOutcome:
    """Fit a DataFrame.

    It has no arrival order, so its tuples are shuffled by key and sorted by time; among equal times the DataFrame's own order
    decides, as far as Spark keeps one.
    """
    schema, last = (
        job.spec.schema,
        continued_from(job, old_ends) if job.spec.speed_limit is not None else None,
    )
    arrival = "_arrival"
    tuples = frame.select(*job.read_columns).withColumn(arrival, F.monotonically_increasing_id())
    keys = [F.col(f"`{name}`") for name in schema.key_names]
    # A renumbered key appears under several numbers, which must stay in one partition.
    if not keys or job.moves_keys:
        by_key, keys = tuples.coalesce(1), []
    else:
        by_key = tuples.repartition(partitions, *keys)
    sorted_ = by_key.sortWithinPartitions(*keys, F.col(f"`{schema.time}`"), arrival).drop(arrival)

    def parts(job: FitJob) -> DataFrame:
        return sorted_.mapInArrow(_frame_worker(job, last), _parts_schema(schema))

    return _run(spark, job, parts, old_ends, partitions)


def partitions_for(rows: int, parallelism: int) -> int:
    """Return how many partitions of keys bound what one worker stitches at a time."""
    return max(parallelism, -(-rows // (_TUPLES_PER_SEGMENT * _SEGMENTS_PER_PARTITION)))


def _run(
    spark: SparkSession,
    job: Job,
    parts: Callable[[Job], DataFrame],
    old_ends: pa.Table | None,
    partitions: int,
) -> FitOutcome:
    schema = job.spec.schema
    keys = [F.col(f"`{name}`") for name in schema.key_names]

    def attempt(job: Job) -> list[pa.RecordBatch]:
        frame = parts(job)
        if old_ends is not None:
            columns = _parts_schema(schema)
            old = old_ends.select(columns.names)  # the columns that the workers' parts have
            frame = frame.unionByName(spark.createDataFrame(old, schema=columns))
        by_key = frame.repartition(partitions, *keys) if keys else frame.coalesce(1)
        with translated():
            # One row per partition, plus one per late visit: nothing else reaches the driver.
            written = by_key.mapInArrow(_writer(job), spark_struct(summary_schema(schema)))
            return list(written.toArrow().to_batches())

    return run_fit(job, attempt)


def _fitted(job: FileJob, ordinal: int) -> Iterator[pa.RecordBatch]:
    counts = Counts()
    for table in fit_unit(job, ordinal, job.tuples(ordinal, counts), counts):
        yield from table.combine_chunks().to_batches()


def _frame_worker(
    job: FitJob, last: pa.Table | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        ordinal = context.partitionId() if context else 0
        sorted_ = not (job.moves_keys or job.moves_times)  # by Spark, as recorded
        counts = Counts()
        kept = job.filtered(batches, counts)
        if job.spec.speed_limit is not None and (rows := list(kept)):
            kept = iter(job.reached(pa.Table.from_batches(rows), counts, ordinal, last).to_batches())
        for table in fit_unit(job, ordinal, kept, counts, as_arrived=sorted_):
            yield from table.combine_chunks().to_batches()

    return work


def _writer(job: FitJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        if not parts:
            return
        context = TaskContext.get()
        yield write_part(job, context.partitionId() if context else 0, pa.Table.from_batches(parts))

    return work


def _parts_schema(schema: StreamSchema) -> T.StructType:
    return spark_struct(pa.schema([*schema.arrow_schema(), (UNIT, pa.int64()), (PART, pa.int8())]))
