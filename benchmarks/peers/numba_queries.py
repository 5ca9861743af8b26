"""The benchmarked queries written by hand over sorted tuples, compiled, on all cores: what no engine adds anything to.

::

    load       a counting sort of the file's columns by key; within a key they stay in order of time
    macd       one pass: the running integral at the instants of the grid, kept for the longer window's length
    sweep      the same integrals once, then all variants key by key, while a key's integrals are in the cache
    minimum    one pass: smallest value per pane, and a deque of panes ascending in value
    above      one pass
    near       where everybody is at an instant, in squares of the plane; each with those in the nine around it
    following  pairs that come near at all; their distances around the instants at which they do, summed as the window slides

Threads take keys, instants or pairs between them; the compiled code holds no lock. Answers are Arrow tables of the arrays as
they were written, a chunk a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.benchmarks.peers.compiled import compiled
from pulse.benchmarks.peers.numba_pairs import close_pairs, mean_distances, positions
from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near
from pulse.core.arrays import FloatArray, IntArray


class Sorted(NamedTuple):
    """Tuples by key and time: those of key ``g`` are rows ``begin[g]`` to ``begin[g + 1]``; ``keys`` names them."""

    keys: Any
    begin: IntArray
    t: IntArray
    values: tuple[FloatArray, ...]


@compiled
def _order(codes, keys):
    """Offsets of the keys' rows, and for each place the row that belongs there: stable."""
    begin = np.zeros(keys + 1, np.int64)
    for code in codes:
        begin[code + 1] += 1
    for g in range(keys):
        begin[g + 1] += begin[g]
    place = begin[:-1].copy()
    rows = np.empty(codes.shape[0], np.int64)
    for i in range(codes.shape[0]):
        rows[place[codes[i]]] = i
        place[codes[i]] += 1
    return begin, rows


@compiled
def _room(begin, t, first, last, grid):
    """At most so many instants of the grid lie in these keys' times."""
    room = 0
    for g in range(first, last):
        if begin[g + 1] > begin[g]:
            room += (t[begin[g + 1] - 1] - t[begin[g]]) // grid + 2
    return room


@compiled
def _macd(begin, t, price, first, last, grid, short, long, level):
    """``short`` and ``long`` in steps of the grid."""
    room = _room(begin, t, first, last, grid)
    keys, times, found = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room)
    size = 1
    while size <= long:
        size *= 2
    ring, mask, m = np.empty(size), size - 1, 0
    over_short, over_long = 1.0 / (short * grid), 1.0 / (long * grid)
    for g in range(first, last):
        cum, n = 0.0, 0
        at = -(-t[begin[g]] // grid) * grid if begin[g + 1] > begin[g] else 0
        for i in range(begin[g], begin[g + 1]):
            nxt = t[i + 1] if i + 1 < begin[g + 1] else t[i] + 1
            while at < nxt:
                area = cum + price[i] * (at - t[i])
                ring[n & mask] = area
                if n >= long:
                    diff = (area - ring[(n - short) & mask]) * over_short
                    diff -= (area - ring[(n - long) & mask]) * over_long
                    if diff > level:
                        keys[m], times[m], found[m] = g, at, diff
                        m += 1
                n += 1
                at += grid
            cum += price[i] * (nxt - t[i])
    return keys[:m], times[:m], found[:m]


@compiled
def _sweep(begin, t, price, first, last, grid, shorts, longs):
    """Per variant: how often the difference is above 0, its sum, the least and the greatest."""
    variants = shorts.shape[0]
    n, total = np.zeros(variants, np.int64), np.zeros(variants)
    low, high = np.full(variants, np.inf), np.full(variants, -np.inf)
    most = 0
    for g in range(first, last):
        most = max(most, _room(begin, t, g, g + 1, grid))
    area = np.empty(most)
    for g in range(first, last):
        cum, m = 0.0, 0
        at = -(-t[begin[g]] // grid) * grid if begin[g + 1] > begin[g] else 0
        for i in range(begin[g], begin[g + 1]):
            nxt = t[i + 1] if i + 1 < begin[g + 1] else t[i] + 1
            while at < nxt:
                area[m] = cum + price[i] * (at - t[i])
                m += 1
                at += grid
            cum += price[i] * (nxt - t[i])
        for v in range(variants):
            short, long = shorts[v], longs[v]
            a, b = 1.0 / (short * grid), 1.0 / (long * grid)
            count, added, least, most_so_far = 0, 0.0, np.inf, -np.inf
            for j in range(long, m):
                diff = (area[j] - area[j - short]) * a - (area[j] - area[j - long]) * b
                if diff > 0.0:
                    count += 1
                    added += diff
                    least, most_so_far = min(least, diff), max(most_so_far, diff)
            n[v] += count
            total[v] += added
            low[v], high[v] = min(low[v], least), max(high[v], most_so_far)
    return n, total, low, high


@compiled
def _minimum(begin, t, price, first, last, width, panes):
    room = _room(begin, t, first, last, width)
    keys, times, found = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room)
    size = 1
    while size <= panes:
        size *= 2
    number, lows, mask, m = np.empty(size, np.int64), np.empty(size), size - 1, 0
    for g in range(first, last):
        if begin[g] == begin[g + 1]:
            continue
        opens = t[begin[g]]
        whole = opens % width == 0  # else the first pane is one of which a part is not known
        end = (opens // width + 1) * width
        low, n, a, b = np.inf, 0, 0, 0
        for i in range(begin[g], begin[g + 1]):
            nxt = t[i + 1] if i + 1 < begin[g + 1] else t[i] + 1
            if nxt == t[i]:
                continue
            low = min(low, price[i])
            while end <= nxt:
                if whole:
                    while b > a and lows[(b - 1) & mask] >= low:
                        b -= 1
                    number[b & mask], lows[b & mask] = n, low
                    b += 1
                    n += 1
                    if number[a & mask] < n - panes:
                        a += 1
                    if n >= panes:
                        keys[m], times[m], found[m] = g, end, lows[a & mask]
                        m += 1
                whole = True
                low = price[i] if nxt > end else np.inf
                end += width
    return keys[:m], times[:m], found[:m]


@compiled
def _above(begin, t, price, first, last, grid, level):
    room = _room(begin, t, first, last, grid)
    keys, times, found = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room)
    m = 0
    for g in range(first, last):
        at = -(-t[begin[g]] // grid) * grid if begin[g + 1] > begin[g] else 0
        for i in range(begin[g], begin[g + 1]):
            nxt = t[i + 1] if i + 1 < begin[g + 1] else t[i] + 1
            value = price[i]
            while at < nxt:
                if value > level:
                    keys[m], times[m], found[m] = g, at, value
                    m += 1
                at += grid
    return keys[:m], times[:m], found[:m]


class NumbaTuples:
    """``ticks`` and ``vessels`` are Parquet files; with ``load`` they are read and sorted beforehand, else by each query."""

    def __init__(self, *, ticks: Path | None = None, vessels: Path | None = None, load: bool = True) -> None:
        self._files = {"symbol": (ticks, ("price",)), "id": (vessels, ("x", "y"))}
        self._kept = {
            key: _read(key, *source) for key, source in self._files.items() if load and source[0] is not None
        }
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown()

    def macd(self, asked: Macd) -> pa.Table:
        """Columns symbol, t, diff."""
        steps = (asked.advance * SECOND, asked.short // asked.advance, asked.long // asked.advance, 0.0)
        return self._ticks(_macd, *steps, value="diff")

    def minimum(self, asked: Minimum) -> pa.Table:
        """Columns symbol, t, low."""
        return self._ticks(_minimum, asked.advance * SECOND, asked.size // asked.advance, value="low")

    def above(self, asked: Above) -> pa.Table:
        """Columns symbol, t, price."""
        return self._ticks(_above, asked.every * SECOND, asked.level, value="price")

    def all_macds_figures(self, variants: list[Macd]) -> pa.Table:
        """Of each variant: short, long, how often it holds (n), and mean, least and greatest difference (mean, low, high)."""
        data, advance = self._sorted("symbol"), variants[0].advance
        shorts, longs = (
            np.array([getattr(v, name) // advance for v in variants], np.int64) for name in ("short", "long")
        )
        parts = self._parts(
            data.begin,
            lambda a, b: _sweep(data.begin, data.t, data.values[0], a, b, advance * SECOND, shorts, longs),
        )
        n, total, low, high = zip(*parts, strict=True)
        count = np.sum(n, axis=0)
        return pa.table(
            {
                "short": shorts * advance,
                "long": longs * advance,
                "n": count,
                "mean": np.sum(total, axis=0) / np.maximum(count, 1),
                "low": np.min(low, axis=0),
                "high": np.max(high, axis=0),
            }
        )

    def near(self, asked: Near) -> pa.Table:
        """Columns id1, id2, t."""
        data = self._sorted("id")
        _, found = self._close(data, asked.every, asked.max_gap, asked.reach)
        return _pair_table(data.keys, found, asked.every)

    def following(self, asked: Following) -> pa.Table:
        """Columns id1, id2, t, mean: trapezoids over the instants of the grid."""
        data = self._sorted("id")
        (first, x, y), met = self._close(data, asked.every, asked.max_gap, asked.reach)
        n, vessels, instants = asked.size // asked.every, x.shape[1], x.shape[0]
        codes = np.concatenate([(a * vessels + b) * instants + (k - first) for a, b, k in met])
        codes.sort()
        # A pair's instants go to one thread: rows are cut where pairs change.
        begin = np.append(np.flatnonzero(np.diff(codes // instants, prepend=-1)), len(codes))
        found = self._parts(
            begin,
            lambda a, b: mean_distances(codes[begin[a] : begin[b]], x, y, n, asked.reach),
        )
        shifted = [(a, b, k + first, mean) for a, b, k, mean in found]
        return _pair_table(data.keys, shifted, asked.every)

    def _close(self, data: Sorted, every: int, max_gap: int, reach: float) -> tuple[Any, list[Any]]:
        grid = every * SECOND
        first = int(-(-data.t.min(initial=1 << 62) // grid)) if len(data.t) else 0
        instants = max(int(data.t.max() // grid) - first + 1, 0) if len(data.t) else 0
        x, y = (np.full((instants, len(data.keys)), np.nan) for _ in range(2))
        self._parts(
            data.begin,
            lambda a, b: positions(
                data.begin, data.t, *data.values, (a, b), grid, max_gap * SECOND, first, x, y
            ),
        )
        met = self._parts(np.arange(instants + 1), lambda a, b: close_pairs(x[a:b], y[a:b], first + a, reach))
        return (first, x, y), met

    def _ticks(self, kernel: Any, *asked: Any, value: str) -> pa.Table:
        data = self._sorted("symbol")
        parts = self._parts(data.begin, lambda a, b: kernel(data.begin, data.t, *data.values, a, b, *asked))
        keys, times, values = (
            pa.chunked_array([pa.array(c) for c in column]) for column in zip(*parts, strict=True)
        )
        symbols = pa.chunked_array([pa.DictionaryArray.from_arrays(c, data.keys) for c in keys.chunks])
        return pa.table({"symbol": symbols, "t": times.cast(pa.timestamp("us")), value: values})

    def _sorted(self, key: str) -> Sorted:
        return self._kept[key] if key in self._kept else _read(key, *self._files[key])

    def _parts(self, begin: IntArray, work: Callable[[int, int], Any]) -> list[Any]:
        """What each thread finds in its share of the keys: of about as many rows as the others'."""
        threads, keys = os.cpu_count() or 1, len(begin) - 1
        cuts = np.searchsorted(begin, np.linspace(0, begin[-1], threads + 1)[1:-1])
        bounds = [0, *cuts.tolist(), keys]
        return list(self._threads.map(work, bounds[:-1], bounds[1:]))


def _read(key: str, file: Path | None, values: tuple[str, ...]) -> Sorted:
    if file is None:
        raise ValueError(f"expected a file with the column {key}, got none")
    text = [key] if key == "symbol" else None
    table = pq.read_table(file, columns=[key, "t", *values], read_dictionary=text).unify_dictionaries()
    column = table.column(key).combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    begin, rows = _order(column.indices.to_numpy(), len(column.dictionary))
    t = table.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()[rows]
    return Sorted(column.dictionary, begin, t, tuple(table.column(name).to_numpy()[rows] for name in values))


def _pair_table(ids: pa.Array, parts: list[Any], every: int) -> pa.Table:
    """Both ways round; ids as they are in the file."""
    names = ids.to_numpy()
    chunks: list[pa.Table] = []
    for a, b, k, *means in parts:
        t = pa.array(k * (every * SECOND)).cast(pa.timestamp("us"))
        more = {"mean": means[0]} if means else {}
        one, two = names[a], names[b]
        chunks += [pa.table({"id1": i, "id2": j, "t": t, **more}) for i, j in ((one, two), (two, one))]
    return pa.concat_tables(chunks)
