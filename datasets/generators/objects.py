"""Generate moving objects, the workload of the paper's section V-A: id, t, x, y, vx, vy, with its knobs.

Object i reports every ``objects / rate`` seconds, all in turn. Its velocity is constant for ``tuples_per_segment`` of its
reports, then changes: ``v' = √(1 − c²)·v + c·speed·N(0, 1)`` per axis, so that the distribution of speeds does not depend on
the ``change`` c. Positions are continuous: the truth is the line through the reports, and a linear model fits it without error,
unless ``noise`` (metres, standard deviation) is added to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray
from pulse.datasets.generators import knobs
from pulse.datasets.time_columns import TIME

_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Objects:
    """A generator of moving objects.

    ``rate``: tuples per second, all objects; ``speed``: metres per second and axis, the rate of change of positions;
    ``change``: the share of a velocity that is new after each segment; ``area``: side of the square they start in, metres.
    """

    kind: ClassVar[str] = "objects"

    objects: int = 100
    rate: float = 3000.0
    speed: float = 10.0
    change: float = 1.0
    tuples_per_segment: int = 100
    noise: float = 0.0
    area: float = 10_000.0
    start: str = "2024-01-01"

    def __post_init__(self) -> None:
        knobs.count("objects", self.objects)
        knobs.positive("rate", self.rate)
        knobs.not_negative("speed", self.speed)
        knobs.share("change", self.change)
        knobs.count("tuples_per_segment", self.tuples_per_segment, most=10**9)
        knobs.not_negative("noise", self.noise)
        knobs.positive("area", self.area)
        knobs.start_microseconds(self.start)

    def schema(self) -> pa.Schema:
        """Return id, t, x, y, vx, vy."""
        numbers = [(name, pa.float64()) for name in ("x", "y", "vx", "vy")]
        return pa.schema([("id", pa.int64()), ("t", TIME), *numbers])

    def tables(self, seed: int) -> Iterator[pa.Table]:
        """Yield tables without end, sorted by t."""
        begin, turn, shake = knobs.streams(seed, 3)
        origin = knobs.start_microseconds(self.start)
        path = _Path(self, begin, turn)
        row = 0
        while True:
            rows = np.arange(row, row + _ROWS)
            turns, who = np.divmod(rows, self.objects)
            # Computed from the row, so that times follow the schedule without accumulating rounding.
            t = origin + np.floor(rows * (1e6 / self.rate)).astype(np.int64)
            segment, within = np.divmod(turns, self.tuples_per_segment)
            position, velocity = path.segments(int(segment[0]), int(segment[-1]))
            at = (segment - segment[0], who)
            # Seconds since this object's first report of the segment, from the rounded times.
            first = origin + np.floor((rows - within * self.objects) * (1e6 / self.rate)).astype(np.int64)
            seconds = (t - first) / 1e6
            columns = [pa.array(who), pa.array(t).view(TIME)]
            for axis in (0, 1):
                place = position[:, axis][at] + velocity[:, axis][at] * seconds
                if self.noise:
                    place += shake.standard_normal(_ROWS) * self.noise
                columns.append(pa.array(place))
            columns += [pa.array(velocity[:, axis][at]) for axis in (0, 1)]
            yield pa.table(columns, schema=self.schema())
            row += _ROWS


class _Path:
    """Position and velocity of each object at the beginning of each segment; computed in order, as needed."""

    def __init__(self, of: Objects, begin: np.random.Generator, turn: np.random.Generator) -> None:
        self.of, self.turn = of, turn
        place = begin.random((2, of.objects)) * of.area
        self.position = place[None]
        self.velocity = (begin.standard_normal((2, of.objects)) * of.speed)[None]
        self.first = 0  # the segment of row 0 of the arrays

    def segments(self, low: int, high: int) -> tuple[FloatArray, FloatArray]:
        """Return positions and velocities of segments ``low … high``, shape (segments, 2, objects)."""
        made = self.first + len(self.position)
        if high >= made:
            self._extend(made, high + 1)
        self.position = self.position[low - self.first :]
        self.velocity = self.velocity[low - self.first :]
        self.first = low
        return self.position, self.velocity

    def _extend(self, made: int, until: int) -> None:
        keep = math.sqrt(1 - self.of.change**2)
        fresh = self.turn.standard_normal((until - made, 2, self.of.objects)) * (
            self.of.change * self.of.speed
        )
        velocity = knobs.autoregressive(fresh, keep, self.velocity[-1])
        before = np.concatenate([self.velocity[-1:], velocity[:-1]])
        lasting = self._lasting(np.arange(made - 1, until - 1))
        position = self.position[-1] + np.cumsum(before * lasting, axis=0)
        self.position = np.concatenate([self.position, position])
        self.velocity = np.concatenate([self.velocity, velocity])

    def _lasting(self, segment: np.ndarray) -> FloatArray:
        """Return the seconds from each object's first report in a segment to its first in the next, from the rounded times."""
        rows = segment[:, None] * self.of.tuples_per_segment * self.of.objects + np.arange(self.of.objects)
        step = 1e6 / self.of.rate
        length = self.of.tuples_per_segment * self.of.objects
        seconds = (np.floor((rows + length) * step) - np.floor(rows * step)) / 1e6
        return np.asarray(seconds[:, None, :])
