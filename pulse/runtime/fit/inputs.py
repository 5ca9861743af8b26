"""What is to be fitted, whatever it comes from: files, a table in memory, or a DataFrame of Spark's.

The three answer the same questions: which columns there are, what the manifest says of them, and who does the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from pulse.core.plane import Plane
from pulse.datasets.counts import Counts
from pulse.datasets.format import Format, TextFormat
from pulse.datasets.registry import detect, get_format
from pulse.datasets.units import Unit
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.fit import local_driver
from pulse.runtime.fit.pipeline import FitOutcome, Staging
from pulse.runtime.fit.worker import FileJob, FitJob
from pulse.runtime.io.arrow_input import as_table, is_paths, is_spark
from pulse.store.manifest import Source
from pulse.store.tuples.source_files import remember
from pulse.stream.accents.log import AccentLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FitEngine(NamedTuple):
    """Who does the work: this process, or the workers of a Spark session that starts when it is first asked for."""

    local: bool
    spark: Callable[[], SparkSession]


class FitInput(Protocol):
    """Tuples to be fitted."""

    @property
    def columns(self) -> pa.Schema:
        """Their columns."""

    @property
    def where(self) -> str:
        """What messages call them."""

    def check_header(self, name: str) -> None:
        """Raise where a column is not on offer since a header names it twice."""

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """The first of them, of these columns."""

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """What the manifest says they are from."""

    def source(self) -> dict[str, Any]:
        """Where they can be read again."""

    def statements(self) -> list[str]:
        """What reading them does beyond reading."""

    def plane(self) -> Plane | None:
        """What their positions were projected to by reading."""

    def files(self) -> list[str]:
        """The files that are read."""

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Fit them."""


def data_from(
    data: Any,
    format: str | Format | None,
    key: tuple[str, ...] | None,
    time: str | None,
    names: Iterable[str],
) -> tuple[FitInput, tuple[str, ...], str | None]:
    """The data with its key and time, which a format may know by itself. ``names``: the columns that will be asked for."""
    if is_paths(data):
        chosen = _format_for(data, format, key, time)
        return FileInput(chosen, tuple(chosen.units(data)), tuple(names)), chosen.key, chosen.time
    if is_spark(data):
        return SparkInput(data), key or (), time
    wanted = [*(key or ()), *([] if time is None else [time]), *names]
    return TableInput(as_table(data, wanted, what="fit")), key or (), time


@dataclass(frozen=True)
class FileInput:
    """Files, read by workers unit by unit."""

    format: Format
    units: tuple[Unit, ...]
    names: tuple[str, ...]  # that will be asked for
    columns: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self._columns())

    def _columns(self) -> pa.Schema:
        """Those of the first file, and of later ones what is asked for and came only then."""
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
        """The first of them."""
        return self.units[0].path

    def check_header(self, name: str) -> None:
        """Of text, by the first file."""
        if isinstance(self.format, TextFormat):
            layout = self.format.layout(self.where)
            if name in layout.names:
                layout.index(name)

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """Of the first unit."""
        taken: list[pa.RecordBatch] = []
        for batch in self.format.batches(self.units[0], names, counts=Counts()):
            taken.append(batch.slice(0, rows - sum(one.num_rows for one in taken)))
            if sum(one.num_rows for one in taken) >= rows:
                break
        return pa.Table.from_batches(taken)

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """The files, with their sizes and rows where known."""
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
        """Files, and how they were read."""
        return remember(self.format, self.files())

    def statements(self) -> list[str]:
        """What the format says."""
        return self.format.statements()

    def plane(self) -> Plane | None:
        """That of the format."""
        return self.format.plane()

    def files(self) -> list[str]:
        """Each once, in order."""
        return list(dict.fromkeys(unit.path for unit in self.units))

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """By threads of this process, or by Spark's workers."""
        job = FileJob(
            spec,
            str(place.staging),
            place.generation,
            keep_tuples=place.keep_tuples,
            accents=accents,
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


class _UnfiledInput:
    """What the manifest cannot say of data that were in no file."""

    def check_header(self, name: str) -> None:
        """There is none."""

    def source(self) -> dict[str, Any]:
        """Nowhere."""
        return remember(None, ())

    def statements(self) -> list[str]:
        """Nothing."""
        return []

    def plane(self) -> Plane | None:
        """None that is known."""
        return None

    def files(self) -> list[str]:
        """None."""
        return []


@dataclass(frozen=True)
class TableInput(_UnfiledInput):
    """A table in this process, which fits it."""

    table: pa.Table
    where: str = "the table"

    @property
    def columns(self) -> pa.Schema:
        """Those of the table."""
        return self.table.schema

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """A slice."""
        return self.table.select(names).slice(0, rows)

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """One, with its size."""
        own = self.table.select([name for name in columns if name in self.columns.names])
        return (Source(self.where, self.table.nbytes, self.table.num_rows, own.nbytes),)

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """Here, whatever the engine: what is in this process stays in it."""
        return local_driver.fit_table(_job(spec, place, accents), self.table, place.ends)


@dataclass(frozen=True)
class SparkInput(_UnfiledInput):
    """A DataFrame of Spark's, fitted by its workers; of its rows none comes here but for a trial."""

    frame: DataFrame
    where: str = "the DataFrame"
    columns: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        from pulse.runtime.spark.arrow_frames import arrow_schema_of

        object.__setattr__(self, "columns", arrow_schema_of(self.frame))

    def first(self, rows: int, names: list[str]) -> pa.Table:
        """What Spark finds first."""
        return self.frame.select(*names).limit(rows).toArrow()

    def sources(self, columns: list[str]) -> tuple[Source, ...]:
        """One, of a size that nobody knows."""
        return (Source(self.where, 0, 0),)

    def fit(self, spec: FitSpec, place: Staging, accents: AccentLog | None, engine: FitEngine) -> FitOutcome:
        """By the workers, also of a session whose engine is local: that is where the rows are."""
        from pulse.runtime.fit import spark_driver

        spark = engine.spark()
        parallelism = spark.sparkContext.defaultParallelism
        return spark_driver.fit_frame(spark, _job(spec, place, accents), self.frame, place.ends, parallelism)


def _job(spec: FitSpec, place: Staging, accents: AccentLog | None) -> FitJob:
    return FitJob(spec, str(place.staging), place.generation, keep_tuples=place.keep_tuples, accents=accents)


def _format_for(
    paths: Any, format: str | Format | None, key: tuple[str, ...] | None, time: str | None
) -> Format:
    roles = {name: value for name, value in (("key", key), ("time", time)) if value is not None}
    if isinstance(format, Format):
        found = format
    else:
        first = paths if isinstance(paths, (str, os.PathLike)) else next(iter(paths), "")
        found = get_format(format or detect(os.fspath(first)), **roles)
    return found.prepare(paths)
