"""Queries over tuples kept as points: the paper's sums of prices, and every function in both ways and on both engines."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.language.errors import LanguageError
from pulse.store.errors import StoreError
from pulse.store.model import Model
from tests import naive
from tests.runtime.execution.asking import SECOND, START, local, prices, rows_of, table, ticks

MINUTE = 60 * SECOND
ALL = (
    "select symbol, sum(price) as s, avg(price) as a, min(price) as l, max(price) as h, count(*) as n from S"
)


def trades(rows: list[tuple[str, int, float]], out: Path | None = None, **asked: Any) -> Model:
    """A model of (symbol, microseconds, price) as points."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("symbol", "t", "price"))}
    made = table(columns, symbol=pa.string(), price=pa.float64())
    return local().fit(
        made, key="symbol", time="t", model={"price": "samples"}, points=True, out=out, **asked
    )


def random_rows(seed: int = 1, count: int = 60) -> list[tuple[str, int, float]]:
    """Prices of a few symbols, often several at one instant."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, 40, count))
    return [("abc"[rng.integers(3)], START + int(s) * SECOND, float(rng.integers(1, 50))) for s in seconds]


def test_the_sums_of_the_papers_example() -> None:
    """Sum of prices over 30 minutes every 20 minutes (semantics 7.8).

    The paper's windows open at 1:40 and 2:00; ours close at multiples of 20 minutes since the epoch, so all is 10 minutes later:
    windows [1:50, 2:20) and [2:10, 2:40), and the price that will be revised is that of 2:10.
    """
    clock = [("1:55", 30.0), ("2:10", 25.0), ("2:15", 25.0), ("2:30", 12.0)]
    rows = [("IBM", (int(at[0]) * 60 + int(at[2:])) * MINUTE, price) for at, price in clock]
    query = "select symbol, sum(price) as total from S[size 30 min advance 20 min]"
    for revised, sums in ((25.0, (80.0, 62.0)), (22.0, (77.0, 59.0))):
        rows[1] = ("IBM", 130 * MINUTE, revised)
        found = local().sql(query, streams={"S": trades(rows)}).tuples()
        by_closing = dict(
            zip(
                found.column("t").cast(pa.int64()).to_pylist(), found.column("total").to_pylist(), strict=True
            )
        )
        assert (by_closing[140 * MINUTE], by_closing[160 * MINUTE]) == sums
        assert set(found.column("certainty").to_pylist()) == {"certain"}
        assert set(found.column("total_err").to_pylist()) == {0.0}


def test_every_function_at_every_closing_time() -> None:
    rows = random_rows()
    found = local().sql(f"{ALL}[size 7 advance 3]", streams={"S": trades(rows)}).tuples().to_pylist()
    wanted = []
    for symbol in "abc":
        own = [(t, x) for k, t, x in rows if k == symbol]
        for t in range(START - START % (3 * SECOND), START + 60 * SECOND, 3 * SECOND):
            values = [
                naive.tuple_window(own, t, 7 * SECOND, of) for of in ("sum", "avg", "min", "max", "count")
            ]
            if values[0] is not None:
                wanted.append((symbol, t, *values))
    got = [
        (row["symbol"], int(row["t"].timestamp() * 1e6), *(row[name] for name in "salhn"))
        for row in _utc(found)
    ]
    assert sorted(got) == sorted(wanted)


def _utc(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "t": row["t"].replace(tzinfo=datetime.UTC)} for row in rows]


QUERIES = {
    "windows": f"{ALL}[size 7 advance 3]",
    "one window over all keys": "select sum(price) as s, count(price) as n, avg(price) as a from S[size 7 advance 3]",
    "filtered": "select symbol, sum(price) as s from S[size 7 advance 3] where price > 20",
    "having": "select symbol, sum(price) as s from S[size 7 advance 3] group by symbol having sum(price) > 60",
    "of an expression": "select symbol, sum(price * price - 3) as s from S[size 7 advance 3]",
    "joined with a model": "select S.symbol, sum(S.price - P.price) as s from S[size 7 advance 3] join P "
    "on (S.symbol = P.symbol)",
    "two windows": "select A.symbol, A.s - B.s as d from (select symbol, avg(price) as s from S[size 5 advance 2]) as A "
    "join (select symbol, avg(price) as s from S[size 20 advance 2]) as B on (A.symbol = B.symbol)",
    "window of windows": "select symbol, max(s) as m from (select symbol, sum(price) as s from S[size 7 advance 1])"
    "[size 4 advance 3] as W group by symbol",
    "across keys at an instant": "select max(price) as m, sum(price) as s, count(*) as n, avg(price) as a from S",
    "points": "select symbol, price from S where price > 20",
    "points joined with a model": "select S.symbol, S.price - P.price as d from S join P on (S.symbol = P.symbol)",
    "points joined with a window": "select S.symbol, S.price - W.a as d from S join "
    "(select symbol, avg(price) as a from P[size 4 advance 3]) as W on (S.symbol = W.symbol)",
}
WITH_A_RATE = [
    name for name, text in QUERIES.items() if "advance" in text and "joined with a window" not in name
]


@pytest.fixture(scope="module")
def streams() -> dict[str, Model]:
    return {"S": trades(random_rows()), "P": prices(data=ticks("abd", 40), drift=None)}


@pytest.mark.parametrize("name", WITH_A_RATE)
def test_segments_say_at_closing_times_what_tuples_say(name: str, streams: dict[str, Model]) -> None:
    answer = local().sql(QUERIES[name], streams=streams)
    every = answer.query.rate
    assert every is not None
    modelled = answer.query.plan.columns.modelled
    reported = {}
    for row in answer.segments().to_pylist():
        ref = int(row["ref"].replace(tzinfo=datetime.UTC).timestamp() * 1e6)
        begin, end = ref + round(row["lo"] * 1e6), ref + round(row["hi"] * 1e6)
        for t in range(-(-begin // every) * every, max(end, begin + 1), every):
            x = (t - ref) / 1e6
            values = [sum(c * x**i for i, c in enumerate(row[one])) for one in modelled]
            reported[row.get("symbol"), t] = [*np.round(values, 9), row["certainty"]]
    tuples = {
        (row.get("symbol"), int(row["t"].timestamp() * 1e6)): [
            *np.round([row[one] for one in modelled], 9),
            row["certainty"],
        ]
        for row in _utc(answer.tuples().to_pylist())
    }
    assert tuples
    assert reported == tuples


def test_spark_gives_the_same(streams: dict[str, Model], spark: SparkSession, tmp_path: Path) -> None:
    on_spark = pulse.Session(spark=spark)
    rows = random_rows()
    frame = spark.createDataFrame(
        table(
            {n: [r[i] for r in rows] for i, n in enumerate(("symbol", "t", "price"))},
            symbol=pa.string(),
            price=pa.float64(),
        )
    )
    fitted = on_spark.fit(
        frame, key="symbol", time="t", model={"price": "samples"}, points=True, out=tmp_path / "points"
    )
    assert len(fitted) == len(rows)
    for name, query in QUERIES.items():
        there = on_spark.sql(query, streams={**streams, "S": fitted})
        here = local().sql(query, streams=streams)
        assert rows_of(there.tuples()) == rows_of(here.tuples()), name
        assert rows_of(there.segments()) == rows_of(here.segments()), name


def test_a_model_goes_on_within_an_instant(tmp_path: Path) -> None:
    rows = [("a", START, 1.0), ("a", START + SECOND, 2.0), ("b", START, 5.0)]
    more = [
        ("a", START + SECOND, 4.0),
        ("a", START + SECOND, 8.0),
        ("b", START + SECOND, 16.0),
        ("a", START, 3.0),
    ]
    trades(rows, tmp_path / "m")
    model = trades(more, tmp_path / "m", append=True, late="aside")
    whole = trades([*rows, *more[:3]])
    query = f"{ALL}[size 7 advance 3]"
    asked = [rows_of(local().sql(query, streams={"S": one}).tuples()) for one in (model, whole)]
    assert asked[0] == asked[1]
    assert model.read().to_arrow().equals(whole.read().to_arrow())
    assert model.manifest.counts["late"] == 1
    with pytest.raises(StoreError, match="--append"):
        local().fit(
            ticks("a", 3),
            key="symbol",
            time="t",
            model={"price": "samples"},
            error=0,
            out=tmp_path / "m",
            append=True,
        )


def test_what_has_no_meaning_is_reported(streams: dict[str, Model]) -> None:
    def refused(text: str) -> str:
        with pytest.raises(LanguageError) as e:
            local().sql(text, streams=streams)
        return str(e.value)

    assert "a model has no tuples to count" in refused("select symbol, count(*) from P[size 5 advance 1]")
    assert "needs a window" in refused("select symbol, count(price) from S")
    union = "select symbol, price from S union all select symbol, price from P"
    assert "must all be of points, or none" in refused(union)


def test_points_are_given_tuple_by_tuple_at_their_own_instants(spark: SparkSession) -> None:
    """Also where several are at one instant, and where none is at a multiple of any rate."""
    rows = [
        ("a", START + 7, 1.0),
        ("a", START + 7, 2.0),
        ("a", START + 1_300_001, 4.0),
        ("b", START + 5, 8.0),
    ]
    model = trades(rows)
    for session in (local(), pulse.Session(spark=spark)):
        answer = session.sql("select symbol, price from S where price < 8", streams={"S": model})
        found = answer.tuples()
        found = found if isinstance(found, pa.Table) else found.toArrow()
        details = [
            (row["symbol"], int(row["t"].timestamp() * 1e6 + 0.5), row["price"])
            for row in _utc(found.to_pylist())
        ]
        assert details == rows[:3]
        assert set(found.column("certainty").to_pylist()) == {"certain"}
    swept = local().sweep(
        "select symbol, price from S where price < :most", streams={"S": model}, most=[3, 9]
    )
    assert swept.tuples().column("most").to_pylist() == [3, 3, 9, 9, 9, 9]


def test_sample_every_of_points_is_refused_with_what_to_do(streams: dict[str, Model]) -> None:
    """Values between tuples are not defined: an answer without rows would say that there are no tuples."""
    for text in (
        "select symbol, price from S sample every 1 s",
        "select S.symbol, S.price - P.price as d from S join P on (S.symbol = P.symbol) sample every 1 s",
        "select max(price) as m from S sample every :rate",
    ):
        with pytest.raises(
            LanguageError, match="leave it out: the answer is then the tuples at their own instants"
        ):
            local().sql(text, streams=streams, **({"rate": 1} if ":rate" in text else {}))
    explained = local().sql("select symbol, price from S", streams=streams).explain()
    assert "tuples: at their own instants" in explained
    assert "need a rate" not in str(explained)


def test_explain_says_that_it_is_over_tuples(streams: dict[str, Model]) -> None:
    text = local().sql(QUERIES["one window over all keys"], streams=streams).explain()
    assert "sum of the tuples of" in text
    assert "the tuples of S.price of all keys, together" in text


def test_lineage_names_the_points_of_the_window() -> None:
    model = trades([("a", START, 1.0), ("a", START, 2.0), ("a", START + 2 * SECOND, 4.0)])
    made = (
        local()
        .sql("select symbol, sum(price) as s from S[size 1]", streams={"S": model})
        .segments(lineage=True)
    )
    assert [len(one) for one in made.column("lineage").to_pylist()] == [2, 1]
