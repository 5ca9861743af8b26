"""Automatic Identification System: the common part of its formats.

Every format offers ``mmsi`` (key), ``t`` (UTC), ``x``, ``y`` in metres (:mod:`pulse.datasets.projection`), ``lat``, ``lon``,
and the file's other columns in small letters. Codes for "not available" become nulls: a speed of 102.3 knots, a course of 360,
a heading of 511. Rows without a possible position (latitude 91, longitude 181, beyond either, missing) or without an MMSI are
set aside and counted; ``drop_no_position=False`` keeps them, with x and y null.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.plane import Plane
from pulse.datasets.counts import Sieve
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import ProjectionError, UnknownFormatError
from pulse.datasets.format import Format, pick
from pulse.datasets.projection import Projection, choose, extent_of, given
from pulse.datasets.time_columns import TIME
from pulse.datasets.units import Paths, Unit

# Numeric columns, and the value from which on they mean "not available".
NUMBERS: Mapping[str, float] = {
    "lat": np.inf,
    "lon": np.inf,
    "sog": 102.25,
    "cog": 360.0,
    "heading": 511.0,
    "rot": np.inf,
    "length": np.inf,
    "width": np.inf,
    "draft": np.inf,
}
PROJECTED = ("x", "y")
SAMPLED_UNITS, SAMPLED_ROWS = 4, 1 << 19


@dataclass(frozen=True, kw_only=True)
class AisFormat(Format):
    """Positions of vessels. ``projection`` is chosen by :meth:`prepare`, or given as PROJ text or a Projection."""

    truths: ClassVar[Mapping[str, str]] = {"x": "linear", "y": "linear", "lat": "linear", "lon": "linear"}

    key: tuple[str, ...] = ("mmsi",)
    time: str | None = "t"
    projection: Projection | str | None = None
    drop_no_position: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.projection is None or isinstance(self.projection, (str, Projection))):
            raise UnknownFormatError(
                f"projection: expected PROJ text or a Projection, got {self.projection!r}"
            )

    def statements(self) -> list[str]:
        notes = ["t: UTC, without a zone"]
        if self.projection is not None:
            notes.append(f"x, y: metres, {self.projection}")
        notes.append("sog 102.3, cog 360, heading 511: not available, null")
        if self.drop_no_position:
            notes.append("removed: rows without a possible position, or without an MMSI")
        return notes

    def plane(self) -> Plane | None:
        return self.projection.plane() if isinstance(self.projection, Projection) else None

    def prepare(self, paths: Paths) -> AisFormat:
        """Choose the projection by the first file's extent (up to four samples of it), unless one was given."""
        if isinstance(self.projection, Projection):
            return self
        first = self.files(paths)[0]
        units = self.units(first)
        lat, lon = [], []
        for i in sorted({len(units) * j // SAMPLED_UNITS for j in range(SAMPLED_UNITS)}):
            seen = 0
            for batch in self.batches(units[i], ["lat", "lon"]):
                lat.append(batch.column(0).to_numpy(zero_copy_only=False))
                lon.append(batch.column(1).to_numpy(zero_copy_only=False))
                seen += batch.num_rows
                if seen >= SAMPLED_ROWS:
                    break
        if not lat:
            raise ProjectionError(
                f"{first}: no row has a position to choose a projection by; give projection="
            )
        lats, lons = np.concatenate(lat), np.concatenate(lon)
        known = np.isfinite(lats) & np.isfinite(lons)
        extent = extent_of(lats[known], lons[known])
        chosen = choose(extent) if self.projection is None else given(self.projection, extent)
        return replace(self, projection=chosen)

    @abstractmethod
    def names(self, path: str) -> dict[str, str]:
        """Map each offered column to its name in the file, including position, key and time."""

    @abstractmethod
    def tables(self, unit: Unit, columns: list[str]) -> Iterator[pa.Table]:
        """Read the unit's rows under the offered names, numbers as doubles, t as timestamp[us]."""

    def schema(self, path: str) -> pa.Schema:
        """Return position and motion first, then the file's other columns."""
        found = self.names(path)
        first = [name for name in ("mmsi", "t", "lat", "lon", "sog", "cog") if name in found]
        rest = [name for name in found if name not in first]
        fields = [(name, column_type(name)) for name in first]
        return pa.schema(
            [
                *fields[:2],
                *((name, pa.float64()) for name in PROJECTED),
                *fields[2:],
                *self.other_fields(path, rest),
            ]
        )

    def sources_of(self, path: str, columns: Sequence[str]) -> list[str]:
        """Return the columns of the file that the offered ones are read or computed from."""
        found = self.names(path)
        wanted = [name for name in columns if name not in PROJECTED]
        wanted += ["lat", "lon"] if any(name in PROJECTED for name in columns) else []
        return [found[name] for name in dict.fromkeys(wanted) if name in found]

    def other_fields(self, path: str, names: list[str]) -> list[Any]:
        """Return the types of columns that are not AIS numbers."""
        return [(name, column_type(name)) for name in names]

    def sifted(self, unit: Unit, names: list[str]) -> Iterator[tuple[pa.Table, Sieve]]:
        """Read the rows with a position, projected if x or y is requested."""
        pick(("mmsi", *self.filtered_by()), self.schema(unit.path), unit.path)
        projected = any(name in PROJECTED for name in names)
        if projected and not isinstance(self.projection, Projection):
            raise ProjectionError(
                f"{unit.path}: x and y need a projection; call prepare(paths) once, on the driver, first"
            )
        needed = [name for name in names if name not in PROJECTED]
        needed += [name for name in ("lat", "lon", "mmsi", *self.filtered_by()) if name not in needed]
        for table in self.tables(unit, needed):
            table = _without_codes(table)
            sieve = Sieve(table.num_rows)
            self.sift(table, sieve)
            lat, lon = (table.column(name).to_numpy() for name in ("lat", "lon"))
            with np.errstate(invalid="ignore"):
                possible = (np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0)
            if self.drop_no_position:
                sieve.remove(~possible, "no position")
                sieve.remove(pc.is_null(table.column("mmsi")).to_numpy(), "no MMSI")
            if projected:
                table = self._project(
                    table, np.where(possible, lat, np.nan), np.where(possible, lon, np.nan), sieve
                )
            yield table.select(names), sieve

    def filtered_by(self) -> tuple[str, ...]:
        """Return the columns that :meth:`sift` reads."""
        return ()

    def sift(self, table: pa.Table, sieve: Sieve) -> None:
        """Remove the rows that the format itself filters."""

    def _project(self, table: pa.Table, lat: Any, lon: Any, sieve: Sieve) -> pa.Table:
        assert isinstance(self.projection, Projection)
        x, y = self.projection.forward(lat, lon)
        lost = np.isfinite(lat) & ~(np.isfinite(x) & np.isfinite(y))
        sieve.remove(lost, "beyond the projection")
        missing = ~np.isfinite(x) | ~np.isfinite(y)
        for name, values in zip(PROJECTED, (x, y), strict=True):
            table = table.append_column(name, pa.array(values, mask=missing if missing.any() else None))
        kept = sieve.kept()
        sieve.remark(self.projection.outside(lat[kept], lon[kept]), "outside the projection's extent")
        return table


def column_type(name: str) -> pa.DataType:
    """Return the type of an offered column."""
    if name == "t":
        return TIME
    if name == "mmsi":
        return pa.int64()
    return pa.float64() if name in NUMBERS or name in PROJECTED else KEY_TEXT


def snake(name: str) -> str:
    """Convert a header's name to small letters and underscores.

    >>> snake("VesselName"), snake("Type of mobile"), snake("IMO")
    ('vessel_name', 'type_of_mobile', 'imo')
    """
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("# "))
    return re.sub(r"[^0-9a-z]+", "_", parts.lower()).strip("_") or name


def _without_codes(table: pa.Table) -> pa.Table:
    """Replace numbers that mean "not available" by nulls."""
    for i, name in enumerate(table.column_names):
        limit = NUMBERS.get(name, np.inf)
        if limit < np.inf:
            values = table.column(i)
            beyond = pc.fill_null(pc.greater_equal(values, limit), False)
            if pc.any(beyond).as_py():
                table = table.set_column(i, name, pc.if_else(beyond, pa.scalar(None, pa.float64()), values))
    return table
