"""Spark against the engine in this process: the same rows for every kind of query; lazy, and shuffled only where needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pulse
from pulse.core.errors import PulseError
from pulse.runtime.execution import local_driver as local_runtime
from pulse.runtime.execution.bound_plan import prepare
from pulse.store.model import Model
from tests.runtime.execution.asking import (
    COLLISION,
    FOLLOWING,
    MACD,
    START,
    local,
    prices,
    rows_of,
    table,
    ticks,
    tracks,
)

Models = dict[str, Model]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """S prices, P other prices of some of the symbols, N prices by number, V vessels, K without a key, E nothing."""
    folder = tmp_path_factory.mktemp("models")
    appended = folder / "appended"
    prices(appended, ticks("abc", 30))
    prices(appended, ticks("bcdx", 30, seed=3, start=35), append=True)
    numbered = ticks("wxyz", 40)
    ids = pa.array(np.repeat([3, -1, 7, 2**40], 40), pa.int64())
    line = {"t": [START + i * 1_000_000 for i in range(50)], "x": [float(i % 9) for i in range(50)]}
    for i, symbols in enumerate(("ab", "cd", "ef")):
        many = prices(folder / "many", ticks(symbols, 20, seed=i), append=i > 0)
    return {
        "S": prices(folder / "s"),
        "M": many,
        "P": prices(folder / "p", ticks("bcdz", seed=5)),
        "A": prices(appended, ticks("a", 1, start=90), append=True),
        "N": prices(folder / "n", numbered.set_column(0, "id", ids), key="id", keep=()),
        "V": tracks(folder / "v"),
        "K": local().fit(
            table(line, x=pa.float64()), time="t", model={"x": "linear"}, error=0.5, out=folder / "k"
        ),
        "E": prices(folder / "e", ticks("a", 1).slice(0, 0)),
    }


@pytest.fixture
def on_spark(spark: SparkSession) -> pulse.Session:
    return pulse.Session(spark=spark)


@pytest.fixture(autouse=True)
def as_many_pieces_as_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "cores", lambda: 2)


def asked(session: pulse.Session, models: Models, text: str, **more: Any) -> Any:
    return session.sql(text, streams=models, **more)


QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "filter": ("select symbol, price from S where price > 20 sample every 1 s", {}),
    "projection": (
        "select price * price - 3 as p, venue from S where t >= :t0",
        {"t0": "2020-09-13 12:27:00"},
    ),
    "macd": (MACD, {"short": 4, "long": 12}),
    "following": (FOLLOWING, {}),
    "collision": (COLLISION, {"c": 60}),
    "max over keys": ("select max(price) as top from S", {}),
    "min over keys and a window": ("select min(price) as low from S[size 6 advance 2]", {}),
    "sum over keys": ("select sum(price) as total from S where price > 19", {}),
    "avg over keys by venue": ("select avg(x) as middle, max(y) as top from V", {}),
    "join of two models": (
        "select S.symbol, S.price - P.price as d from S join P on S.symbol = P.symbol",
        {},
    ),
    "join of three": (
        "select S.symbol, S.price - P.price as d, A.price as a from S join P on S.symbol = P.symbol "
        "join A on A.symbol = P.symbol where A.price < S.price",
        {},
    ),
    "join with an aggregate": (
        "select S.symbol, S.price - M.m as d from S join (select avg(price) as m from S) as M where S.price > M.m",
        {},
    ),
    "union": (
        "select 's' as source, symbol, price from S where price > 20 union all select 'p', symbol, price from P",
        {},
    ),
    "union of one stream": (
        "select symbol, price from S where symbol = 'a' union all select symbol, price - 1 from S where symbol > 'c'",
        {},
    ),
    "union of aggregates and of a join on equal keys": (
        "select 'w' as source, symbol, avg(price) as a, max(price) as b from S[size 8 advance 4] "
        "union all select 'j', S.symbol, S.price, P.price from S join P on S.symbol = P.symbol",
        {},
    ),
    "a deviation": (
        "select symbol, sqrt(avg(squares) - avg(price) * avg(price)) as d from "
        "(select symbol, price, price * price as squares from S) as Q[size 8 advance 4] group by symbol",
        {},
    ),
    "text keys": (
        "select symbol, max(price) as m from S[size 8 advance 4] where symbol in ('a', 'e', 'no')",
        {},
    ),
    "number keys": ("select id, sum(price) as s from N[size 4 advance 4] where id > 2.5", {}),
    "appended": ("select symbol, avg(price) as a from A[size 4 advance 2]", {}),
    "many files": ("select symbol, price, venue from M where price > 20", {}),
    "model clause": (
        "select L.x, R.y from V L model x = x + 2 * t, y = y join V R model y = y - t on (L.x < R.y)",
        {},
    ),
    "keyless": ("select x, x * x as square from K where x > 3 sample every 500 ms", {}),
    "keyless with keys": ("select symbol, price - x as d from S join K where price - x > 15", {}),
    "empty": ("select symbol, price, venue from S where price < -1 sample every 1 s", {}),
    "of an empty model": ("select symbol, price from E sample every 1 s", {}),
    "an aggregate of an empty model": ("select max(price) as m from E", {}),
    "pairs of an empty model": ("select L.price from E L join E R on L.symbol <> R.symbol", {}),
    "two sources, one empty": ("select S.symbol, S.price from S join E on S.symbol = E.symbol", {}),
}


@pytest.mark.parametrize("name", QUERIES)
def test_both_engines_give_the_same_segments(on_spark: pulse.Session, models: Models, name: str) -> None:
    text, parameters = QUERIES[name]
    wanted = asked(local(), models, text, **parameters).segments()
    frame = asked(on_spark, models, text, **parameters).segments()
    assert frame.columns == wanted.column_names
    got = rows_of(frame)
    assert got == rows_of(wanted)
    assert bool(got) != ("empty" in name)


SAMPLED = ["filter", "macd", "following", "min over keys and a window"]


@pytest.mark.parametrize("name", SAMPLED)
def test_both_engines_give_the_same_tuples(on_spark: pulse.Session, models: Models, name: str) -> None:
    text, parameters = QUERIES[name]
    wanted = asked(local(), models, text, **parameters).tuples()
    frame = asked(on_spark, models, text, **parameters).tuples()
    assert frame.columns == wanted.column_names
    assert rows_of(frame) == rows_of(wanted)


@pytest.mark.parametrize("name", ["macd", "collision", "sum over keys"])
def test_possible_ranges_and_causes_are_the_same(on_spark: pulse.Session, models: Models, name: str) -> None:
    text, parameters = QUERIES[name]
    how = {"possible": True, "lineage": True, **parameters}
    wanted = asked(local(), models, text, **how).segments()
    got = asked(on_spark, models, text, **how).segments()
    assert rows_of(got) == rows_of(wanted)
    certainty = set(wanted.column("certainty").to_pylist())
    assert certainty >= ({"certain"} if "over keys" in name else {"likely", "possible"})
    for row in wanted.column("lineage").to_pylist():
        causes = [(one["segment_id"], one["key"]) for one in row]
        assert len(causes) == len(set(causes)) > 0


def test_types_of_an_empty_answer(on_spark: pulse.Session, models: Models) -> None:
    text, _ = QUERIES["empty"]
    for of in ("tuples", "segments"):
        wanted = getattr(asked(local(), models, text), of)()
        got = getattr(asked(on_spark, models, text), of)().toArrow()
        assert (wanted.num_rows, got.num_rows) == (0, 0)
        assert got.schema.names == wanted.schema.names
        assert [str(t).replace("element", "item") for t in got.schema.types] == [
            str(t) for t in wanted.schema.types
        ]


# -- lazy ---------------------------------------------------------------------------------------------------------


def jobs_run(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_nothing_runs_before_an_action(on_spark: pulse.Session, spark: SparkSession, models: Models) -> None:
    before = jobs_run(spark)
    frames = []
    for name in ("macd", "following", "join of three", "sum over keys"):
        text, parameters = QUERIES[name]
        frames.append(asked(on_spark, models, text, **parameters).segments())
    assert jobs_run(spark) == before
    assert frames[0].count() > 0
    assert jobs_run(spark) > before


def test_what_fails_fails_on_the_action_as_the_error_it_is(on_spark: pulse.Session, models: Models) -> None:
    answer = asked(on_spark, models, "select symbol, price from S error within 0.001")
    frame = answer.segments()
    assert frame.columns[0] == "symbol"
    with pytest.raises(PulseError, match=r"price of symbol='.' at 2020-09-13.* is certain to 0.* only"):
        answer.to_arrow()


def test_answers_compose_with_sql(on_spark: pulse.Session, spark: SparkSession, models: Models) -> None:
    text, parameters = QUERIES["macd"]
    answer = asked(on_spark, models, text, **parameters)
    answer.tuples().createOrReplaceTempView("macd")
    names = "values ('a', 'Alpha'), ('c', 'Gamma') as names(symbol, name)"
    counted = spark.sql(
        f"select name, count(*) c, max(diff) d from macd join (select * from {names}) using (symbol) group by name"
    )
    details = {row.name: (row.c, row.d) for row in counted.collect()}
    wanted: dict[str, list[float]] = {}
    for row in asked(local(), models, text, **parameters).tuples().to_pylist():
        wanted.setdefault(row["symbol"], []).append(row["diff"])
    assert details == {n: (len(wanted[s]), max(wanted[s])) for s, n in (("a", "Alpha"), ("c", "Gamma"))}


def test_the_head_of_an_answer(on_spark: pulse.Session, models: Models) -> None:
    answer = asked(on_spark, models, "select symbol, price from S sample every 1 s")
    rows, more = answer.head(3)
    assert (rows.num_rows, more) == (3, True)
    rows, more = asked(on_spark, models, "select symbol, price from S where symbol = 'no'").head(3)
    assert (rows.num_rows, more) == (0, False)


# -- shuffles -----------------------------------------------------------------------------------------------------


def shuffles(frame: DataFrame) -> list[str]:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return [line for line in plan.splitlines() if "Exchange" in line]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("filter", 0),
        ("macd", 0),
        ("union of one stream", 0),
        ("number keys", 0),
        ("collision", 1),
        ("following", 1),
        ("max over keys", 1),
        ("join of two models", 1),
        ("union", 1),
        ("join of three", 1),
        ("join with an aggregate", 2),
    ],
)
def test_only_what_must_meet_is_shuffled(
    on_spark: pulse.Session, models: Models, name: str, wanted: int
) -> None:
    text, parameters = QUERIES[name]
    answer = asked(on_spark, models, text, **parameters)
    found = shuffles(answer.segments())
    assert len(found) == wanted
    assert all("hashpartitioning(place" in line for line in found)


def test_each_unit_is_a_task_of_its_own(on_spark: pulse.Session, models: Models) -> None:
    frame = asked(on_spark, models, "select symbol, price from M").segments()
    assert frame.rdd.getNumPartitions() == 2


# -- the grid -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["collision", "following"])
def test_cells_of_space_change_nothing(
    on_spark: pulse.Session, models: Models, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, parameters = QUERIES[name]
    whole = rows_of(asked(local(), models, text, possible=True, **parameters).segments())
    monkeypatch.setattr("pulse.runtime.execution.bound_plan.ROWS", 4)
    answer = asked(local(), models, text, possible=True, **parameters)
    job = prepare(answer.query, {name: str(model.path) for name, model in models.items()}, tuples=False)
    assert all(grid.position is not None for grid in job.grids.values())
    assert rows_of(answer.segments()) == whole
    if name == "collision":
        assert rows_of(asked(on_spark, models, text, possible=True, **parameters).segments()) == whole
