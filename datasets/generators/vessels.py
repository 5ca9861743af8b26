"""Generate vessels that report like AIS: id, t, x, y (metres), sog (knots), cog (degrees), with turns, gaps and followers.

Time runs in steps of 10 s, on which courses and speeds change; between them vessels go straight. Every ten minutes a vessel may
turn, weigh or drop anchor. It reports every 10 s, 6 s above 14 knots, 2 s above 23 knots, 3 min at anchor, as class A does,
each report a little late. Whole ten minutes may be missing (``gaps``).

Each of the ``followers`` sails a few hundred metres behind its leader for some hours, in its wake: where the leader was a short
while ago. Then it swings out to some kilometres' distance for some hours, and comes back::

    away       ________
              /        \\                   period: follow + out + apart + in
    wake ____/          \\____ …

The times of following are known exactly, and recorded (:class:`Following`); the summary and the file's metadata include them.

With ``late``, rows are in the order of their arrival (``t_recv``): by radio about a second after they were sent, the share
``late`` of them by relay, half a minute to five minutes after. The sent reports stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.datasets.errors import DatasetError
from pulse.datasets.generators import knobs
from pulse.datasets.time_columns import TIME

STEP, SLAB = 10, 600  # seconds
_STEPS = SLAB // STEP
_ROWS = 1 << 16  # approximate number of reports per piece
_KNOT = 1852 / 3600
_LEAST_SPEED, _MOST_SPEED = 3.0, 13.0  # metres per second, under way
_TURN = 0.15  # degrees per second, standard deviation, while turning
_SWING = 1800.0  # seconds from the wake to full distance
_AWAY = 5000.0  # metres
_MOST_LAG = 6  # steps
# Seconds from sending to arrival. Reports of a vessel are more than a second apart, so those by radio keep their order.
_RADIO, _RELAY = (0.2, 1.2), (30.0, 300.0)
_STREAMS = 6
FIRST_ID = 200_000_000


class Following(NamedTuple):
    """A period from ``start`` to ``end`` (µs since 1970) in which ``follower`` stays within ``distance`` metres of ``leader``."""

    leader: int
    follower: int
    start: int
    end: int
    distance: float


@dataclass(frozen=True, kw_only=True)
class Vessels:
    """A generator of vessels.

    ``vessels``, ``followers`` among them; ``noise``: of positions, metres; ``turns``: share of ten-minute spans with a turn;
    ``anchored``: share at anchor; ``gaps``: share of missing spans; ``late``: share of reports that arrive late, for which rows
    are in order of arrival; ``area``: side of the square at the start.
    """

    kind: ClassVar[str] = "vessels"

    vessels: int = 1000
    followers: int = 20
    noise: float = 5.0
    turns: float = 0.3
    anchored: float = 0.3
    gaps: float = 0.02
    late: float = 0.0
    area: float = 200_000.0
    start: str = "2024-01-01"

    def __post_init__(self) -> None:
        knobs.count("vessels", self.vessels)
        knobs.count("followers", self.followers, least=0)
        if 2 * self.followers > self.vessels:
            raise DatasetError(
                f"followers: {self.followers} need as many leaders, but there are {self.vessels} vessels"
            )
        knobs.not_negative("noise", self.noise)
        for name in ("turns", "anchored", "gaps", "late"):
            knobs.share(name, getattr(self, name))
        if self.gaps == 1 or (self.anchored == 1 and self.vessels == 2 * self.followers):
            raise DatasetError("gaps: if every span is missing there are no rows; expected a share below 1")
        knobs.positive("area", self.area)
        knobs.start_microseconds(self.start)

    def schema(self) -> pa.Schema:
        """Return id, t, x, y, sog, cog, and with late reports t_recv."""
        numbers = [(name, pa.float64()) for name in ("x", "y", "sog", "cog")]
        arrival = [("t_recv", TIME)] if self.late else []
        return pa.schema([("id", pa.int64()), ("t", TIME), *numbers, *arrival])

    def tables(self, seed: int) -> Iterator[pa.Table]:
        """Yield tables without end, sorted by t, or by t_recv."""
        fleet = _Fleet(self, seed)
        arrivals = _Arrivals(self, seed) if self.late else None
        slabs = max(1, min(36, _ROWS // (_STEPS * self.vessels)))
        while True:
            reports = fleet.advance(slabs)
            if arrivals is not None:
                reports = arrivals.until(fleet.seconds * 1_000_000, reports)
            if len(reports["t"]):
                yield self._table(reports)

    def following(self, seed: int, until: int) -> list[Following]:
        """Return who follows whom, and when, up to ``until`` (µs since 1970)."""
        if self.followers == 0:
            return []
        return _Fleet(self, seed).wakes.following(knobs.start_microseconds(self.start), until)

    def _table(self, reports: dict[str, Any]) -> pa.Table:
        t = knobs.start_microseconds(self.start) + reports["t"]
        columns = [pa.array(reports["who"] + FIRST_ID), pa.array(t).view(TIME)]
        columns += [pa.array(reports[name]) for name in ("x", "y", "sog", "cog")]
        if self.late:
            columns.append(pa.array(knobs.start_microseconds(self.start) + reports["t_recv"]).view(TIME))
        return pa.table(columns, schema=self.schema())


class _Wakes:
    """The followers' schedules. Leaders are vessels 0 … f−1, followers f … 2f−1."""

    def __init__(self, of: Vessels, rng: np.random.Generator) -> None:
        n = of.followers
        self.leader = np.arange(n)
        self.lag = rng.integers(3, _MOST_LAG + 1, n)  # steps behind
        self.aside = rng.uniform(-50.0, 50.0, (2, n))
        heading = rng.uniform(0, 2 * np.pi, n)
        self.away = _AWAY * np.stack([np.cos(heading), np.sin(heading)])
        hours = rng.uniform(2.0, 5.0, (2, n)) * 3600.0
        self.follow, self.apart = np.ceil(hours / STEP) * STEP
        self.phase = np.floor(rng.random(n) * self.follow / STEP) * STEP  # all begin while following
        self.period = self.follow + self.apart + 2 * _SWING

    def offset(self, seconds: FloatArray) -> FloatArray:
        """Return the metres from the wake at each step, shape (steps, 2, followers)."""
        within = (seconds[:, None] + self.phase) % self.period
        out = np.clip((within - self.follow) / _SWING, 0.0, 1.0)
        back = np.clip((self.period - within) / _SWING, 0.0, 1.0)
        swing = np.minimum(out, back)
        offset: FloatArray = self.aside + swing[:, None, :] * self.away
        return offset

    def following(self, start: int, until: int) -> list[Following]:
        """Return their spans in the wake, by follower and time; the distance is that of the longest path within the lag."""
        found = []
        for i in range(len(self.leader)):
            reach = float(np.hypot(*self.aside[:, i]) + (self.lag[i] * STEP) * _MOST_SPEED)
            begin = -float(self.phase[i])
            while start + begin * 1e6 < until:
                low, high = start + int(max(begin, 0.0) * 1e6), start + int((begin + self.follow[i]) * 1e6)
                pair = (FIRST_ID + i, FIRST_ID + len(self.leader) + i)
                if min(high, until) > low:
                    found.append(Following(*pair, low, min(high, until), reach))
                begin += float(self.period[i])
        return found


class _Arrivals:
    """Reports in transit: each arrives by radio or by relay, and is emitted at its arrival."""

    def __init__(self, of: Vessels, seed: int) -> None:
        self.of = of
        self.relay = knobs.streams(seed, _STREAMS)[-1]
        self.waiting: dict[str, Any] = {}

    def until(self, end: int, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the arrivals before ``end`` (µs), in order; ``sent`` are all reports sent since the last call."""
        n = len(sent["t"])
        chance = self.relay.random((3, n))
        radio = _RADIO[0] + chance[1] * (_RADIO[1] - _RADIO[0])
        relayed = _RELAY[0] + chance[2] * (_RELAY[1] - _RELAY[0])
        delay = np.where(chance[0] < self.of.late, relayed, radio)
        sent = {**sent, "t_recv": sent["t"] + np.floor(delay * 1000).astype(np.int64) * 1000}
        if self.waiting:
            sent = {name: np.concatenate([self.waiting[name], values]) for name, values in sent.items()}
        order = np.argsort(sent["t_recv"], kind="stable")
        there = np.searchsorted(sent["t_recv"][order], end)
        self.waiting = {name: values[order[there:]] for name, values in sent.items()}
        return {name: values[order[:there]] for name, values in sent.items()}


class _Fleet:
    """The positions and reports of all vessels, step by step."""

    def __init__(self, of: Vessels, seed: int) -> None:
        self.of = of
        begin, wake, self.move, self.report, self.shake, _ = knobs.streams(seed, _STREAMS)
        self.wakes = _Wakes(of, wake)
        n = of.vessels
        self.course = begin.uniform(0, 2 * np.pi, n)  # radians, clockwise from north
        self.speed = begin.uniform(_LEAST_SPEED, _MOST_SPEED, n)
        self.idle = (begin.random(n) < of.anchored) & (np.arange(n) >= 2 * of.followers)
        self.place = begin.random((2, n)) * of.area
        self.seconds = 0
        self.due = begin.random(n) * 10.0  # seconds of the next report
        # The leaders' positions of the last steps: before the beginning they came straight.
        back = -STEP * np.arange(_MOST_LAG, 0, -1)
        velocity = self.speed * np.stack([np.sin(self.course), np.cos(self.course)])
        self.history = (self.place + back[:, None, None] * velocity)[:, :, : of.followers]

    def advance(self, slabs: int) -> dict[str, Any]:
        """Return the reports of the next ``slabs`` ten minutes, sorted by time."""
        track, idle, speed = self._sail(slabs)
        seen = self._report(track, idle, speed)
        self.seconds += slabs * SLAB
        return seen

    def _sail(self, slabs: int) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Return positions at every step, the first and the last included; anchored or not, and speed, per slab."""
        n, of = self.of.vessels, self.of
        draws = self.move.random((slabs, 3, n))
        moods = self.move.standard_normal((slabs, 2, n))
        idle, speed = np.empty((slabs, n), np.bool_), np.empty((slabs, n))
        # A vessel's state is redrawn now and then, so that the share at anchor stays constant.
        fixed = np.arange(n) < 2 * of.followers
        for i in range(slabs):
            redraw = (draws[i, 0] < 0.05) & ~fixed
            self.idle = np.where(redraw, draws[i, 0] < 0.05 * of.anchored, self.idle)
            self.speed = np.clip(self.speed + 0.5 * moods[i, 0], _LEAST_SPEED, _MOST_SPEED)
            idle[i], speed[i] = self.idle, np.where(self.idle, 0.0, self.speed)
        turning = np.where(draws[:, 1] < of.turns, moods[:, 1] * np.radians(_TURN) * STEP, 0.0)
        rates = np.repeat(turning, _STEPS, axis=0)
        course = self.course + np.cumsum(rates, axis=0)
        self.course = course[-1] % (2 * np.pi)
        going = np.repeat(speed, _STEPS, axis=0) * STEP
        moves = np.stack([np.sin(course) * going, np.cos(course) * going], axis=1)
        track = np.concatenate([self.place[None], self.place + np.cumsum(moves, axis=0)])
        self.place = track[-1].copy()
        if of.followers:
            self._follow(track)
            speed[:, of.followers : 2 * of.followers] = speed[:, : of.followers]
        return track, idle, speed

    def _follow(self, track: FloatArray) -> None:
        """Put the followers into their leaders' wakes, or off them."""
        f, steps = self.of.followers, len(track)
        lead = np.concatenate([self.history, track[:, :, :f]])
        at = np.arange(steps)[:, None] + _MOST_LAG - self.wakes.lag
        seconds = self.seconds + STEP * np.arange(steps, dtype=np.float64)
        wake = lead[at[:, None, :], np.arange(2)[None, :, None], np.arange(f)[None, None, :]]
        track[:, :, f : 2 * f] = wake + self.wakes.offset(seconds)
        self.history = lead[-_MOST_LAG - 1 : -1].copy()

    def _report(self, track: FloatArray, idle: np.ndarray, speed: FloatArray) -> dict[str, Any]:
        slabs, n = idle.shape
        who, when = [], []
        for i in range(slabs):
            end = self.seconds + (i + 1) * SLAB
            knots = speed[i] / _KNOT
            interval = np.where(idle[i], 180.0, np.where(knots > 23, 2.0, np.where(knots > 14, 6.0, 10.0)))
            number = np.maximum(np.ceil((end - self.due) / interval), 0).astype(np.int64)
            vessel = np.repeat(np.arange(n), number)
            nth = np.arange(len(vessel)) - np.repeat(np.cumsum(number) - number, number)
            seconds = self.due[vessel] + nth * interval[vessel]
            self.due = self.due + number * interval
            received = np.repeat(self.report.random(n) >= self.of.gaps, number)
            who.append(vessel[received])
            when.append(seconds[received])
        vessel, due = np.concatenate(who), np.concatenate(when)
        late = (
            self.report.random(len(due)) * 0.9
        )  # less than half the shortest interval: keeps the order per vessel
        elapsed = np.minimum(due + late - self.seconds, slabs * SLAB - 1e-3)
        return self._observe(track, vessel, elapsed)

    def _observe(self, track: FloatArray, vessel: IntArray, elapsed: FloatArray) -> dict[str, Any]:
        """Return the observations in order of time: between steps vessels go straight. Times are whole milliseconds."""
        t = np.floor(elapsed * 1000).astype(np.int64) * 1000
        order = np.argsort(t, kind="stable")
        t, vessel = t[order], vessel[order]
        step = t // (STEP * 1_000_000)
        within = (t - step * (STEP * 1_000_000)) / 1e6
        at = step * self.of.vessels + vessel
        velocity = np.diff(track, axis=0) / STEP
        east, north = (np.ascontiguousarray(velocity[:, axis]).ravel() for axis in (0, 1))
        cog = np.round(np.degrees(np.arctan2(east, north)) % 360.0, 1)
        seen = {"t": t + self.seconds * 1_000_000, "who": vessel}
        for axis, (name, speed) in enumerate((("x", east), ("y", north))):
            place = np.ascontiguousarray(track[:-1, axis]).ravel()[at] + speed[at] * within
            if self.of.noise:
                place += self.shake.standard_normal(len(place)) * self.of.noise
            seen[name] = place
        seen["sog"] = np.round(np.hypot(east, north) / _KNOT, 1)[at]
        seen["cog"] = np.where(cog < 360.0, cog, 0.0)[at]
        return seen
