"""Episodes of answers: against the truth of the tuples in fractions, alike in process and on Spark, across units and buckets."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.operators.output.episodes import EpisodeError
from tests.runtime.execution.asking import MACD, SECOND, START, local, prices, table, tracks

ABOVE = "select k, x from S where x > 2.5"


def stream(values: list[float], steps: list[int]) -> pa.Table:
    at = [START + SECOND * int(s) for s in np.cumsum([0, *steps])][: len(values)]
    return table({"k": ["a"] * len(at), "t": at, "x": values}, k=pa.string(), x=pa.float64())


def true_stretches(data: pa.Table, level: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Where straight lines between tuples lie above a level: microseconds, exactly."""
    times = [int(v) for v in data.column("t").cast(pa.int64()).to_pylist()]
    values = [Fraction(v) - level for v in data.column("x").to_pylist()]
    found: list[tuple[Fraction, Fraction]] = []
    for (s, e), (u, v) in zip(pairwise(times), pairwise(values), strict=True):
        if u <= 0 and v <= 0:
            continue
        cross = Fraction(s) + (Fraction(e - s) * u / (u - v) if u != v else 0)
        begin, end = (cross if u < 0 else Fraction(s)), (cross if v < 0 else Fraction(e))
        if found and found[-1][1] == begin and u > 0:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@given(
    st.lists(st.integers(0, 20).map(lambda v: v / 4), min_size=3, max_size=14),
    st.lists(st.integers(1, 4), min_size=14, max_size=14),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_the_truth_starts_and_ends_within_the_ranges(
    values: list[float], steps: list[int], error: float
) -> None:
    data = stream(values, steps)
    model = local().fit(data, key="k", time="t", model={"x": "linear"}, error=error)
    answer = local().sql(ABOVE, streams={"S": model})
    episodes = answer.episodes().to_pylist()
    truth = true_stretches(data, Fraction(5, 2))
    for row in episodes:
        if not row["cores"]:
            continue
        first = next(one for one in truth if one[0] <= micros(row["start_latest"]) <= one[1])
        last = next(one for one in truth if one[0] <= micros(row["end_earliest"]) <= one[1])
        assert micros(row["start_earliest"]) <= first[0] <= micros(row["start_latest"])
        assert micros(row["end_earliest"]) <= last[1] <= micros(row["end_latest"])
        if row["cores"] == 1:
            assert first == last
        if row["certainty"] == "certain":
            assert row["cores"] == 1
    # No truth outside: every true stretch lies within the widest extent of an episode of what is possible.
    wide = local().sql(ABOVE, streams={"S": model}, possible=True).episodes().to_pylist()
    for begin, end in truth:
        assert any(
            micros(one["start_earliest"]) <= begin and end <= micros(one["end_latest"]) for one in wide
        )


@given(
    st.lists(st.integers(0, 20).map(lambda v: v / 4), min_size=3, max_size=14),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([None, 0.2]),
)
def test_the_truth_keeps_to_the_figures(values: list[float], error: float, drift: float | None) -> None:
    data = stream(values, [2] * len(values))
    details: dict[str, Any] = {} if drift is None else {"drift": drift}
    model = local().fit(data, key="k", time="t", model={"x": "linear"}, error=error, **details)
    for row in local().sql(ABOVE, streams={"S": model}).episodes().to_pylist():
        begin, end = micros(row["start"]), micros(row["end"])
        cuts = sorted({begin, end, *(START + 2 * SECOND * i for i in range(len(values)))})
        cuts = [one for one in cuts if begin <= one <= end]
        times = np.array([START + 2 * SECOND * i for i in range(len(values))], float)
        at = np.interp(np.array(cuts, float), times, values)
        mean = np.trapezoid(at, cuts) / (end - begin) if end > begin else at[0]
        rounded = 1e-4  # starts and ends are to the microsecond, and this reference is in floats
        for what, value in {
            "min": at.min(),
            "max": at.max(),
            "mean": mean,
            "start": at[0],
            "end": at[-1],
        }.items():
            assert abs(row[f"x_{what}"] - value) <= row[f"x_{what}_err"] + rounded, what


def meeting(hours: int = 3) -> pa.Table:
    """Vessels side by side for hours, longer than a bucket of a pair join."""
    n = hours * 60
    rows: dict[str, list[Any]] = {"id": [], "t": [], "x": [], "y": []}
    for i, apart in enumerate((0.0, 6.0, 500.0)):
        rows["id"] += [i] * n
        rows["t"] += [START + 60 * SECOND * j for j in range(n)]
        rows["x"] += [3.0 * j for j in range(n)]
        rows["y"] += [apart + (40.0 if i == 1 and j > n - 20 else 0.0) for j in range(n)]
    return table(rows, id=pa.int32(), x=pa.float64(), y=pa.float64())


NEAR = """select R.id as a, S.id as b, distance(R.x, R.y, S.x, S.y) as d from V R join V S on (R.id <> S.id)
where distance(R.x, R.y, S.x, S.y) < 20"""


def test_a_pair_that_stays_together_is_one_episode() -> None:
    model = tracks(data=meeting())
    answer = local().sql(NEAR, streams={"V": model})
    job = answer._episode_job()
    assert any(grid.bucket < 3 * 3600 * SECOND for grid in job.grids.values())
    assert len(job.fragments) > 2
    rows = sorted(answer.episodes().to_pylist(), key=lambda row: row["a"])
    assert [(row["a"], row["b"], row["cores"]) for row in rows] == [(0, 1, 1), (1, 0, 1)]
    assert rows[0]["duration"] > 2.5 * 3600
    assert rows[0]["d_mean"] == pytest.approx(6.0, abs=0.1)
    assert {row["start"] for row in rows} == {datetime(2020, 9, 13, 12, 26, 40)}


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return a == pytest.approx(b, rel=1e-9, abs=1e-9)
    return bool(a == b)


@pytest.mark.parametrize("query", ["near", "macd", "prices", "stays"])
def test_spark_gives_what_is_given_in_process(spark: SparkSession, query: str) -> None:
    asked: dict[str, Any]
    if query in ("near", "stays"):
        text, asked = NEAR, {"streams": {"V": tracks() if query == "near" else tracks(data=meeting())}}
    elif query == "macd":
        text, asked = MACD, {"streams": {"S": prices()}, "short": 4, "long": 12}
    else:
        text, asked = "select symbol, price, venue from S where price > 20", {"streams": {"S": prices()}}
    here = local().sql(text, **asked).episodes()
    frame = pulse.Session(spark=spark).sql(text, **asked).episodes()
    there = frame.toArrow()
    assert here.num_rows > 1
    assert there.column_names == here.column_names
    keys = here.column_names[:3]
    ordered = [sorted(one.to_pylist(), key=lambda row: repr([row[k] for k in keys])) for one in (here, there)]
    for mine, other in zip(*ordered, strict=True):
        assert all(alike(mine[name], other[name]) for name in mine), (mine, other)


def test_head_and_files(tmp_path: Path) -> None:
    answer = local().sql("select symbol, price from S where price > 20", streams={"S": prices()})
    whole = answer.episodes()
    rows, more = answer.head(2, episodes=True)
    assert (rows.num_rows, more) == (2, True)
    assert rows.equals(whole.slice(0, 2))
    assert answer.write(str(tmp_path / "out.parquet"), episodes=True) == whole.num_rows
    assert pq.read_table(tmp_path / "out.parquet").equals(whole)
    assert answer.write(str(tmp_path / "out.csv"), episodes=True) == whole.num_rows


def test_points_are_episodes_of_no_length() -> None:
    data = stream([1.0, 3.0, 2.0, 4.0], [1, 1, 1])
    model = local().fit(data, key="k", time="t", model={"x": "samples"}, points=True)
    rows = local().sql(ABOVE, streams={"S": model}).episodes().to_pylist()
    assert [(row["duration"], row["x_mean"]) for row in rows] == [(0.0, 3.0), (0.0, 4.0)]


def test_versions_and_sweeps_have_none() -> None:
    model = prices()
    revised = local().revised("select symbol, price from S where price > 20", 1, streams={"S": model})
    with pytest.raises(EpisodeError, match="only a query's answer has episodes"):
        revised.head(3, episodes=True)


def test_changing_units_are_refused() -> None:
    log = ["2020-09-13T12:27:00Z [[true, alter(price, y / 2)]]"]
    answer = local().sql("select symbol, price from S where price > 20", streams={"S": prices()}, accents=log)
    with pytest.raises(EpisodeError, match="alter price"):
        answer.episodes()
