"""Read AIS stored as Parquet: any file with an MMSI, a time, a latitude and a longitude, under their usual names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pulse.core.errors import ColumnTypeError, unknown_column
from pulse.datasets.ais.common import NUMBERS, PROJECTED, AisFormat, snake
from pulse.datasets.errors import readable
from pulse.datasets.plain_parquet import (
    PARQUET_SUFFIXES,
    PlainParquet,
    open_parquet,
    read_row_group,
    row_groups,
)
from pulse.datasets.time_columns import TIME, check_time_unit, to_time
from pulse.datasets.units import Paths, Unit

_BATCH_ROWS = 1 << 16
USUAL = {
    "mmsi": ("mmsi", "vessel_id", "vessel", "id"),
    "t": ("t", "base_date_time", "timestamp", "time", "datetime", "date_time_utc"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "longitude", "long"),
}


@dataclass(frozen=True, kw_only=True)
class AisParquet(AisFormat):
    """Parquet with positions; see :mod:`pulse.datasets.ais.common` for the filters."""

    name = "ais-parquet"
    suffixes = PARQUET_SUFFIXES

    time_unit: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_time_unit(self.time_unit)

    def units(self, paths: Paths) -> list[Unit]:
        return row_groups(self.files(paths))

    def names(self, path: str) -> dict[str, str]:
        with open_parquet(path) as file, readable(path):
            columns = file.schema_arrow.names
        return usual_names(columns, path)

    def bytes_of(self, path: str, columns: Sequence[str]) -> int | None:
        return PlainParquet().bytes_of(path, self.sources_of(path, columns))

    def other_fields(self, path: str, names: list[str]) -> list[Any]:
        """Return the types as plain Parquet has them, except AIS numbers."""
        found, schema = self.names(path), PlainParquet().schema(path)
        return [(name, pa.float64() if name in NUMBERS else schema.field(found[name]).type) for name in names]

    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
        found = self.names(unit.path)
        row = 0
        for batch in read_row_group(unit, [found[name] for name in columns], _BATCH_ROWS):
            arrays = [self._converted(name, batch.column(i), unit, row) for i, name in enumerate(columns)]
            row += batch.num_rows
            yield pa.table(arrays, names=columns)

    def _converted(self, name: str, values: pa.Array, unit: Unit, row: int) -> pa.Array:
        if name == "t":
            return to_time(values, lambda i: f"{unit}, row {row + i}, column 't'", self.time_unit).cast(TIME)
        wanted = pa.int64() if name == "mmsi" else pa.float64() if name in NUMBERS else None
        if wanted is None or values.type == wanted:
            return values
        try:
            return values.cast(wanted)
        except pa.ArrowException as e:
            raise ColumnTypeError(
                f"{unit}, column '{name}': expected {wanted}, got {values.type} that does not convert ({str(e)[:120]})"
            ) from None


def are_positions(columns: Sequence[str]) -> bool:
    """Check whether columns are those of AIS: an MMSI, a time and a position in degrees, and no x and y of their own.

    >>> are_positions(["MMSI", "BaseDateTime", "LAT", "LON"]), are_positions(["id", "t", "lat", "lon"])
    (True, False)
    """
    found = {snake(name) for name in columns}
    named = all(found & set(USUAL[role]) for role in ("t", "lat", "lon"))
    return "mmsi" in found and named and not found & set(PROJECTED)


def usual_names(columns: list[str], path: str) -> dict[str, str]:
    """Map each offered name to the column of that meaning; other columns keep their names in small letters.

    >>> usual_names(["MMSI", "BaseDateTime", "LAT", "LON", "SOG"], "a.parquet")["t"]
    'BaseDateTime'
    """
    by_snake = {snake(name): name for name in reversed(columns)}
    found = {}
    for role, candidates in USUAL.items():
        source = next((by_snake[name] for name in candidates if name in by_snake), None)
        if source is None:
            raise unknown_column(role, columns, f"{path} (read as ais)")
        found[role] = source
    for name, source in by_snake.items():
        if source not in found.values() and name not in found and name not in ("x", "y"):
            found[name] = source
    return found
