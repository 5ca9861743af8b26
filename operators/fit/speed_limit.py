"""Remove positions that cannot be reached at a speed before they are fitted: ``fit --max-speed``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.arrow_types import decoded
from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.counting_sort import group
from pulse.kernels.fit.speed_limit import NONE, unreachable
from pulse.operators.data.tuple_columns import encode_keys, times, values

UNITS = {"kn": 1852 / 3600, "m/s": 1.0, "km/h": 1 / 3.6}
_NAMES = {"kt": "kn", "kts": "kn", "knot": "kn", "knots": "kn", "mps": "m/s", "kmh": "km/h", "kph": "km/h"}
_SPEED = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z/]+)\s*")
_PAIRS = (("x", "y", False), ("lat", "lon", True), ("latitude", "longitude", True))


class SpeedError(PulseError, ValueError):
    """A speed that cannot be read, or a stream without positions to apply it to."""


@dataclass(frozen=True)
class SpeedLimit:
    """The largest speed of a key: its text, metres a second, and the attributes of positions."""

    text: str
    speed: float
    names: tuple[str, str]
    degrees: bool

    @classmethod
    def of(cls, text: str, schema: StreamSchema) -> SpeedLimit:
        """Parse a speed for the positions of a stream.

        >>> schema = StreamSchema.of(time="t", modelled={"x": "linear", "y": "linear"})
        >>> SpeedLimit.of("36 km/h", schema).speed
        10.0
        """
        match = _SPEED.fullmatch(str(text))
        unit = "" if match is None else _NAMES.get(match[2].lower(), match[2].lower())
        if match is None or unit not in UNITS or not float(match[1]) > 0:
            raise SpeedError(
                f"max_speed: expected a speed such as '60 kn', '30 m/s' or '110 km/h', got {text!r}"
            )
        for x, y, degrees in _PAIRS:
            if {x, y} <= {*schema.modelled_names}:
                speed = float(match[1]) * UNITS[unit]
                return cls(f"{match[1]} {unit}", speed, (x, y), degrees)
        raise SpeedError(
            "max_speed: expected positions to be modelled, x and y in metres or lat and lon in degrees, got "
            f"{', '.join(schema.modelled_names)}; model positions, or leave the speed out"
        )

    @property
    def reason(self) -> str:
        """Return why tuples are set aside."""
        return f"unreachable at {self.text}"

    def positions(self, tuples: pa.Table, schema: StreamSchema) -> pa.Table:
        """Return keys, times in microseconds, and positions as doubles."""
        own = _positions(schema, self.names)
        columns: dict[str, Any] = {
            name: decoded(tuples.column(name)).cast(type_) for name, type_ in schema.key
        }
        columns[schema.time] = pa.array(times(tuples, own)[0]).cast(pa.timestamp("us"))
        columns |= dict(zip(self.names, map(pa.array, values(tuples, own)), strict=True))
        return pa.table(columns)

    def removes(self, tuples: pa.Table, schema: StreamSchema, last: pa.Table | None = None) -> BoolArray:
        """Return which tuples to set aside, given all of their keys in order of arrival.

        ``last`` has a tuple of some keys, from which these continue.
        """
        before = 0 if last is None else last.num_rows
        both = self.positions(tuples, schema)
        if last is not None:
            both = pa.concat_tables([self.positions(last, schema), both])
        positions = _positions(schema, self.names)
        encoded = encode_keys(both, positions)
        at, xy = times(both, positions)[0], values(both, positions)
        last_time, where = np.full(len(encoded.keys), NONE, dtype=np.int64), np.zeros((2, len(encoded.keys)))
        held = encoded.codes[:before]
        last_time[held], where[:, held] = at[:before], xy[:, :before]
        order, offsets = group(encoded.codes[before:], len(encoded.keys))
        at, xy = at[before:], xy[:, before:]
        rows = np.arange(len(at)) if order is None else order
        # In the plane distances may be too long by its distortion.
        plane = schema.plane
        stretch = 1.0 if self.degrees or plane is None or plane.distortion > 1.0 else 1.0 + plane.distortion
        found = unreachable(
            at[rows],
            xy[:, rows],
            offsets,
            speed=self.speed * stretch,
            degrees=self.degrees,
            last_time=last_time,
            last=where,
        )
        removed = np.zeros(len(rows), dtype=np.bool_)
        removed[rows] = found
        return removed


def last_tuples(ends: pa.Table, schema: StreamSchema, parts: tuple[int, ...], part: str) -> pa.Table:
    """Return the newest tuple of each key from the ends that a fit wrote; ``parts`` are those that hold one."""
    some = ends.filter(pa.array(np.isin(ends.column(part).to_numpy(), parts)))
    batch = SegmentBatch.from_arrow(some.select(schema.arrow_schema().names), schema, check=False)
    at = some.column("ref").cast(pa.int64()).to_numpy() + np.rint(some.column("lo").to_numpy() * 1e6).astype(
        np.int64
    )
    columns: dict[str, Any] = {name: some.column(name) for name in schema.key_names}
    columns[schema.time] = pa.array(at).cast(pa.timestamp("us"))
    for name in schema.modelled_names:
        columns[name] = pa.array(np.ascontiguousarray(batch.coefficients(name)[:, 0]))
    return pa.table(columns)


def _positions(schema: StreamSchema, names: tuple[str, str]) -> StreamSchema:
    """Return the schema of positions alone."""
    return StreamSchema.of(key=dict(schema.key), time=schema.time, modelled=dict.fromkeys(names, "linear"))
