"""Generate temperatures of sensors: sensor, t, temp, with days and nights, weather, noise, a grid, silences, changes of unit.

Sensor i reports once in every ``every`` seconds, at an instant of its own, a little early or late. It measures::

    temp = mean + daily·cos(2π·(hour − 15)/24) + weather + air + noise      in °C, rounded to ``step``
           of i   of i                           of all    of i

The weather is common to all sensors: an AR(1) on a grid of hours with a memory of a day, linear in between. The air around a
sensor has a memory of ten minutes. Whole hours of a sensor may be silent (``dropouts``).

The share ``fahrenheit`` of the sensors is replaced by ones that report in Fahrenheit: the first after ``switch`` hours, then
one an hour. Such a change is an accent; :meth:`Sensors.accents` are the lines of the log that announces them, which the summary
and the file's metadata include.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.time import format_instant
from pulse.datasets.errors import DatasetError
from pulse.datasets.generators import knobs
from pulse.datasets.time_columns import TIME

_ROWS = 1 << 17  # approximate number of reports per piece: part of the sequence's definition
_HOUR, _DAY = 3600.0, 86_400.0
_HOUR_US = 3_600_000_000
_WARMEST = 15 * _HOUR  # seconds after midnight
_MEAN, _SPREAD = 12.0, 2.0  # °C: of all sensors, and from one to the next
_CLIMATES = 0.2  # share of ``daily`` by which sensors differ
_AIR, _AIR_SECONDS = 0.2, 600.0  # °C, standard deviation; its memory
_JITTER = 0.05  # of ``every``: the last part of it, within which a report comes early or late
_LEAST = 0.01  # seconds: times are whole milliseconds


@dataclass(frozen=True, kw_only=True)
class Sensors:
    """A generator of sensor temperatures.

    ``every``: seconds between reports of a sensor; ``daily``: half the range from night to day, °C; ``weather``: standard
    deviation over days, ``noise``: of each report; ``step``: of the grid that is reported, 0 for none; ``dropouts``: share of
    hours of silence; ``fahrenheit``: share of sensors that switch to Fahrenheit, one an hour from hour ``switch`` on.
    """

    kind: ClassVar[str] = "sensors"

    sensors: int = 100
    every: float = 60.0
    daily: float = 5.0
    weather: float = 3.0
    noise: float = 0.1
    step: float = 0.1
    dropouts: float = 0.01
    fahrenheit: float = 0.0
    switch: float = 12.0
    start: str = "2024-01-01"

    def __post_init__(self) -> None:
        knobs.count("sensors", self.sensors, most=32_000)
        knobs.positive("every", self.every)
        if self.every < _LEAST:
            raise DatasetError(f"every: expected at least {_LEAST} seconds, got {self.every!r}")
        for name in ("daily", "weather", "noise", "step", "switch"):
            knobs.not_negative(name, getattr(self, name))
        knobs.share("dropouts", self.dropouts)
        knobs.share("fahrenheit", self.fahrenheit)
        if self.dropouts == 1:
            raise DatasetError(
                "dropouts: if every hour is silent there are no rows; expected a share below 1"
            )
        knobs.start_microseconds(self.start)

    def schema(self) -> pa.Schema:
        """Return sensor, t, temp."""
        return pa.schema(
            [("sensor", pa.dictionary(pa.int16(), pa.string())), ("t", TIME), ("temp", pa.float64())]
        )

    def tables(self, seed: int) -> Iterator[pa.Table]:
        """Yield tables without end, sorted by t."""
        field, names = _Field(self, seed), pa.array(sensor_names(self.sensors))
        origin = knobs.start_microseconds(self.start)
        while True:
            who, t, temp = field.advance(max(1, _ROWS // self.sensors))
            if len(t):
                sensor = pa.DictionaryArray.from_arrays(who.astype(np.int16), names)
                yield pa.table(
                    [sensor, pa.array(origin + t).view(TIME), pa.array(temp)], schema=self.schema()
                )

    def accents(self, seed: int, until: int) -> list[str]:
        """Return the lines of the accent log: which sensors switch to Fahrenheit, and when, up to ``until`` (µs since 1970)."""
        names, origin = sensor_names(self.sensors), knobs.start_microseconds(self.start)
        at = origin + _switched(self, knobs.streams(seed, _STREAMS)[1])
        return [
            f"{format_instant(int(at[i]))} [[sensor = '{names[i]}', alter(temp, y * 9/5 + 32, (y - 32) * 5/9)]]"
            for i in np.argsort(at, kind="stable")
            if at[i] <= until and at[i] - origin < _NEVER
        ]


_STREAMS = 6
_NEVER = 1 << 62


def _switched(of: Sensors, rng: np.random.Generator) -> IntArray:
    """Return the microseconds after the start at which each sensor switches to Fahrenheit; ``_NEVER`` for those that do not."""
    many = round(of.fahrenheit * of.sensors)
    at = np.full(of.sensors, _NEVER)
    first = math.floor(of.switch * 3600) * 1_000_000
    at[rng.permutation(of.sensors)[:many]] = first + np.arange(many) * _HOUR_US
    return at


class _Field:
    """The state of the sensors, slot by slot of ``every`` seconds: when they report and what."""

    def __init__(self, of: Sensors, seed: int) -> None:
        self.of = of
        begin, swap, weather, self.stir, silent, self.report = knobs.streams(seed, _STREAMS)
        n = of.sensors
        self.mean = _MEAN + _SPREAD * begin.standard_normal(n)
        self.daily = of.daily * (1 + _CLIMATES * begin.uniform(-1, 1, n))
        self.phase = begin.random(n) * (1 - _JITTER)
        self.switched = _switched(of, swap)
        self.air = np.zeros(n)
        self.slot = 0
        self.grid = max(_HOUR, of.every)  # seconds: coarser where reports are rare, so that it stays small
        memory = math.exp(-self.grid / _DAY)
        spread = of.weather * math.sqrt(1 - memory**2)

        def front(rows: int, last: Any) -> FloatArray:
            fresh = weather.standard_normal((rows, 1)) * spread
            return knobs.autoregressive(fresh, memory, np.zeros(1) if last is None else last)

        self.weather = _Rows(front)
        self.silences = _Rows(lambda rows, _: silent.random((rows, n)) < of.dropouts)

    def advance(self, slots: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the reports of the next ``slots``, by time: sensor, microseconds after the start, temperature."""
        of, n = self.of, self.of.sensors
        within = self.phase + self.report.random((slots, n)) * _JITTER
        seconds = (np.arange(self.slot, self.slot + slots)[:, None] + within) * of.every
        t = np.floor(seconds * 1000).astype(np.int64) * 1000
        forgotten = of.every / _AIR_SECONDS
        stir = self.stir.standard_normal((slots, n)) * (_AIR * math.sqrt(-math.expm1(-2 * forgotten)))
        air = knobs.autoregressive(stir, math.exp(-forgotten), self.air)
        self.air = air[-1]
        self.slot += slots
        celsius = self._weather(t) + air + self.report.standard_normal((slots, n)) * of.noise
        hour = (t // int(self.grid * 1e6)).astype(np.int64)
        reported = ~self.silences.rows(int(hour.min()), int(hour.max()))[hour - hour.min(), np.arange(n)]
        who = np.broadcast_to(np.arange(n), reported.shape)[reported]
        t, temp = t[reported], self._reported(celsius, t)[reported]
        order = np.argsort(t, kind="stable")
        return who[order], t[order], temp[order]

    def _weather(self, t: IntArray) -> FloatArray:
        """Return the common weather and each sensor's daily course at these instants."""
        seconds = t / 1e6
        place = seconds / self.grid
        low = np.floor(place).astype(np.int64)
        first = int(low.min())
        front = self.weather.rows(first, int(low.max()) + 1)[:, 0]
        part = place - low
        felt = front[low - first] * (1 - part) + front[low - first + 1] * part
        midnight = knobs.start_microseconds(self.of.start) % int(_DAY * 1e6) / 1e6
        day = np.cos(2 * np.pi * (seconds + midnight - _WARMEST) / _DAY)
        course: FloatArray = self.mean + self.daily * day + felt
        return course

    def _reported(self, celsius: FloatArray, t: IntArray) -> FloatArray:
        """Convert to the unit of each sensor, on its grid."""
        temp = np.where(t >= self.switched, celsius * 1.8 + 32.0, celsius)
        # Rounded again, so that 21.7 is the nearest double, without accumulated rounding.
        return np.round(np.rint(temp / self.of.step) * self.of.step, 9) if self.of.step else temp


class _Rows:
    """Random rows, generated in order as needed and discarded once passed."""

    def __init__(self, made: Callable[[int, Any], Any]) -> None:
        self._made = made  # generates so many more rows after the last one
        self._held: Any = None
        self._first = 0

    def rows(self, low: int, high: int) -> Any:
        """Return rows ``low … high``; ``low`` never decreases."""
        held = self._made(high + 1, None) if self._held is None else self._held
        missing = high + 1 - self._first - len(held)
        if missing > 0:
            held = np.concatenate([held, self._made(missing, held[-1])])
        self._held, self._first = held[low - self._first :], low
        return self._held[: high - low + 1]


def sensor_names(number: int) -> list[str]:
    """Return names of equal width.

    >>> sensor_names(3)
    ['s000', 's001', 's002']
    """
    width = max(3, len(str(number - 1)))
    return [f"s{i:0{width}}" for i in range(number)]
