"""Values some time ago (lag, rate, speed): stored and predicted, in process and on Spark, held against the tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of, ticks, tracks, vessels
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.test_query_truth import SECOND, SEEDS, Case, case, good, steepness
from tests.truth.measure import assess_tuples, values_outside

LAGS = (1, 250_000, 999_999, SECOND, 7 * SECOND)
CHANGE = "select symbol, price - lag(price, 5 s) as gain from S where price > lag(price, 5 s)"


def earlier_and_now(one: Case, by: int, every: int) -> pd.DataFrame:
    """The instants of a grid at which a value and the one before it exist, by key, from the tuples."""
    frames = []
    for key, track in one.tracks.items():
        known = [*track.begin, *track.end, *track.points]
        if known:
            t = np.arange(-(-int(min(known)) // every) * every, int(max(known)) + by + 1, every)
            now, there = track.at("x", t)
            before, was = track.at("x", t - by)
            both = there & was
            frames.append(pd.DataFrame({"k": key, "t": t[both], "now": now[both], "before": before[both]}))
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_samples(seed: int) -> None:
    one = case(seed + 9000)
    by = int(one.random.choice(LAGS))
    every = int(one.random.choice([250_000, 700_000]))
    rows = f"sample every {every / SECOND}"
    truth = earlier_and_now(one, by, every)
    truth["value"] = (truth["now"] - truth["before"]).astype(float)
    answer = one.ask(f"select k, x - lag(x, {by / SECOND!r}) as v from S {rows}").tuples()
    good(assess_tuples(answer, truth, keys=["k"], value="v", rounding=1e-12))
    text = f"select k, rate(x, {by / SECOND!r}) as v from S where x > lag(x, {by / SECOND!r}) {rows}"
    truth["margin"] = truth["value"]
    truth["value"] = ((truth["now"] - truth["before"]) * SECOND / by).astype(float)
    good(assess_tuples(one.ask(text).tuples(), truth, keys=["k"], value="v", rounding=1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_as_segments(seed: int) -> None:
    one = case(seed + 9100)
    by = int(one.random.choice(LAGS))
    answer = one.ask(f"select k, x - lag(x, {by / SECOND!r}) as v from S").segments()

    def truth_at(key: Any, t: Any) -> tuple[Any, Any]:
        (now, there), (before, was) = (one.tracks[key].at("x", at) for at in (t, t - by))
        return now - before, there & was

    bad, _ = values_outside(answer, ["k"], "v", truth_at, rounding=2 * steepness(one))
    assert bad == 0


@pytest.mark.parametrize("truth", ["step", "linear"])
def test_the_bound_of_a_rate_is_twice_that_of_its_value_by_the_duration(truth: str) -> None:
    data = ticks(count=200)
    model = local().fit(data, key="symbol", time="t", model={"price": truth}, error=0.3)
    rows = local().sql("select symbol, rate(price, 10 s) as r from S sample every 1 s", streams={"S": model})
    bounds = rows.to_pandas()["r_err"]
    assert len(bounds) > 500
    assert bounds.max() <= 2 * 0.3 / 10 * (1 + 1e-12)


def test_a_lag_of_an_average_is_the_average_then() -> None:
    model = prices()
    text = "select symbol, lag(a, 4 s) as a from (select symbol, avg(price) as a from S[size 8 advance 2]) as W sample every 2 s"
    means = (
        local()
        .sql("select symbol, avg(price) as a from S[size 8 advance 2]", streams={"S": model})
        .to_pandas()
    )
    means["t"] += pd.Timedelta("4s")
    found = local().sql(text, streams={"S": model}).to_pandas()
    both = found.merge(means, on=["symbol", "t"])
    # The earlier average is asked for only where there is a later one.
    assert len(both) == len(found) > 50
    assert np.allclose(both["a_x"], both["a_y"], rtol=0, atol=1e-9)


def test_an_average_of_changes_is_the_change_of_averages() -> None:
    model = prices(error=0, drift=None)
    streams = {"S": model}
    found = local().sql(
        "select symbol, avg(price - lag(price, 3 s)) as c from S[size 8 advance 1]", streams=streams
    )
    other = local().sql(
        "select symbol, a - lag(a, 3 s) as c from (select symbol, avg(price) as a from S[size 8 advance 1]) as W "
        "sample every 1 s",
        streams=streams,
    )
    both = found.to_pandas().merge(other.to_pandas(), on=["symbol", "t"])
    assert len(both) > 100
    assert np.allclose(both["c_x"], both["c_y"], rtol=0, atol=1e-9)


def test_where_does_not_remove_earlier_values() -> None:
    """The value now is above the mean, that of 5 s ago need not be."""
    streams = {"S": prices(error=0, drift=None)}
    text = "select symbol, price, lag(price, 5 s) as p from S where price > 20 sample every 1 s"
    found = local().sql(text, streams=streams).to_pandas()
    assert (found["price"] > 20).all()
    assert (found["p"] <= 20).any()


def test_speed_is_the_distance_travelled_by_the_time() -> None:
    data = vessels().to_pandas()
    found = (
        local()
        .sql("select id, speed(x, y, 8 s) as v from V sample every 4 s", streams={"V": tracks()})
        .to_pandas()
    )
    data["v"] = np.hypot(*(data.groupby("id")[name].diff(2) for name in "xy")) / 8
    both = found.merge(data.dropna(), on=["id", "t"])
    assert len(both) == len(found) > 100
    assert (np.abs(both["v_x"] - both["v_y"]) <= both["v_err"]).all()
    assert both["v_err"].max() <= 2 * np.hypot(0.5, 0.5) / 8 * (1 + 1e-9)


def test_a_lag_may_be_a_parameter_of_a_sweep() -> None:
    streams = {"S": prices()}
    text = CHANGE.replace("5 s", ":ago") + " sample every 1 s"
    found = local().sweep(text, streams=streams, ago=[3, 5]).to_pandas()
    for ago, rows in found.groupby("ago"):
        alone = local().sql(text, streams=streams, ago=ago).to_pandas()
        assert np.array_equal(np.sort(rows["gain"]), np.sort(alone["gain"]))
        assert len(alone) > 20


@pytest.mark.parametrize("text", [CHANGE, "select symbol, price / lag(price, 5 s) - 1 as gain from S"])
def test_spark_gives_what_is_given_in_process(spark: SparkSession, text: str) -> None:
    streams = {"S": prices()}
    here, there = local().sql(text, streams=streams), pulse.Session(spark=spark).sql(text, streams=streams)
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, CHANGE)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "gain")
    assert len(found) > 20
    assert found == final(in_process(job), ("symbol",), "gain")


def test_a_bound_on_a_change_chooses_the_fit() -> None:
    text = "select symbol, price - lag(price, 5 s) as gain from S"
    model = local().fit(
        ticks(),
        key="symbol",
        time="t",
        model={"price": "step"},
        for_query=f"{text} error within 1",
        stream="S",
    )
    rows = local().sql(f"{text} sample every 1 s", streams={"S": model}).to_pandas()
    assert 0.2 < rows["gain_err"].max() <= 1


def test_returns_pass_through_a_split() -> None:
    """After a split of two for one, earlier prices are in the units in force: a return shows no jump."""
    data = ticks(symbols="a", count=80)
    t = data["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    split = int(t[40])
    halved = data.set_column(2, "price", [np.where(t >= split, 0.5, 1.0) * data["price"].to_numpy()])
    accent = f"{pd.Timestamp(split, unit='us').isoformat()} [[symbol = 'a', alter(price, y / 2, y * 2)]]"
    text = "select symbol, price / lag(price, 5 s) - 1 as r, lag(price, 5 s) as p from S sample every 1 s"
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    plain = local().sql(text, streams={"S": local().fit(data, **asked)}).to_pandas()
    found = local().sql(text, streams={"S": local().fit(halved, accents=[accent], **asked)}).to_pandas()
    assert np.allclose(found["r"], plain["r"], rtol=0, atol=1e-12)
    after = found["t"] >= pd.Timestamp(split, unit="us")
    assert np.allclose(found["p"], np.where(after, 0.5, 1.0) * plain["p"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select symbol, lag(price) as p from S", r"lag takes 2 arguments, lag\(x, 60 s\), got 1"),
        ("select symbol, lag(price, 0 s) as p from S", "duration"),
        ("select symbol, lag(price, -5) as p from S", "duration"),
        ("select symbol, lag(price, 5 parsecs) as p from S", "parsecs"),
        (
            "select symbol, lag(venue, 5 s) as p from S",
            "lag takes modelled attributes; 'venue' is not modelled",
        ),
        ("select symbol, lag(lag(price, 5 s), 5 s) as p from S", "put the inner one in a subquery"),
        ("select symbol, lag(avg(price), 5 s) as p from S[size 5]", "put the aggregate in a subquery"),
    ],
)
def test_what_has_no_meaning_names_its_place(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(text, streams={"S": prices()}).segments()


def test_tuples_without_values_between_them_have_no_lag() -> None:
    model = local().fit(ticks(), key="symbol", time="t", model={"price": "samples"}, points=True)
    with pytest.raises(LanguageError, match="fit it with the truth step or linear"):
        local().sql("select symbol, lag(price, 5 s) as p from S", streams={"S": model}).tuples()
