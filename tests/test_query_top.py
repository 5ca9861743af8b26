"""``top n by x`` at each sampled instant, against the tuples: nothing certain is wrong, nothing true is outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.operators.across.top import Instants
from pulse.operators.node import PlanError
from pulse.runtime.execution import bound_plan
from tests.runtime.execution.asking import SECOND, START, local, prices, rows_of, table, ticks
from tests.runtime.jobs.running_jobs import in_process, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

values = st.integers(0, 6).map(lambda v: v / 4)
streams = st.lists(st.lists(values, min_size=5, max_size=5), min_size=1, max_size=6)


def stream(rows: list[list[float]]) -> pa.Table:
    flat = [(f"k{k}", START + i * SECOND, x) for k, of in enumerate(rows) for i, x in enumerate(of)]
    columns = dict(zip("ktx", map(list, zip(*flat, strict=True)), strict=True))
    return table(columns, k=pa.string(), x=pa.float64())


def fitted(rows: list[list[float]], error: float, truth: str = "step") -> Any:
    return local().fit(stream(rows), key="k", time="t", model={"x": truth}, error=error)


@given(
    streams,
    st.sampled_from([0.0, 0.1, 0.25, 0.6]),
    st.integers(1, 4),
    st.sampled_from(["top", "bottom"]),
    st.sampled_from([None, 0.5]),
)
def test_ranks_are_those_of_the_tuples(
    rows: list[list[float]], error: float, n: int, word: str, least: float | None
) -> None:
    """With a filter, too, through which keys pass only perhaps; at tuples and halfway between, where a step holds."""
    where = "" if least is None else f"where x > {least}"
    text = f"select k, x from S {where} {word} {n} by x sample every 500 ms with possible"
    found = local().sql(text, streams={"S": fitted(rows, error)}).tuples()
    at = found["t"].cast(pa.int64()).to_pylist()
    answer = {(t, row["k"]): row for t, row in zip(at, found.to_pylist(), strict=True)}
    assert len(answer) == len(at)
    sign = 1 if word == "top" else -1
    for half in range(8):
        now = {f"k{k}": of[half // 2] for k, of in enumerate(rows)}
        there = {k: sign * x for k, x in now.items() if least is None or x > least}
        for k in now:
            row = answer.pop((START + half * SECOND // 2, k), None)
            truth = k in there and sum(x > there[k] for x in there.values()) < n
            if truth:
                assert row is not None
            if row is not None and row["certainty"] == "certain":
                assert truth
            if error == 0.0:
                assert truth == (row is not None and row["certainty"] == "certain")
    assert all(t == START + 4 * SECOND for t, _ in answer)  # the last tuple, at its instant


@given(
    st.lists(st.tuples(st.integers(0, 5), values, st.booleans()), min_size=1, max_size=40), st.integers(1, 4)
)
def test_the_nth_largest_by_a_table_andby_sorting(points: list[tuple[int, float, bool]], n: int) -> None:
    ref, x, among = (np.array(one) for one in zip(*points, strict=True))
    instants = Instants.of(ref)
    found = instants.nth_largest(x, among, n)
    for at, mine in zip(ref, found, strict=True):
        some = sorted((v for r, v, a in points if a and r == at), reverse=True)
        assert mine == (some[n - 1] if len(some) >= n else -np.inf)
    assert np.array_equal(instants.by_sorting(x, among, n), found)


def test_keys_that_tie_for_the_last_place_are_all_given() -> None:
    found = local().sql(
        "select k, x from S top 2 by x sample every 1 s",
        streams={"S": fitted([[3.0] * 3, [2.0] * 3, [2.0] * 3, [1.0] * 3], 0.0)},
    )
    assert set(found.to_pandas()["k"]) == {"k0", "k1", "k2"}
    assert set(found.to_pandas()["certainty"]) == {"certain"}


def test_the_answer_without_possible_rows_is_that_of_the_model() -> None:
    model = prices()
    text = "select symbol, price - lag(price, 5 s) as change from S"
    every = local().sql(f"{text} sample every 1 s", streams={"S": model}).to_pandas()
    rank = every.groupby("t")["change"].rank(method="min", ascending=False)
    top = local().sql(f"{text} top 2 by change sample every 1 s", streams={"S": model}).to_pandas()
    wanted = every[rank <= 2]
    assert sorted(zip(top["t"], top["symbol"], strict=True)) == sorted(
        zip(wanted["t"], wanted["symbol"], strict=True)
    )
    assert {"certain", "likely"} == set(top["certainty"])


def test_windows_are_ranked_at_their_closing_times() -> None:
    text = "select symbol, avg(price) as mean from S[size 10 advance 5] group by symbol bottom 1 by mean"
    found = local().sql(text, streams={"S": prices(error=0, drift=None)}).to_pandas()
    every = local().sql(text.split(" bottom")[0], streams={"S": prices(error=0, drift=None)}).to_pandas()
    assert len(found) == every["t"].nunique() > 5
    assert np.allclose(found.sort_values("t")["mean"], every.groupby("t")["mean"].min(), rtol=0, atol=1e-9)


def test_parts_are_reduced_before_they_meet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys in several units give what they give in one."""
    data = ticks(symbols="abcdefghij")
    out = tmp_path / "model"
    model = prices(out, data)
    text = "select symbol, price from S top 3 by price sample every 1 s with possible"
    one = local().sql(text, streams={"S": model}).tuples()
    monkeypatch.setattr(bound_plan, "ROWS", 40)
    assert rows_of(local().sql(text, streams={"S": model}).tuples()) == rows_of(one)
    assert "[partial]" in local().sql(text, streams={"S": model}).explain()


def test_a_split_changes_no_rank() -> None:
    """As elsewhere, values are compared in the units of the stream's start, and shown in those in force."""
    data = ticks(symbols="ab", count=40)
    price = np.concatenate([np.full(40, 30.0), np.full(40, 20.0)])
    t = data["t"].cast(pa.int64()).to_numpy()
    price = np.where((t >= START + 20 * SECOND) & (np.arange(80) < 40), price / 2, price)
    accent = "2020-09-13T12:27:00 [[symbol = 'a', alter(price, y / 2, y * 2)]]"
    model = local().fit(
        data.set_column(2, "price", [price]),
        key="symbol",
        time="t",
        model={"price": "step"},
        error=0,
        accents=[accent],
    )
    found = (
        local()
        .sql("select symbol, price from S top 1 by price sample every 1 s", streams={"S": model})
        .to_pandas()
    )
    found = found.sort_values("t")
    assert set(found["symbol"]) == {"a"}
    assert list(found["price"]) == [30.0] * 20 + [15.0] * (len(found) - 20)


def test_spark_gives_what_is_given_in_process(spark: SparkSession) -> None:
    text = "select symbol, price from S where price > 19 top 2 by price sample every 1 s with possible"
    asked: dict[str, Any] = {"streams": {"S": prices()}}
    here, there = local().sql(text, **asked), pulse.Session(spark=spark).sql(text, **asked)
    assert rows_of(there.tuples()) == rows_of(here.tuples())
    assert len(rows_of(here.tuples())) > 100


def test_segments_differences_and_jobs_are_refused_by_name(tmp_path: Path) -> None:
    text = "select symbol, price from S top 2 by price sample every 1 s"
    with pytest.raises(PlanError, match=r"'top 2 by price' is decided at sampled instants.*ask for tuples"):
        local().sql(text, streams={"S": prices()}).segments()
    model = prices(tmp_path / "model", keep_tuples=True)
    row = ticks().slice(7, 1)
    local().revise(model.path, row.append_column("kind", pa.array(["-D"])), keep=True)
    with pytest.raises(PlanError, match="results are not maintained under revisions"):
        local().revised(text, 1, streams={"S": model.path}).tuples()
    arriving(tmp_path / "in")
    windowed = "select symbol, avg(price) as price from S[size 5 advance 1] group by symbol top 2 by price"
    with pytest.raises(pulse.PulseError, match=r"'top 2 by price' .*the results of a job are changes"):
        in_process(tick_job(tmp_path, windowed))
