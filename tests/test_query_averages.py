"""Exponential moving averages (ema): stored and predicted, revised, in process and on Spark, against those of the tuples."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.operators.relational.smooth import LEFT_OUT
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of, ticks
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.test_query_truth import SECOND, SEEDS, case, good, steepness
from tests.truth.measure import assess_tuples, values_outside
from tests.truth.pieces import Long, Track

TAUS = (1, 1_000, 250_000, SECOND, 7 * SECOND, 3600 * SECOND)
MACD = "select symbol, ema(price, 2 s) - ema(price, 5 s) as d from S where ema(price, 2 s) > ema(price, 5 s)"
RECORDED = Path(__file__).parents[2] / "shared" / "data" / "trades_us_equities_20131007_09.parquet"


class Averages:
    """The average of a track's lines at any instant, in extended precision; after a hole it starts anew."""

    def __init__(self, track: Track, tau: int) -> None:
        self.track, self.tau = track, Long(tau)
        first, last = track.first["x"].astype(Long), track.last["x"].astype(Long)
        self.length = (track.end - track.begin).astype(Long)
        self.slope = (last - first) / self.length
        self.start = np.zeros(len(first), dtype=Long)
        for i in range(len(first)):
            if i == 0 or track.begin[i] != track.end[i - 1]:
                self.start[i] = first[i]
            else:
                self.start[i] = self._value(i - 1, self.length[i - 1])

    def _value(self, i: Any, since: Any) -> Any:
        """The average this long after piece ``i`` began: the integral of a line and a fading exponential.

        Written with expm1, so that short times lose nothing: y = y0 + (x0 - y0 - k tau) (1 - f) + k t.
        """
        faded = -np.expm1(-since / self.tau)
        first = self.track.first["x"].astype(Long)[i]
        return (
            self.start[i] + (first - self.start[i] - self.slope[i] * self.tau) * faded + self.slope[i] * since
        )

    def at(self, t: Any) -> tuple[Any, Any]:
        """Values at microseconds, and whether there is one."""
        track = self.track
        if not len(track.begin):
            return np.zeros(len(t), dtype=Long), np.zeros(len(t), bool)
        i = np.maximum(np.searchsorted(track.begin, t, side="right") - 1, 0)
        there = (t >= track.begin[i]) & (t < track.end[i])
        return self._value(i, np.asarray(t - track.begin[i], dtype=Long)), there


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_segments_and_samples(seed: int) -> None:
    one = case(seed + 9400)
    tau = int(one.random.choice(TAUS))

    @cache
    def averages(key: Any) -> Averages:
        return Averages(one.tracks[key], tau)

    answer = one.ask(f"select k, ema(x, {tau / SECOND!r}) as v from S").segments()
    # A jump of the tuples that is a steep line for a truth moves the average by as much as time is rounded.
    bad, _ = values_outside(
        answer, ["k"], "v", lambda key, t: averages(key).at(t), rounding=2 * steepness(one) + 1e-9
    )
    assert bad == 0
    every = int(one.random.choice([250_000, 700_000]))
    frames = []
    for key, track in one.tracks.items():
        if len(track.begin):
            t = np.arange(-(-int(track.begin[0]) // every) * every, int(track.end[-1]) + 1, every)
            value, there = averages(key).at(t)
            frames.append(pd.DataFrame({"k": key, "t": t[there], "value": value[there].astype(float)}))
    rows = one.ask(f"select k, ema(x, {tau / SECOND!r}) as v from S sample every {every / SECOND}").tuples()
    if frames:
        good(assess_tuples(rows, pd.concat(frames), keys=["k"], value="v", rounding=1e-9))
    else:
        assert len(rows) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_no_larger_than_the_values_own(seed: int) -> None:
    one = case(seed + 9400)
    tau = float(one.random.choice([0.2, 1.0, 30.0]))
    both = one.ask(f"select k, ema(x, {tau}) as v, x from S").segments().to_pandas()
    for _, rows in both.groupby("k"):
        size = rows["x"].map(lambda c: np.abs(c).sum()).max() * 1e-5
        assert rows["v_err"].max() <= rows["x_err"].max() * 1.13 + size + LEFT_OUT * 1.01


def test_an_average_of_a_model_with_a_drift_errs_by_twice_the_drift_in_tau() -> None:
    model = prices(data=ticks(count=600), error=1.0, drift=0.1)
    found = local().sql("select symbol, ema(price, 30 s) as v from S sample every 1 s", streams={"S": model})
    rows = found.to_pandas()
    late = rows[rows["t"] > rows["t"].min() + pd.Timedelta("300s")]
    assert len(late) > 500
    assert late["v_err"].max() <= 2 * 0.1 / 30 + 1.13 * 20 * 1e-6 + 0.125 * 1.0 + 1e-3
    exact = _stepwise(ticks(count=600).to_pandas(), 30.0, rows)
    assert (np.abs(rows["v"] - exact) <= rows["v_err"] + 1e-9).all()


def _stepwise(data: pd.DataFrame, tau: float, rows: pd.DataFrame) -> Any:
    """The averages of step functions, tuple by tuple, at the instants of rows."""
    found = np.zeros(len(rows))
    for symbol, some in rows.groupby("symbol"):
        own = data[data["symbol"] == symbol].sort_values("t")
        t = own["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
        price, state = own["price"].to_numpy(), np.zeros(len(own))
        state[0] = price[0]
        for i in range(1, len(t)):
            state[i] = price[i - 1] + (state[i - 1] - price[i - 1]) * np.exp(-(t[i] - t[i - 1]) / 1e6 / tau)
        at = some["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
        i = np.searchsorted(t, at, "right") - 1
        found[rows.index.get_indexer(some.index)] = price[i] + (state[i] - price[i]) * np.exp(
            -(at - t[i]) / 1e6 / tau
        )
    return found


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded trades are not here")
def test_macd_of_recorded_trades() -> None:
    data = pd.read_parquet(RECORDED, columns=["symbol", "t", "price"], filters=[("symbol", "=", "AIG")])
    data = data[(data["t"] >= "2013-10-07 09:30") & (data["t"] < "2013-10-07 12:00")]
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error="0.02%")
    text = "select symbol, ema(price, 12 s) as a, ema(price, 26 s) as b, ema(price, 12 s) - ema(price, 26 s) as d from S"
    rows = local().sql(f"{text} sample every 5 s", streams={"S": model}).to_pandas()
    a, b = (_stepwise(data, tau, rows) for tau in (12.0, 26.0))
    assert len(rows) > 1500
    for name, truth in (("a", a), ("b", b), ("d", a - b)):
        assert (np.abs(rows[name] - truth) <= rows[f"{name}_err"] + 1e-9).all(), name
    assert rows["a_err"].max() <= 0.0002 * 1.13 * data["price"].max() + 1e-4


def test_after_a_hole_it_starts_anew() -> None:
    data = ticks(symbols="a", count=40).to_pandas()
    data = pd.concat([data[:20], data[20:].assign(t=data["t"][20:] + pd.Timedelta("60s"))])
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0, max_gap=5)
    rows = (
        local()
        .sql("select symbol, ema(price, 5 s) as v from S sample every 1 s", streams={"S": model})
        .to_pandas()
    )
    parts = [_stepwise(part, 5.0, rows) for part in (data[:20], data[20:])]
    late = rows["t"] >= data["t"].iloc[20]
    assert late.sum() >= 19
    assert (~late).sum() >= 19
    assert np.allclose(rows["v"], np.where(late, parts[1], parts[0]), rtol=0, atol=1e-4)


def test_an_average_of_an_expression_is_not_the_expression_of_averages() -> None:
    streams = {"S": prices(error=0, drift=None)}
    text = "select symbol, ema(price * price, 4 s) as q, ema(price, 4 s) as m, ema(2 * price + 1, 4 s) as l from S"
    rows = local().sql(f"{text} sample every 1 s", streams=streams).to_pandas()
    data = ticks().to_pandas()
    square = _stepwise(data.assign(price=data["price"] ** 2), 4.0, rows)
    assert (np.abs(rows["q"] - square) <= rows["q_err"] + 1e-9).all()
    assert (np.abs(rows["l"] - 2 * rows["m"] - 1) <= rows["l_err"] + 2 * rows["m_err"]).all()
    assert (rows["q"] > rows["m"] ** 2 + 0.01).any()


def test_below_and_above_windows_and_in_subqueries() -> None:
    streams = {"S": prices(error=0, drift=None)}
    mean = "select symbol, avg(ema(price, 3 s)) as v from S[size 8 advance 1]"
    inner = "select symbol, avg(price) as a from S[size 8 advance 1]"
    other = f"select symbol, ema(a, 3 s) as v, a from ({inner}) as W sample every 1 s"
    below, above = (local().sql(one, streams=streams).to_pandas() for one in (mean, other))
    both = below.merge(above, on=["symbol", "t"])
    late = both[both["t"] > both["t"].min() + pd.Timedelta("40s")]
    assert len(late) > 20
    # Averages commute, up to how each starts.
    assert np.allclose(late["v_x"], late["v_y"], rtol=0, atol=1e-3)
    inner = "select symbol, ema(price, 3 s) as m from S where price > 0"
    twice = f"select symbol, ema(m, 3 s) as v from ({inner}) as W sample every 1 s"
    assert len(local().sql(twice, streams=streams).to_pandas()) > 200


def test_a_range_of_time_has_the_values_of_the_whole() -> None:
    data = ticks(count=3000)
    streams = {"S": prices(data=data)}
    text = "select symbol, ema(price, 10 s) as v from S{} sample every 10 s"
    whole = local().sql(text.format(""), streams=streams).to_pandas()
    start = whole["t"].min() + pd.Timedelta("2000s")
    part = local().sql(text.format(f" where t >= '{start}'"), streams=streams).to_pandas()
    both = part.merge(whole, on=["symbol", "t"])
    assert len(both) == len(part) == int((whole["t"] >= start).sum()) > 400
    assert np.allclose(both["v_x"], both["v_y"], rtol=0, atol=1e-9)


def test_the_duration_may_be_a_parameter_of_a_sweep() -> None:
    streams = {"S": prices()}
    text = "select symbol, ema(price, :short) - ema(price, :long) as d from S sample every 1 s"
    found = local().sweep(text, streams=streams, short=[2, 4], long=[8]).to_pandas()
    for short, rows in found.groupby("short"):
        alone = local().sql(text, streams=streams, short=short, long=8).to_pandas()
        assert np.array_equal(np.sort(rows["d"]), np.sort(alone["d"]))
        assert len(alone) > 200


def test_spark_gives_what_is_given_in_process(spark: SparkSession) -> None:
    streams = {"S": prices()}
    here, there = local().sql(MACD, streams=streams), pulse.Session(spark=spark).sql(MACD, streams=streams)
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 20


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, MACD)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "d")
    assert len(found) > 20
    assert found == final(in_process(job), ("symbol",), "d")


def test_a_bound_on_an_average_chooses_the_fit() -> None:
    text = "select symbol, ema(price, 5 s) as v from S"
    model = local().fit(
        ticks(),
        key="symbol",
        time="t",
        model={"price": "step"},
        for_query=f"{text} error within 0.5",
        stream="S",
    )
    assert (
        0.05 < local().sql(f"{text} sample every 1 s", streams={"S": model}).to_pandas()["v_err"].max() <= 0.5
    )


def test_averages_pass_through_a_split() -> None:
    data = ticks(symbols="a", count=80)
    t = data["t"].to_numpy().astype("datetime64[us]").astype(np.int64)
    split = int(t[40])
    halved = data.set_column(2, "price", [np.where(t >= split, 0.5, 1.0) * data["price"].to_numpy()])
    accent = f"{pd.Timestamp(split, unit='us').isoformat()} [[symbol = 'a', alter(price, y / 2, y * 2)]]"
    text = "select symbol, ema(price, 5 s) as v, price / ema(price, 5 s) as r from S sample every 1 s"
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    plain = local().sql(text, streams={"S": local().fit(data, **asked)}).to_pandas()
    found = local().sql(text, streams={"S": local().fit(halved, accents=[accent], **asked)}).to_pandas()
    scale = np.where(found["t"] >= pd.Timestamp(split, unit="us"), 0.5, 1.0)
    assert np.allclose(found["v"], scale * plain["v"], rtol=0, atol=1e-9)
    assert np.allclose(found["r"], plain["r"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ema(price)", r"ema takes 2 arguments, ema\(x, 60 s\), got 1"),
        ("ema(price, 0 s)", "duration"),
        ("ema(5, 5 s)", "ema takes an attribute or an expression of some"),
        ("ema(ema(price, 5 s), 5 s)", "put the inner one in a subquery"),
        ("ema(lag(price, 5 s), 5 s)", "put the inner one in a subquery"),
        ("lag(ema(price, 5 s), 5 s)", "put the inner one in a subquery"),
        ("ema(avg(price), 5 s)", "put the aggregate in a subquery"),
        ("ema(venue, 5 s)", "expected a number, got 'venue'"),
    ],
)
def test_what_has_no_meaning_names_its_place(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(f"select symbol, {text} as v from S", streams={"S": prices()}).segments()


def test_attributes_of_two_streams_need_a_subquery() -> None:
    text = (
        "select A.symbol, ema(A.price - B.price, 5 s) as v from S as A join S as B on (A.symbol = B.symbol)"
    )
    with pytest.raises(LanguageError, match="put the join in a subquery"):
        local().sql(text, streams={"S": prices()}).segments()


def test_lineage_and_certainty_are_those_of_the_values_that_count() -> None:
    streams = {"S": prices()}
    rows = (
        local().sql("select symbol, ema(price, 100 ms) as v from S", streams=streams, lineage=True).segments()
    )
    causes = [len(one) for one in rows.column("lineage").to_pylist()]
    assert min(causes) == 1
    assert 1 < max(causes) < 12  # of about 14 segments a key, those of the last 4 s
    inner = "select symbol, price as p from S where price > 20"
    found = local().sql(f"select symbol, ema(p, 1 s) as v from ({inner}) as W", streams=streams).segments()
    assert set(found.column("certainty").to_pylist()) == {"certain", "likely"}
