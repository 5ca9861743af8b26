"""Read fit inputs from files, a table in memory, or a Spark DataFrame, behind one protocol.

Each input provides its columns, its entries in the manifest, and its fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from pulse.core.plane import Plane
from pulse.datasets.ais.any import Ais
from pulse.datasets.ais.common import PROJECTED, AisFormat
from pulse.datasets.counts import Counts
from pulse.datasets.filters.row_filter import RowFilter
from pulse.datasets.format import Format, TextFormat
from pulse.datasets.registry import detect, get_format
from pulse.datasets.units import Unit
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.fit import local_driver
from pulse.runtime.fit.pipeline import FitOutcome, Staging
from pulse.runtime.fit.worker import FileJob, FitJob
from pulse.runtime.io.arrow_input import as_table, is_paths, is_spark
from pulse.store.manifest import Source
from pulse.store.tuples.source_files import source_entry
from pulse.stream.accents.log import AccentLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FitEngine(NamedTuple):
    """The engine of a fit: this process, or the workers of a Spark session that starts on first use."""

    local: bool
    spark: Callable[[], SparkSession]


class _Filtered:
    """An input whose rows may be filtered."""

    def keeping(self, where: RowFilter) -> Any:
        """Return the same data with a filter of its rows."""
        return replace(self, where_rows=where)  # type: ignore[type-var]  # subclasses are dataclasses


class FitInput(Protocol):
    """Tuples to fit."""

    @property
    def columns(self) -> pa.Schema:
        """Their columns."""

    @property
    def where(self) -> str:
        """Their name in messages."""

    def check_header(self, name: str) -> None:
        """Raise if a column is unavailable because a header names it twice."""

    @property
    def where_rows(self) -> RowFilter | None:
        """Return the filter of its rows."""

    def keeping(self, where: RowFilter) -> FitInput:
        """Return the same data with a filter of its rows."""

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """Return the first rows of these columns, of those that the filter keeps."""

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """Return their origin, for the manifest."""

    def source(self) -> dict[str, Any]:
        """Return where they can be read again."""

    def statements(self) -> list[str]:
        """Return notes on what the reader did besides reading, such as projections."""

    def plane(self) -> Plane | None:
        """Return the plane that the reader projected positions to."""

    def files(self) -> list[str]:
        """Return the paths of the files read."""

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Fit them."""


def data_from(
    data: Any,
    format: str | Format | None,
    key: tuple[str, ...] | None,
    time: str | None,
    names: Iterable[str],
    earlier: Format | None = None,
) -> tuple[FitInput, tuple[str, ...], str | None]:
    """Return the data with its key and time, which a format may define itself. ``names``: the columns that the fit needs;
    ``earlier``: how the files of a model were read that the data is appended to.
    """
    if is_paths(data):
        needed = tuple(names)
        chosen = _format_for(data, format, key, time, needed, earlier)
        detected = format is None
        return FileInput(chosen, tuple(chosen.units(data)), needed, detected), chosen.key, chosen.time
    if is_spark(data):
        return SparkInput(data), key or (), time
    wanted = [*(key or ()), *([] if time is None else [time]), *names]
    return TableInput(as_table(data, wanted, what="fit")), key or (), time


@dataclass(frozen=True)
class FileInput(_Filtered):
    """Files, read by workers unit by unit."""

    format: Format
    units: tuple[Unit, ...]
    names: tuple[str, ...]  # columns that the fit needs
    detected: bool = False  # whether the format was found by the file
    where_rows: RowFilter | None = None
    columns: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self._columns())

    def _columns(self) -> pa.Schema:
        """Return the columns of the first file, and needed columns that appear only in later files."""
        paths = self.files()
        found = self.format.schema(paths[0])
        for path in paths[1:]:
            missing = [name for name in self.names if name not in found.names]
            if not missing:
                break
            more = self.format.schema(path)
            for name in missing:
                if name in more.names:
                    found = found.append(more.field(name))
        return found

    @property
    def where(self) -> str:
        """Return the path of the first file."""
        return self.units[0].path

    def check_header(self, name: str) -> None:
        """Check the header of the first file, if it is text."""
        if isinstance(self.format, TextFormat):
            layout = self.format.layout(self.where)
            if name in layout.names:
                layout.index(name)

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """Return the first rows of the first unit."""
        taken: list[pa.RecordBatch] = []
        kept = self.where_rows
        read = names if kept is None else kept.with_columns(names)
        for batch in self.format.batches(self.units[0], read, counts=Counts()):
            batch = batch if kept is None else kept.split(batch, names)[0]
            taken.append(batch.slice(0, rows - sum(one.num_rows for one in taken)))
            if sum(one.num_rows for one in taken) >= rows:
                break
        return pa.Table.from_batches(taken)

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """Return the files, with their sizes, and rows where known."""
        rows_of: dict[str, int] = {}
        for unit in self.units:
            rows_of[unit.path] = rows_of.get(unit.path, 0) + (unit.rows or 0)
        return tuple(
            Source(
                str(Path(path).absolute()),
                Path(path).stat().st_size,
                rows,
                self.format.bytes_of(path, columns),
            )
            for path, rows in rows_of.items()
        )

    def source(self) -> dict[str, Any]:
        """Return the files and how they were read."""
        return source_entry(self.format, self.files(), self.where_rows)

    def statements(self) -> list[str]:
        if not (self.detected and self.format.name == Ais.name):
            return self.format.statements()
        return [
            "recognised as AIS by the names of its columns; --format parquet or csv reads them as they are",
            *self.format.statements(),
        ]

    def plane(self) -> Plane | None:
        return self.format.plane()

    def files(self) -> list[str]:
        """Return each path once, in order."""
        return list(dict.fromkeys(unit.path for unit in self.units))

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Fit in threads of this process, or on Spark's workers."""
        job = FileJob(
            spec,
            str(place.staging),
            place.generation,
            place.tag,
            keep_tuples=place.keep_tuples,
            accents=accents,
            where=self.where_rows,
            format=self.format,
            units=self.units,
        )
        if engine.local:
            return local_driver.fit_files(job, place.ends)
        from pulse.runtime.fit import spark_driver

        spark = engine.spark()
        rows = sum(unit.rows or unit.size // 40 for unit in self.units)
        places = spark_driver.partitions_for(rows, spark.sparkContext.defaultParallelism)
        return spark_driver.fit_files(spark, job, place.ends, places)


class _UnfiledInput(_Filtered):
    """An input without files: nothing for the manifest to record."""

    def check_header(self, name: str) -> None:
        """Do nothing: there is no header."""

    def source(self) -> dict[str, Any]:
        return source_entry(None, ())

    def statements(self) -> list[str]:
        return []

    def plane(self) -> Plane | None:
        return None

    def files(self) -> list[str]:
        return []


@dataclass(frozen=True)
class TableInput(_UnfiledInput):
    """A table in this process, which fits it."""

    table: pa.Table
    where: str = "the table"
    where_rows: RowFilter | None = None

    @property
    def columns(self) -> pa.Schema:
        return self.table.schema

    def first(self, rows: int, names: list[str]) -> pa.Table:
        kept = self.table if self.where_rows is None else self.table.filter(self.where_rows.keeps(self.table))
        return kept.select(names).slice(0, rows)

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """Return one source, with its size."""
        own = self.table.select([name for name in columns if name in self.columns.names])
        return (Source(self.where, self.table.nbytes, self.table.num_rows, own.nbytes),)

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Fit in this process, with any engine: the data does not leave it."""
        return local_driver.fit_table(_job(spec, place, accents, self.where_rows), self.table, place.ends)


@dataclass(frozen=True)
class SparkInput(_UnfiledInput):
    """A Spark DataFrame, fitted by Spark's workers; only a trial brings rows to this process."""

    frame: DataFrame
    where: str = "the DataFrame"
    where_rows: RowFilter | None = None
    columns: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        from pulse.runtime.spark.arrow_frames import arrow_schema_of

        object.__setattr__(self, "columns", arrow_schema_of(self.frame))

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """Return the first rows that Spark finds."""
        kept = self.where_rows
        read = names if kept is None else kept.with_columns(names)
        found = self.frame.select(*read).limit(rows).toArrow()
        return found if kept is None else found.filter(kept.keeps(found)).select(names)

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """Return one source, of unknown size."""
        return (Source(self.where, 0, 0),)

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Fit on the workers, even if the session's engine is local: the rows are there."""
        from pulse.runtime.fit import spark_driver

        spark = engine.spark()
        parallelism = spark.sparkContext.defaultParallelism
        job = _job(spec, place, accents, self.where_rows)
        return spark_driver.fit_frame(spark, job, self.frame, place.ends, parallelism)


def _job(spec: FitSpec, place: Staging, accents: AccentLog | None, where: RowFilter | None) -> FitJob:
    return FitJob(
        spec,
        str(place.staging),
        place.generation,
        place.tag,
        keep_tuples=place.keep_tuples,
        accents=accents,
        where=where,
    )


def _format_for(
    paths: Any,
    format: str | Format | None,
    key: tuple[str, ...] | None,
    time: str | None,
    names: tuple[str, ...],
    earlier: Format | None,
) -> Format:
    roles = {name: value for name, value in (("key", key), ("time", time)) if value is not None}
    if isinstance(format, Format):
        found = format
    else:
        first = paths if isinstance(paths, (str, os.PathLike)) else next(iter(paths), "")
        wanted = (*(key or ()), *(() if time is None else (time,)), *names)
        found = get_format(format or detect(os.fspath(first), wanted), **roles)
        if format is None and isinstance(found, AisFormat) and not {*PROJECTED} & {*names}:
            return found  # nothing asks for a projection, nor for pyproj
    return (found if earlier is None else found.after(earlier)).prepare(paths)
