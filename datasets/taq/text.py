"""The common part of trades and quotes of TAQ as text: columns by their names in the header, and the New York clock.

Times are New York local time. They stay so, without a zone, unless ``tz`` names another zone, such as "UTC".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.errors import unknown_column
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import parse_block
from pulse.datasets.errors import ValueParseError
from pulse.datasets.format import TextFormat
from pulse.datasets.plain_csv import bytes_of_columns, place_in
from pulse.datasets.text_blocks import Block, Layout
from pulse.datasets.time_columns import Place, check_zone, local_to_zone
from pulse.datasets.units import Unit

NEW_YORK = "America/New_York"


@dataclass(frozen=True, kw_only=True)
class TaqText(TextFormat):
    """Rows of the consolidated tape. A source is a name in the header, in lower case, or several that are tried in order."""

    offered: ClassVar[Mapping[str, pa.DataType]]  # columns, with their types
    sources: ClassVar[Mapping[str, str | tuple[str, ...]]]
    required: ClassVar[tuple[str, ...]]  # offered columns, besides the time, that every file has
    time_columns: ClassVar[tuple[str, ...]]  # those that hold the time, in lower case

    key: tuple[str, ...] = ("symbol",)
    time: str | None = "t"
    tz: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_zone(self.tz)

    def statements(self) -> list[str]:
        return [
            f"t: New York time{f' brought to {self.tz}' if self.tz else ', as it is'}, without a zone",
            "t: digits below the microsecond floored",
        ]

    def schema(self, path: str) -> pa.Schema:
        found = self._found(self.layout(path))
        return pa.schema(
            [(name, type_) for name, type_ in self.offered.items() if name in found or name == "t"]
        )

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        """Estimate the share of the columns; of ``t`` those that hold date and time."""
        layout = self.layout(path)
        found = self._found(layout)
        names = [one for name in columns for one in (self.time_columns if name == "t" else (name,))]
        return bytes_of_columns(layout, [found[name] for name in dict.fromkeys(names) if name in found])

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        layout = self.layout(unit.path)
        found = self._found(layout)
        needed = [name for name in names if name != "t"]
        needed += self.time_columns if "t" in names else ()
        needed = list(dict.fromkeys([*needed, *self._filtered_by(found, layout)]))
        for block in self.blocks(unit, layout):
            body = self._body(block)
            if not body.data:
                continue
            table, sieve = self._sieved(self._read(body, layout, needed, found))
            if "t" in names:
                times = self._times(table, layout, place_in(body, unit.path, None))
                table = table.append_column("t", local_to_zone(times, NEW_YORK, self.tz))
            yield table.select(names), sieve

    @abstractmethod
    def _times(self, table: pa.Table, layout: Layout, place: Place) -> pa.Array:
        """Return New York times of the rows, from the columns that :attr:`time_columns` names."""

    @abstractmethod
    def _filtered_by(self, found: dict[str, str], layout: Layout) -> list[str]:
        """Return the columns that the filters read, or raise an error where the file lacks one."""

    @abstractmethod
    def _sieved(self, table: pa.Table) -> tuple[pa.Table, Sieve]:
        """Return the rows as they are offered, and which of them the filters remove."""

    def _body(self, block: Block) -> Block:
        """Return the lines of a block that are rows."""
        return block

    def _found(self, layout: Layout) -> dict[str, str]:
        """Map each offered column, and those of the time, to its name in the header."""
        by_fold = {fold(name): name for name in reversed(layout.names)}
        wanted = {name: (one,) if isinstance(one, str) else one for name, one in self.sources.items()}
        wanted |= {name: (name,) for name in self.time_columns}
        found: dict[str, str] = {}
        for name, sources in wanted.items():
            source = next((by_fold[fold(one)] for one in sources if fold(one) in by_fold), None)
            if source is not None:
                found[name] = source
        for name in (*self.required, *self.time_columns):
            if name not in found:
                raise unknown_column(
                    wanted[name][0].upper(), layout.names, f"{layout.path} (read as {self.name})"
                )
        return found

    def _read(self, block: Block, layout: Layout, needed: list[str], found: dict[str, str]) -> pa.Table:
        types = {found[name]: self.offered.get(name, pa.string()) for name in needed}
        return parse_block(block, layout, types).rename_columns(needed)


def fold(name: str) -> str:
    """Return a header's name as it is compared: Daily TAQ has been written with blanks and with underscores.

    >>> fold("Trade_Price") == fold("Trade Price")
    True
    """
    return name.casefold().replace(" ", "_")


def missing_time(values: pa.Array, place: Place, expected: str) -> None:
    """Raise for the first row without a time."""
    empty = pc.fill_null(pc.equal(values, ""), True)
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise ValueParseError(f"{place(row)}: expected {expected}, got nothing; correct or remove the line")
