"""Bars of prices, open, high, low and close in one query: stored and predicted, in process and on Spark, against the ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import SECOND, local, prices, rows_of, ticks
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

BARS = """
select symbol, first(price) as open, max(price) as high, min(price) as low, last(price) as close
from S[size 8 advance 4] group by symbol
"""
NAMES = ("open", "high", "low", "close")
GAINS = "select symbol, last(price) - first(price) as gain from S[size 10 advance 2] group by symbol"


def bars_of(data: Any, size: int, advance: int) -> dict[tuple[str, int], tuple[float, ...]]:
    """Bars of steps that last until the next tick: the values in force in ``[t - size, t)``, by symbol and closing time."""
    found = {}
    for symbol in sorted(set(data["symbol"].to_pylist())):
        own = data.filter(pc.equal(data["symbol"], symbol))
        t, x = own["t"].cast(pa.int64()).to_numpy(), own["price"].to_pylist()
        for closing in range(-(-(t[0] + size) // advance) * advance, t[-1] + 1, advance):
            inside = [x[i] for i in range(len(t)) if closing - size <= t[i] < closing]
            at = np.searchsorted(t, closing - size, side="right") - 1
            values = [x[at], *inside]
            found[symbol, closing] = (x[at], max(values), min(values), values[-1])
    return found


def rows_by_closing_time(answer: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of an answer by symbol and closing time."""
    found = answer.tuples()
    times = found["t"].cast(pa.int64()).to_pylist()
    return {(row["symbol"], t): row for row, t in zip(found.to_pylist(), times, strict=True)}


def test_bars_of_an_exact_model_are_those_of_the_ticks() -> None:
    data = ticks()
    found = rows_by_closing_time(local().sql(BARS, streams={"S": prices(data=data, error=0, drift=None)}))
    want = bars_of(data, 8 * SECOND, 4 * SECOND)
    assert len(want) > 50
    assert {at: tuple(row[name] for name in NAMES) for at, row in found.items()} == want
    assert {row[f"{name}_err"] for row in found.values() for name in NAMES} == {0.0}
    assert {row["certainty"] for row in found.values()} == {"certain"}


def test_bars_keep_their_bounds() -> None:
    data = ticks(count=200)
    found = rows_by_closing_time(local().sql(BARS, streams={"S": prices(data=data)}))
    want = bars_of(data, 8 * SECOND, 4 * SECOND)
    assert set(found) == set(want)
    for at, row in found.items():
        for name, value in zip(NAMES, want[at], strict=True):
            assert abs(row[name] - value) <= row[f"{name}_err"] <= 0.31


def test_bars_on_spark_are_those_in_process(spark: SparkSession) -> None:
    model = prices()
    asked = {"streams": {"S": model}}
    here, there = local().sql(BARS, **asked), pulse.Session(spark=spark).sql(BARS, **asked)
    assert rows_of(there.tuples()) == rows_of(here.tuples())
    assert rows_of(there.segments()) == rows_of(here.segments())


def test_a_bound_on_bars_chooses_the_fit() -> None:
    model = local().fit(
        ticks(),
        key="symbol",
        time="t",
        model={"price": "step"},
        for_query=f"{GAINS} error within 0.2",
        stream="S",
    )
    assert (
        max(row["gain_err"] for row in local().sql(GAINS, streams={"S": model}).tuples().to_pylist()) <= 0.2
    )


@pytest.mark.parametrize("query", [GAINS, BARS])
def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path, query: str) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, query)
    assert ran(spark, job).tally.tuples == 480
    value = "gain" if query == GAINS else "close"
    found = final(read_changes(tmp_path / "out"), ("symbol",), value)
    assert len(found) > 100
    assert found == final(in_process(job), ("symbol",), value)
