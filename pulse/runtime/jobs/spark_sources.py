"""Read a job's tuples as Spark streaming frames, with columns for the order of arrival."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pulse.core.arrow_types import canonical_type
from pulse.core.errors import unknown_column
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import needed_columns
from pulse.runtime.io.lenient_text import Dialect, csv_header
from pulse.runtime.jobs.file_source import files_of, no_kafka
from pulse.runtime.jobs.secrets import concealing, resolved
from pulse.runtime.jobs.source_schema import columns_of, kind_columns, others_of, with_absent
from pulse.runtime.jobs.spark_lines import is_plain, line_frame
from pulse.runtime.jobs.spec import StreamJob
from pulse.validation.online.rejects import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ORDER = ("_place", "_modified", "_origin", "_block")
"""Columns beside the tuples' own: the bucket, and the order of arrival."""


def frame_of(
    spark: SparkSession,
    stream: StreamJob,
    schema: StreamSchema,
    buckets: int,
    given: DataFrame | None = None,
    by: tuple[str, ...] | None = None,
) -> DataFrame:
    """Make a streaming frame of the stream's tuples, with the columns :data:`ORDER`; partitioned ``by`` some keys, or all."""
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import arrow_schema_of

    if given is None:
        frame = _file_frame(spark, stream, schema) if stream.source == "files" else _line_frame(spark, stream)
    else:
        frame = given
    for name in schema.modelled_names if stream.follows else ():
        if name not in frame.columns:
            frame = frame.withColumn(name, F.lit(None).cast("double"))  # until an accent adds it
    order = {"_modified": F.lit(0).cast("long"), "_origin": F.lit(""), "_block": F.lit(-1).cast("long")}
    if ROW in frame.columns:
        order = {name: F.col(name) for name in ORDER[1:]}
    elif given is None and stream.source == "files":
        order = {
            "_modified": F.unix_micros("_metadata.file_modification_time"),
            "_origin": F.col("_metadata.file_path"),
            "_block": F.col("_metadata.file_block_start"),
        }
    elif given is None and stream.source == "kafka":
        order |= {"_origin": F.col("_kafka_partition"), "_block": F.col("_kafka_offset")}
    # Hashed with the stream's types, so that a key falls into the same bucket for every file.
    keys = [F.col(f"`{name}`") for name in (schema.key_names if by is None else by)]
    place = F.pmod(F.hash(*keys), F.lit(buckets)).cast("int") if keys else F.lit(0)
    others = others_of(stream, arrow_schema_of(given) if given is not None else columns_of(stream), schema)
    names = (*needed_columns(schema), *kind_columns(stream), *(name for name, _ in others))
    needed = [F.col(f"`{name}`") for name in (*names, *({ROW} & {*frame.columns}))]
    return frame.select(*needed, place.alias("_place"), *(value.alias(name) for name, value in order.items()))


def log_frame(spark: SparkSession, folder: Path) -> DataFrame:
    """Stream the additions to an accent log, one text per file, with time and origin."""
    from pyspark.sql import functions as F

    frame = spark.readStream.format("text").option("wholetext", "true").load(str(folder))
    return frame.select(
        "value",
        F.unix_micros("_metadata.file_modification_time").alias("modified"),
        F.col("_metadata.file_path").alias("origin"),
    )


def _file_frame(spark: SparkSession, stream: StreamJob, schema: StreamSchema) -> DataFrame:
    from pulse.runtime.spark.arrow_frames import spark_struct

    columns = with_absent(stream, columns_of(stream))
    needed = [*needed_columns(schema), *kind_columns(stream)]
    needed += [name for name, _ in others_of(stream, columns, schema)]
    names = _csv_columns(stream, columns, needed) if stream.format == "csv" else needed
    types = {name: columns.field(name).type if name in needed else pa.string() for name in names}
    if stream.accent_column is not None:
        types[stream.accent_column] = pa.string()  # the first file may have none
    plain = pa.schema([(name, canonical_type(type_, what=name)) for name, type_ in types.items()])
    assert stream.path is not None
    options = resolved(stream.options)
    if stream.format in ("csv", "json") and is_plain(stream.format, options):
        return line_frame(spark, stream.path, options, plain, stream.format)
    reader = spark.readStream.format(stream.format).schema(spark_struct(plain))
    if stream.format == "csv":
        # Spark assigns columns by position; this makes it raise where a file's header differs.
        reader = reader.option("header", "true").option("enforceSchema", "false")
    # Nested folders are read as by the in-process engine.
    reader = reader.option("recursiveFileLookup", "true").options(**options)
    return reader.load(stream.path)


def _csv_columns(stream: StreamJob, columns: pa.Schema, needed: list[str]) -> list[str]:
    """Return the CSV columns by position: from the header of the first file; without one, as listed."""
    dialect = Dialect.of(stream.options)
    files = files_of(stream) if dialect.header else []
    with_header = next((file for file in files if csv_header(file, dialect)), None)
    if with_header is None:
        return list(columns.names)
    header = csv_header(with_header, dialect)
    for name in needed:
        if name not in header:
            raise unknown_column(name, header, str(with_header))
    return header


def _line_frame(spark: SparkSession, stream: StreamJob) -> DataFrame:
    """Parse the texts of Kafka and sockets; other sources already have columns."""
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import spark_struct

    reader = spark.readStream.format(stream.source).options(**resolved(stream.options))
    try:
        with concealing(stream.options):
            frame = reader.load()
    except Exception as e:
        if stream.source == "kafka" and "kafka" in str(e).lower():
            raise no_kafka(spark.version, f"[streams.{stream.name}]") from e
        raise
    if stream.source not in ("kafka", "socket"):
        return frame
    struct = spark_struct(columns_of(stream))
    text = F.col("value").cast("string")
    read = (
        F.from_json(text, struct)
        if stream.format == "json"
        else F.from_csv(text, struct.simpleString()[7:-1])
    )
    extra = []
    if stream.source == "kafka":
        extra = [
            F.format_string("%s/%08d", "topic", "partition").alias("_kafka_partition"),
            F.col("offset").alias("_kafka_offset"),
        ]
    named = ["_kafka_partition", "_kafka_offset"] if extra else []
    return frame.select(read.alias("_read"), *extra).select("_read.*", *named)
