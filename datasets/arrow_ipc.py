"""Read Arrow IPC with any columns: files (.arrow, .feather), whose units are runs of record batches, and streams, a unit each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pulse.core.arrow_types import is_text
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import EmptyInputError, UnreadableError, readable
from pulse.datasets.format import pick, require_units
from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.units import Paths, Unit

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc", ".arrows")
MAGIC, _OLD = b"ARROW1", b"FEA1"
_UNIT_ROWS = 1 << 20
Reader = Any  # pa.RecordBatchFileReader or pa.RecordBatchStreamReader


@contextmanager
def open_ipc(path: str) -> Iterator[Reader]:
    """Open a file or stream of record batches, or raise an error that explains why it is none."""
    with readable(path):
        with Path(path).open("rb") as file:
            start = file.read(len(MAGIC))
        if not start:
            raise EmptyInputError(f"{path}: the file is empty; expected Arrow IPC")
        if start.startswith(_OLD):
            raise UnreadableError(
                f"{path}: Feather of version 1, expected Arrow IPC (Feather 2); write it anew with pyarrow.feather.write_feather"
            )
        with pa.memory_map(path) as source:
            try:
                reader = pa.ipc.open_file(source) if start == MAGIC else pa.ipc.open_stream(source)
            except pa.ArrowInvalid as e:
                raise UnreadableError(
                    f"{path}: expected Arrow IPC, a file or a stream, got bytes that begin with {start!r} ({str(e)[:120]}); "
                    "it may be cut short, or of another format: name it (--format)"
                ) from None
            yield reader


@dataclass(frozen=True, kw_only=True)
class ArrowIpc(PlainParquet):
    """Arrow IPC, also as Feather 2 or as a stream; the options are those of Parquet."""

    name = "arrow"
    suffixes = ARROW_SUFFIXES

    def units(self, paths: Paths) -> list[Unit]:
        """Return runs of record batches with about a million rows; of a stream, which has no index, all."""
        units: list[Unit] = []
        files = self.files(paths)
        for path in files:
            size = Path(path).stat().st_size
            with open_ipc(path) as reader, readable(path):
                if isinstance(reader, pa.RecordBatchStreamReader):
                    rows = sum(batch.num_rows for batch in reader)
                    units += [Unit(path, len(units), row_group=0, rows=rows, size=size)] if rows else []
                    continue
                rows_of = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            first = 0
            for i in range(len(rows_of)):
                rows = sum(rows_of[first : i + 1])
                if rows and (rows >= _UNIT_ROWS or i + 1 == len(rows_of)):
                    share = max(1, size * rows // max(sum(rows_of), 1))
                    unit = Unit(
                        path, len(units), length=i + 1 - first, row_group=first, rows=rows, size=share
                    )
                    units.append(unit)
                    first = i + 1
        return require_units(units, files)

    def stored(self, path: str) -> pa.Schema:
        with open_ipc(path) as reader:
            return reader.schema

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        return None

    def read(self, unit: Unit, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Read the unit's record batches, text as dictionaries."""
        if unit.row_group is None:
            raise UnreadableError(
                f"{unit}: expected record batches, got a byte range; list the units with this format"
            )
        seen = 0
        with open_ipc(unit.path) as reader, readable(unit.path):
            pick(names, reader.schema, unit.path)
            if isinstance(reader, pa.RecordBatchStreamReader):
                batches = iter(reader)
            else:
                numbers = range(unit.row_group, unit.row_group + (unit.length or 0))
                batches = (reader.get_batch(i) for i in numbers)
            for batch in batches:
                seen += batch.num_rows
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [_as_offered(batch.column(name)) for name in names], names
                    )
        if seen != unit.rows:
            raise UnreadableError(
                f"{unit}: expected {unit.rows} rows, got {seen}; the file is damaged or was changed"
            )


def _as_offered(column: pa.Array) -> pa.Array:
    """Return texts as dictionaries, checked to be UTF-8."""
    if not is_text(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        column.dictionary.validate(full=True)
        return column.cast(KEY_TEXT)
    column.validate(full=True)
    return column.cast(pa.string()).dictionary_encode().cast(KEY_TEXT)
