"""Parse lines of CSV and JSON files in Spark's workers with the in-process parser, so that both engines give the same tuples.

Spark passes the lines' raw bytes, with the file and the offset where the worker's block begins. The worker parses them
(:mod:`pulse.runtime.io.lenient_text`): a line that does not parse becomes a tuple of nulls, as in process. Lines are counted in a
file's first block; in later blocks of a large file their numbers are unknown.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.runtime.io.lenient_text import Dialect, parse_csv, parse_json
from pulse.validation.online.rejects import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER_MISMATCH = "CSV header does not conform to the schema"
"""Spark's own message for a header with unexpected names, so that both readers' errors are handled alike."""

ORIGIN = {"_modified": pa.int64(), "_origin": pa.string(), "_block": pa.int64()}
"""The columns for a line's arrival time, its file, and the offset in it where the worker's block begins."""

_DIALECT_OPTIONS = {"sep", "delimiter", "quote", "header"}
_FILE_OPTIONS = {
    "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "maxcachedfiles", "filenameonly", "cleansource",
    "sourcearchivedir", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter", "ignorecorruptfiles",
    "ignoremissingfiles",
}  # fmt: skip


def is_plain(format_: str, options: Mapping[str, str]) -> bool:
    """Return whether the in-process parser supports these options: others of Spark's are for its own reader."""
    if format_ == "json":
        return {name.lower() for name in options} <= _FILE_OPTIONS
    dialect = Dialect.of(options)
    known = {name.lower() for name in options} <= _DIALECT_OPTIONS | _FILE_OPTIONS
    return known and len(dialect.delimiter.encode()) == len(dialect.quote.encode()) == 1


def line_frame(
    spark: SparkSession, path: str, options: Mapping[str, str], types: pa.Schema, format_: str
) -> DataFrame:
    """Read the tuples of CSV files, whose columns are ``types`` by position, or of JSON files, with :data:`ORIGIN` and the
    position of each in its file."""
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import spark_struct

    file_options = {name: value for name, value in options.items() if name.lower() in _FILE_OPTIONS}
    reader = spark.readStream.format("text").option("recursiveFileLookup", "true").options(**file_options)
    lines = reader.load(path).select(
        F.col("value").cast("binary").alias("value"),  # the raw bytes
        F.unix_micros("_metadata.file_modification_time").alias("_modified"),
        F.col("_metadata.file_path").alias("_origin"),
        F.col("_metadata.file_block_start").alias("_block"),
    )
    parser = LineReader(types, Dialect.of(options) if format_ == "csv" else None)
    return lines.mapInArrow(parser, spark_struct(parser.schema))


@dataclass(frozen=True)
class LineReader:
    """A parser of CSV lines in a dialect, or of JSON lines where it is None; for ``mapInArrow``.

    ``types``: the columns; for CSV all columns of the files, in their order.
    """

    types: pa.Schema
    dialect: Dialect | None

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the parsed batches."""
        return pa.schema([*self.types, (ROW, pa.int64()), *ORIGIN.items()])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pulse.runtime.spark.arrow_frames import fitted_to_spark

        positions = _Positions(self)
        for batch in batches:
            lines: list[bytes] = batch.column("value").to_pylist()
            kept, rows = positions.of(lines, batch)
            if not kept.any():
                continue
            some = [lines[i] for i in np.flatnonzero(kept)]
            types = dict(zip(self.types.names, self.types.types, strict=True))
            table = parse_json(some, types) if self.dialect is None else parse_csv(some, types, self.dialect)
            origin = batch.filter(pa.array(kept))
            columns = [table.column(name).combine_chunks() for name in self.types.names]
            columns.append(pa.array(rows[kept], pa.int64(), mask=rows[kept] < 0))
            columns += [origin.column(name).cast(type_) for name, type_ in ORIGIN.items()]
            plain = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
            yield fitted_to_spark(pa.RecordBatch.from_arrays(plain, schema=self.schema))


@dataclass
class _Positions:
    """Counts the tuples of each file so far, for files that are read from their beginning."""

    reader: LineReader
    counts: dict[str, int] = field(default_factory=dict)

    def of(self, lines: list[bytes], batch: pa.RecordBatch) -> tuple[BoolArray, IntArray]:
        """Return which lines are tuples, and the position of each in its file, -1 where unknown."""
        kept = np.fromiter((bool(line.strip()) for line in lines), bool, len(lines))
        rows = np.full(len(lines), -1)
        starts, origins = batch.column("_block").to_numpy(), batch.column("_origin").dictionary_encode()
        changes = np.flatnonzero(np.diff(origins.indices.to_numpy()) | np.diff(starts)) + 1
        for begin, end in zip([0, *changes], [*changes, len(lines)], strict=True):
            own = begin + np.flatnonzero(kept[begin:end])
            if starts[begin] or not len(own):
                continue
            origin = origins[int(begin)].as_py()
            if origin not in self.counts:
                first = int(own[0])
                lines[first] = lines[first].removeprefix(codecs.BOM_UTF8)
                if self.reader.dialect is not None and self.reader.dialect.header:
                    self._check_header(self.reader.dialect, lines[first], origin)
                    kept[first], own = False, own[1:]
            before = self.counts.get(origin, 0)
            rows[own] = before + np.arange(len(own))
            self.counts[origin] = before + len(own)
        return kept, rows

    def _check_header(self, dialect: Dialect, line: bytes, origin: str) -> None:
        """Raise where a file's columns are not those expected, since columns are assigned by position."""
        found = dialect.split(line.decode(errors="replace"))
        if [one.casefold() for one in found] != [one.casefold() for one in self.reader.types.names]:
            expected = ", ".join(self.reader.types.names)
            raise ValueError(
                f"{HEADER_MISMATCH}: expected {expected}, got {', '.join(found)}, while reading file {origin} "
            )
