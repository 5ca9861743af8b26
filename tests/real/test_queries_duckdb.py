"""Queries on models against the same questions put to DuckDB about the tuples.

A tuple engine sees tuples only. Where it and the model differ, semantics 3.9 says why, and every difference is counted by its
reason: an instant no tuple shows (a range between tuples, a value in force since before the window), or a value so near the
threshold that the bound decides (the answer is then not ``certain``). There is no third kind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from tests.truth import windows
from tests.truth.measure import answer_ranges, as_frame, microseconds
from tests.truth.pieces import SECOND, tracks
from tests.truth.ranges import Ranges

duckdb = pytest.importorskip("duckdb")

TRADES, TAQ = "trades_us_equities_20131007_09", "trades_taq_xxx_corr_20180102_03"
SENSORS = "sensors_room_climate_2016_17"
UNITS = 10_000  # a price is a whole number of these parts of a dollar
ROUNDING = 1e-9
GRAIN = 1e-4  # microseconds: what the sum of a timestamp and seconds since it is rounded to

LAST_OF_EACH_INSTANT = """create or replace table held as
    select k, epoch_us(t) as t, arg_max(x, n) as x from (select *, row_number() over () as n from tuples) group by k, t"""


@pytest.fixture
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.execute("set threads = 2")
        connection.execute("set asof_loop_join_threshold = 0")  # it takes generated instants to be few
        yield connection


def load(duck: Any, folder: Path, file: str, key: str, name: str) -> pa.Table:
    """The tuples as table ``tuples`` (k, t, x), and ``held``: the last of each instant, with t in microseconds."""
    table = pq.read_table(folder / f"{file}.parquet", columns=[key, "t", name])
    duck.register("source", table)
    duck.execute(f"create or replace table tuples as select {key} as k, t, {name} as x from source")
    duck.execute(LAST_OF_EACH_INSTANT)
    return table


def fit(table: pa.Table, key: str, name: str, truth: str, **asked: Any) -> Any:
    return pulse.Session(engine="local").fit(table, key=key, time="t", model={name: truth}, **asked)


def tell(figures: dict[str, int], record: Callable[[str, object], None]) -> None:
    """Print (``pytest -s``) and record how both agree and differ."""
    sys.stdout.write("\n" + ", ".join(f"{what}: {value:,}" for what, value in figures.items()) + "\n")
    for what, value in figures.items():
        record(what, value)


def marks(ranges: Ranges, certainty: Any, keys: Any, t: Any) -> Any:
    """The certainty of the answer at each (key, instant); "absent" where there is none. Points count."""
    out = np.full(len(t), "absent", dtype=object)
    of_range = pd.Index(ranges.key)
    for key in pd.unique(keys):
        mine = np.flatnonzero(of_range == key)
        order = mine[np.lexsort((ranges.end[mine], ranges.begin[mine]))]
        begin, end = ranges.begin[order], ranges.end[order]
        rows = np.flatnonzero(keys == key)
        at = t[rows].astype(np.longdouble)
        if len(order):
            i = np.searchsorted(begin, at + GRAIN, side="right") - 1
            j = np.maximum(i, 0)
            hit = (i >= 0) & ((at < end[j] - GRAIN) | (np.abs(at - begin[j]) <= GRAIN))
            out[rows[hit]] = certainty[order][j[hit]]
    return out


def stretches_with_and_without(ranges: Ranges, rows: pd.DataFrame) -> tuple[int, int]:
    """How many stretches of the answer (touching ranges are one) hold a tuple's instant, and how many hold none."""
    found = [0, 0]
    of_range = pd.Index(ranges.key)
    for key in pd.unique(of_range):
        mine = np.flatnonzero(of_range == key)
        order = mine[np.argsort(ranges.begin[mine])]
        begin, end = ranges.begin[order], ranges.end[order]
        opens = np.flatnonzero(np.append(True, begin[1:] - end[:-1] > 1e-2))
        begin, end = begin[opens], end[np.append(opens[1:], len(end)) - 1]
        t = np.sort(rows["t"].to_numpy()[rows["k"].to_numpy() == key])
        some = np.searchsorted(t, end - GRAIN) > np.searchsorted(t, begin - GRAIN)
        found[0] += int(some.sum())
        found[1] += int((~some).sum())
    return found[0], found[1]


@pytest.mark.parametrize(
    ("file", "key", "name", "truth", "asked", "c"),
    [
        (TRADES, "symbol", "price", "step", {"error": "0.05%"}, 166.4),
        (TRADES, "symbol", "price", "samples", {"error": "0.05%"}, 166.4),
        (SENSORS, "id", "temp", "linear", {"error": 0.05, "max_gap": "2 h"}, 22.0),
        (SENSORS, "id", "temp", "samples", {"error": 0.05, "max_gap": "2 h"}, 22.0),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_filter_differs_from_the_tuples_only_by_bound_and_between_tuples(
    recorded: Path, duck: Any, record_property: Callable[[str, object], None],
    file: str, key: str, name: str, truth: str, asked: dict[str, Any], c: float,
) -> None:  # fmt: skip
    table = load(duck, recorded, file, key, name)
    answer = pulse.Session(engine="local").sql(
        f"select {key}, {name} from S where {name} > {c}",
        streams={"S": fit(table, key, name, truth, **asked)},
        possible=True,
    )
    segments = as_frame(answer.segments())
    ranges, certainty, _ = answer_ranges(segments, [key])
    rows = duck.execute("select k, t, x, x > ? as holds from held order by k, t", [c]).df()
    reported = marks(ranges, certainty, rows["k"].to_numpy(), rows["t"].to_numpy())
    holds = rows["holds"].to_numpy()
    bound = float(segments[f"{name}_err"].max())
    if truth == "linear":  # a run's last instant has no line after it
        last = np.append(
            (np.diff(rows["t"]) > 7200 * SECOND) | (rows["k"].to_numpy()[1:] != rows["k"].to_numpy()[:-1]),
            True,
        )
        reported, holds, rows = reported[~last], holds[~last], rows[~last]
    near = np.abs(rows["x"].to_numpy() - c) <= 2 * bound
    certain_but_not, missed = (reported == "certain") & ~holds, holds & (reported == "absent")
    by_bound = (holds & (reported == "possible")) | (~holds & (reported == "likely"))
    assert not certain_but_not.any()
    assert not missed.any()
    assert near[by_bound].all()
    shown = stretches_with_and_without(ranges.filter(np.isin(certainty, ["certain", "likely"])), rows)
    agree = ((reported == "certain") | (reported == "likely")) == holds
    figures = {
        "tuples": len(rows), "agree": int(agree.sum()), "differ by the bound": int(by_bound.sum()),
        "ranges with a tuple": shown[0], "ranges that no tuple shows": shown[1],
    }  # fmt: skip
    tell(figures, record_property)
    assert agree.sum() + by_bound.sum() == len(rows)
    assert agree.mean() > 0.98


def duck_macd(duck: Any, short: int, long: int, advance: int) -> pd.DataFrame:
    """Time-weighted averages of the last value held, exactly: whole microseconds times whole ten-thousandths of a dollar."""
    duck.execute(
        f"""create or replace table summed as
        with priced as (
            select k, t, cast(round(x * {UNITS}) as bigint) as p, lead(t, 1, t) over (partition by k order by t) - t as d
            from held)
        select k, t, p, cast(sum(p * d) over (partition by k order by t rows unbounded preceding) as bigint) - p * d as area
        from priced"""
    )
    duck.execute(
        f"""create or replace table closings as
        select k, unnest(range(cast(ceil((first + {long}) / {advance}) as bigint) * {advance}, last + 1, {advance})) as t
        from (select k, min(t) as first, max(t) as last from held group by k)"""
    )
    for name, back in (("now", 0), ("short", short), ("long", long)):
        duck.execute(
            f"""create or replace table upto_{name} as
            with edges as (select k, t, t - {back} as e from closings)
            select c.k, c.t, s.area + s.p * (c.e - s.t) as area from edges c asof join summed s on c.k = s.k and c.e >= s.t"""
        )
    scaled = f"(n.area - s.area) * {long // SECOND} - (n.area - l.area) * {short // SECOND}"
    found: pd.DataFrame = duck.execute(
        f"""select k, t, {scaled} as scaled from upto_now n join upto_short s using (k, t) join upto_long l using (k, t)
        order by k, t"""
    ).df()
    return found.assign(diff=found["scaled"] / (UNITS * (short // SECOND)) / long)


@pytest.mark.parametrize(
    ("file", "bound"), [(TRADES, {"drift": "0.005%"}), (TAQ, {"error": "0.05%"})], ids=["trades", "taq"]
)
def test_macd_is_duckdb_s_within_its_bound(
    recorded: Path,
    duck: Any,
    record_property: Callable[[str, object], None],
    file: str,
    bound: dict[str, str],
) -> None:
    """And DuckDB, in whole numbers, agrees with the oracle of the other tests."""
    table = load(duck, recorded, file, "symbol", "price")
    short, long = 10 * SECOND, 60 * SECOND
    wanted = duck_macd(duck, short, long, 2 * SECOND)
    oracle = windows.table(
        (
            (k, *windows.macd(one, "price", short, long, 2 * SECOND))
            for k, one in tracks(table, {"price": "step"}, key="symbol").items()
        ),
        "k",
    ).sort_values(["k", "t"], ignore_index=True)
    assert oracle["t"].tolist() == wanted["t"].tolist()
    np.testing.assert_allclose(oracle["value"], wanted["diff"], rtol=0, atol=1e-11)

    answer = as_frame(
        pulse.Session(engine="local")
        .sql(
            """select symbol, S.ap - L.ap as diff from
            (select symbol, avg(price) as ap from stream S[size 10 advance 2]) as S
            join (select symbol, avg(price) as ap from stream S[size 60 advance 2]) as L
            on (S.Symbol = L.Symbol) where S.ap > L.ap""",
            streams={"S": fit(table, "symbol", "price", "step", **bound)},
            possible=True,
        )
        .tuples()
    )
    answer = answer.assign(k=answer["symbol"], t=microseconds(answer["t"]))
    both = wanted.merge(
        answer[["k", "t", "diff", "diff_err", "certainty"]],
        on=["k", "t"],
        how="outer",
        suffixes=("", "_told"),
    )
    assert both["scaled"].notna().all()
    given, holds = both["certainty"].notna(), both["scaled"] > 0
    off = (both["diff"] - both["diff_told"]).abs()
    assert (off[given] <= both["diff_err"][given] + ROUNDING).all()
    assert holds[both["certainty"] == "certain"].all()
    assert given[holds].all()
    details = both["certainty"].isin(["certain", "likely"])
    figures = {
        "closing times": len(both), "both": int((details & holds).sum()), "only the model, likely": int((details & ~holds).sum()),
        "only the tuples, possible": int((holds & ~details).sum()),
    }  # fmt: skip
    tell(figures, record_property)


EXTREMA = """
    with panes as (select k, (t // {advance} + 1) * {advance} as t, min(x) as x from held group by all),
    spans as (select k, min(t) as first, max(t) as last from held group by k),
    grid as (select k, first, unnest(range((first // {advance} + 1) * {advance}, last + 1, {advance})) as t from spans),
    dense as (
        select g.k, g.t, first, min(p.x) over (partition by g.k order by g.t rows {panes} - 1 preceding) as shown
        from grid g left join panes p on p.k = g.k and p.t = g.t),
    opened as (select k, t, t - {size} as e, shown from dense where t - {size} >= first)
    select d.k, d.t, d.shown, h.x as inherited from opened d asof join held h on d.k = h.k and d.e >= h.t order by d.k, d.t"""


def test_the_least_of_a_window_differs_only_by_what_was_in_force(
    recorded: Path, duck: Any, record_property: Callable[[str, object], None]
) -> None:
    """Tuples in a window do not show the price that held when it opened; with that price all windows agree."""
    table = load(duck, recorded, TAQ, "symbol", "price")
    size, advance = 60 * SECOND, 2 * SECOND
    wanted = duck.execute(EXTREMA.format(size=size, advance=advance, panes=size // advance)).df()
    answer = as_frame(
        pulse.Session(engine="local")
        .sql(
            "select symbol, min(price) as v from S[size 60 advance 2] group by symbol",
            streams={"S": fit(table, "symbol", "price", "step", error="0.05%")},
        )
        .tuples()
    )
    answer = answer.assign(k=answer["symbol"], t=microseconds(answer["t"]))
    both = wanted.merge(answer[["k", "t", "v", "v_err"]], on=["k", "t"], how="outer")
    assert both.notna()[["inherited", "v"]].all(axis=None)
    held = np.fmin(both["shown"], both["inherited"])
    assert ((both["v"] - held).abs() <= both["v_err"] + ROUNDING).all()
    differs = ~((both["v"] - both["shown"]).abs() <= both["v_err"] + ROUNDING)
    explained = both["shown"].isna() | (both["inherited"] < both["shown"])
    assert explained[differs].all()
    figures = {
        "windows": len(both), "without a tuple": int(both["shown"].isna().sum()),
        "differ by what was in force": int(differs.sum()),
    }  # fmt: skip
    tell(figures, record_property)
    assert 0 < differs.sum() < len(both)


def test_a_model_of_samples_is_within_its_bound_at_every_tuple(recorded: Path, duck: Any) -> None:
    """Truth only at the tuples, the paper's own notion: sampled there, the model differs by no more than the bound."""
    table = load(duck, recorded, TAQ, "symbol", "price")
    answer = pulse.Session(engine="local").sql(
        "select symbol, price from S", streams={"S": fit(table, "symbol", "price", "samples", error="0.05%")}
    )
    segments = as_frame(answer.segments())
    begin = microseconds(segments["ref"]) / 1e6 + segments["lo"]
    segments = segments.assign(
        begin=np.round(begin * 1e6).astype(np.int64),
        ref=microseconds(segments["ref"]),
        c0=[c[0] for c in segments["price"]],
        c1=[c[1] if len(c) > 1 else 0.0 for c in segments["price"]],
    )
    assert max(map(len, segments["price"])) <= 2
    duck.register(
        "pieces",
        segments[["symbol", "ref", "begin", "c0", "c1", "price_err", "lo", "hi"]].sort_values("begin"),
    )
    worst, without, rows = duck.execute(
        """select max(abs(h.x - (c0 + c1 * (h.t - ref) / 1e6)) - price_err), count(*) filter (begin is null), count(*)
        from held h asof left join pieces p on h.k = p.symbol and h.t >= p.begin"""
    ).fetchone()
    assert without == 0
    assert rows > 30_000
    assert worst <= ROUNDING
