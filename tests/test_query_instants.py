"""Instants of extrema in queries: over periods, since an opening, of tuples, of groups; stored, revised and in jobs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.calendar import DAY
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving
from tests.test_query_periods import START, ZONE, Piece, pieces, trades
from tests.test_query_periods import WINDOWS as PERIODS
from tests.test_query_since import EVERY, until
from tests.test_query_since import WINDOWS as SINCE

ASKED = "min_at(price) as low, max_at(price) as high"
FITS: list[tuple[str, dict[str, float]]] = [
    ("step", {"error": 0}),
    ("linear", {"error": 0}),
    ("step", {"error": 0.4}),
    ("linear", {"error": 0.4, "drift": 5.0}),
]


def reached(parts: list[Piece], closing: int, name: str) -> tuple[Fraction, Fraction]:
    """The first and last instant of the extremum of straight pieces, ends included, in seconds from a closing time."""
    best = min if name == "low" else max
    values = [(value, at) for begin, end, x, y in parts for at, value in ((begin, x), (end, y))]
    level = best(value for value, _ in values)
    held = [at - closing for value, at in values if value == level]
    return min(held) / 10**6, max(held) / 10**6


def by_close(table: pa.Table) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows by symbol and closing time; instants, which are timestamps, as exact seconds from it."""
    closes = table["t"].cast(pa.int64()).to_pylist()
    instants = {
        name: table[name].cast(pa.int64()).to_pylist()
        for name in table.column_names
        if name != "t" and pa.types.is_timestamp(table.schema.field(name).type)
    }
    assert instants
    found = {}
    for place, (row, t) in enumerate(zip(table.to_pylist(), closes, strict=True)):
        since = {name: Fraction(at[place] - t, 10**6) for name, at in instants.items()}
        found[row.get("symbol", ""), t] = {**row, **since}
    return found


def check(found: dict[Any, dict[str, Any]], parts: dict[Any, list[Piece]]) -> None:
    for at, row in found.items():
        for name in ("low", "high"):
            for instant in reached(parts[at], at[1], name):
                assert abs(Fraction(row[name]) - instant) <= Fraction(row[f"{name}_err"]), (at, name)


def inside(parts: list[Piece], opens: int, closes: int) -> list[Piece]:
    """The pieces of the truth in a period."""
    found = []
    for begin, end, x, y in parts:
        a, b = max(begin, Fraction(opens)), min(end, Fraction(closes))
        if a < b or (a == b == begin == end and b < closes):
            slope = (y - x) / (end - begin) if begin < end else Fraction(0)
            found.append((a, b, x + slope * (a - begin), x + slope * (b - begin)))
    return found


@pytest.mark.parametrize("window", PERIODS)
@pytest.mark.parametrize(("truth", "bounds"), FITS)
@pytest.mark.parametrize("max_gap", [None, 7_200_000_000])
def test_periods_keep_the_truth(
    window: str, truth: str, bounds: dict[str, float], max_gap: int | None
) -> None:
    data = trades(len(window) + len(truth), again=truth == "step")
    gap = None if max_gap is None else max_gap / 1e6
    model = local().fit(data, key="symbol", time="t", model={"price": truth}, max_gap=gap, **bounds)
    answer = local().sql(f"select symbol, {ASKED} from S[{window}] group by symbol", streams={"S": model})
    found = by_close(answer.to_arrow())
    want = {
        (symbol, closes): own
        for symbol in "ab"
        for opens, closes in PERIODS[window].whole(START, START + 12 * DAY).tolist()
        if (own := inside(list(pieces(data, symbol, truth, max_gap)), opens, closes))
    }
    assert len(found) > 6
    assert found.keys() <= want.keys()
    check(found, want)
    assert {row["certainty"] for row in found.values()} == {"certain"}
    if bounds == {"error": 0} and truth == "linear":  # values in eighths tie now and then
        assert np.median([row["low_err"] for row in found.values()]) < 1e-6


@pytest.mark.parametrize("window", SINCE)
@pytest.mark.parametrize(("truth", "bounds"), FITS)
def test_running_windows_keep_the_truth(window: str, truth: str, bounds: dict[str, float]) -> None:
    data = trades(len(window) + len(truth), again=truth == "step")
    model = local().fit(data, key="symbol", time="t", model={"price": truth}, max_gap=7_200, **bounds)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol sample every {EVERY // 1_000_000}"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    want = {}
    for symbol, t in found:
        own = list(pieces(data, symbol, truth, 7_200_000_000))
        ((opens, _),) = SINCE[window].whole(t, t).tolist()
        want[symbol, t] = until(own, opens, t)
    assert len(found) > 8
    check(found, want)
    if bounds == {"error": 0} and truth == "linear":
        assert np.median([row["high_err"] for row in found.values()]) < 60.0


@pytest.mark.parametrize("level", [48, 50])
def test_a_filter_below_makes_candidates_of_what_it_may_let_pass(level: float) -> None:
    data = trades(5)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0.4)
    inner = f"(select symbol, price from S where price > {level})"
    own = {symbol: [one for one in pieces(data, symbol, "step", None) if one[2] > level] for symbol in "ab"}
    for window, every in (("each day", ""), ("since day start", " sample every 2220")):
        text = f"select symbol, {ASKED} from {inner}[{window}] group by symbol{every} with possible"
        found = by_close(local().sql(text, streams={"S": model}).to_arrow())
        want = {
            (symbol, t): inside(own[symbol], (t - DAY if window == "each day" else t // DAY * DAY), t)
            for symbol, t in found
        }
        true = {at: row for at, row in found.items() if any(a < b for a, b, _, _ in want[at])}
        assert len(true) > 4
        check(true, want)


def test_tuples_of_windows_days_and_since_midnight() -> None:
    data = trades(3)
    model = local().fit(data, key="symbol", time="t", model={"price": "samples"}, points=True)
    own = {
        symbol: [
            (int(np.datetime64(row["t"], "us").astype(np.int64)), row["price"])
            for row in data.to_pylist()
            if row["symbol"] == symbol
        ]
        for symbol in "ab"
    }
    windows: dict[str, Any] = {
        "size 2 h advance 1 h": lambda at, t: t - 7_200_000_000 <= at < t,
        "each day": lambda at, t: t - DAY <= at < t,
        "since day start": lambda at, t: t // DAY * DAY <= at <= t,
    }
    for window, holds in windows.items():
        text = f"select symbol, {ASKED} from S[{window}] group by symbol"
        found = by_close(local().sql(text, streams={"S": model}).to_arrow())
        assert len(found) > 10
        for (symbol, t), row in found.items():
            there = [(at, x) for at, x in own[symbol] if holds(at, t)]
            for name, best in (("low", min), ("high", max)):
                level = best(x for _, x in there)
                instants = [(at - t) / 1e6 for at, x in there if x == level]
                assert float(row[name]) == pytest.approx(instants[0], abs=1e-9)
                assert row[f"{name}_err"] == pytest.approx(instants[-1] - instants[0], abs=1e-6)


def test_a_group_of_keys_reaches_its_extremum_at_that_of_its_envelope() -> None:
    data = trades(2)
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0)
    text = "select max(price) as top, max_at(price) as at from S[size 6 h advance 2 h]"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    assert len(found) > 20
    every = [one for symbol in "ab" for one in pieces(data, symbol, "step", None)]
    for (_, t), row in found.items():
        own = inside(every, t - 6 * 3_600_000_000, t)
        assert max(x for *_, x in own) == row["top"]
        for instant in reached(own, t, "high"):
            assert abs(Fraction(row["at"]) - instant) <= Fraction(row["at_err"])


def test_how_long_ago_and_which_came_first_are_conditions() -> None:
    """Later instants are larger numbers, so a fall is where the largest value comes before the smallest."""
    model = local().fit(trades(9), key="symbol", time="t", model={"price": "linear"}, error=0.1)
    text = (
        "select symbol, min_at(price) - max_at(price) as fall, min_at(price) as low from S[size 2 h advance 1 h] "
        "group by symbol having min_at(price) > max_at(price) and min_at(price) > -3600"
    )
    rows = local().sql(text, streams={"S": model}).tuples().to_pylist()
    assert len(rows) > 10
    assert all(row["fall"] > 0 for row in rows)
    assert all(0 <= (row["t"] - row["low"]).total_seconds() < 3600 for row in rows)


WINDOWS = ["size 8 advance 4", "each day", f"since day start in '{ZONE}'"]


@pytest.mark.parametrize("window", WINDOWS)
def test_spark_gives_what_is_given_in_process(spark: SparkSession, window: str) -> None:
    model = prices()
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    here, there = (one.sql(text, streams={"S": model}) for one in (local(), pulse.Session(spark=spark)))
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert rows_of(here.segments())
    if not window.startswith("since"):
        assert rows_of(there.tuples()) == rows_of(here.tuples())


@pytest.mark.parametrize("window", ["size 10 advance 2", "since start"])
def test_a_job_gives_on_spark_what_it_gives_in_process(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    arriving(tmp_path / "in")
    job = tick_job(tmp_path, f"select symbol, min_at(price) as low from S[{window}] group by symbol")
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "low")
    assert len(found) > 20
    assert found == final(in_process(job), ("symbol",), "low")


@pytest.mark.parametrize(
    ("window", "every"),
    [("size 2 h advance 1 h", ""), ("each day", ""), ("since day start", " sample every 2220")],
)
def test_a_revision_gives_what_a_fresh_fit_does(tmp_path: Path, window: str, every: str) -> None:
    data = trades(7)
    where = tmp_path / "model"
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    local().fit(data, out=where, keep_tuples=True, **asked)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    row = 40
    t, old = data["t"][row], data["price"][row].as_py()
    moved = {"op": ["-U", "+U"], "symbol": ["a", "a"], "price": [old, old + 500.0]}
    local().revise(where, pa.table({**moved, "t": pa.array([t.as_py()] * 2, pa.timestamp("us"))}))
    before, after = (
        by_close(local().sql(f"{text}{every}", streams={"S": where}, **of).to_arrow())
        for of in ({"version": 1}, {})
    )
    corrected = data["price"].to_numpy().copy()
    corrected[row] = old + 500.0
    fresh = local().fit(data.set_column(2, "price", [corrected]), **asked)
    again = by_close(local().sql(f"{text}{every}", streams={"S": fresh}).to_arrow())
    assert after.keys() == again.keys()
    for at, one in after.items():
        for name in ("low", "high", "low_err", "high_err"):
            assert float(one[name]) == pytest.approx(float(again[at][name]), abs=1e-5)
    assert any(before[at]["high"] != after[at]["high"] for at in after.keys() & before.keys())
    assert local().revised(text, streams={"S": where}, since=1).to_arrow().num_rows


@pytest.mark.parametrize("window", WINDOWS)
def test_changed_units_leave_instants_as_they_are(window: str) -> None:
    data = trades(21)
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    at = START + 4 * DAY + 15 * 3_600_000_000
    doubled = np.where(data["t"].cast(pa.int64()).to_numpy() >= at, 2.0, 1.0) * data["price"].to_numpy()
    accents = [f"{np.datetime64(at, 'us')} [[true, alter(price, y * 2, y / 2)]]"]
    altered = local().fit(data.set_column(2, "price", [doubled]), accents=accents, **asked)
    plain = local().fit(data, **asked)
    window = window.replace("size 8 advance 4", "size 8 h advance 4 h")
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    text += " sample every 2220" if window.startswith("since") else ""
    found, want = (local().sql(text, streams={"S": one}).tuples().to_pylist() for one in (altered, plain))
    assert len(found) > 10
    assert found == want


def test_variants_of_a_sweep_are_the_answers_of_their_queries() -> None:
    model = prices()
    text = "select symbol, min_at(price) as low from S[size :long advance 4] group by symbol"
    swept = local().sweep(text, streams={"S": model}, long=[8, 20]).to_pandas()
    for long, rows in swept.groupby("long"):
        own = local().sql(text, streams={"S": model}, long=long).to_pandas()
        assert len(own) > 5
        assert rows["low"].tolist() == own["low"].tolist()


def test_a_bound_on_instants_asks_for_a_fit_without_error() -> None:
    """No other bound on values suffices; in a flat window not even that, and the query says so."""
    text = "select symbol, min_at(price) as low from S[size 2 h advance 1 h] group by symbol error within 5"
    asked: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}}
    model = local().fit(trades(1), for_query=text, stream="S", **asked)
    assert max(batch.err("price").max() for batch in model.batches()) == 0.0
    with pytest.raises(pulse.PulseError, match="low"):
        local().sql(text, streams={"S": model}).tuples()


def test_an_instant_is_a_timestamp_in_tuples_and_a_number_in_calculations() -> None:
    model = prices()
    inner = (
        "select symbol, min_at(price) as at, -min_at(price) as ago from S[size 8 advance 4] group by symbol"
    )
    rows = local().sql(inner, streams={"S": model}).tuples()
    kinds = {name: rows.schema.field(name).type for name in ("at", "at_err", "ago")}
    assert kinds == {"at": pa.timestamp("us"), "at_err": pa.float64(), "ago": pa.float64()}
    for row in rows.to_pylist():
        assert (row["t"] - row["at"]).total_seconds() == pytest.approx(row["ago"], abs=1e-6)
        assert row["at_err"] == pytest.approx(row["ago_err"], abs=1e-6)
    outer = f"select symbol, at, ago from ({inner}) as W where at > -5 sample every 4"
    nested = local().sql(outer, streams={"S": model}).tuples()
    assert nested.schema.field("at").type == pa.timestamp("us")
    ago = [(row["t"] - row["at"]).total_seconds() for row in nested.to_pylist()]
    assert len(ago) > 10
    assert max(ago) <= 5


def test_a_union_of_an_instant_and_a_number_is_refused() -> None:
    inner = "select symbol, {} as at from S[size 8 advance 4] group by symbol"
    text = " union all ".join(
        f"select '{i}' as way, symbol, at from ({inner.format(of)})"
        for i, of in enumerate(("min_at(price)", "min(price)"))
    )
    with pytest.raises(LanguageError, match="'at' is an instant in the first and a number in this one"):
        local().sql(text, streams={"S": prices()}).tuples()


def test_without_a_window_there_is_no_instant() -> None:
    with pytest.raises(LanguageError, match="min_at needs a window"):
        local().sql("select symbol, min_at(price) as low from S group by symbol", streams={"S": prices()})
