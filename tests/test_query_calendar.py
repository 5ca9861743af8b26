"""Conditions on the calendar: stored and predicted, in process and on Spark, held against the tuples."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language import LanguageError
from pulse.runtime.jobs.sinks import read_changes
from tests.runtime.execution.asking import local, prices, rows_of
from tests.runtime.jobs.running_jobs import final, in_process, ran, tick_job
from tests.runtime.jobs.running_jobs import ticks as arriving

NEW_YORK = "America/New_York"
DAYS = 12  # across 3 November 2013, when clocks were put back


def hourly() -> pa.Table:
    """A value every 20 minutes over twelve days: the minutes since the first, by two keys."""
    t = pd.date_range("2013-10-28", periods=DAYS * 72, freq="20min").to_numpy("datetime64[us]")
    value = np.arange(len(t), dtype=float) * 20.0
    return pa.table(
        {
            "symbol": np.repeat(["a", "b"], len(t)),
            "t": np.tile(t, 2),
            "price": np.concatenate((value, value + 0.5)),
        }
    )


@pytest.fixture(scope="module")
def model() -> pulse.Model:
    return local().fit(hourly(), key="symbol", time="t", model={"price": "linear"}, error=0)


def sampled(model: pulse.Model, condition: str, every: str = "7 min") -> pd.DataFrame:
    text = f"select symbol, price from S where {condition} sample every {every}"
    return local().sql(text, streams={"S": model}).to_pandas()


def grid(every: str = "7min") -> pd.DatetimeIndex:
    """The instants of a grid within the data."""
    t = hourly()["t"].to_numpy()
    whole = pd.Timedelta(every).value // 1000
    first, last = (int(at.astype("datetime64[us]").astype(np.int64)) for at in (t.min(), t.max()))
    return pd.to_datetime(np.arange(-(-first // whole) * whole, last + 1, whole), unit="us")


def clock(times: pd.DatetimeIndex, zone: str = NEW_YORK) -> pd.DatetimeIndex:
    return times.tz_localize("UTC").tz_convert(ZoneInfo(zone)).tz_localize(None)


def minutes(times: pd.DatetimeIndex) -> np.ndarray:
    return np.asarray(times.hour * 60 + times.minute + times.second / 60)


CONDITIONS = {
    f"time_of_day(t, '{NEW_YORK}') between '09:30' and '16:00'": lambda t: (
        (minutes(clock(t)) >= 570) & (minutes(clock(t)) <= 960)
    ),
    "time_of_day(t) > '09:27' and time_of_day(t) <> '10:30'": lambda t: (
        (minutes(t) > 567) & (minutes(t) != 630)
    ),
    f"not time_of_day(t, '{NEW_YORK}') < '01:30'": lambda t: minutes(clock(t)) >= 90,
    f"'23:00' < time_of_day(t, '{NEW_YORK}')": lambda t: minutes(clock(t)) > 1380,
    "time_of_day(t) = '00:00'": lambda t: minutes(t) == 0,
    f"weekday(t, '{NEW_YORK}') in ('sat', 'Sunday')": lambda t: clock(t).day_of_week >= 5,
    "weekday(t) <= 5": lambda t: t.day_of_week < 5,
    f"weekday(t, '{NEW_YORK}') <> 3": lambda t: clock(t).day_of_week != 2,
    "t in session 'XNYS'": lambda t: (
        (clock(t).day_of_week < 5) & (minutes(clock(t)) >= 570) & (minutes(clock(t)) <= 960)
    ),
    "t not in session 'XNYS' and weekday(t) = 'mon'": lambda t: (
        (t.day_of_week == 0)
        & ~((clock(t).day_of_week < 5) & (minutes(clock(t)) >= 570) & (minutes(clock(t)) <= 960))
    ),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_samples_where_the_clock_says_so(model: pulse.Model, condition: str) -> None:
    times = grid()
    expected = times[CONDITIONS[condition](times)]
    found = sampled(model, condition)
    assert (found["certainty"] == "certain").all()
    for _, rows in found.groupby("symbol", observed=True):
        assert pd.DatetimeIndex(rows["t"]).sort_values().equals(expected.astype(rows["t"].dtype))
    assert found["symbol"].nunique() == 2


def ranges(model: pulse.Model, condition: str, symbol: str) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of the segments of a key, in microseconds."""
    text = f"select symbol, price from S where {condition} and symbol = '{symbol}'"
    table = local().sql(text, streams={"S": model}).segments()
    ref = table["ref"].to_numpy().astype("datetime64[us]").astype(np.int64)
    lo, hi = (ref + table[name].to_numpy() * 1e6 for name in ("lo", "hi"))
    return lo, hi


@pytest.mark.parametrize("condition", CONDITIONS)
def test_segments_are_cut_where_the_clock_says_so(model: pulse.Model, condition: str) -> None:
    times = grid("20min")[:-1] + pd.Timedelta("1s")  # ends of ranges are on whole minutes
    at = times.to_numpy("datetime64[us]").astype(np.int64)
    for symbol in ("a", "b"):
        lo, hi = ranges(model, condition, symbol)
        assert len(lo) >= 2
        held = ((lo <= at[:, None]) & (at[:, None] < hi)).any(axis=1)
        assert np.array_equal(held, CONDITIONS[condition](times))


def test_a_time_of_day_alone_is_a_point_of_each_day(model: pulse.Model) -> None:
    lo, hi = ranges(model, f"time_of_day(t, '{NEW_YORK}') = '01:30'", "a")
    days = clock(pd.to_datetime(lo.astype(np.int64), unit="us"))
    assert np.array_equal(lo, hi)
    assert set(days.strftime("%H:%M:%S")) == {"01:30:00"}
    assert len(days) == DAYS + 1  # the clock showed it twice on 3 November
    assert len(set(days.date)) == DAYS


def test_windows_close_by_the_clock_but_reach_back_before_it(model: pulse.Model) -> None:
    inner = "select symbol, avg(price) as a from S[size 2 h advance 20 min]"
    condition = f"time_of_day(t, '{NEW_YORK}') between '09:30' and '16:00'"
    streams = {"S": model}
    every = local().sql(inner, streams=streams).to_pandas()
    found = (
        local()
        .sql(f"select symbol, a from ({inner}) as W where {condition} sample every 20 min", streams=streams)
        .to_pandas()
    )
    times = pd.DatetimeIndex(every["t"])
    expected = every[CONDITIONS[condition](times)]
    both = found.merge(expected, on=["symbol", "t"], suffixes=("", "_expected"))
    assert len(both) == len(found) == len(expected) > 300
    assert np.allclose(both["a"], both["a_expected"], rtol=0, atol=1e-9)


def test_a_filter_below_a_window_leaves_holes(model: pulse.Model) -> None:
    """An average over two hours of the session exists only where two hours of the session lie behind it."""
    text = "select symbol, avg(price) as a from (select symbol, price from S where t in session 'XNYS')[size 2 h advance 30 min]"
    found = local().sql(text, streams={"S": model}).to_pandas()
    local_time = minutes(clock(pd.DatetimeIndex(found["t"])))
    assert local_time.min() == 570 + 120
    assert local_time.max() == 960


@pytest.mark.parametrize("condition", [next(iter(CONDITIONS)), "t in session 'XNYS'"])
def test_spark_gives_what_is_given_in_process(
    spark: SparkSession, model: pulse.Model, condition: str
) -> None:
    text = f"select symbol, price from S where {condition}"
    here = local().sql(text, streams={"S": model})
    there = pulse.Session(spark=spark).sql(text, streams={"S": model})
    assert rows_of(there.segments()) == rows_of(here.segments())
    assert len(rows_of(here.segments())) > 10


def test_a_job_gives_what_is_given_in_process(spark: SparkSession, tmp_path: Path) -> None:
    arriving(tmp_path / "in")
    first = pd.Timestamp(pd.read_parquet(tmp_path / "in")["t"].min())
    begin, end = ((first + pd.Timedelta(seconds=by)).strftime("%H:%M:%S") for by in (20, 60))
    text = f"select symbol, price from S where price > 20 and time_of_day(t) between '{begin}' and '{end}'"
    job = tick_job(tmp_path, text)
    assert ran(spark, job).tally.tuples == 480
    found = final(read_changes(tmp_path / "out"), ("symbol",), "price")
    assert len(found) > 5
    assert found == final(in_process(job), ("symbol",), "price")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("time_of_day(t, 'America/New_Yrok') < '09:30'", "did you mean 'America/New_York'"),
        ("time_of_day(t, 3) < '09:30'", "expected a time zone in quotes"),
        ("time_of_day(price) < '09:30'", "time_of_day takes the stream's time, got 'price'"),
        ("time_of_day(t) < 9", "expected a time of day in quotes"),
        ("time_of_day(t) < '25:00'", "expected a time of day"),
        ("time_of_day(t) < '09:61'", "expected a time of day"),
        ("time_of_day(t, 'UTC', 3) < '09:00'", "takes the time and a zone"),
        ("time_of_day(t) + 1 < '09:00'", "can only be compared with a literal"),
        ("weekday(t) = 'holiday'", "1 .Monday. to 7"),
        ("weekday(t) < 'wed'", "names of days can be compared with ="),
        ("t in session 'NYSE!'", "there is no calendar of an exchange"),
        ("price in session 'XNYS'", "in session takes the stream's time"),
    ],
)
def test_what_has_no_meaning_names_its_place(condition: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        local().sql(f"select symbol, price from S where {condition}", streams={"S": prices()}).segments()
