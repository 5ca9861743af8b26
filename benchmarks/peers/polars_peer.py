"""Polars on the tuples: lazily from Parquet, or from a frame in memory that is sorted by key and time.

The formulation is that of :mod:`pulse.benchmarks.peers.duckdb_peer`: integrals at the grid's instants, and their
differences. In a frame sorted by key and time ``shift`` needs no groups, only a look at whether the key is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near

_PANES = 1 << 40  # more than there are in any key's time
_HALF = pl.DataFrame({"dx": [0, 0, 1, 1, 1], "dy": [0, 1, -1, 0, 1]}).lazy()


class Polars:
    """``ticks`` and ``vessels`` are Parquet files; with ``load`` they are read and sorted beforehand."""

    def __init__(self, *, ticks: Path | None = None, vessels: Path | None = None, load: bool) -> None:
        micros = pl.col("t").dt.epoch("us")
        self._ticks = self._vessels = None
        if ticks is not None:
            frame = pl.scan_parquet(ticks).select("symbol", micros, "price")
            self._ticks = _sorted(frame, "symbol", load)
        if vessels is not None:
            self._vessels = _sorted(pl.scan_parquet(vessels).select("id", micros, "x", "y"), "id", load)

    def macd(self, asked: Macd) -> pa.Table:
        """Columns symbol, t, diff."""
        found = _macd(self._integrals(asked.advance), asked)
        return _arrow(found.select("symbol", _time(asked.advance), "diff"))

    def all_macds_figures(self, variants: list[Macd]) -> pa.Table:
        """Of each variant: short, long, how often it holds (n), and mean, least and greatest difference; integrals are shared."""
        integrals = self._integrals(variants[0].advance).collect(engine="streaming").lazy()
        diff = pl.col("diff")
        figures = {"n": pl.len(), "mean": diff.mean(), "low": diff.min(), "high": diff.max()}
        found = pl.collect_all([_macd(integrals, v).select(**figures) for v in variants])
        parameters = {"short": [v.short for v in variants], "long": [v.long for v in variants]}
        return pl.concat([pl.DataFrame(parameters), pl.concat(found)], how="horizontal").to_arrow()

    def minimum(self, asked: Minimum) -> pa.Table:
        """Columns symbol, t, low."""
        pane, panes = asked.advance * SECOND, asked.size // asked.advance
        # Groups of one ascending number are found by walking along it: a quarter of the time of hashing two columns.
        inside = pl.col("symbol").to_physical().cast(pl.Int64) * _PANES + pl.col("t") // pane
        touched = (
            self._steps()
            .filter(pl.col("nxt") > pl.col("t"))
            .with_columns(inside.set_sorted().alias("pane"))
            .group_by("pane", maintain_order=True)
            .agg(
                pl.col("symbol").first(),
                low=pl.col("price").min(),
                price=pl.col("price").last(),
                nxt=pl.col("nxt").last(),
                t=pl.col("t").first(),
            )
            .with_columns(pl.col("pane") % _PANES)
        )
        opens = (pl.col("symbol").shift(1) != pl.col("symbol")).fill_null(True)
        before = pl.when(~opens & (pl.col("t") > pl.col("pane") * pane)).then(pl.col("price").shift(1))
        last = pl.max_horizontal((pl.col("nxt") - 1) // pane, pl.col("pane"))
        here = pl.col("k") == pl.col("pane")
        dense = (
            touched.with_columns(pl.min_horizontal("low", before).alias("low"), opens.alias("opens"))
            .with_columns(pl.int_ranges(pl.col("pane"), last + 1).alias("k"))
            .explode("k")
            .filter(~here | ~pl.col("opens") | (pl.col("t") == pl.col("pane") * pane))
            .filter((pl.col("k") + 1) * pane <= pl.col("nxt"))
            .with_columns(pl.when(here).then("low").otherwise("price").alias("low"))
        )
        whole = pl.col("symbol").shift(panes - 1) == pl.col("symbol")
        found = dense.select(
            "symbol", (pl.col("k") + 1).alias("k"), pl.col("low").rolling_min(panes), whole.alias("whole")
        )
        return _arrow(found.filter("whole").select("symbol", _time(asked.advance), "low"))

    def above(self, asked: Above) -> pa.Table:
        """Columns symbol, t, price."""
        steps = self._steps().filter(pl.col("price") > asked.level)
        return _arrow(_at_grid(steps, asked.every).select("symbol", _time(asked.every), "price"))

    def near(self, asked: Near) -> pa.Table:
        """Columns id1, id2, t."""
        pairs = _pairs(self._places(asked.every, asked.max_gap), asked.reach)
        return _arrow(_both_ways(pairs).select("id1", "id2", _time(asked.every)))

    def following(self, asked: Following) -> pa.Table:
        """Columns id1, id2, t, mean."""
        n = asked.size // asked.every
        placed = self._places(asked.every, asked.max_gap).with_columns((pl.col("k") // n).alias("bucket"))
        places = placed.collect(engine="streaming").lazy()  # used three times
        met = _pairs(places, asked.reach).select("a", "b", pl.col("k") // n).unique()
        wanted = (
            met.select("a", "b", pl.concat_list(pl.col("k") - 1, "k", pl.col("k") + 1).alias("bucket"))
            .explode("bucket")
            .unique()
        )
        way = ((pl.col("x") - pl.col("x_right")).pow(2) + (pl.col("y") - pl.col("y_right")).pow(2)).sqrt()
        distances = (
            wanted.join(places, left_on=["a", "bucket"], right_on=["id", "bucket"])
            .join(places.select("id", "k", "x", "y"), left_on=["b", "k"], right_on=["id", "k"])
            .select("a", "b", "k", way.alias("d"))
            .sort("a", "b", "k")
        )
        d = pl.col("d")
        mean = (d.rolling_sum(n + 1) - (d + d.shift(n)) / 2) / n
        whole = pl.all_horizontal(
            pl.col("a").shift(n) == pl.col("a"),
            pl.col("b").shift(n) == pl.col("b"),
            pl.col("k") - pl.col("k").shift(n) == n,
        )
        means = distances.select("a", "b", "k", mean.alias("mean"), whole.alias("whole"))
        found = _both_ways(means.filter(pl.col("whole") & (pl.col("mean") < asked.reach)), "mean")
        return _arrow(found.select("id1", "id2", _time(asked.every), "mean"))

    def _steps(self) -> pl.LazyFrame:
        """Tuples with their successor's time; the last one of a key holds for its instant."""
        assert self._ticks is not None
        same = pl.col("symbol").shift(-1) == pl.col("symbol")
        return self._ticks.with_columns(
            pl.when(same).then(pl.col("t").shift(-1)).otherwise(pl.col("t") + 1).alias("nxt")
        )

    def _integrals(self, advance: int) -> pl.LazyFrame:
        """Per key and instant ``k`` of the grid, the integral of its prices up to there, from some instant on."""
        steps = self._steps().with_columns(
            (pl.col("price") * (pl.col("nxt") - pl.col("t"))).cum_sum().alias("cum")
        )
        area = pl.col("cum") - pl.col("price") * (pl.col("nxt") - pl.col("k") * (advance * SECOND))
        return _at_grid(steps, advance).select("symbol", "k", area.alias("area"))

    def _places(self, every: int, max_gap: int) -> pl.LazyFrame:
        """Where every vessel is at the grid's instants, on the straight lines between its reports."""
        assert self._vessels is not None
        grid, gap = every * SECOND, max_gap * SECOND
        t1 = pl.col("t").shift(-1)
        goes_on = (pl.col("id").shift(-2) == pl.col("id")) & (pl.col("t").shift(-2) - t1 <= gap)
        legs = self._vessels.with_columns(
            t1.alias("t1"),
            pl.col("x").shift(-1).alias("x1"),
            pl.col("y").shift(-1).alias("y1"),
            (pl.col("id").shift(-1) == pl.col("id")).alias("same"),
            pl.when(goes_on).then(0).otherwise(1).alias("last"),
        ).filter(pl.col("same") & (pl.col("t1") > pl.col("t")) & (pl.col("t1") - pl.col("t") <= gap))
        span = pl.int_ranges(
            (pl.col("t") + grid - 1) // grid, (pl.col("t1") + grid - 1 + pl.col("last")) // grid
        )
        on = legs.with_columns(span.alias("k")).filter(pl.col("k").list.len() > 0).explode("k")
        part = (pl.col("k") * grid - pl.col("t")) / (pl.col("t1") - pl.col("t"))
        return on.select("id", "k", *(pl.col(n) + (pl.col(f"{n}1") - pl.col(n)) * part for n in ("x", "y")))


def _sorted(frame: pl.LazyFrame, key: str, load: bool) -> pl.LazyFrame:
    """By key, and within it as in the file, by time."""
    by = pl.col(key)
    if key == "symbol":
        frame, by = frame.with_columns(by.cast(pl.Categorical)), by.to_physical()
    ordered = frame.sort(by, maintain_order=True)
    return ordered.collect().rechunk().lazy() if load else ordered


def _macd(integrals: pl.LazyFrame, asked: Macd) -> pl.LazyFrame:
    """Where the difference of averages is above zero: symbol, k, diff."""
    short, long = asked.short // asked.advance, asked.long // asked.advance
    area = pl.col("area")
    diff = (area - area.shift(short)) / (asked.short * SECOND) - (area - area.shift(long)) / (
        asked.long * SECOND
    )
    same = pl.col("symbol").shift(long) == pl.col("symbol")
    found = integrals.select("symbol", "k", same.alias("same"), diff.alias("diff"))
    return found.filter(pl.col("same") & (pl.col("diff") > 0))


def _at_grid(steps: pl.LazyFrame, every: int) -> pl.LazyFrame:
    """The steps that hold instants of the grid, once for each, ``k``."""
    grid = every * SECOND
    first, past = (pl.col("t") + grid - 1) // grid, (pl.col("nxt") + grid - 1) // grid
    return steps.filter(past > first).with_columns(pl.int_ranges(first, past).alias("k")).explode("k")


def _pairs(places: pl.LazyFrame, reach: float) -> pl.LazyFrame:
    """Pairs ``a < b`` nearer than ``reach`` at an instant ``k``."""
    x, y = ((pl.col(n) / reach).floor().cast(pl.Int64) for n in ("x", "y"))

    def cell(dx: Any, dy: Any) -> pl.Expr:
        made: pl.Expr = ((pl.col("k") * 65536 + x + dx) * 65536 + y + dy).alias("cell")
        return made

    there = places.with_columns(cell(0, 0))
    around = places.join(_HALF, how="cross").with_columns(cell(pl.col("dx"), pl.col("dy")))
    d2 = (pl.col("x") - pl.col("x_right")).pow(2) + (pl.col("y") - pl.col("y_right")).pow(2)
    other = (pl.col("dx") != 0) | (pl.col("dy") != 0) | (pl.col("id") < pl.col("id_right"))
    return (
        around.join(there, on="cell")
        .filter(other & (d2 < reach * reach))
        .select(
            pl.min_horizontal("id", "id_right").alias("a"),
            pl.max_horizontal("id", "id_right").alias("b"),
            "k",
        )
    )


def _both_ways(pairs: pl.LazyFrame, *more: str) -> pl.LazyFrame:
    one = pairs.select(pl.col("a").alias("id1"), pl.col("b").alias("id2"), "k", *more)
    two = pairs.select(pl.col("b").alias("id1"), pl.col("a").alias("id2"), "k", *more)
    return pl.concat([one, two])


def _time(every: int) -> pl.Expr:
    return (pl.col("k") * (every * SECOND)).cast(pl.Datetime("us")).alias("t")


def _arrow(frame: pl.LazyFrame) -> Any:
    # At least as fast as in memory, on both cores where that is not.
    return frame.collect(engine="streaming").to_arrow()
