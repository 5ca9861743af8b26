"""Read AIS of any kind: each file's header determines its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pyarrow as pa

from pulse.datasets.ais.common import AisFormat
from pulse.datasets.ais.parquet import AisParquet
from pulse.datasets.ais.text import AisDanish, AisMarineCadastre
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
        # Each option is validated by its own format.
        AisDanish(classes=self.classes, range_bytes=self.range_bytes)
        AisParquet(time_unit=self.time_unit)

    def of(self, path: str) -> AisFormat:
        """Return the format of one file."""
        parquet = path.lower().endswith(PARQUET_SUFFIXES)
        names = () if parquet else read_layout(path, ",", self.encoding).names
        kind: type[AisFormat] | None = AisParquet if parquet else ais_kind(names)
        if kind is None:
            raise DatasetError(
                f"{path}: expected the header of AIS data, 'MMSI,BaseDateTime,LAT,LON,…' or '# Timestamp,Type of mobile,MMSI,…', "
                f"got {', '.join(names)[:200]!r}; for other files use the format csv or parquet"
            )
        return kind(**{option.name: getattr(self, option.name) for option in fields(kind)})

    def units(self, paths: Paths) -> list[Unit]:
        units: list[Unit] = []
        for path in self.files(paths):
            units += [
                replace(unit, ordinal=len(units) + i) for i, unit in enumerate(self.of(path).units(path))
            ]
        return units

    def names(self, path: str) -> dict[str, str]:
        return self.of(path).names(path)

    def schema(self, path: str) -> pa.Schema:
        return self.of(path).schema(path)

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        return self.of(path).bytes_of(path, columns)

    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
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
