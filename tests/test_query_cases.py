"""Values by cases (case, least, greatest, sign, floor): on random streams against the tuples, in windows, jobs and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.operators.errors import DomainError, MissingValueError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of, ticks
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.test_query_truth import SECOND, SEEDS, case, good, steepness
from tests.truth.measure import assess_tuples, values_outside

FORMS: list[tuple[str, Callable[[Any, float, float], Any]]] = [
    ("case when x > {c} then 1 else 0 end", lambda x, c, d: np.where(x > c, 1, 0)),
    (
        "case when x >= {c} then x when x < {d} then 2 * x - {c} else -1 end",
        lambda x, c, d: np.where(x >= c, x, np.where(x < d, 2 * x - c, -1)),
    ),
    ("case when x = {c} then 5 else 7 end", lambda x, c, d: np.where(x == c, 5, 7)),
    (
        "case when x <> {c} and not x > {d} then x else -x end",
        lambda x, c, d: np.where((x != c) & (x <= d), x, -x),
    ),
    (
        "case x when {c} then 1 when {d} then 2 else x end",
        lambda x, c, d: np.where(x == c, 1, np.where(x == d, 2, x)),
    ),
    (
        "case when abs(x - {c}) < 1 then x * x else {d} end",
        lambda x, c, d: np.where(np.abs(x - c) < 1, x * x, d),
    ),
    (
        "case when x < {c} or (x between {d} and {c}) then x else 0 end",
        lambda x, c, d: np.where((x < c) | ((x >= d) & (x <= c)), x, 0),
    ),
    ("least(x, {c})", lambda x, c, d: np.minimum(x, c)),
    ("greatest(x, {c}, 2 * x - {d})", lambda x, c, d: np.maximum(np.maximum(x, c), 2 * x - d)),
    ("floor(x)", lambda x, c, d: np.floor(x)),
    ("floor(4 * x - {c})", lambda x, c, d: np.floor(4 * x - c)),
    ("sign(x - {c})", lambda x, c, d: np.sign(x - c)),
    ("least(greatest(x, {c}), {d}) * sign(x)", lambda x, c, d: np.minimum(np.maximum(x, c), d) * np.sign(x)),
]
UP = "select symbol, case when price > lag(price, 5 s) then greatest(price, 20) else sign(price - 19) end as v from S"


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_segments_and_samples(seed: int) -> None:
    one = case(seed + 9200)
    c, d = one.number(), one.number()
    for form, of in (FORMS[(2 * seed + i) % len(FORMS)] for i in range(4)):
        text = form.format(c=repr(c), d=repr(d))

        def truth_at(key: Any, t: Any, of: Any = of) -> tuple[Any, Any]:
            value, there = one.tracks[key].at("x", t)
            return of(value, c, d), there

        answer = one.ask(f"select k, {text} as v from S").segments()
        bad, _ = values_outside(answer, ["k"], "v", truth_at, rounding=3 * steepness(one) * (1 + abs(c)))
        assert bad == 0, text
        every = int(one.random.choice([250_000, 700_000]))
        frames = []
        for key, track in one.tracks.items():
            known = [*track.begin, *track.end, *track.points]
            t = np.arange(-(-int(min(known)) // every) * every, int(max(known)) + 1, every)
            value, there = truth_at(key, t)
            frames.append(pd.DataFrame({"k": key, "t": t[there], "value": value[there].astype(float)}))
        rows = one.ask(f"select k, {text} as v from S sample every {every / SECOND}").tuples()
        good(assess_tuples(rows, pd.concat(frames), keys=["k"], value="v", rounding=1e-11))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_case_of_averages_covers_both_values_where_it_is_undecided(seed: int) -> None:
    one = case(seed + 9300)
    c = one.number()
    inner = "select k, avg(x) as a from S[size 3 advance 0.5]"
    means = one.ask(inner).tuples().to_pandas()
    text = f"case when a > {c!r} then 2 * a else sign(a) - 1 end"
    found = one.ask(f"select k, {text} as v, least(a, {c!r}) as w from ({inner}) as W").tuples().to_pandas()
    both = means.merge(found, on=["k", "t"])
    assert len(both) == len(means) == len(found)
    for a in (both["a"] - both["a_err"], both["a"], both["a"] + both["a_err"]):
        value = np.where(a > c, 2 * a, np.sign(a) - 1)
        assert (np.abs(both["v"] - value) <= both["v_err"] * (1 + 1e-12) + 1e-12).all()
        assert (np.abs(both["w"] - np.minimum(a, c)) <= both["w_err"] * (1 + 1e-12) + 1e-12).all()
    decided = np.abs(both["a"] - c) > both["a_err"]
    assert (both["w_err"] <= np.where(decided, both["a_err"], np.inf)).all()


def test_where_the_condition_is_decided_the_error_is_that_of_the_value() -> None:
    model = prices(error=0.3, drift=None)
    rows = local().sql(
        "select symbol, case when price > 20 then 1 else 0 end as v, price from S", streams={"S": model}
    )
    frame = rows.segments().to_pandas()
    value, err = frame["price"].str[0], frame["price_err"]
    constant = frame["price"].map(lambda c: not np.any(c[1:]))
    decided = constant & ((value - 20).abs() > err + 1e-9)
    assert decided.sum() > 5
    assert (frame["v_err"][decided] == 0).all()
    assert set(frame["v_err"].round(12)) == {0.0, 1.0}
    assert set(frame["certainty"]) == {"certain"}


def test_a_value_is_computed_only_where_its_condition_may_hold() -> None:
    model = prices(error=0.01, drift=None)
    text = (
        "select symbol, case when price > 19.6 then log(price - 19.5) else 0 end as v from S sample every 1 s"
    )
    found = local().sql(text, streams={"S": model}).to_pandas()
    truth = ticks().to_pandas().merge(found, on=["symbol", "t"])
    assert len(truth) == len(found) > 200
    value = np.log(np.where(truth["price"] > 19.6, truth["price"] - 19.5, 1.0))
    assert (value != 0).sum() > 50
    assert (value == 0).sum() > 50
    assert (np.abs(truth["v"] - value) <= truth["v_err"] + 1e-12).all()


def test_a_comparison_with_a_null_goes_on_to_the_next_case() -> None:
    text = "select symbol, case venue when 'N' then 1 when 'Q' then 2 else 3 end as v from S sample every 1 s"
    found = local().sql(text, streams={"S": prices()}).to_pandas()
    truth = ticks().to_pandas().merge(found, on=["symbol", "t"])
    assert (truth["v"] == truth["venue"].map({"N": 1, "Q": 2}).fillna(3)).all()
    assert set(truth["v"]) == {1, 2, 3}


def test_a_null_number_is_refused_where_it_would_be_the_value() -> None:
    data = ticks().to_pandas()
    data["lot"] = np.where(data["venue"] == "N", 5.0, np.nan)
    model = local().fit(
        data, key="symbol", time="t", model={"price": "step"}, error=0.3, keep=["venue", "lot"]
    )
    text = "select symbol, case when venue = '{}' then lot else 0 end as v from S sample every 1 s"
    found = local().sql(text.format("N"), streams={"S": model}).to_pandas()
    assert set(found["v"]) == {0.0, 5.0}
    with pytest.raises(MissingValueError, match=r"'S\.lot' is null"):
        local().sql(text.format("Q"), streams={"S": model}).to_pandas()


def test_cases_in_predicates_windows_and_joins() -> None:
    streams = {"S": prices(error=0, drift=None)}
    by_case = "select symbol, price from S where case when venue = 'N' then price else 0 end > 20"
    by_and = "select symbol, price from S where venue = 'N' and price > 20"
    assert rows_of(local().sql(by_case, streams=streams).segments()) == rows_of(
        local().sql(by_and, streams=streams).segments()
    )
    share = "select symbol, avg(case when price > 20 then 1 else 0 end) as v from S[size 10 advance 10]"
    found = local().sql(share, streams=streams).to_pandas()
    data = ticks().to_pandas()
    for _, row in found.iterrows():
        some = data[(data["symbol"] == row["symbol"]) & (data["t"] < row["t"])]
        some = some[some["t"] >= row["t"] - pd.Timedelta("10s")]
        assert abs((some["price"] > 20).mean() - row["v"]) <= row["v_err"] + 1e-12
        assert row["v_err"] < 1e-4
    pair = (
        "select A.symbol as a, B.symbol as b, greatest(A.price, B.price) as v from S as A join S as B "
        "on (A.symbol < B.symbol) sample every 1 s"
    )
    joined = local().sql(pair, streams=streams).to_pandas()
    wide = data.pivot(index="t", columns="symbol", values="price")
    truth = np.array([max(wide.at[r.t, r.a], wide.at[r.t, r.b]) for r in joined.itertuples()])
    assert len(joined) > 500
    assert (np.abs(truth - joined["v"]) <= joined["v_err"] + 1e-12).all()


def test_a_floor_of_too_many_steps_is_refused() -> None:
    model = local().fit(ticks(), key="symbol", time="t", model={"price": "linear"}, error=0.01)
    with pytest.raises(DomainError, match=r"passes [\d,]+ whole numbers for .* makes too many pieces"):
        local().sql("select symbol, floor(1e6 * price) as v from S", streams={"S": model}).segments()


def test_a_sweep_gives_what_each_query_gives() -> None:
    streams = {"S": prices()}
    text = "select symbol, case when price > :level then 1 else greatest(price, :level) end as v from S sample every 1 s"
    found = local().sweep(text, streams=streams, level=[19, 20.5]).to_pandas()
    for level, rows in found.groupby("level"):
        alone = local().sql(text, streams=streams, level=level).to_pandas()
        assert np.array_equal(np.sort(rows["v"]), np.sort(alone["v"]))
        assert len(alone) > 200


def test_spark_gives_what_is_given_in_process(spark: SparkSession) -> None:
    streams = {"S": prices()}
    here, there = local().sql(UP, streams=streams), pulse.Session(spark=spark).sql(UP, streams=streams)
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, UP)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "v")
    assert len(found) > 20
    assert found == final(in_process(job), ("symbol",), "v")


def test_a_bound_on_the_greatest_chooses_the_fit() -> None:
    text = "select symbol, greatest(price, 20) as v from S"
    model = local().fit(
        ticks(),
        key="symbol",
        time="t",
        model={"price": "step"},
        for_query=f"{text} error within 0.25",
        stream="S",
    )
    assert (
        0.1 < local().sql(f"{text} sample every 1 s", streams={"S": model}).to_pandas()["v_err"].max() <= 0.25
    )


def test_values_pass_through_a_split() -> None:
    """Both values of the case scale with the price, so the case does; a number does not, and the case keeps its units."""
    data = ticks(symbols="a", count=80)
    t = data["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    split = int(t[40])
    after = t >= split
    halved = data.set_column(2, "price", [np.where(after, 0.5, 1.0) * data["price"].to_numpy()])
    accent = f"{pd.Timestamp(split, unit='us').isoformat()} [[symbol = 'a', alter(price, y / 2, y * 2)]]"
    text = (
        "select symbol, case when price > 20 then price else 0 end as v, case when price > 20 then price else 1 end as w, "
        "greatest(price, lag(price, 5 s)) as g, sign(price) as s from S sample every 1 s"
    )
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    plain = local().sql(text, streams={"S": local().fit(data, **asked)}).to_pandas()
    found = local().sql(text, streams={"S": local().fit(halved, accents=[accent], **asked)}).to_pandas()
    scale = np.where(found["t"] >= pd.Timestamp(split, unit="us"), 0.5, 1.0)
    for name, factor in (("v", scale), ("w", 1.0), ("g", scale), ("s", 1.0)):
        assert np.allclose(found[name], factor * plain[name], rtol=0, atol=1e-12), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case when price > 20 then 1 end", "expected WHEN or ELSE in CASE"),
        ("case when price then 1 else 0 end", "expected a condition"),
        ("case when price > 20 then 'a' else 'b' end", "CASE gives numbers"),
        ("case when price > 20 then 1 else 0", "expected end after CASE"),
        ("case else 1 end", "expected when in CASE"),
        ("case venue when 1 then 1 else 0 end", "cannot be compared"),
        ("least(price)", r"least takes 2 arguments, least\(x, y\), got 1"),
        ("greatest()", r"greatest takes 2 arguments, greatest\(x, y\), got none"),
        ("floor()", r"floor takes one argument, floor\(x\), got none"),
        ("sign(price, 2)", r"sign takes one argument, sign\(x\), got 2"),
        ("case " + "when price > 1 then 1 " * 61 + "else 0 end", "more than 60 conditions"),
    ],
)
def test_what_has_no_meaning_names_its_place(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(f"select symbol, {text} as v from S", streams={"S": prices()}).segments()
