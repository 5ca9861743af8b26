"""Aggregates over sessions and days: stored and revised, in process and on Spark, held against the tuples in fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.calendar import DAY, EachDay, EachSession
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of
from tests.runtime.jobs.running_jobs import in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

NAMES = ("first", "max", "min", "last", "avg", "sum")
START = 1_382_918_400_000_000  # 2013-10-28 in UTC: a week before clocks were put back in New York
ASKED = ", ".join(f"{name}(price) as {name}_price" for name in NAMES)
ZONE = "America/New_York"


def trades(seed: int, days: int = 9, count: int = 240, again: bool = True) -> pa.Table:
    """Prices in eighths at odd instants, in clusters with silences of hours between; ``again``: several at some instants."""
    random = np.random.default_rng(seed)
    parts = []
    for symbol in "ab":
        gaps = random.choice(
            [0 if again else 17, 1, 999_983, 60_000_000, 3_600_000_001, 14_400_000_000], count
        )
        t = START + np.cumsum(gaps)
        t = t[t < START + days * DAY]
        price = 50.0 + np.cumsum(random.integers(-8, 9, len(t))) / 8
        parts.append(
            pa.table({"symbol": [symbol] * len(t), "t": pa.array(t, pa.timestamp("us")), "price": price})
        )
    return pa.concat_tables(parts)


Piece = tuple[Fraction, Fraction, Fraction, Fraction]
"""Begin and end of a straight piece of the truth, or an instant, and the values there."""


def pieces(data: pa.Table, symbol: str, truth: str, max_gap: int | None) -> Iterator[Piece]:
    """The truth between consecutive tuples; a longer silence than the gap is a hole."""
    own = [row for row in data.to_pylist() if row["symbol"] == symbol]
    at = [Fraction(int(np.datetime64(row["t"], "us").astype(np.int64))) for row in own]
    x = [Fraction(row["price"]) for row in own]
    for i in range(len(own)):
        follows = i + 1 < len(own)
        if follows and at[i] == at[i + 1]:
            continue  # the last one holds
        if follows and (max_gap is None or at[i + 1] - at[i] <= max_gap):
            yield at[i], at[i + 1], x[i], x[i] if truth == "step" else x[i + 1]
        else:
            yield at[i], at[i], x[i], x[i]


def aggregated(parts: list[Piece]) -> dict[str, Fraction]:
    """The aggregates of straight pieces, in seconds."""
    area = sum(((p[1] - p[0]) * (p[2] + p[3]) / 2 for p in parts), Fraction(0)) / 10**6
    covered = sum((p[1] - p[0] for p in parts), Fraction(0)) / 10**6
    values = [value for p in parts for value in p[2:]]
    return {
        "first": parts[0][2],
        "last": parts[-1][3],
        "max": max(values),
        "min": min(values),
        "sum": area,
        "avg": area / covered,
    }


def expected(
    data: pa.Table, periods: Any, truth: str, max_gap: int | None
) -> dict[tuple[str, int], dict[str, Fraction]]:
    found = {}
    for symbol in "ab":
        parts = list(pieces(data, symbol, truth, max_gap))
        for opens, closes in periods.whole(START, START + 12 * DAY).tolist():
            inside = []
            for begin, end, x, y in parts:
                a, b = max(begin, Fraction(opens)), min(end, Fraction(closes))
                if a < b or (a == b == begin == end and b < closes):
                    slope = (y - x) / (end - begin) if begin < end else Fraction(0)
                    inside.append((a, b, x + slope * (a - begin), x + slope * (b - begin)))
            if any(begin < end for begin, end, _, _ in inside):
                found[symbol, closes] = aggregated(inside)
    return found


def by_close(table: pa.Table) -> dict[tuple[str, int], dict[str, Any]]:
    closes = table["t"].cast(pa.int64()).to_pylist()
    return {(row["symbol"], at): row for row, at in zip(table.to_pylist(), closes, strict=True)}


WINDOWS = {
    "each day": EachDay("UTC"),
    f"each day in '{ZONE}'": EachDay(ZONE),
    "each session 'XNYS'": EachSession("XNYS"),
}


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
    answer = local().sql(f"select symbol, {ASKED} from S[{window}] group by symbol", streams={"S": model})
    found, want = by_close(answer.to_arrow()), expected(data, WINDOWS[window], truth, max_gap)
    assert found.keys() == want.keys()
    assert len(want) > 6
    exact = bounds == {"error": 0}
    for at, row in found.items():
        assert row["certainty"] == "certain"
        for name in NAMES:
            err = Fraction(row[f"{name}_price_err"])
            assert abs(Fraction(row[f"{name}_price"]) - want[at][name]) <= err, (at, name)
            if name not in ("sum", "avg") and exact and truth == "step":
                assert err == 0
            assert err <= (1e-6 if exact else 0.41 * (1 if name != "sum" else 90_000))


def test_days_by_the_clock_of_a_zone_are_longer_and_shorter() -> None:
    days = EachDay(ZONE).whole(START, START + 9 * DAY)
    assert set(np.diff(days, axis=1).ravel() // 3_600_000_000) == {24, 25}
    assert np.array_equal(days[1:, 0], days[:-1, 1])


def test_a_session_with_a_break_is_one_period() -> None:
    morning = START + 3 * DAY
    (opens, closes), *_ = EachSession("XHKG").whole(morning, morning + DAY).tolist()
    assert closes - opens == 6.5 * 3_600_000_000


def test_a_filter_below_adds_what_its_doubt_can_change() -> None:
    """Over the time at which a price is above a level: the truth's own average lies within the bound."""
    data = trades(5)
    level = float(np.median(data["price"].to_numpy()))
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, error=0.4)
    text = f"select symbol, {ASKED} from (select symbol, price from S where price > {level})[each day] group by symbol"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    want: dict[tuple[str, int], list[Piece]] = {}
    for symbol in "ab":
        for opens, closes in EachDay("UTC").whole(START, START + 12 * DAY).tolist():
            for begin, end, x, _ in pieces(data, symbol, "step", None):
                a, b = max(begin, Fraction(opens)), min(end, Fraction(closes))
                if a < b and x > level:
                    want.setdefault((symbol, closes), []).append((a, b, x, x))
    assert {at for at, row in found.items() if row["certainty"] == "certain"} <= want.keys()
    assert len(want.keys() & found.keys()) > 6
    assert {row["certainty"] for row in found.values()} >= {"certain"}
    for at in want.keys() & found.keys():
        truth = aggregated(want[at])
        for name in NAMES:
            assert abs(Fraction(found[at][f"{name}_price"]) - truth[name]) <= Fraction(
                found[at][f"{name}_price_err"]
            )


def test_tuples_of_a_day() -> None:
    data = trades(3)
    model = local().fit(data, key="symbol", time="t", model={"price": "samples"}, points=True)
    text = "select symbol, count(*) as n, sum(price) as total, last(price) as last from S[each day] group by symbol"
    found = by_close(local().sql(text, streams={"S": model}).to_arrow())
    want: dict[tuple[str, int], list[float]] = {}
    for row in data.to_pylist():
        at = int(np.datetime64(row["t"], "us").astype(np.int64))
        want.setdefault((row["symbol"], (at // DAY + 1) * DAY), []).append(row["price"])
    assert {at: (row["n"], row["total"], row["last"]) for at, row in found.items()} == {
        at: (len(values), sum(values), values[-1]) for at, values in want.items()
    }


def test_results_are_tuples_that_windows_take() -> None:
    """The mean of the last three days' highs, at every closing time."""
    model = local().fit(trades(4), key="symbol", time="t", model={"price": "step"}, error=0)
    inner = "select symbol, max(price) as high from S[each day] group by symbol"
    days = local().sql(inner, streams={"S": model}).to_pandas()
    found = local().sql(
        f"select symbol, avg(high) as mean from ({inner})[size 3 days advance 1 day] group by symbol",
        streams={"S": model},
    )
    means = found.to_pandas()
    assert len(means) > 12
    for row in means.itertuples():
        earlier = (days["t"] >= row.t - pd.Timedelta(days=3)) & (days["t"] < row.t)
        inside = days["high"][earlier & (days["symbol"] == row.symbol)]
        assert row.mean == pytest.approx(inside.mean(), rel=1e-12)


@pytest.mark.parametrize("window", ["each day", "each session 'XNYS'"])
def test_spark_gives_what_is_given_in_process(spark: SparkSession, window: str) -> None:
    model = local().fit(trades(6), key="symbol", time="t", model={"price": "step"}, error=0.4)
    text = f"select symbol, {ASKED} from S[{window}] group by symbol"
    here, there = (one.sql(text, streams={"S": model}) for one in (local(), pulse.Session(spark=spark)))
    assert rows_of(there.tuples()) == rows_of(here.tuples())
    assert len(rows_of(here.tuples())) > 6


def held(changes: pa.Table) -> dict[Any, Any]:
    """What holds in the end of points: the changelog applied."""
    now: dict[Any, Any] = {}
    for row in changes.sort_by([("batch", "ascending"), ("position", "ascending")]).to_pylist():
        at = row["symbol"], row["ref"]
        if row["kind"].startswith("-"):
            del now[at]
        else:
            assert at not in now
            now[at] = round(row["high"][0], 6), row["certainty"]
    return now


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    job = tick_job(
        tmp_path, "select symbol, max(price) as high from S[each day in 'Asia/Kolkata'] group by symbol"
    )
    assert ran(spark, job).tally.tuples == 480
    found = held(read_changes(tmp_path / "out"))
    assert len(found) == 4
    assert found == held(in_process(job))


def test_a_revision_changes_the_days_it_touches(tmp_path: Path) -> None:
    data = trades(7)
    where = tmp_path / "model"
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0}
    local().fit(data, out=where, keep_tuples=True, **asked)
    text = f"select symbol, {ASKED} from S[each day] group by symbol"
    before = by_close(local().sql(text, streams={"S": where}).to_arrow())
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
    local().revise(where, revision)
    after = by_close(local().sql(text, streams={"S": where}).to_arrow())
    corrected = data["price"].to_numpy().copy()
    corrected[row] = old + 500.0
    fresh = local().fit(data.set_column(2, "price", [corrected]), **asked)
    again = by_close(local().sql(text, streams={"S": fresh}).to_arrow())
    assert after.keys() == again.keys()
    for at, one in after.items():
        for name in NAMES:
            assert one[f"{name}_price"] == pytest.approx(again[at][f"{name}_price"], rel=1e-12, abs=1e-6), (
                name
            )
    changed = {at for at in after if after[at]["max_price"] != before[at]["max_price"]}
    assert changed
    changes = local().revised(text, streams={"S": where}, since=1).to_arrow().to_pylist()
    assert {
        (one["symbol"], int(np.datetime64(one["ref"], "us").astype(np.int64))) for one in changes
    } >= changed


@pytest.mark.parametrize("window", ["each day", "since day start"])
def test_variants_of_a_sweep_are_the_answers_of_their_queries(window: str) -> None:
    model = local().fit(trades(12), key="symbol", time="t", model={"price": "step"}, error=0.4)
    text = (
        f"select symbol, max(price) as high from (select symbol, price from S where price > :level)[{window}] "
        "group by symbol" + (" sample every 1 h" if window.startswith("since") else "")
    )
    swept = local().sweep(text, streams={"S": model}, level=[48, 50]).to_pandas()
    assert set(swept["level"]) == {48, 50}
    for level, rows in swept.groupby("level"):
        own = local().sql(text, streams={"S": model}, level=level).to_pandas()
        assert len(own) > 5
        assert rows["symbol"].tolist() == own["symbol"].tolist()
        assert [float(np.ravel(one)[0]) for one in rows["high"]] == own["high"].tolist()
        assert rows["certainty"].tolist() == own["certainty"].tolist()


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("each week", "expected session or day after EACH"),
        ("each session", "expected the code of an exchange"),
        ("each session 'NYSE!'", "there is no calendar of an exchange"),
        ("each day in 'New York'", "there is no time zone"),
        ("every day", "expected size, each or since"),
    ],
)
def test_what_has_no_meaning_names_its_place(window: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(
            f"select symbol, avg(price) as a from S[{window}] group by symbol", streams={"S": prices()}
        ).tuples()
