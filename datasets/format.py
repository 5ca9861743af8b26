"""The interface of every file format: its units of work, its columns, and how to read them.

The driver prepares a format once and lists the units; workers get the format and a unit, both picklable::

    fmt = get_format("ais").prepare(paths)        # the driver: choices common to all units
    for unit in fmt.units(paths):                 # → workers
        for batch in fmt.batches(unit, ["mmsi", "t", "x", "y"], counts=counts):
            ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pulse.core.errors import unknown_column
from pulse.core.plane import Plane
from pulse.datasets.counts import Aside, Counts, Sieve
from pulse.datasets.errors import DatasetError, EmptyInputError, UnknownFormatError, UnreadableError, readable
from pulse.datasets.text_blocks import Block, Layout, check_encoding, read_blocks, read_layout
from pulse.datasets.units import COMPRESSED, RANGE_BYTES, Paths, Unit, byte_ranges, expand

BATCH_ROWS = 1 << 17


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """An immutable description of how files are read. ``key`` and ``time`` name the columns with these roles."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    truths: ClassVar[Mapping[str, str]] = {}  # the usual truth (semantics 2.2) of its attributes
    # Reasons of filters whose removed rows a fit keeps beside its model.
    set_aside: ClassVar[frozenset[str]] = frozenset()

    key: tuple[str, ...] = ()
    time: str | None = None

    def __post_init__(self) -> None:
        given: Any = self.key  # typed callers pass a tuple; others a list, or one name
        key: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
        if not all(isinstance(name, str) and name for name in (*key, self.time or "-")):
            raise UnknownFormatError(
                f"key and time: expected names of columns, got {self.key!r} and {self.time!r}"
            )
        object.__setattr__(self, "key", key)

    def prepare(self, paths: Paths) -> Format:
        """Make, on the driver, the choices that must be the same for every unit. Most formats have none."""
        self.files(paths)
        return self

    def after(self, earlier: Format) -> Format:
        """Return this format with the choices that data must share with what an ``earlier`` one read into the same model."""
        return self

    def files(self, paths: Paths) -> list[str]:
        """Return the files that ``paths`` name, with folders and patterns expanded."""
        return expand(paths, self.suffixes)

    def statements(self) -> list[str]:
        """Describe what reading changes, one sentence each: filters, conversions, zones, projection."""
        return []

    def plane(self) -> Plane | None:
        """Return the plane of projected positions ``x, y``, with its distortion of distances; None without a projection."""
        return None

    @abstractmethod
    def units(self, paths: Paths) -> list[Unit]:
        """Return all parts of the files, in order; together they hold every row once."""

    @abstractmethod
    def schema(self, path: str) -> pa.Schema:
        """Return the offered columns, with the types of :meth:`batches`."""

    def constants(self, path: str) -> pa.Table:
        """Return, as one row, the columns that have one value throughout a file: those in the names of its folders."""
        return pa.table({})

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        """Return how many bytes of a file these columns take; None where unknown, as for computed columns."""
        return None

    def batches(
        self,
        unit: Unit,
        columns: Sequence[str],
        *,
        batch_rows: int = BATCH_ROWS,
        counts: Counts | None = None,
        aside: Aside | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read the unit's rows in file order, these columns only, at most ``batch_rows`` at a time.

        Rows that filters remove are counted by reason in ``counts``, and passed to ``aside`` with a column ``reason``.
        """
        names = pick(columns, self.schema(unit.path), unit.path)
        tally = Counts() if counts is None else counts
        for table, sieve in self.sifted(unit, names):
            yield from rebatch(sieve.split(table, tally, aside), batch_rows)

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        """Read the unit's rows in file order, table by table, with those to remove: for formats without their own batches."""
        raise NotImplementedError(
            f"format {type(self).__name__}: expected a method 'batches' or 'sifted'; write one of them"
        )


@dataclass(frozen=True, kw_only=True)
class TextFormat(Format):
    """A format of delimited text with a header line, cut into byte ranges.

    Compressed files (.gz, .bz2, .zst, .lz4) are one unit each. Quoted fields may not hold line breaks: a file is cut at line
    breaks without being read from its start, so such a field is an error, never two rows.
    """

    suffixes = tuple(ending + more for ending in (".csv", ".txt", ".psv") for more in ("", *COMPRESSED))
    delimiter: ClassVar[str] = ","

    encoding: str = "utf-8"
    range_bytes: int = RANGE_BYTES

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        length: Any = self.range_bytes
        if not (isinstance(length, int) and length > 0):
            raise UnknownFormatError(
                f"range_bytes: expected a positive number of bytes, got {self.range_bytes!r}"
            )

    def layout(self, path: str) -> Layout:
        """Read the header of a file."""
        return read_layout(path, self.separator, self.encoding)

    @property
    def separator(self) -> str:
        """Return the character between two fields."""
        return self.delimiter

    def units(self, paths: Paths) -> list[Unit]:
        """Return byte ranges of about ``range_bytes``; files without rows have none, but some file must have some."""
        units: list[Unit] = []
        files = self.files(paths)
        for path in files:
            layout = self.layout(path)
            with readable(path):
                units += byte_ranges(path, layout.header_bytes, len(units), self.range_bytes)
        return require_units(units, files)

    def blocks(self, unit: Unit, layout: Layout) -> Iterator[Block]:
        """Read the lines that begin in the unit, block by block."""
        if unit.row_group is not None:
            raise UnreadableError(
                f"{unit}: expected a byte range, got a row group; list the units with this format"
            )
        return read_blocks(unit, layout)


def require_units(units: list[Unit], files: list[str]) -> list[Unit]:
    """Return the units, or raise an error when there are none."""
    if not units:
        more = f" (nor do the {len(files) - 1} others)" if len(files) > 1 else ""
        raise EmptyInputError(f"{files[0]}: the file holds no rows{more}; there is nothing to read")
    return units


def pick(columns: Sequence[str], schema: pa.Schema, where: str) -> list[str]:
    """Return the requested columns, checking that each exists, without duplicates."""
    if isinstance(columns, str):
        raise DatasetError(
            f"columns: expected a list of names, got the text {columns!r}; write [{columns!r}]"
        )
    names = list(dict.fromkeys(columns))
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names, where)
    if not names:
        raise DatasetError(f"{where}: no column was requested; there are: {', '.join(schema.names)}")
    return names


def rebatch(table: pa.Table, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Split a table into batches of at most ``batch_rows``; none when it has no rows."""
    if batch_rows < 1:
        raise DatasetError(f"batch_rows: expected at least 1, got {batch_rows}")
    for batch in table.combine_chunks().to_batches(max_chunksize=batch_rows):
        if batch.num_rows:
            yield batch
