"""Read AIS of any kind: each file's header determines its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pulse.datasets.ais.common import AisFormat
from pulse.datasets.ais.danish import AisDanish
from pulse.datasets.ais.marinecadastre import AisMarineCadastre
from pulse.datasets.ais.parquet import AisParquet
from pulse.datasets.counts import Sieve
from pulse.datasets.errors import DatasetError
from pulse.datasets.format import TextFormat
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES
from pulse.datasets.text_blocks import check_encoding, read_layout
from pulse.datasets.units import RANGE_BYTES, Paths, Unit


@dataclass(frozen=True, kw_only=True)
class Ais(AisFormat):
    """MarineCadastre or Danish text, or Parquet with positions; one data set may mix them.

    The options are those of these formats: ``projection``, ``drop_no_position``; ``encoding``, ``range_bytes`` of text;
    ``classes`` of Danish files; ``time_unit`` of Parquet.
    """

    name = "ais"
    suffixes = (*TextFormat.suffixes, *PARQUET_SUFFIXES)

    encoding: str = "utf-8"
    range_bytes: int = RANGE_BYTES
    classes: tuple[str, ...] | None = ("Class A", "Class B")
    time_unit: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        AisDanish(
            classes=self.classes, range_bytes=self.range_bytes
        )  # each option is validated by its own format
        AisParquet(time_unit=self.time_unit)

    def of(self, path: str) -> AisFormat:
        """Return the format of one file."""
        common: dict[str, Any] = {
            "key": self.key,
            "time": self.time,
            "projection": self.projection,
            "drop_no_position": self.drop_no_position,
        }
        if path.lower().endswith(PARQUET_SUFFIXES):
            return AisParquet(**common, time_unit=self.time_unit)
        text: dict[str, Any] = {**common, "encoding": self.encoding, "range_bytes": self.range_bytes}
        names = read_layout(path, ",", self.encoding).names
        kind = ais_kind(names)
        if kind is AisDanish:
            return AisDanish(**text, classes=self.classes)
        if kind is AisMarineCadastre:
            return AisMarineCadastre(**text)
        raise DatasetError(
            f"{path}: expected the header of AIS data, 'MMSI,BaseDateTime,LAT,LON,…' or '# Timestamp,Type of mobile,MMSI,…', "
            f"got {', '.join(names)[:200]!r}; for other files use the format csv or parquet"
        )

    def units(self, paths: Paths) -> list[Unit]:
        """Return the units of each file, as its own format cuts it."""
        units: list[Unit] = []
        for path in self.files(paths):
            units += [
                replace(unit, ordinal=len(units) + i) for i, unit in enumerate(self.of(path).units(path))
            ]
        return units

    def names(self, path: str) -> dict[str, str]:
        """Return the column names in the file, by its own format."""
        return self.of(path).names(path)

    def schema(self, path: str) -> pa.Schema:
        """Return the schema, by the file's own format."""
        return self.of(path).schema(path)

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        """Return the size of the columns, by the file's own format."""
        return self.of(path).bytes_of(path, columns)

    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
        """Read the tables, by the file's own format."""
        return self.of(unit.path).tables(unit, columns)

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        return self.of(unit.path).sifted(unit, names)


def ais_kind(names: Sequence[str]) -> type[AisDanish] | type[AisMarineCadastre] | None:
    """Return the format that a header belongs to, if any.

    >>> ais_kind(["MMSI", "BaseDateTime", "LAT", "LON"]).name
    'ais-marinecadastre'
    """
    folded = {name.casefold() for name in names}
    if {"mmsi", "latitude", "longitude"} <= folded and folded & {"# timestamp", "timestamp"}:
        return AisDanish
    if {"mmsi"} <= folded and folded & {"basedatetime", "base_date_time"} and folded & {"lat", "latitude"}:
        return AisMarineCadastre
    return None
