"""Read raw AIS sentences (``!AIVDM``, ``!AIVDO``), with or without tag blocks, of one or several parts.

A row is a position report of a vessel (message types 1, 2, 3, 18, 19, 27). Other messages are counted; lines and messages with a
fault, such as a wrong checksum or a missing fragment, are set aside with their line. Static data (types 5, 19 and 24) gives
``ship_type`` and ``vessel_name``: what the vessel last reported before in the same file, null until then.

A unit is a whole file, because a message's fragments may lie on either side of any cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pulse.datasets.ais.common import AisFormat
from pulse.datasets.ais.messages import FAULTS, SENTENCE, Messages, Row
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import readable
from pulse.datasets.format import require_units
from pulse.datasets.text_blocks import Layout, open_bytes, read_blocks
from pulse.datasets.time_columns import TIME
from pulse.datasets.units import COMPRESSED, Paths, Unit

SENTENCE_SUFFIXES = tuple(
    ending + more for ending in (".nmea", ".nm4", ".aivdm", ".ais") for more in ("", *COMPRESSED)
)
_BLOCK_BYTES = 1 << 20  # some ten thousand sentences
_TYPES = {
    "line": pa.int64(),
    "sentence": pa.string(),
    "fault": pa.string(),
    "other": pa.string(),
    "mmsi": pa.int64(),
    "t": pa.int64(),
    "t_recv": pa.int64(),
    "msg_type": pa.int64(),
    "lat": pa.float64(),
    "lon": pa.float64(),
    "sog": pa.float64(),
    "cog": pa.float64(),
    "heading": pa.float64(),
    "status": pa.int64(),
    "ship_type": pa.int64(),
    "vessel_name": pa.string(),
}
_FIRST_LINES, _LONGEST = 100, 1 << 12
_WHERE = ("line", "sentence")  # columns of rows that are set aside
_OFFERED = tuple(name for name in _TYPES if name not in (*_WHERE, "fault", "other"))


@dataclass(frozen=True, kw_only=True)
class AisSentences(AisFormat):
    """Raw AIS sentences; see :mod:`pulse.datasets.ais.common` for the filters of positions."""

    name = "nmea"
    suffixes = SENTENCE_SUFFIXES
    set_aside: ClassVar[frozenset[str]] = frozenset(FAULTS)

    def statements(self) -> list[str]:
        return [
            *super().statements(),
            "kept: position reports of vessels (message types 1, 2, 3, 18, 19, 27)",
            "set aside: lines and messages with a fault, with their line",
        ]

    def units(self, paths: Paths) -> list[Unit]:
        """Return the files that are not empty."""
        files = self.files(paths)
        sizes = {}
        for path in files:
            with readable(path):
                sizes[path] = Path(path).stat().st_size
        some = [path for path in files if sizes[path]]
        return require_units([Unit(path, i, size=sizes[path]) for i, path in enumerate(some)], files)

    def names(self, path: str) -> dict[str, str]:
        return {name: name for name in _OFFERED}

    def other_fields(self, path: str, names: list[str]) -> list[Any]:
        """Return the types of columns that are not AIS numbers."""
        special = {"t_recv": TIME, "vessel_name": KEY_TEXT}
        return [(name, special.get(name, _TYPES[name])) for name in names]

    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
        """Read messages and faults, block by block; with columns that say which are to be removed."""
        messages = Messages()
        layout = Layout(unit.path, (), ",", "latin-1", 0)
        blocks = (list(messages.read(block.data)) for block in read_blocks(unit, layout, _BLOCK_BYTES))
        for rows in chain(blocks, _last(messages)):
            if rows:
                yield _table(rows)

    def sift(self, table: pa.Table, sieve: Sieve) -> None:
        """Remove faults, and messages without a vessel's position."""
        for name in ("fault", "other"):
            why = table.column(name).combine_chunks()
            for reason in sorted(pc.unique(why.drop_null()).to_pylist()):
                sieve.remove(
                    pc.fill_null(pc.equal(why, reason), False).to_numpy(zero_copy_only=False), reason
                )
        sieve.beside = table.select(list(_WHERE))


def _last(messages: Messages) -> Iterator[list[Row]]:
    """Yield the messages left at the end of a file."""
    yield list(messages.finish())


def are_sentences(path: str) -> bool:
    """Check whether the first line of a file that is not empty is an AIS sentence."""
    with readable(path), open_bytes(path) as file:
        for _ in range(_FIRST_LINES):
            line = file.readline(_LONGEST)
            if line.strip():
                return SENTENCE.fullmatch(line.strip()) is not None
    return False


def _table(rows: list[Row]) -> pa.Table:
    columns = zip(Row._fields, zip(*rows, strict=True), strict=True)
    table = pa.table({name: pa.array(values, _TYPES[name]) for name, values in columns})
    for name in ("t", "t_recv"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(TIME))
    names = table.column("vessel_name").combine_chunks().dictionary_encode().cast(KEY_TEXT)
    return table.set_column(table.column_names.index("vessel_name"), "vessel_name", names)
