"""Read Parquet files with any columns: a unit is a row group, and only the time is converted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.arrow_types import is_text
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import DatasetError, EmptyInputError, UnreadableError, readable
from pulse.datasets.folders.hive import (
    Partitions,
    check_partitions,
    find_partitions,
    partition_fields,
    values_of,
    with_partitions,
)
from pulse.datasets.format import BATCH_ROWS, Format, require_units
from pulse.datasets.time_columns import TIME, check_time_unit, to_time, to_time_or_null
from pulse.datasets.units import Paths, Unit

PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")


def open_parquet(path: str, read_dictionary: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file, or raise an error that explains why it is none."""
    with readable(path):
        with Path(path).open("rb") as file:
            start = file.read(4)
        if not start:
            raise EmptyInputError(f"{path}: the file is empty; expected a Parquet file")
        if start not in (b"PAR1", b"PARE"):
            raise UnreadableError(
                f"{path}: not a Parquet file (it begins with {start!r}); name its format, such as csv"
            )
        return pq.ParquetFile(path, read_dictionary=list(read_dictionary))


def row_groups(files: list[str]) -> list[Unit]:
    """Return the row groups that hold rows, of all files."""
    units: list[Unit] = []
    for path in files:
        with open_parquet(path) as file, readable(path):
            whole = Path(path).stat().st_size
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            # Not from the metadata of columns: where those are damaged, Arrow crashes the process.
            total = sum(max(group.total_byte_size, 0) for group in groups) or 1
            for i, group in enumerate(groups):
                if group.num_rows > 0:
                    size = max(1, whole * max(group.total_byte_size, 0) // total)
                    units.append(Unit(path, len(units), row_group=i, rows=group.num_rows, size=size))
    return require_units(units, files)


def read_row_group(
    unit: Unit, columns: Sequence[str], batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Read the columns of one row group, text as dictionaries, without threads: Spark has a worker per core."""
    if unit.row_group is None:
        raise DatasetError(
            f"{unit}: expected a Parquet row group, got a byte range; list the units with this format"
        )
    with open_parquet(unit.path) as probe, readable(unit.path):
        text = [name for name in columns if is_text(probe.schema_arrow.field(name).type)]
    seen = 0
    with open_parquet(unit.path, text) as file, readable(str(unit)):
        if unit.row_group >= file.metadata.num_row_groups:
            raise UnreadableError(
                f"{unit}: the file has {file.metadata.num_row_groups} row groups; it was changed"
            )
        for batch in file.iter_batches(
            batch_rows, row_groups=[unit.row_group], columns=list(columns), use_threads=False
        ):
            seen += batch.num_rows
            for name in text:
                values = batch.column(name)
                # Arrow reads texts that are not UTF-8. A dictionary is small compared with its column.
                (values.dictionary if pa.types.is_dictionary(values.type) else values).validate(full=True)
            if batch.num_rows:  # drop the declared nullability, which is irrelevant and differs among files
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in columns], list(columns))
    if unit.rows is not None and seen != unit.rows:
        raise UnreadableError(
            f"{unit}: expected {unit.rows} rows, got {seen}; the file is damaged or was changed"
        )


@dataclass(frozen=True, kw_only=True)
class PlainParquet(Format):
    """Parquet. Text columns come as dictionaries, the column ``time`` as zone-less UTC microseconds.

    ``time_unit`` (s, ms, us, ns) is needed when the times are numbers since 1970, ``time_format`` when they are text other than
    ISO 8601. With ``missing_times`` they may be null. ``partitions``: columns in the names of folders (``symbol=SPY``), which
    :meth:`prepare` finds; None for none.
    """

    name = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = PARQUET_SUFFIXES

    time_unit: str | None = None
    time_format: str | None = None
    missing_times: bool = False
    partitions: Partitions | None = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_time_unit(self.time_unit)
        object.__setattr__(self, "partitions", check_partitions(self.partitions))

    def after(self, earlier: Format) -> Format:
        """Return this with the types of the columns in the names of folders that an earlier fit has found."""
        return replace(self, partitions=getattr(earlier, "partitions", ())) if self.partitions == () else self

    def prepare(self, paths: Paths) -> Self:
        """Find the columns in the names of folders, with types that are the same for all files."""
        files = self.files(paths)
        if self.partitions is None:
            return self
        text = self.time if self.time_unit is None else None
        return replace(self, partitions=find_partitions(files, self.key, text, self.partitions))

    def statements(self) -> list[str]:
        return [f"{self.time}: zone-less UTC, digits below the microsecond floored"] if self.time else []

    def units(self, paths: Paths) -> list[Unit]:
        return row_groups(self.files(paths))

    def schema(self, path: str) -> pa.Schema:
        own = self.stored(path)
        fields = [*own, *partition_fields(self.partitions or (), own.names)]
        return pa.schema([self.offered(field) for field in fields])

    def stored(self, path: str) -> pa.Schema:
        """Return the columns that a file holds itself."""
        with open_parquet(path) as file, readable(path):
            return file.schema_arrow

    def constants(self, path: str) -> pa.Table:
        if not self.partitions:
            return super().constants(path)
        own, values = self.stored(path).names, values_of(path, self.partitions)
        names = [name for name in values if name not in own]
        return with_partitions(pa.table({"": [0]}), names, values, self.partitions, path)

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        with open_parquet(path) as file, readable(path):
            about, names = file.metadata, set(columns)
            own = [i for i in range(about.num_columns) if about.schema.column(i).path.split(".")[0] in names]
            groups = [about.row_group(i) for i in range(about.num_row_groups)]
        return sum(int(group.column(i).total_compressed_size) for group in groups for i in own)

    def offered(self, field: pa.Field) -> pa.Field:
        """Return a column with the type in which it is read."""
        field = field.with_nullable(True)
        if field.name == self.time:
            return field.with_type(TIME)
        return field.with_type(KEY_TEXT) if is_text(field.type) else field

    def read(self, unit: Unit, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Read the unit's rows as they are stored, text as dictionaries."""
        return read_row_group(unit, names)

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        row = 0
        for batch in self._with_partitions(unit, names) if self.partitions else self.read(unit, names):
            if self.time in names:
                at = names.index(self.time)
                begin = row

                def place(i: int, begin: int = begin) -> str:
                    return f"{unit}, row {begin + i}, column '{self.time}'"

                read = to_time_or_null if self.missing_times else to_time
                times = read(batch.column(at), place, self.time_unit, self.time_format)
                batch = batch.set_column(at, pa.field(names[at], TIME), times)
            row += batch.num_rows
            yield pa.Table.from_batches([batch]), Sieve(batch.num_rows)

    def _with_partitions(self, unit: Unit, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Read the unit's rows with the columns of its folders."""
        partitions = self.partitions or ()
        values, own = values_of(unit.path, partitions), self.stored(unit.path).names
        read = [name for name in names if name in own] or own[:1]
        for batch in self.read(unit, read):
            table = with_partitions(pa.Table.from_batches([batch]), names, values, partitions, str(unit))
            yield from table.to_batches()
