"""pandas on the tuples: whole columns at a time, in frames that are sorted by key and time.

The formulation is that of :mod:`pulse.benchmarks.peers.duckdb_peer`: integrals at the grid's instants, and their differences.
In a frame sorted by key and time ``shift`` needs no groups, only a look at whether the key is the same. An instant's step is
found by counting instants per step (``repeat``): ``merge_asof`` alone takes as long, and wants and gives rows by time; a window's
smallest pane by ``rolling`` over all keys in a row, of which windows that reach into another key are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near

_HALF = ((0, 0), (0, 1), (1, -1), (1, 0), (1, 1))


class Pandas:
    """``ticks`` and ``vessels`` are Parquet files; with ``load`` they are read and sorted beforehand."""

    def __init__(self, *, ticks: Path | None = None, vessels: Path | None = None, load: bool) -> None:
        self._files = {"symbol": (ticks, ("price",)), "id": (vessels, ("x", "y"))}
        self._kept = {
            key: _read(key, *source) for key, source in self._files.items() if load and source[0] is not None
        }

    def macd(self, asked: Macd) -> pa.Table:
        """Columns symbol, t, diff."""
        short, long = asked.short // asked.advance, asked.long // asked.advance
        found = self._macd(self._integrals(asked.advance), asked, short, long)
        return self._table(found, asked.advance, "diff")

    def _macd(self, grid: Any, asked: Macd, short: int, long: int) -> Any:
        area = grid["area"]
        diff = (area - area.shift(short)) / (asked.short * SECOND) - (area - area.shift(long)) / (
            asked.long * SECOND
        )
        kept = (grid["symbol"].shift(long) == grid["symbol"]) & (diff > 0)
        return grid.loc[kept, ["symbol", "k"]].assign(diff=diff[kept])

    def all_macds_figures(self, variants: list[Macd]) -> pa.Table:
        """Of each variant: short, long, how often it holds (n), and mean, least and greatest difference; integrals are shared."""
        advance = variants[0].advance
        grid = self._integrals(advance)
        rows = []
        for v in variants:
            diff = self._macd(grid, v, v.short // advance, v.long // advance)["diff"]
            rows.append((v.short, v.long, len(diff), diff.mean(), diff.min(), diff.max()))
        return pa.table(
            dict(zip(("short", "long", "n", "mean", "low", "high"), zip(*rows, strict=True), strict=True))
        )

    def minimum(self, asked: Minimum) -> pa.Table:
        """Columns symbol, t, low."""
        width, panes = asked.advance * SECOND, asked.size // asked.advance
        steps = self._steps()
        steps = steps[steps["nxt"] > steps["t"]]
        steps = steps.assign(pane=steps["t"] // width)
        opens = (steps["symbol"] != steps["symbol"].shift()) | (steps["pane"] != steps["pane"].shift())
        at = np.flatnonzero(opens)
        ends = np.append(at[1:], len(steps)) - 1
        touched = steps.iloc[at][["symbol", "pane", "t"]].reset_index(drop=True)
        prices, nxt = steps["price"].to_numpy(), steps["nxt"].to_numpy()
        touched["low"] = np.minimum.reduceat(prices, at) if len(at) else prices
        touched["price"], touched["nxt"] = prices[ends], nxt[ends]
        first = touched["symbol"] != touched["symbol"].shift()
        before = touched["price"].shift().where(~first & (touched["t"] > touched["pane"] * width))
        touched["low"] = np.fmin(touched["low"], before)
        touched["first"] = first
        last = np.maximum((touched["nxt"] - 1) // width, touched["pane"])
        dense = _repeated(touched, touched["pane"], last + 1)
        here = dense["k"] == dense["pane"]
        whole = ~here | ~dense["first"] | (dense["t"] == dense["pane"] * width)
        whole &= (dense["k"] + 1) * width <= dense["nxt"]
        low = dense["low"].where(here, dense["price"])[whole]
        full = dense.loc[whole, ["symbol", "k"]].assign(low=low.rolling(panes).min())
        kept = full["symbol"].shift(panes - 1) == full["symbol"]
        return self._table(full[kept].assign(k=full["k"] + 1), asked.advance, "low")

    def above(self, asked: Above) -> pa.Table:
        """Columns symbol, t, price."""
        steps = self._steps()
        return self._table(_at_grid(steps[steps["price"] > asked.level], asked.every), asked.every, "price")

    def near(self, asked: Near) -> pa.Table:
        """Columns id1, id2, t."""
        pairs = _pairs(self._places(asked.every, asked.max_gap), asked.reach)
        return _both_ways(pairs, asked.every)

    def following(self, asked: Following) -> pa.Table:
        """Columns id1, id2, t, mean: only pairs that come within reach, and only around the windows in which they do."""
        n = asked.size // asked.every
        places = self._places(asked.every, asked.max_gap)
        places["bucket"] = places["k"] // n
        met = _pairs(places, asked.reach)
        met = met.assign(bucket=met["k"] // n)[["a", "b", "bucket"]].drop_duplicates()
        wanted = pd.concat([met.assign(bucket=met["bucket"] + step) for step in (-1, 0, 1)]).drop_duplicates()
        both = wanted.merge(places.rename(columns={"id": "a"}), on=["a", "bucket"]).merge(
            places[["id", "k", "x", "y"]].rename(columns={"id": "b"}), on=["b", "k"], suffixes=("", "_b")
        )
        both = both.sort_values(["a", "b", "k"], ignore_index=True)
        d = np.hypot(both["x"] - both["x_b"], both["y"] - both["y_b"])
        mean = (d.rolling(n + 1).sum() - (d + d.shift(n)) / 2) / n
        whole = (both["a"].shift(n) == both["a"]) & (both["b"].shift(n) == both["b"])
        whole &= (both["k"] - both["k"].shift(n) == n) & (mean < asked.reach)
        return _both_ways(both.loc[whole, ["a", "b", "k"]].assign(mean=mean[whole]), asked.every)

    def _sorted(self, key: str) -> Any:
        return self._kept[key] if key in self._kept else _read(key, *self._files[key])

    def _steps(self) -> Any:
        """Tuples with their successor's time; the last one of a key holds for its instant. Symbols are numbers."""
        frame, self._symbols = self._sorted("symbol")
        same = frame["symbol"].shift(-1) == frame["symbol"]
        return frame.assign(nxt=frame["t"].shift(-1, fill_value=0).where(same, frame["t"] + 1))

    def _integrals(self, advance: int) -> Any:
        """Per key and instant ``k`` of the grid, the integral of its prices up to there, from some instant on."""
        steps = self._steps()
        steps["cum"] = (steps["price"] * (steps["nxt"] - steps["t"])).cumsum()
        at = _at_grid(steps, advance)
        return at.assign(area=at["cum"] - at["price"] * (at["nxt"] - at["k"] * (advance * SECOND)))

    def _places(self, every: int, max_gap: int) -> Any:
        """Where every vessel is at the grid's instants, on the straight lines between its reports."""
        grid, gap = every * SECOND, max_gap * SECOND
        frame, _ = self._sorted("id")
        nxt = frame.shift(-1)
        goes_on = (frame["id"].shift(-2) == frame["id"]) & (frame["t"].shift(-2) - nxt["t"] <= gap)
        legs = frame.assign(
            t1=nxt["t"].fillna(0).astype("int64"), x1=nxt["x"], y1=nxt["y"], last=(~goes_on).astype("int64")
        )
        way = legs["t1"] - legs["t"]
        legs = legs[(nxt["id"] == frame["id"]) & (way > 0) & (way <= gap)]
        on = _repeated(legs, -(-legs["t"] // grid), (legs["t1"] + grid - 1 + legs["last"]) // grid)
        part = (on["k"] * grid - on["t"]) / (on["t1"] - on["t"])
        x, y = (on[name] + (on[f"{name}1"] - on[name]) * part for name in ("x", "y"))
        return on[["id", "k"]].assign(x=x, y=y)

    def _table(self, found: Any, every: int, value: str) -> pa.Table:
        symbols = pa.DictionaryArray.from_arrays(found["symbol"].to_numpy(), self._symbols)
        return pa.table({"symbol": symbols, "t": _time(found, every), value: found[value].to_numpy()})


def _read(key: str, file: Path | None, values: tuple[str, ...]) -> tuple[Any, Any]:
    """By key, and within it as in the file, by time; and the keys, where they are texts."""
    text = [key] if key == "symbol" else None
    table = pq.read_table(file, columns=[key, "t", *values], read_dictionary=text).unify_dictionaries()
    t = table.column("t").cast(pa.timestamp("us")).cast(pa.int64())
    column, names = table.column(key).combine_chunks(), None
    if text:
        column, names = column.indices, column.dictionary
    columns = {key: column.to_numpy(), "t": t.to_numpy()}
    columns |= {name: table.column(name).to_numpy() for name in values}
    return pd.DataFrame(columns).sort_values(key, kind="stable", ignore_index=True), names


def _repeated(frame: Any, first: Any, past: Any) -> Any:
    """Each row once for each ``k`` from ``first`` to before ``past``."""
    number = np.maximum((past - first).to_numpy(), 0)
    rows = np.repeat(np.arange(len(frame)), number)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
    return frame.take(rows).reset_index(drop=True).assign(k=np.repeat(first.to_numpy(), number) + within)


def _at_grid(steps: Any, every: int) -> Any:
    """The steps that hold instants of the grid, once for each, ``k``."""
    grid = every * SECOND
    first, past = -(-steps["t"] // grid), -(-steps["nxt"] // grid)
    held = past > first
    return _repeated(steps[held], first[held], past[held])


def _pairs(places: Any, reach: float) -> Any:
    """Pairs ``a < b`` nearer than ``reach`` at an instant ``k``: those in one cell of the grid or in neighbouring ones."""
    cx, cy = (np.floor(places[name] / reach).astype("int64") for name in ("x", "y"))
    there = places[["id", "k", "x", "y"]].assign(cell=(places["k"] * 65536 + cx) * 65536 + cy)
    found = []
    for dx, dy in _HALF:
        around = there.assign(cell=there["cell"] + dx * 65536 + dy)
        both = around.merge(there[["id", "x", "y", "cell"]], on="cell", suffixes=("", "_b"))
        near = (both["x"] - both["x_b"]) ** 2 + (both["y"] - both["y_b"]) ** 2 < reach * reach
        near &= both["id"] < both["id_b"] if (dx, dy) == (0, 0) else True
        found.append(both.loc[near, ["id", "id_b", "k"]])
    pairs = pd.concat(found, ignore_index=True)
    ids = pairs[["id", "id_b"]]
    return pd.DataFrame({"a": ids.min(axis=1), "b": ids.max(axis=1), "k": pairs["k"]})


def _both_ways(pairs: Any, every: int) -> pa.Table:
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    t = _time(pairs, every)
    columns = {"id1": np.concatenate([a, b]), "id2": np.concatenate([b, a]), "t": pa.concat_arrays([t, t])}
    if "mean" in pairs:
        columns["mean"] = np.tile(pairs["mean"].to_numpy(), 2)
    return pa.table(columns)


def _time(found: Any, every: int) -> Any:
    return pa.array(found["k"].to_numpy() * (every * SECOND)).cast(pa.timestamp("us"))
