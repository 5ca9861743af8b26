"""Convert Arrow schemas and batches to those that Spark takes.

 ``ref`` is ``TIMESTAMP_NTZ``: it is UTC by definition and must not move with the
session's time zone. Types that Spark lacks are widened on the way there (unsigned integers, half floats) and
narrowed, without loss, on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame as DataFrame  # upper layers take the type from here
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pulse.core.errors import ColumnTypeError

_SAME = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.date32(): T.DateType(),
    pa.duration("us"): T.DayTimeIntervalType(),
}
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
}


def spark_struct(schema: pa.Schema) -> T.StructType:
    """Convert an Arrow schema to Spark's, widened where Spark lacks a type; ``mapInArrow`` functions declare it as output."""
    return T.StructType([T.StructField(field.name, _to_spark(_widened(field))) for field in schema])


def fitted_to_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast the batch to the exact Arrow types of :func:`spark_struct`, which a ``mapInArrow`` function yields."""
    wanted = pa.schema([(field.name, _widened(field)) for field in batch.schema])
    return batch if batch.schema.types == wanted.types else batch.cast(wanted)


def over_numbers(
    spark: SparkSession, count: int, work: Callable[[int], Iterable[pa.RecordBatch]], schema: T.StructType
) -> DataFrame:
    """Call a function in Spark's workers with every number below ``count``, a partition each; the rows are those it returns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number) if number < count else ()

    partitions = max(count, 1)
    return spark.range(0, partitions, 1, numPartitions=partitions).mapInArrow(run, schema)


def arrow_schema_of(frame: DataFrame) -> pa.Schema:
    """Return the Arrow types of a DataFrame's columns in ``mapInArrow``."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def _widened(field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which Spark can hold all values of the field."""
    type_ = field.type
    if type_ in _SAME or pa.types.is_list(type_) or pa.types.is_decimal128(type_):
        return type_
    if type_ in _WIDER:
        return _WIDER[type_]
    if pa.types.is_timestamp(type_) and type_.unit != "ns":
        return pa.timestamp("us", tz=type_.tz and "UTC")
    raise ColumnTypeError(
        f"column '{field.name}': Spark has no type for {field.type}; cast it to one it has (timestamps to "
        "microseconds, unsigned 64-bit integers to decimal128(20, 0), times to text)"
    )


def _to_spark(type_: pa.DataType) -> T.DataType:
    if pa.types.is_list(type_):
        return T.ArrayType(_to_spark(type_.value_type))
    if pa.types.is_struct(type_):
        return T.StructType([T.StructField(field.name, _to_spark(field.type)) for field in type_])
    if pa.types.is_decimal128(type_):
        return T.DecimalType(type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return T.TimestampType() if type_.tz else T.TimestampNTZType()
    return _SAME[type_]
