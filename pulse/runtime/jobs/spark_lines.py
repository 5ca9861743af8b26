"""Parses lines of CSV and JSON files in Spark's workers with the in-process parser, so that both engines give the same tuples.

Spark hands on the lines' bytes as they are, with the file and the place in it where the worker's part begins. The worker parses
them (:mod:`pulse.runtime.io.lenient_text`): a line that does not parse is a tuple of nothing but nulls, as in process.
Lines are counted where a part begins with its file; in a later part of a large file their numbers are not known.
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

MISPLACED = "CSV header does not conform to the schema"
"""What Spark calls a header of other names than expected; so that both are understood alike."""

WHENCE = {"_modified": pa.int64(), "_origin": pa.string(), "_block": pa.int64()}
"""The columns that tell when a line came, from which file, and where in it the worker's part begins."""

_HOW_WRITTEN = {"sep", "delimiter", "quote", "header"}
_WHICH_FILES = {
    "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "maxcachedfiles", "filenameonly", "cleansource",
    "sourcearchivedir", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter", "ignorecorruptfiles",
    "ignoremissingfiles",
}  # fmt: skip


def is_plain(format_: str, options: Mapping[str, str]) -> bool:
    """Whether text is written in a way that the in-process parser reads: other options of Spark's are for its own reader."""
    if format_ == "json":
        return {name.lower() for name in options} <= _WHICH_FILES
    dialect = Dialect.of(options)
    known = {name.lower() for name in options} <= _HOW_WRITTEN | _WHICH_FILES
    return known and len(dialect.delimiter.encode()) == len(dialect.quote.encode()) == 1


def line_frame(
    spark: SparkSession, path: str, options: Mapping[str, str], types: pa.Schema, format_: str
) -> DataFrame:
    """Read the tuples of CSV files, whose columns are these by place, or of JSON files, with :data:`WHENCE` and the place of each
    in its file."""
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import spark_struct

    which = {name: value for name, value in options.items() if name.lower() in _WHICH_FILES}
    lines = spark.readStream.format("text").option("recursiveFileLookup", "true").options(**which).load(path)
    lines = lines.select(
        F.col("value").cast("binary").alias("value"),  # the bytes as they are
        F.unix_micros("_metadata.file_modification_time").alias("_modified"),
        F.col("_metadata.file_path").alias("_origin"),
        F.col("_metadata.file_block_start").alias("_block"),
    )
    reader = LineReader(types, Dialect.of(options) if format_ == "csv" else None)
    return lines.mapInArrow(reader, spark_struct(reader.schema))


@dataclass(frozen=True)
class LineReader:
    """Parses lines of CSV of a dialect, or of JSON where it is None; for ``mapInArrow``.

    ``types``: the columns, for CSV all of the files' in their order.
    """

    types: pa.Schema
    dialect: Dialect | None

    @property
    def schema(self) -> pa.Schema:
        """What it gives."""
        return pa.schema([*self.types, (ROW, pa.int64()), *WHENCE.items()])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pulse.runtime.spark.arrow_frames import fitted_to_spark

        places = _Places(self)
        for batch in batches:
            lines: list[bytes] = batch.column("value").to_pylist()
            kept, rows = places.of(lines, batch)
            if not kept.any():
                continue
            some = [lines[i] for i in np.flatnonzero(kept)]
            types = dict(zip(self.types.names, self.types.types, strict=True))
            table = parse_json(some, types) if self.dialect is None else parse_csv(some, types, self.dialect)
            whence = batch.filter(pa.array(kept))
            columns = [table.column(name).combine_chunks() for name in self.types.names]
            columns.append(pa.array(rows[kept], pa.int64(), mask=rows[kept] < 0))
            columns += [whence.column(name).cast(type_) for name, type_ in WHENCE.items()]
            plain = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
            yield fitted_to_spark(pa.RecordBatch.from_arrays(plain, schema=self.schema))


@dataclass
class _Places:
    """How many tuples of each file came so far, of files that are read from their beginning."""

    reader: LineReader
    counts: dict[str, int] = field(default_factory=dict)

    def of(self, lines: list[bytes], batch: pa.RecordBatch) -> tuple[BoolArray, IntArray]:
        """Which lines are tuples, and the place of each in its file: -1 where it is not known."""
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
        """Raise where a file's columns are not those expected: they go by place."""
        found = dialect.split(line.decode(errors="replace"))
        if [one.casefold() for one in found] != [one.casefold() for one in self.reader.types.names]:
            expected = ", ".join(self.reader.types.names)
            raise ValueError(
                f"{MISPLACED}: expected {expected}, got {', '.join(found)}, while reading file {origin} "
            )
