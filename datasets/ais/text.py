"""Read AIS as text with a header; see :mod:`pulse.datasets.ais.common` for the filters.

US MarineCadastre: ``MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,…``; times ISO 8601, UTC.
Danish: ``# Timestamp,Type of mobile,MMSI,Latitude,Longitude,…``; times ``31/12/2015 23:59:59``, UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pulse.core.errors import unknown_column
from pulse.datasets.ais.common import PROJECTED, AisFormat, column_type, snake
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import layout_names, parse_block
from pulse.datasets.errors import UnknownFormatError
from pulse.datasets.format import TextFormat
from pulse.datasets.plain_csv import bytes_of_columns, place_in
from pulse.datasets.text_blocks import Layout
from pulse.datasets.time_columns import reject_nulls
from pulse.datasets.units import Unit


@dataclass(frozen=True, kw_only=True)
class AisText(AisFormat, TextFormat):
    """AIS as text with a header."""

    aliases: ClassVar[Mapping[str, str]]  # header name in small letters to offered name
    time_formats: ClassVar[tuple[str, ...]] = ()

    def names(self, path: str) -> dict[str, str]:
        return self._names(self.layout(path))

    def _names(self, layout: Layout) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in layout_names(layout):
            offered = self.aliases.get(name.casefold(), snake(name))
            if offered not in PROJECTED:
                found.setdefault(offered, name)
        for needed in ("mmsi", "t", "lat", "lon"):
            if needed not in found:
                usual = next(source for source, name in self.aliases.items() if name == needed)
                raise unknown_column(usual, layout.names, f"{layout.path} (read as {self.name})")
        return found

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        return bytes_of_columns(self.layout(path), self.sources_of(path, columns))

    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
        layout = self.layout(unit.path)
        found = self._names(layout)
        types = {found[name]: pa.timestamp("us") if name == "t" else column_type(name) for name in columns}
        for block in self.blocks(unit, layout):
            table = parse_block(block, layout, types, self.time_formats).rename_columns(columns)
            if "t" in columns:
                reject_nulls(table.column("t"), place_in(block, unit.path, found["t"]))
            yield table


@dataclass(frozen=True, kw_only=True)
class AisMarineCadastre(AisText):
    """MarineCadastre AIS. Files since 2025 name the same columns in small letters: ``mmsi,base_date_time,longitude,…``."""

    name = "ais-marinecadastre"
    aliases: ClassVar[Mapping[str, str]] = {
        "mmsi": "mmsi",
        "basedatetime": "t",
        "base_date_time": "t",
        "lat": "lat",
        "latitude": "lat",
        "lon": "lon",
        "longitude": "lon",
        "transceiverclass": "transceiver",
        "transceiver_class": "transceiver",
    }


@dataclass(frozen=True, kw_only=True)
class AisDanish(AisText):
    """Danish AIS. ``classes``: the values of "Type of mobile" to keep; None keeps all.

    Besides vessels there are base stations, buoys, aircraft. A latitude of 91 means no position.
    """

    name = "ais-danish"
    time_formats = ("%d/%m/%Y %H:%M:%S",)
    aliases: ClassVar[Mapping[str, str]] = {
        "# timestamp": "t",
        "timestamp": "t",
        "mmsi": "mmsi",
        "latitude": "lat",
        "longitude": "lon",
        "draught": "draft",
        "callsign": "call_sign",
        "name": "vessel_name",
    }

    classes: tuple[str, ...] | None = ("Class A", "Class B")

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.classes
        if given is not None:
            kinds = (given,) if isinstance(given, str) else tuple(given)
            if not all(isinstance(kind, str) for kind in kinds):
                raise UnknownFormatError(f"classes: expected texts such as 'Class A', or None, got {given!r}")
            object.__setattr__(self, "classes", kinds)

    def statements(self) -> list[str]:
        kept = [f"kept: type of mobile {', '.join(self.classes)}"] if self.classes is not None else []
        return super().statements() + kept

    def filtered_by(self) -> tuple[str, ...]:
        """Return the column of the sender's kind, unless all are kept."""
        return () if self.classes is None else ("type_of_mobile",)

    def sift(self, table: pa.Table, sieve: Sieve) -> None:
        if self.classes is None:
            return
        kinds = table.column("type_of_mobile").combine_chunks()
        known = [text.strip() in self.classes for text in kinds.dictionary.to_pylist()]
        kept = np.array([*known, False], dtype=np.bool_)
        sieve.remove(
            ~kept[kinds.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)],
            "not of the classes kept",
        )
