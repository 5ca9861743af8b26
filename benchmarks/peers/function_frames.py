"""The functions of :mod:`pulse.benchmarks.peers.function_queries` in Polars, on frames sorted by key and time."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from pulse.benchmarks.peers.function_queries import LEVEL, STEP

Frame = pl.DataFrame
Lazy = pl.LazyFrame


def _grid(frame: Frame, key: str) -> Lazy:
    """Return the multiples of a step within the time of each key, sorted."""
    ends = (
        frame.lazy().group_by(key, maintain_order=True).agg(first=pl.col("us").min(), last=pl.col("us").max())
    )
    first = (pl.col("first") + STEP - 1) // STEP * STEP
    made = ends.select(key, pl.int_ranges(first, pl.col("last") + 1, STEP).alias("us"))
    return made.explode("us").drop_nulls().with_columns(pl.col("us").cast(pl.Int64))


def _at(frame: Frame, of: Lazy, key: str = "symbol") -> Lazy:
    """Return what holds at the grid's instants, with the time of the tuple as ``since``."""
    own = of.with_columns(since=pl.col("us"))
    return _grid(frame, key).join_asof(own, on="us", by=key, check_sortedness=False)


def returns(frame: Frame) -> Frame:
    """Return the change of the price in each step, relative to what it was."""
    r = pl.col("price") / pl.col("price").shift(1).over("symbol") - 1
    return _at(frame, frame.lazy()).select("symbol", "us", r=r).drop_nulls().collect()


def _windows(frame: Frame, *terms: pl.Expr) -> Lazy:
    """Return the integrals of terms over the ten steps before each instant, as i0, i1, …"""
    dt = (pl.col("us").shift(-1).over("symbol") - pl.col("us")).fill_null(0) / 1e6
    names = [f"i{i}" for i in range(len(terms))]
    sums = frame.lazy().with_columns(*(one.alias(f"x{i}") for i, one in enumerate(terms)), dt=dt)
    sums = sums.with_columns(
        ((pl.col(f"x{i}") * pl.col("dt")).cum_sum().over("symbol") - pl.col(f"x{i}") * pl.col("dt")).alias(
            name
        )
        for i, name in enumerate(names)
    )
    age = (pl.col("us") - pl.col("since")) / 1e6
    found = _at(frame, sums).with_columns(
        (pl.col(name) + pl.col(f"x{i}") * age).alias(name) for i, name in enumerate(names)
    )
    return found.select(
        "symbol", "us", *(pl.col(n) - pl.col(n).shift(10).over("symbol") for n in names)
    ).drop_nulls()


def deviation(frame: Frame) -> Frame:
    """Return the standard deviation of the price over ten steps."""
    x = pl.col("price") - LEVEL
    found = _windows(frame, x, x * x)
    spread = pl.col("i1") / 100 - (pl.col("i0") / 100) ** 2
    return found.select("symbol", "us", r=spread.clip(lower_bound=0).sqrt()).collect()


def duration(frame: Frame) -> Frame:
    """Return the seconds above the level in ten steps."""
    return _windows(frame, (pl.col("price") > LEVEL).cast(pl.Float64)).rename({"i0": "r"}).collect()


def moving_averages(frame: Frame) -> Frame:
    """Return the difference of two moving averages, which start at the first price."""
    before = pl.col("price").shift(1).over("symbol").fill_null(pl.col("price"))
    own = frame.lazy().with_columns(before=before, time=pl.col("us").cast(pl.Datetime("us")))
    taus = {"fast": 12.0, "slow": 26.0}
    own = own.with_columns(
        pl.col("before")
        .ewm_mean_by("time", half_life=f"{round(tau * math.log(2) * 1e6)}us")
        .over("symbol")
        .alias(name)
        for name, tau in taus.items()
    )
    age = (pl.col("us") - pl.col("since")) / 1e6
    at = {
        name: pl.col("price") + (pl.col(name) - pl.col("price")) * (-age / tau).exp()
        for name, tau in taus.items()
    }
    return _at(frame, own).select("symbol", "us", r=at["fast"] - at["slow"]).collect()


def bars(frame: Frame) -> Frame:
    """Return the first, largest, smallest and last price of each step."""
    price = pl.col("price")
    own = frame.lazy().group_by("symbol", bar=pl.col("us") // STEP)
    made = own.agg(h=price.max(), l=price.min(), c=price.last())
    ends = frame.lazy().group_by("symbol").agg(last=pl.col("us").max())
    found = _at(frame, frame.lazy()).with_columns(bar=pl.col("us") // STEP)
    found = found.join(made, on=["symbol", "bar"], how="left").join(ends, on="symbol")
    found = found.filter(pl.col("us") + STEP <= pl.col("last"))
    return found.select(
        "symbol",
        pl.col("us") + STEP,
        o=price,
        h=pl.max_horizontal("h", "price"),
        l=pl.min_horizontal("l", "price"),
        c=pl.coalesce("c", "price"),
    ).collect()


def top_movers(frame: Frame) -> Frame:
    """Return the ten largest changes of each step."""
    found = returns(frame).lazy()
    return found.filter(pl.col("r").rank("min", descending=True).over("us") <= 10).collect()


def episodes(frame: Frame) -> Frame:
    """Return the stretches above the level."""
    above = pl.col("price") > LEVEL
    own = frame.lazy().with_columns(
        above=above, until=pl.col("us").shift(-1).over("symbol").fill_null(pl.col("us"))
    )
    number = (
        (pl.col("above") & ~pl.col("above").shift(1).over("symbol").fill_null(False)).cum_sum().over("symbol")
    )
    own = own.with_columns(number=number).filter(pl.col("above"))
    return own.group_by("symbol", "number").agg(begin=pl.col("us").min(), end=pl.col("until").max()).collect()


def inside(frame: Frame, condition: str, gap: int) -> Frame:
    """Return the positions within the hexagon at each step."""
    share = (pl.col("us") - pl.col("since")) / (pl.col("us1") - pl.col("since")).clip(lower_bound=1)
    found = _at(frame, frame.lazy(), "id")
    found = found.filter((pl.col("us") == pl.col("since")) | (pl.col("us1") - pl.col("since") <= gap))
    found = found.select(
        "id",
        "us",
        x=pl.col("x") + (pl.col("x1") - pl.col("x")) * share,
        y=pl.col("y") + (pl.col("y1") - pl.col("y")) * share,
    )
    return found.filter(pl.sql_expr(condition)).select("id", "us", "x").collect()


FRAMES: dict[str, Callable[..., Frame]] = {
    "returns": returns,
    "deviation": deviation,
    "duration": duration,
    "moving averages": moving_averages,
    "bars": bars,
    "top movers": top_movers,
    "inside": inside,
}
