"""Spark Structured Streaming, and Spark SQL, against the questions answered in a few lines of Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near
from pulse.benchmarks.peers.spark_peer import SparkSql
from pulse.benchmarks.peers.streaming_peer import Streaming
from tests.benchmarks import oracles
from tests.benchmarks.oracles import START, Reports, Ticks

MINIMUM = Minimum(size=8, advance=2)


def some_ticks() -> Ticks:
    at = random.Random(1)
    found: Ticks = []
    for symbol in ("a", "b"):
        t = START + at.choice((0, 1_500_000))
        for _ in range(40):
            found.append((symbol, t, 100.0 + at.randrange(-8, 9) / 4))
            t += at.choice((0, 1, 250_000, SECOND, 2 * SECOND, 7 * SECOND))
    return sorted(found, key=lambda one: one[1])


def some_vessels() -> Reports:
    """And two of which both are silent while their first window is open."""
    at = random.Random(1)
    silent = (0, 10, 40, 50, 60, 70, 80, 90, 100)
    found: Reports = [(i, START + t * SECOND, 1e5 + i, 0.0) for t in silent for i in (8, 9)]
    for vessel in range(1, 5):
        t, x, y = START, at.uniform(-500, 500), at.uniform(-500, 500)
        for _ in range(20):
            found.append((vessel, t, x, y))
            x, y = x + at.uniform(-100, 100), y + at.uniform(-100, 100)
            t += at.choice((4_000_000, 10_000_000, 12_345_678, 61_000_000))
    return sorted(found, key=lambda one: one[1])


def details(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """Rows in order, times as microseconds."""
    t = table.column("t").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return sorted(
        zip(*(t if name == "t" else table.column(name).to_pylist() for name in columns), strict=True)
    )


def test_streaming(spark: Any, tmp_path: Path) -> None:
    ticks = some_ticks()
    (tmp_path / "in").mkdir()
    oracles.write_ticks(ticks, tmp_path / "in" / "ticks.parquet")
    peer = Streaming(spark, ticks=tmp_path / "in")
    above = details(peer.collect(peer.above(Above(level=100.0))), "symbol", "t", "price")
    assert above == sorted(one for one in ticks if one[2] > 100.0)
    lows = details(peer.collect(peer.minimum(MINIMUM)), "symbol", "t", "low")
    latest, size = max(t for _, t, _ in ticks), MINIMUM.size * SECOND
    closings = range(START, latest + 1, MINIMUM.advance * SECOND)
    expected = {
        (symbol, end): min(prices)
        for symbol in ("a", "b")
        for end in closings
        if (prices := [price for name, t, price in ticks if name == symbol and end - size <= t < end])
    }
    assert lows == sorted((*key, low) for key, low in expected.items())
    with pytest.raises(Exception, match="NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING"):  # what it cannot say
        peer.consume(
            peer.spark.sql("select symbol, lead(t) over (partition by symbol order by t) from ticks")
        )


@pytest.mark.parametrize("load", [True, False])
def test_spark_sql(spark: Any, tmp_path: Path, load: bool) -> None:
    ticks, vessels = some_ticks(), some_vessels()
    peer = SparkSql(
        spark,
        ticks=oracles.write_ticks(ticks, tmp_path / "ticks.parquet"),
        vessels=oracles.write_vessels(vessels, tmp_path / "vessels.parquet"),
        load=load,
    )
    macd, near = Macd(4, 10, 2), Near(reach=500.0, every=10, max_gap=60)
    following = Following(reach=600.0, size=60, every=10, max_gap=20)
    expected = {key: diff for key, diff in oracles.macd(ticks, macd).items() if abs(diff) > 1e-7}
    found = {
        (s, t): diff
        for s, t, diff in details(peer.macd(macd).toArrow(), "symbol", "t", "diff")
        if diff > 1e-7
    }
    assert found == pytest.approx({key: diff for key, diff in expected.items() if diff > 0}, abs=1e-7)
    lows = {(s, t): low for s, t, low in details(peer.minimum(MINIMUM).toArrow(), "symbol", "t", "low")}
    assert lows == oracles.minimum(ticks, MINIMUM)
    assert set(details(peer.near(near).toArrow(), "id1", "id2", "t")) == oracles.near(vessels, near)
    means = {
        (a, b, t): m for a, b, t, m in details(peer.following(following).toArrow(), "id1", "id2", "t", "mean")
    }
    assert means == pytest.approx(oracles.following(vessels, following))
    peer.close()
