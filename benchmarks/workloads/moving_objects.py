"""Moving objects with a known number of tuples per segment (Pulse paper, V.A): the microbenchmarks' input, both ways.

An object wanders on an ellipse of its own, about a centre of its own. Where it is at every ``per_segment``-th of its tuples is
a knot; between knots it moves in straight lines, with a velocity that its tuples report. So the path, and with it what a query
selects, is nearly the same however many tuples a segment has, and the model is known without fitting::

    knots     o---------o---------o         x(t) = knot + vx (t - its instant)
    tuples    . . . . . . . . . . .         x(t) + noise, |noise| < err, and vx, vy

``per_segment`` need not be whole: 1.5 makes segments of one and of two tuples in turn. The bound is the paper's precision:
relative, 1 % of the true value. Positions are far from zero, and on a segment the smaller end decides. The truth is ``linear``
(semantics 2.2): noise is below the bounds of both segments where they meet, so the bound holds at every instant.

Tuples come at a steady rate over all objects, one object after the other, as a stream of many sources does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.benchmarks.recording import SEED
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.segment.coefficients import from_padded
from pulse.operators.data.relation import Relation

SECOND = 1_000_000
BEGIN = 1_136_073_600 * SECOND  # 2006-01-01, the month of the paper's own data
COLUMNS = Columns((("id", pa.int64()),), ("x", "y"))
FARTHEST, NEAREST = 3000.0, 1000.0  # metres: where objects may be, on either axis


class Tuples(NamedTuple):
    """Tuples in order of arrival: key, microseconds since the epoch, metres and metres a second."""

    id: IntArray
    t: IntArray
    x: FloatArray
    y: FloatArray
    vx: FloatArray
    vy: FloatArray

    def first(self, n: int) -> Tuples:
        """The ``n`` that came first."""
        return Tuples(self.id[:n], self.t[:n], self.x[:n], self.y[:n], self.vx[:n], self.vy[:n])

    def table(self) -> pa.Table:
        """The same columns, of Arrow; the time as a timestamp."""
        columns = dict(zip(self._fields, map(pa.array, self), strict=True))
        columns["t"] = columns["t"].view(pa.timestamp("us"))
        return pa.table(columns)


@dataclass(frozen=True)
class Objects:
    """``tuples`` tuples of ``objects`` objects that come at ``rate`` a second, ``per_segment`` of an object's to a segment.

    ``speed`` is the typical velocity in metres a second, ``noise`` the largest as a share of the bound: below a half, a model
    that starts from a noisy tuple still keeps the bound. ``stream`` distinguishes streams of one workload.
    """

    tuples: int
    per_segment: float
    objects: int = 10
    rate: float = 3000.0
    speed: float = 10.0
    precision: float = 0.01
    noise: float = 0.4
    stream: int = 0

    def __post_init__(self) -> None:
        if self.tuples < self.objects or self.per_segment < 1.0 or not 0.0 <= self.noise < 1.0:
            raise ValueError(
                f"expected a tuple or more per object and segment, and noise below the bound, got {self.tuples} of "
                f"{self.objects} objects, {self.per_segment} per segment, noise {self.noise}"
            )

    @property
    def seconds(self) -> float:
        """How long the stream is."""
        return self.tuples / self.rate

    # -- the same, as tuples and as segments ------------------------------------------------------------------

    @cached_property
    def stream_tuples(self) -> Tuples:
        """In order of arrival."""
        path, n, k = self._path, self.tuples, self.objects
        order = np.arange(n)
        place = order // k, order % k  # the tuple of its object, and the object
        return Tuples(
            (order % k).astype(np.int64),
            path.instants[order],
            *(np.ascontiguousarray(axis.seen[place]) for axis in path.axes),
            *(np.ascontiguousarray(axis.velocity[place]) for axis in path.axes),
        )

    @cached_property
    def segment_table(self) -> pa.Table:
        """As a stored model has them: by key and time."""
        path, k = self._path, self.objects
        ends = self._ends
        columns: dict[str, pa.Array] = {
            "id": pa.array(np.repeat(np.arange(k), len(path.first))),
            "ref": pa.array(path.instants_of(path.first).T.ravel()).view(pa.timestamp("us")),
            "lo": pa.array(np.zeros(k * len(path.first))),
            "hi": pa.array(((path.instants_of(ends) - path.instants_of(path.first)) / SECOND).T.ravel()),
        }
        for axis, name in zip(path.axes, "xy", strict=True):
            c = np.stack([axis.knots, axis.slope], axis=-1).transpose(1, 0, 2).reshape(-1, 2)
            columns[name] = from_padded(c)
            columns[f"{name}_err"] = pa.array(axis.err.T.ravel())
            columns[f"{name}_drift"] = pa.nulls(len(c), pa.float64())
        return pa.table(columns)

    @cached_property
    def relation(self) -> Relation:
        """What operators take."""
        return Relation.from_table(self.segment_table, COLUMNS)

    @property
    def segments(self) -> int:
        """Their number, of all objects."""
        return self.objects * len(self._path.first)

    @property
    def _ends(self) -> IntArray:
        """Per segment the tuple with which the next one begins; the last has an instant for itself after its last tuple."""
        return np.append(self._path.first[1:], self._path.tuples)

    @cached_property
    def _path(self) -> _Path:
        return _walk(self)


class _Axis(NamedTuple):
    """One coordinate: of tuples ``(tuples, k)``, of segments ``(segments, k)``."""

    seen: FloatArray
    velocity: FloatArray
    knots: FloatArray
    slope: FloatArray
    err: FloatArray


class _Path(NamedTuple):
    """Of so many ``tuples`` of each of ``k`` objects."""

    tuples: int
    instants: IntArray  # of all tuples in order of arrival, and one round more
    first: IntArray  # (segments,): the tuple with which a segment begins
    axes: tuple[_Axis, _Axis]

    def instants_of(self, which: IntArray) -> IntArray:
        """Of these tuples of every object: ``(len(which), k)``."""
        k = self.axes[0].seen.shape[1]
        return self.instants.reshape(-1, k)[which]


def _walk(asked: Objects) -> _Path:
    rng = np.random.default_rng([SEED, asked.stream])
    k = asked.objects
    tuples = -(-asked.tuples // k)
    instants = BEGIN + np.rint(np.arange((tuples + 1) * k) * (SECOND / asked.rate)).astype(np.int64)
    starts = begins(tuples, asked.per_segment)
    seconds = (instants.reshape(-1, k) - BEGIN) / SECOND
    width = rng.uniform(0.3, 0.5, (2, k)) * (FARTHEST - NEAREST)
    centre = rng.uniform(NEAREST + width, FARTHEST - width)
    turn = asked.speed / width.mean(axis=0) * rng.uniform(0.8, 1.25, (2, k))
    phase = rng.uniform(0.0, 2.0 * np.pi, (2, k))
    x, y = (
        _axis(asked, centre[a] + width[a] * np.sin(turn[a] * seconds + phase[a]), seconds, starts, rng)
        for a in range(2)
    )
    return _Path(tuples, instants, np.flatnonzero(starts), (x, y))


def _axis(
    asked: Objects, curve: FloatArray, seconds: FloatArray, starts: BoolArray, rng: np.random.Generator
) -> _Axis:
    """Straight lines between knots on a curve, and tuples beside them."""
    first, segment = np.flatnonzero(starts), np.cumsum(starts) - 1
    ends = np.append(first[1:], len(starts))
    knots, after = curve[first], curve[ends]
    slope = (after - knots) / (seconds[ends] - seconds[first])
    # The truth is at least the model less the bound, so a bound of p / (1 + p) of the model is p of the truth or less.
    err = asked.precision / (1.0 + asked.precision) * np.minimum(knots, after)
    least = np.minimum(err, np.concatenate([err[:1], err[:-1]]))  # where two segments meet, of both
    most = np.where(starts[:, None], least[segment], err[segment])
    noise = rng.uniform(-asked.noise, asked.noise, most.shape) * most
    model = knots[segment] + slope[segment] * (seconds[: len(starts)] - seconds[first][segment])
    return _Axis(model + noise, slope[segment], knots, slope, err)


def begins(count: int, per_segment: float) -> BoolArray:
    """Which of an object's tuples begin a segment: every ``per_segment``-th, rounded.

    >>> begins(6, 1.5).tolist()
    [True, False, True, True, False, True]
    """
    place = np.floor(np.arange(count + 1) / per_segment * (1.0 + 1e-12))
    starts: BoolArray = np.diff(np.concatenate(([-1.0], place[:-1]))) > 0.0
    return starts
