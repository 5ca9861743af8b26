"""The benchmarked questions answered in a few lines of Python, instant by instant: what every peer is held against."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near

START = 1_700_000_000 * SECOND  # a multiple of ten seconds
Ticks = list[tuple[str, int, float]]
Reports = list[tuple[int, int, float, float]]


def write_ticks(ticks: Ticks, path: Path) -> Path:
    symbol, t, price = zip(*ticks, strict=True)
    times = pa.array(t, pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"symbol": symbol, "t": times, "price": pa.array(price, pa.float64())}), path)
    return path


def write_vessels(reports: Reports, path: Path) -> Path:
    ids, t, x, y = zip(*reports, strict=True)
    times = pa.array(t, pa.int64()).cast(pa.timestamp("us"))
    places = {name: pa.array(values, pa.float64()) for name, values in (("x", x), ("y", y))}
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "t": times, **places}), path)
    return path


def steps(ticks: Ticks) -> dict[str, list[tuple[int, int, float]]]:
    """Per symbol: from when, until before when, at what price. The last holds for its instant."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for symbol in {one[0] for one in ticks}:
        mine = [(t, price) for name, t, price in ticks if name == symbol]
        ends = [t for t, _ in mine[1:]] + [mine[-1][0] + 1]
        found[symbol] = [(t, end, price) for (t, price), end in zip(mine, ends, strict=True) if end > t]
    return found


def instants(first: int, past: int, every: int) -> range:
    return range(-(-first // every) * every, past, every)


def price_at(held: list[tuple[int, int, float]], at: int) -> float:
    return next(price for begin, end, price in held if begin <= at < end)


def integral(held: list[tuple[int, int, float]], begin: int, end: int) -> float:
    return math.fsum(price * max(min(b, end) - max(a, begin), 0) for a, b, price in held)


def macd(ticks: Ticks, asked: Macd) -> dict[tuple[str, int], float]:
    found, unit = {}, SECOND
    for symbol, held in steps(ticks).items():
        for t in instants(held[0][0], held[-1][1], asked.advance * unit):
            if t - asked.long * unit >= held[0][0]:
                short, long = (
                    integral(held, t - n * unit, t) / (n * unit) for n in (asked.short, asked.long)
                )
                found[symbol, t] = short - long
    return found


def minimum(ticks: Ticks, asked: Minimum) -> dict[tuple[str, int], float]:
    found = {}
    for symbol, held in steps(ticks).items():
        for t in instants(held[0][0], held[-1][1] + 1, asked.advance * SECOND):
            begin = t - asked.size * SECOND
            if begin >= held[0][0]:
                found[symbol, t] = min(price for a, b, price in held if a < t and b > begin)
    return found


def above(ticks: Ticks, asked: Above) -> dict[tuple[str, int], float]:
    return {
        (symbol, t): price_at(held, t)
        for symbol, held in steps(ticks).items()
        for t in instants(held[0][0], held[-1][1], asked.every * SECOND)
        if price_at(held, t) > asked.level
    }


def place_at(reports: Reports, vessel: int, at: float, max_gap: int) -> tuple[float, float] | None:
    mine = [(t, x, y) for name, t, x, y in reports if name == vessel]
    found = None
    for (t, x, y), (t1, x1, y1) in itertools.pairwise(mine):
        # A line's end counts, unless another line begins there.
        if t < t1 <= t + max_gap * SECOND and t <= at <= t1:
            part = (at - t) / (t1 - t)
            found = x + (x1 - x) * part, y + (y1 - y) * part
    return found


def distance_at(reports: Reports, a: int, b: int, at: float, max_gap: int) -> float | None:
    one, other = (place_at(reports, vessel, at, max_gap) for vessel in (a, b))
    return None if one is None or other is None else math.hypot(one[0] - other[0], one[1] - other[1])


def _looked_at(reports: Reports, every: int) -> tuple[list[int], range]:
    times = [t for _, t, _, _ in reports]
    return sorted({one[0] for one in reports}), instants(min(times), max(times) + 1, every * SECOND)


def near(reports: Reports, asked: Near) -> set[tuple[int, int, int]]:
    vessels, times = _looked_at(reports, asked.every)
    return {
        (a, b, t)
        for a in vessels
        for b in vessels
        for t in times
        if a != b and (d := distance_at(reports, a, b, t, asked.max_gap)) is not None and d < asked.reach
    }


def following(reports: Reports, asked: Following) -> dict[tuple[int, int, int], float]:
    vessels, times = _looked_at(reports, asked.every)
    n, found = asked.size // asked.every, {}
    for a in vessels:
        for b in vessels:
            if a == b:
                continue
            distances = [distance_at(reports, a, b, t, asked.max_gap) for t in times]
            for i in range(n, len(distances)):
                window = distances[i - n : i + 1]
                known = [d for d in window if d is not None]
                if len(known) == n + 1:
                    mean = (math.fsum(known) - (known[0] + known[-1]) / 2) / n
                    if mean < asked.reach:
                        found[a, b, times[i]] = mean
    return found
