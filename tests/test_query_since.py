"""Aggregates since a session's opening, midnight or the start: stored, revised, in jobs and on Spark, held against the tuples."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.calendar import DAY, AllTime, EachDay, EachSession
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.test_query_periods import ASKED, NAMES, START, ZONE, Piece, aggregated, by_close, pieces, trades

EVERY = 37 * 60_000_000
WINDOWS = {
    "since session start 'XNYS'": EachSession("XNYS"),
    f"since day start in '{ZONE}'": EachDay(ZONE),
    "since day start": EachDay("UTC"),
    "since start": AllTime(),
}


def until(parts: list[Piece], opens: int, t: int) -> list[Piece]:
    """The pieces of the truth from an opening up to an instant, which is the end of the last."""
    found = []
    for begin, end, x, y in parts:
        a, b = max(begin, Fraction(opens)), min(end, Fraction(t))
        if a < b or a == b == t or a == b == begin == end:
            slope = (y - x) / (end - begin) if begin < end else Fraction(0)
            found.append((a, b, x + slope * (a - begin), x + slope * (b - begin)))
    return found


def expected(
    data: pa.Table, periods: Any, truth: str, max_gap: int | None, every: int = EVERY
) -> dict[tuple[str, int], dict[str, Fraction]]:
    """The aggregates at all multiples of ``every`` at which there is a value."""
    found = {}
    for symbol in "ab":
        parts = list(pieces(data, symbol, truth, max_gap))
        for begin, end, _, _ in parts:
            for t in range(-(-int(begin) // every) * every, int(end), every):
                for opens, closes in periods.whole(t, t).tolist():
                    if opens <= t < closes and (so_far := until(parts, opens, t)):
                        long = any(a < b for a, b, _, _ in so_far)
                        found[symbol, t] = aggregated(so_far) if long else dict.fromkeys(NAMES, so_far[-1][3])
                        found[symbol, t]["sum"] = aggregated(so_far)["sum"] if long else Fraction(0)
    return found


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("truth", "bounds"),
    [
        ("step", {"error": 0}),
        ("linear", {"error": 0}),
        ("step", {"error": 0.4}),
        ("linear", {"error": 0.4, "drift": 5.0}),
    ],
)
@pytest.mark.parametrize("max_gap", [None, 7_200_000_000])
def test_results_are_within_their_bounds(
    window: str, truth: str, bounds: dict[str, float], max_gap: int | None
) -> None:
    data = trades(len(window) + len(truth), again=truth == "step")
    gap = None if max_gap is None else max_gap / 1e6
    model = local().fit(data, key="symbol", time="t", model={"price": truth}, max_gap=gap, **bounds)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol sample every {EVERY // 1_000_000}"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    want = expected(data, WINDOWS[window], truth, max_gap)
    assert found.keys() == want.keys()
    assert len(want) > 8
    exact = bounds == {"error": 0}
    for at, row in found.items():
        assert row["certainty"] == "certain"
        for name in NAMES:
            err = Fraction(row[f"{name}_price_err"])
            assert abs(Fraction(row[f"{name}_price"]) - want[at][name]) <= err, (at, name)
            if name not in ("sum", "avg") and exact and truth == "step":
                assert err == 0
            # An average over pieces is approximated to a millionth of its size.
            assert err <= (1e-4 if exact else 0.45) * (1 if name != "sum" else 800_000)


def test_a_drawdown_is_one_query_and_its_worst_of_each_day_another() -> None:
    data = trades(11)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0)
    inner = "select symbol, last(price) / max(price) - 1 as drawdown from S[since day start] group by symbol"
    found = by_close(local().sql(f"{inner} sample every 2220", streams={"S": model}).to_arrow())
    want = expected(data, EachDay("UTC"), "step", None)
    assert found.keys() == want.keys()
    for at, row in found.items():
        truth = want[at]["last"] / want[at]["max"] - 1
        assert abs(Fraction(row["drawdown"]) - truth) <= Fraction(row["drawdown_err"]) <= 1e-4
    assert min(row["drawdown"] for row in found.values()) < -0.01
    text = f"select symbol, min(drawdown) as worst from ({inner})[each day] group by symbol"
    worst = by_close(local().sql(text, streams={"S": model}).to_arrow())
    assert len(worst) > 12
    for (symbol, closes), row in worst.items():
        deepest, high = Fraction(0), Fraction(0)
        for begin, end, x, _ in pieces(data, symbol, "step", None):
            if begin < closes and (end > closes - DAY or begin == end == closes - DAY):
                high = max(high, x)
                deepest = min(deepest, x / high - 1)
        assert abs(Fraction(row["worst"]) - deepest) <= Fraction(row["worst_err"])


@pytest.mark.parametrize("level", [48, 50, 51])
def test_a_filter_below_adds_what_its_doubt_can_change(level: float) -> None:
    data = trades(5)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0.4)
    text = f"select symbol, {ASKED} from (select symbol, price from S where price > {level})[since day start] group by symbol"
    for possible in ("", " with possible"):
        answer = local().sql(f"{text} sample every 2220{possible}", streams={"S": model})
        found = by_close(answer.to_arrow())
        seen = 0
        for symbol in "ab":
            parts = [one for one in pieces(data, symbol, "step", None) if one[2] > level]
            for begin, end, _, _ in parts:
                for t in range(-(-int(begin) // EVERY) * EVERY, int(end), EVERY):
                    so_far = until(parts, t // DAY * DAY, t)
                    if (symbol, t) not in found or not any(a < b for a, b, _, _ in so_far):
                        continue
                    seen += 1
                    truth, row = aggregated(so_far), found[symbol, t]
                    for name in NAMES:
                        off = abs(Fraction(row[f"{name}_price"]) - truth[name])
                        assert row[f"{name}_price_err"] == np.inf or off <= Fraction(row[f"{name}_price_err"])
        assert seen > 10
        assert {row["certainty"] for row in found.values()} >= {"certain", "likely"}


def test_tuples_count_up_to_each_of_their_instants() -> None:
    data = trades(3)
    model = local().fit(data, key="symbol", time="t", model={"price": "samples"}, points=True)
    text = (
        "select symbol, count(*) as n, sum(price) as total, max(price) as high, first(price) as first "
        "from S[since day start] group by symbol"
    )
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    want: dict[tuple[str, int], tuple[float, ...]] = {}
    so_far: dict[tuple[str, int], list[float]] = {}
    for row in data.to_pylist():
        at = int(np.datetime64(row["t"], "us").astype(np.int64))
        day = so_far.setdefault((row["symbol"], at // DAY), [])
        day.append(row["price"])
        want[row["symbol"], at] = (len(day), sum(day), max(day), day[0])
    assert {at: (row["n"], row["total"], row["high"], row["first"]) for at, row in found.items()} == want
    assert len(want) > 100


def test_the_time_for_which_a_condition_held_since_midnight() -> None:
    data = trades(8)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0)
    text = "select symbol, duration(price > 50) as above from S[since day start] group by symbol sample every 2220"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    assert len(found) > 100
    assert max(row["above"] for row in found.values()) > 3600
    for (symbol, t), row in found.items():
        so_far = until(list(pieces(data, symbol, "step", None)), t // DAY * DAY, t)
        truth = sum((b - a for a, b, x, _ in so_far if x > 50), Fraction(0)) / 10**6
        assert abs(Fraction(row["above"]) - truth) <= Fraction(row["above_err"]) <= 1e-3


@pytest.mark.parametrize("window", ["since day start", "since start"])
def test_spark_gives_what_is_given_in_process(spark: SparkSession, window: str) -> None:
    model = local().fit(trades(6), key="symbol", time="t", model={"price": "linear"}, error=0.4)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    here, there = (one.sql(text, streams={"S": model}) for one in (local(), pulse.Session(spark=spark)))
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 100


@pytest.mark.parametrize("window", ["since day start", "since start"])
def test_a_job_gives_on_spark_what_it_gives_in_process(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    arriving(tmp_path / "in")
    text = f"select symbol, max(price) - last(price) as below from S[{window}] group by symbol"
    job = tick_job(tmp_path, text)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "below")
    assert len(found) > 100
    assert found == final(in_process(job), ("symbol",), "below")


@pytest.mark.parametrize("window", ["since session start 'XNYS'", "since day start", "since start"])
def test_a_revision_gives_what_a_fresh_fit_does(tmp_path: Path, window: str) -> None:
    data = trades(7)
    where = tmp_path / "model"
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    local().fit(data, out=where, keep_tuples=True, **asked)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    row = 40
    t, old = data["t"][row], data["price"][row].as_py()
    revision = pa.table(
        {
            "op": ["-U", "+U"],
            "symbol": ["a", "a"],
            "t": pa.array([t.as_py()] * 2, pa.timestamp("us")),
            "price": [old, old + 500.0],
        }
    )
    before = local().sql(f"{text} sample every 2220", streams={"S": where}).to_arrow()
    local().revise(where, revision)
    corrected = data["price"].to_numpy().copy()
    corrected[row] = old + 500.0
    fresh = local().fit(data.set_column(2, "price", [corrected]), **asked)
    after, again = (
        by_close(local().sql(f"{text} sample every 2220", streams={"S": one}).to_arrow())
        for one in (where, fresh)
    )
    assert after.keys() == again.keys()
    for at, one in after.items():
        for name in NAMES:
            assert one[f"{name}_price"] == pytest.approx(again[at][f"{name}_price"], rel=1e-9, abs=1e-6)
    changed = {at for at, one in by_close(before).items() if one["max_price"] != after[at]["max_price"]}
    assert changed
    assert local().revised(text, streams={"S": where}, since=1).to_arrow().num_rows


@pytest.mark.parametrize("window", ["each day", "since day start"])
@pytest.mark.parametrize("function", NAMES)
def test_results_are_in_the_units_that_hold_at_their_instants(window: str, function: str) -> None:
    """Prices double in the middle of a day, announced by an accent: a result is of the whole day, in the new units after it."""
    data = trades(21)
    at = START + 4 * DAY + 15 * 3_600_000_000
    recorded = np.where(data["t"].cast(pa.int64()).to_numpy() >= at, 2.0, 1.0) * data["price"].to_numpy()
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    accents = [f"{np.datetime64(at, 'us')} [[true, alter(price, y * 2, y / 2)]]"]
    altered = local().fit(data.set_column(2, "price", [recorded]), accents=accents, **asked)
    rate = " sample every 1 h" if window.startswith("since") else ""
    text = f"select symbol, {function}(price) as v from S[{window}] group by symbol{rate}"
    found, plain = (
        by_close(local().sql(text, streams={"S": one}).to_arrow())
        for one in (altered, local().fit(data, **asked))
    )
    assert found.keys() == plain.keys()
    assert {t >= at for _, t in found} == {True, False}
    for (symbol, t), row in found.items():
        assert row["v"] == pytest.approx(plain[symbol, t]["v"] * (2 if t >= at else 1), rel=1e-9)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("since week start", "expected session start, day start or start after SINCE"),
        ("since session 'XNYS'", "expected start after SINCE SESSION"),
        ("since session start", "expected the code of an exchange"),
        ("since session start 'NYSE!'", "there is no calendar of an exchange"),
        ("since day start in 'New York'", "there is no time zone"),
    ],
)
def test_what_has_no_meaning_names_its_place(window: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(
            f"select symbol, avg(price) as a from S[{window}] group by symbol", streams={"S": prices()}
        ).segments()
