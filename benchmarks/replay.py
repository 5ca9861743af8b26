"""A stream that is offered at a rate, without waiting for it: arrivals by the rate, service times measured (Pulse paper, V.C).

Tuple ``i`` arrives at ``i / rate`` on a clock that is only computed. One server looks at its queue every :data:`EVERY` seconds,
or at once where it is late, takes all that has arrived (at most :data:`MOST`), and really works on it; the clock then goes on by
the CPU time that took, on one core::

    arrivals   . . . . . . . . . . . . . . . . .
    looks      |         |         |              idle until the next look
    service     ███       ████      ███           a batch grows while the server is busy

So an hour of a slow stream takes no hour, and what an engine saves by working on many tuples at once it saves here too. A tuple's
latency lasts from its arrival until all that its batch led to is out. ``throughput`` is the smaller one of the offered rate and
of the capacity, which is the tuples over the CPU time that they took in the batches they came in: what a run of any length
would settle at, without what it takes to fill and to empty the queue. Above capacity the queue, and latency with it, grows as
long as the run: there latencies say only that.

The windows of queries are on the tuples' own times, which the rate of the replay does not change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pulse.benchmarks.recording import Accuracy, Timing, record
from pulse.core.arrays import FloatArray, IntArray

EVERY = 0.05
"""Seconds between looks at the queue, of all contenders: the latency that nobody pays for with one push a tuple."""
MOST = 1 << 16
"""Tuples that are taken at once, at most."""
AT_ONCE = math.inf
"""The rate of a stream all of which is there from the start: every batch is full, and capacity is what one core can do."""


@dataclass(frozen=True)
class Replayed:
    """Batch by batch: its tuples, the seconds that they took, and when they were done."""

    rate: float
    sizes: IntArray
    service: FloatArray
    done: FloatArray

    @property
    def tuples(self) -> int:
        """All of them."""
        return int(self.sizes.sum())

    @property
    def capacity(self) -> float:
        """Tuples a second of service."""
        return self.tuples / float(self.service.sum())

    @property
    def throughput(self) -> float:
        """Tuples a second that come out while tuples come in."""
        return min(self.rate, self.capacity)

    @property
    def sustained(self) -> bool:
        """Whether the queue does not grow without end."""
        return self.rate <= self.capacity

    @property
    def busy(self) -> float:
        """The share of the time until all was done that was service."""
        return float(self.service.sum() / self.done[-1])

    @property
    def latencies(self) -> FloatArray:
        """Of every tuple, in seconds."""
        waits: FloatArray = np.repeat(self.done, self.sizes) - np.arange(self.tuples) / self.rate
        return waits

    def facts(self) -> dict[str, str | float]:
        """For the row."""
        p50, p99 = np.percentile(self.latencies, [50, 99]) * 1e3
        return {
            "throughput, tuples/s": self.throughput,
            "sustained": "yes" if self.sustained else "no",
            "latency p50, ms": float(p50),
            "latency p99, ms": float(p99),
            "busy, %": 100.0 * self.busy,
            "tuples a batch": float(self.sizes.mean()),
        }


def simulate(
    serve: Callable[[int, int], float], tuples: int, rate: float, *, every: float = EVERY, most: int = MOST
) -> Replayed:
    """Run the queue; ``serve(begin, end)`` works on these tuples and gives the seconds that it took."""
    if tuples < 1 or not rate > 0 or not every > 0 or most < 1:
        raise ValueError(
            f"expected tuples, a rate, an interval and a batch above 0, got {tuples}, {rate}, {every}, {most}"
        )
    arrivals = np.arange(tuples) / rate
    sizes, service, done = [], [], []
    begin, look, now = 0, 1, every  # the number of the last look on time
    while begin < tuples:
        arrived = int(np.searchsorted(arrivals, now, side="right"))
        if arrived == begin:
            look = max(look + 1, math.ceil(arrivals[begin] / every))
            now = look * every
            continue
        end = min(arrived, begin + most)
        service.append(serve(begin, end))
        sizes.append(end - begin)
        done.append(now + service[-1])
        waiting, begin, now = arrived > end, end, done[-1]
        if not waiting and now < (look + 1) * every:
            look += 1
            now = look * every
        else:
            look = max(look, math.floor(now / every))
    return Replayed(rate, np.array(sizes), np.array(service), np.array(done))


class Engine(Protocol):
    """A query that is running; it has all tuples from the start, and is called when they come."""

    def push(self, begin: int, end: int) -> None:
        """Take the tuples ``begin:end`` of the workload, and answer."""


class Replays:
    """Engines on one workload of ``tuples``. The first ``warm`` of them are there before the clock starts, in one batch: windows
    are full by then. At a rate at most ``seconds`` of arrivals are replayed, and at least ``least`` tuples."""

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Engine]],
        tuples: int,
        *,
        warm: int = 0,
        seconds: float = math.inf,
        least: int = 1,
    ) -> None:
        if not 0 <= warm < tuples:
            raise ValueError(f"expected tuples after the {warm} first ones, got {tuples} in all")
        self.makers, self.tuples, self.warm = dict(makers), tuples, warm
        self.seconds, self.least = seconds, least

    def run(
        self, contender: str, rate: float, *, rounds: int = 1, most: int = MOST
    ) -> tuple[Timing, Replayed]:
        """So many replays: their times, with the last engine as result, and the queue of the one in the middle."""
        rest = self.tuples - self.warm
        count = int(min(rest, max(rate * self.seconds, self.least)))
        timing, found = Timing(), []
        for _ in range(rounds):
            engine = self.makers[contender]()
            if self.warm:
                engine.push(0, self.warm)
            wall = 0.0

            def serve(begin: int, end: int, engine: Engine = engine) -> float:
                nonlocal wall
                cpu, started = time.process_time(), time.perf_counter()
                engine.push(self.warm + begin, self.warm + end)
                wall += time.perf_counter() - started
                return time.process_time() - cpu

            found.append(simulate(serve, count, rate, most=most))
            timing.seconds.append(wall)
            timing.cpu.append(float(found[-1].service.sum()))
            timing.result = engine
        found.sort(key=lambda one: one.capacity)
        return timing, found[len(found) // 2]


def record_replay(
    benchmark: Any,
    replays: Replays,
    contender: str,
    rate: float,
    *,
    figure: str,
    accuracy: Accuracy,
    rounds: int,
    facts: Mapping[str, str | float],
) -> Engine:
    """A contender's row at a rate of the figure, or :data:`AT_ONCE`, which is the highest that it can sustain; its engine."""
    timing, queue = replays.run(contender, rate, rounds=rounds)
    fields: dict[str, Any] = {"contender": contender, "work": queue.tuples, "accuracy": accuracy}
    if rate == AT_ONCE:
        most: dict[str, str | float] = {"highest sustained, tuples/s": queue.capacity}
        record(benchmark, timing, group=f"{figure}, at capacity", facts={**most, **facts}, **fields)
    else:
        record(
            benchmark,
            timing,
            group=f"{figure}, {rate:,.0f} tuples/s offered",
            figure=figure,
            x=rate,
            x_label="tuples/s offered",
            facts={**queue.facts(), **facts},
            **fields,
        )
    engine: Engine = timing.result
    return engine
