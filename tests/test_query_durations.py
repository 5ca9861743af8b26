"""``duration``: the seconds for which a condition holds in a window, against the tuples in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import SECOND, START, local, prices, rows_of, table, tracks
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

ABOVE = "select k, duration(x > 2.5) as above from S[size 6 advance 2] group by k"


def seconds_above(values: list[float], step: int, begin: Fraction, end: Fraction) -> Fraction:
    """How long straight lines between values, ``step`` seconds apart, lie above 2.5 between two instants."""
    level, total = Fraction(5, 2), Fraction(0)
    for i, (u, v) in enumerate(pairwise(Fraction(one) - level for one in values)):
        first, last = Fraction(i * step), Fraction((i + 1) * step)
        if u <= 0 and v <= 0:
            continue
        cross = first + (last - first) * u / (u - v) if u != v else first
        a, b = (cross if u < 0 else first), (cross if v < 0 else last)
        total += max(Fraction(0), min(b, end) - max(a, begin))
    return total


def stream(values: list[float], step: int) -> pa.Table:
    at = [START + SECOND * step * i for i in range(len(values))]
    return table({"k": ["a"] * len(at), "t": at, "x": values}, k=pa.string(), x=pa.float64())


@given(
    st.lists(st.integers(0, 20).map(lambda v: v / 4), min_size=6, max_size=14),
    st.sampled_from([1, 2]),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_the_truth_lies_within_the_bound(values: list[float], step: int, error: float) -> None:
    model = local().fit(stream(values, step), key="k", time="t", model={"x": "linear"}, error=error)
    rows = local().sql(ABOVE, streams={"S": model}).tuples()
    for row, t in zip(rows.to_pylist(), rows["t"].cast(pa.int64()).to_pylist(), strict=True):
        end = Fraction(t - START, SECOND)
        truth = seconds_above(values, step, end - 6, end)
        assert abs(Fraction(row["above"]) - truth) <= Fraction(row["above_err"]) + Fraction(1, 10**8)
        assert -1e-8 <= row["above"] <= 6 + 1e-8


def test_the_bound_is_the_time_in_doubt() -> None:
    model = local().fit(
        stream([0.0, 4.0, 4.0, 0.0, 0.0, 0.0], 4), key="k", time="t", model={"x": "linear"}, error=0.5
    )
    narrow = local().sql(
        "select k, duration(x > 2) as above from S[size 16] group by k", streams={"S": model}
    )
    possible = (
        local().sql("select k from S where x > 2 with possible", streams={"S": model}).segments().to_pylist()
    )
    total = {
        kind: sum(row["hi"] - row["lo"] for row in possible if row["certainty"] == kind)
        for kind in ("certain", "likely", "possible")
    }
    row = narrow.segments().to_pylist()[
        0
    ]  # closes at 16 s: all that is above, or in doubt, lies in the window
    value = sum(c * row["lo"] ** i for i, c in enumerate(row["above"]))
    assert value == pytest.approx(total["certain"] + total["likely"])
    assert row["above_err"] == pytest.approx(total["likely"] + total["possible"])


def test_conditions_of_every_kind_and_several_at_once() -> None:
    text = """select symbol, duration(price > 20 and price < 22) as calm, duration(not price > 20) as low, avg(price) as mean
    from S[size 10 advance 5] group by symbol having duration(price > 20) > 1"""
    rows = local().sql(text, streams={"S": prices()}).tuples().to_pylist()
    assert rows
    assert all(0 <= row["calm"] <= 10 + 1e-9 and 0 <= row["low"] <= 9 + row["low_err"] + 1e-9 for row in rows)
    bay = "POLYGON ((40 -60, 330 -60, 330 400, 190 120, 40 400, 40 -60))"
    asked: dict[str, Any] = {"streams": {"V": tracks()}, "area": bay}
    dwell = local().sql(
        "select id, duration(inside(x, y, :area)) as d from V[size 20 advance 10] group by id", **asked
    )
    by_value = local().sql(
        "select id, sum(d) as d from (select id, inside(x, y, :area) as d from V)[size 20 advance 10] as W group by id",
        **asked,
    )
    for one, other in zip(dwell.tuples().to_pylist(), by_value.tuples().to_pylist(), strict=True):
        assert one["d"] == pytest.approx(other["d"], abs=1e-6)
        assert one["d_err"] == pytest.approx(other["d_err"], abs=1e-6)
    across = local().sql(
        "select duration(price > 20) as d from S[size 10 advance 5]", streams={"S": prices()}
    )
    assert max(row["d"] for row in across.tuples().to_pylist()) > 10


def test_spark_and_jobs_give_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    text = "select symbol, duration(price > 101) as d from S[size 10 advance 2] group by symbol"
    asked: dict[str, Any] = {"streams": {"S": prices()}}
    here, there = local().sql(text, **asked), pulse.Session(spark=spark).sql(text, **asked)
    assert rows_of(there.tuples()) == rows_of(here.tuples())
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, text)
    ran(spark, job)
    found = final(read_changes(tmp_path / "out"), ("symbol",), "d")
    assert len(found) > 100
    assert found == final(in_process(job), ("symbol",), "d")


def test_what_is_written_wrongly_is_pointed_at() -> None:
    asked: dict[str, Any] = {"streams": {"S": prices()}}
    with pytest.raises(LanguageError, match="expected a condition"):
        local().sql("select symbol, duration(price) from S[size 10] group by symbol", **asked)
    with pytest.raises(LanguageError, match="duration takes one argument, got 2"):
        local().sql("select symbol, duration(price > 1, 2) from S[size 10] group by symbol", **asked)
    with pytest.raises(LanguageError, match="duration cannot stand in WHERE"):
        local().sql("select symbol from S where duration(price > 1) > 2", **asked)
    with pytest.raises(LanguageError, match="needs a window"):
        local().sql("select symbol, duration(price > 1) from S group by symbol", **asked)
    points = local().fit(stream([1.0, 2.0], 1), key="k", time="t", model={"x": "samples"}, points=True)
    with pytest.raises(LanguageError, match="duration is weighted by time"):
        local().sql(ABOVE, streams={"S": points})
