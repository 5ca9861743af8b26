"""Run queries over stored models on Spark: every fragment is one Arrow UDF, exchanges are shuffles of parcels.

::

    units ──mapInArrow──> result                                              per-key queries: no exchange
    units ──mapInArrow──> parcels ──shuffle by place──> mapInArrow ──> result  envelopes, pair joins, joins of models

A unit is a number; the worker that gets it reads the files itself. The result is a DataFrame: nothing runs until it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pulse.plan.fragments import Fragment
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.runtime.execution.exchange import PARCELS, ExchangeBatch
from pulse.runtime.execution.fragment import To, run_on_parcels, run_on_unit
from pulse.runtime.spark.arrow_frames import fitted_to_spark, over_numbers, spark_struct
from pulse.runtime.sweep.driver import SweepJob
from pulse.runtime.sweep.driver import run_on_unit as variants_on_unit

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def frame(spark: SparkSession, job: BoundPlan) -> DataFrame:
    """Return the result of a job, lazily."""
    return _frame(spark, job, job.fragments[-1], None)


def sweep_frame(spark: SparkSession, sweep: SweepJob) -> DataFrame:
    """Return the results of all variants of a sweep, lazily: in one pass over the model if no variant needs an exchange."""
    schema = spark_struct(sweep.schema)
    if sweep.one_pass:
        first = sweep.jobs[0]
        units = first.units(first.fragments[-1], at_least=spark.sparkContext.defaultParallelism)

        def variants(number: int) -> Iterator[pa.RecordBatch]:
            made = variants_on_unit(sweep, units[number])
            return (fitted_to_spark(one) for one in made if one.num_rows)

        return over_numbers(spark, len(units), variants, schema)
    frames = [
        frame(spark, job).mapInArrow(_labelled(sweep, number), schema)
        for number, job in enumerate(sweep.jobs)
    ]
    return reduce(DataFrame.unionByName, frames)


def _labelled(sweep: SweepJob, number: int) -> Work:
    values = next(itertools.islice(sweep.grid, number, None))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield fitted_to_spark(sweep.labelled(number, values, batch))

    return work


def _frame(spark: SparkSession, job: BoundPlan, fragment: Fragment, to: To) -> DataFrame:
    schema = spark_struct(job.schema if to is None else PARCELS)
    if fragment.stream is not None:
        units = job.units(fragment, at_least=spark.sparkContext.defaultParallelism)
        return over_numbers(
            spark, len(units), lambda number: _sent(run_on_unit(job, fragment, units[number], to)), schema
        )
    fed = [
        _frame(spark, job, producer, (exchange, arc)) for arc, exchange, producer in job.producers(fragment)
    ]
    parcels = reduce(DataFrame.unionByName, fed)
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 200)
    by_place = parcels.repartition(partitions, "place").sortWithinPartitions("place", "arc")
    return by_place.mapInArrow(_on_parcels(job, fragment, to), schema)


def _on_parcels(job: BoundPlan, fragment: Fragment, to: To) -> Work:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, received in itertools.groupby(_received(batches, fragment), key=lambda parcel: parcel.place):
            yield from _sent(run_on_parcels(job, fragment, list(received), to))

    return work


def _received(batches: Iterator[pa.RecordBatch], fragment: Fragment) -> Iterator[ExchangeBatch]:
    columns = [leaf.columns for leaf in fragment.inputs]
    for batch in batches:
        places, arcs = batch.column("place").to_pylist(), batch.column("arc").to_pylist()
        for i, (place, arc) in enumerate(zip(places, arcs, strict=True)):
            yield ExchangeBatch.unpack(place, arc, batch.column("payload")[i].as_buffer(), columns[arc])


def _sent(outputs: Iterator[ExchangeBatch | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for output in outputs:
        if isinstance(output, ExchangeBatch):
            row = [[output.place], [output.arc], [output.pack()]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, field.type) for values, field in zip(row, PARCELS, strict=True)],
                schema=PARCELS,
            )
        else:
            yield fitted_to_spark(output)
