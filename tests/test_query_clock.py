"""The zone and the sessions that a stream is fitted with: queries use them, sessions cut models, appended data keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.calendar import CalendarError, EachSession, Sessions
from pulse.core.errors import SchemaError, SessionError
from pulse.language import LanguageError
from pulse.store.model import Model
from tests.runtime.execution.asking import local, rows_of
from tests.test_query_periods import START, ZONE, by_close, trades

ASKED: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": 0.2}


def dense(seed: int = 1, days: int = 8) -> pa.Table:
    """Prices every ten minutes or so, day and night, over a change of clocks."""
    random = np.random.default_rng(seed)
    t = START + np.cumsum(random.integers(1, 1_200_000_000, days * 144))
    price = 50.0 + np.cumsum(random.integers(-8, 9, len(t))) / 8
    return pa.table({"symbol": ["a"] * len(t), "t": pa.array(t, pa.timestamp("us")), "price": price})


def times_of(data: pa.Table) -> Any:
    return data["t"].cast(pa.int64()).to_numpy()


def test_conditions_and_windows_use_the_zone_of_the_stream() -> None:
    model = local().fit(trades(1), zone=ZONE, **ASKED)
    plain = local().fit(trades(1), **ASKED)
    pairs = [
        (
            "select symbol, price from S where time_of_day(t) < '09:30' and weekday(t) <= 5",
            f"select symbol, price from S where time_of_day(t, '{ZONE}') < '09:30' and weekday(t, '{ZONE}') <= 5",
        ),
        (
            "select symbol, max(price) as high from S[each day] group by symbol",
            f"select symbol, max(price) as high from S[each day in '{ZONE}'] group by symbol",
        ),
        (
            "select symbol, max(price) as high from (select symbol, price from S)[since day start] group by symbol",
            f"select symbol, max(price) as high from S[since day start in '{ZONE}'] group by symbol",
        ),
    ]
    for short, long in pairs:
        here = rows_of(local().sql(short, streams={"S": model}).segments())
        assert here == rows_of(local().sql(long, streams={"S": plain}).segments())
        assert here != rows_of(local().sql(short, streams={"S": plain}).segments())


def test_the_clock_is_kept_in_the_manifest_and_for_what_is_appended(tmp_path: Path) -> None:
    data, where = dense(), tmp_path / "model"
    half = data.num_rows // 2
    local().fit(data.slice(0, half), out=where, zone=ZONE, session="XNYS", **ASKED)
    assert Model(where).schema.clock == (ZONE, "XNYS")
    local().fit(data.slice(half), out=where, append=True, **ASKED)
    assert Model(where).schema.clock == (ZONE, "XNYS")
    whole = local().fit(data, zone=ZONE, session="XNYS", **ASKED)
    text = "select symbol, max(price) as high, avg(price) as mean from S[each session] group by symbol"
    appended, fresh = (local().sql(text, streams={"S": one}).to_arrow() for one in (where, whole))
    assert by_close(appended).keys() == by_close(fresh).keys()
    for at, row in by_close(appended).items():
        assert abs(row["high"] - by_close(fresh)[at]["high"]) <= 0.4
    with pytest.raises(SessionError, match="zone: expected that of the model"):
        local().fit(data, out=where, append=True, zone="UTC", **ASKED)
    with pytest.raises(SessionError, match="session: expected that of the model"):
        local().fit(data, out=where, append=True, session="XLON", **ASKED)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_sessions_cut_models(spark: SparkSession, engine: str) -> None:
    data = dense(2)
    session = local() if engine == "local" else pulse.Session(spark=spark)
    model = session.fit(data, session="XNYS", **ASKED)
    inside = Sessions("XNYS").contains(times_of(data))
    assert model.manifest.counts["filtered"] == int((~inside).sum()) > 100
    found = local().sql("select symbol, price from S", streams={"S": model}).segments().to_pandas()
    begin = found["ref"].astype("int64") + np.rint(found["lo"] * 1e6)
    end = found["ref"].astype("int64") + np.rint(found["hi"] * 1e6)
    sessions = EachSession("XNYS").whole(START, START + 10 * 86_400_000_000)
    period = np.searchsorted(sessions[:, 1], begin)
    assert (sessions[period, 0] <= begin).all()
    assert (end <= sessions[period, 1]).all()  # no segment reaches into a night
    kept = times_of(data)[inside]
    for opens, closes in sessions:
        own = kept[(kept >= opens) & (kept <= closes)]
        mine = (begin >= opens) & (end <= closes)
        assert len(own) == 0 or (begin[mine].min(), end[mine].max()) == (own.min(), own.max())


def test_results_of_the_declared_session_are_those_of_its_code() -> None:
    model = local().fit(dense(3), session="XNYS", **ASKED)
    for window in ("each session", "since session start"):
        text = "select symbol, max(price) as high from (select symbol, price from S where t in session{})[{}{}] group by symbol"
        short, long = (
            rows_of(local().sql(text.format(code, window, code), streams={"S": model}).segments())
            for code in ("", " 'XNYS'")
        )
        assert short == long
        assert len(short) > 4


def test_a_revision_keeps_the_sessions(tmp_path: Path) -> None:
    data, where = dense(4), tmp_path / "model"
    local().fit(data, out=where, session="XNYS", keep_tuples=True, **ASKED)
    row = int(np.flatnonzero(Sessions("XNYS").contains(times_of(data)))[20])
    t, old = data["t"][row].as_py(), data["price"][row].as_py()
    change = {"op": ["-U", "+U"], "symbol": ["a", "a"], "price": [old, old + 40.0]}
    local().revise(where, pa.table({**change, "t": pa.array([t, t], pa.timestamp("us"))}))
    prices = data["price"].to_numpy().copy()
    prices[row] += 40.0
    fresh = local().fit(data.set_column(2, "price", [prices]), session="XNYS", **ASKED)
    text = "select symbol, max(price) as high, count_of from S[each session] group by symbol".replace(
        ", count_of", ""
    )
    after, again = (by_close(local().sql(text, streams={"S": one}).to_arrow()) for one in (where, fresh))
    assert after.keys() == again.keys()
    assert max(row["high"] for row in after.values()) > 80
    for at in after:
        assert abs(after[at]["high"] - again[at]["high"]) <= 0.4


def test_a_filter_by_sessions_of_points() -> None:
    data = dense(5)
    model = local().fit(
        data,
        key="symbol",
        time="t",
        model={"price": "samples"},
        points=True,
        session="XNYS",
        where="price > 45",
    )
    inside = Sessions("XNYS").contains(times_of(data)) & (data["price"].to_numpy() > 45)
    text = "select symbol, count(*) as n from S[each session] group by symbol"
    counts = local().sql(text, streams={"S": model}).to_pandas()["n"]
    closing = np.isin(times_of(data)[inside], EachSession("XNYS").whole(START, START + 10**13)[:, 1])
    assert counts.sum() == inside.sum() - closing.sum()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"zone": "New York"}, SchemaError, "zone: expected the name of a time zone"),
        ({"session": "NYSE!"}, SchemaError, "session: expected the code of an exchange"),
        ({"session": "CMES"}, CalendarError, "its sessions last up to"),
    ],
)
def test_what_cannot_be_declared_is_refused(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        local().fit(dense(), **ASKED, **given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select symbol, price from S where t in session", "fitted without --session"),
        ("select symbol, max(price) as m from S[each session] group by symbol", "fitted without --session"),
        (
            "select A.symbol as a from S as A join T as B on (A.symbol <> B.symbol) where time_of_day(t) < '9:00'",
            "different zones",
        ),
    ],
)
def test_what_is_not_declared_or_ambiguous_is_named(text: str, message: str) -> None:
    streams = {name: local().fit(trades(1), zone=zone, **ASKED) for name, zone in (("S", ZONE), ("T", None))}
    with pytest.raises(LanguageError, match=message):
        local().sql(text, streams=streams).segments()
