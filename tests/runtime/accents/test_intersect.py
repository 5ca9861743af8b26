"""INTERSECT: times at which two queries have the same row; against DuckDB on the tuples, the row algebra, and on Spark."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.core.time import format_instant
from pulse.language import LanguageError
from pulse.stream.accents.accents import Accent
from tests.effort import examples
from tests.oracles.algebra import Intersect as Rows
from tests.oracles.plan_of_rows import Node, Source, run
from tests.runtime.execution.asking import SECOND, START, local, rows_of, table

QUERY = "select symbol, price from S intersect select symbol, price from R"


def feed(prices, symbols="ab"):
    """Prices a second of each symbol."""
    rows = {"symbol": [], "t": [], "price": []}
    for n, symbol in enumerate(symbols):
        rows["symbol"] += [symbol] * len(prices)
        rows["t"] += [START + i * SECOND for i in range(len(prices))]
        rows["price"] += [float(price + n) for price in prices]
    return table(rows, symbol=pa.string(), price=pa.float64())


def fit(data, truth="step", error=0, **asked):
    return local().fit(data, key="symbol", time="t", model={"price": truth}, error=error, **asked)


def ask(query, one, other, session=None, **asked):
    return (session or local()).sql(query, streams={"S": one, "R": other}, **asked)


PAIRS = st.integers(2, 7).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 2), min_size=n, max_size=n),) * 2)
)


def sampled(answer, count):
    """Symbol, second and price; the last tuple ends the model, so its instant is left out."""
    rows = [(row["symbol"], _second(row["t"]), row["price"]) for row in answer.tuples().to_pylist()]
    return sorted(row for row in rows if row[1] < count - 1)


def _second(time):
    return (pa.scalar(time, pa.timestamp("us")).value - START) // SECOND


@examples(15)
@given(PAIRS)
def test_samples_are_what_duckdb_says_of_the_tuples(both):
    one, other = map(feed, both)
    got = ask(QUERY + " sample every 1 s", fit(one), fit(other))
    with duckdb.connect() as database:
        database.register("one", one)
        database.register("other", other)
        query = "select symbol, t, price from one intersect select symbol, t, price from other"
        details = [(symbol, _second(t), price) for symbol, t, price in database.sql(query).fetchall()]
    assert sampled(got, len(both[0])) == sorted(row for row in details if row[1] < len(both[0]) - 1)


def test_steps_without_error_are_certain_and_tubes_that_overlap_possible():
    one, other = feed([1, 2, 3, 4, 4]), feed([1, 5, 3, 9, 9])
    sure = ask(QUERY, fit(one), fit(other)).segments()
    assert set(sure["certainty"].to_pylist()) == {"certain"}
    assert sorted(row["price"][0] for row in sure.to_pylist()) == [1.0, 2.0, 3.0, 4.0]
    loose = (
        local()
        .sql(
            QUERY + " with possible",
            streams={"S": fit(one, error=0), "R": fit(feed([1.5, 5, 3.5, 9, 9]), error=1)},
        )
        .segments()
    )
    assert loose.num_rows > 0
    assert set(loose["certainty"].to_pylist()) <= {"possible", "likely"}


def test_lines_that_cross_meet_at_an_instant():
    found = (
        ask(QUERY, fit(feed([0, 4], "a"), "linear"), fit(feed([3, 1], "a"), "linear")).segments().to_pylist()
    )
    assert [(row["lo"], row["hi"]) for row in found] == [(0.5, 0.5)]


def test_it_nests_and_binds_tighter_than_union():
    one, other = fit(feed([1, 2, 3, 3])), fit(feed([1, 5, 3, 3]))
    inner = f"select symbol, max(price) as top from ({QUERY}) as B[size 0.5] group by symbol"
    assert ask(inner, one, other).segments().num_rows > 0
    thrice = ask(f"{QUERY} intersect select symbol, price from S where price > 1", one, other).segments()
    assert {row["price"][0] for row in thrice.to_pylist()} == {2.0, 3.0, 4.0}
    named = QUERY.replace("select", "select 'both' as source,")
    both = (
        ask(f"select 'one' as source, symbol, price from S union all {named}", one, other)
        .segments()
        .to_pylist()
    )
    assert {row["source"] for row in both} == {"one", "both"}


def test_explain_shows_it_and_how_it_is_evaluated():
    text = ask(QUERY, fit(feed([1, 2])), fit(feed([1, 2]))).explain()
    assert "  Intersect\n" in text
    assert "Join on symbol = symbol_other where price = price_other" in text
    assert "price" in text.partition("equation systems")[2]


@pytest.mark.parametrize("word", ["all", "distinct"])
def test_there_is_nothing_to_count(word):
    with pytest.raises(LanguageError, match="there is nothing to count; write intersect"):
        ask(QUERY.replace("intersect", f"intersect {word}"), fit(feed([1, 2])), fit(feed([1, 2]))).segments()


def test_columns_must_be_the_same():
    with pytest.raises(LanguageError, match="the queries of an intersect must have the same columns"):
        ask(
            "select symbol, price from S intersect select symbol from R", fit(feed([1, 2])), fit(feed([1, 2]))
        )


SPLIT = "[[symbol = 'b', alter(price, y / 4)]]"


def recorded(data, since):
    """The same, b's prices a quarter from a second on; the log that says so; and both as elements in their order."""
    late = [row["symbol"] == "b" and _second(row["t"]) >= since for row in data.to_pylist()]
    price = [p / 4 if changed else p for p, changed in zip(data["price"].to_pylist(), late, strict=True)]
    made = data.set_column(data.column_names.index("price"), "price", pa.array(price))
    elements = [(_second(row["t"]), 1, {**row, "t": _second(row["t"])}) for row in made.to_pylist()]
    elements.append((since, 0, Accent.parse(SPLIT)))
    return made, [f"{format_instant(START + since * SECOND)} {SPLIT}"], elements


@examples(15)
@given(PAIRS, st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_accents_do_what_the_algebra_of_rows_says(both, since):
    """A split of one input is undone until the other has it: then both are in the new units."""
    one, other = (recorded(feed(prices), at) for prices, at in zip(both, since, strict=True))
    query = Node(Rows(), *(Source(name, ["symbol", "t", "price"]) for name in "SR"))
    order = sorted(
        [("S", *e) for e in one[2]] + [("R", *e) for e in other[2]], key=lambda e: (e[1], e[2], e[0])
    )
    out = run(query, [(name, element) for name, _, _, element in order])
    details = sorted((row["symbol"], row["t"], float(row["price"])) for row in out if isinstance(row, dict))
    answer = ask(QUERY + " sample every 1 s", *(fit(data, accents=log) for data, log, _ in (one, other)))
    assert sampled(answer, len(both[0])) == [row for row in details if row[1] < len(both[0]) - 1]


def test_check_says_what_an_intersection_does_with_accents():
    one, other = (recorded(feed([4, 8, 8, 12]), at) for at in (1, 2))
    reported = ask(QUERY, *(fit(data, accents=log) for data, log, _ in (one, other))).accents().lines()
    assert any("Intersect: holds it" in text for text in reported)
    assert any("Intersect: passes" in text for text in reported)


def test_spark_gives_the_same(spark, tmp_path):
    one = fit(feed([1, 2, 3, 4, 4]), out=tmp_path / "one")
    other = fit(feed([1, 5, 3, 4, 9]), out=tmp_path / "other")
    there = ask(QUERY, one, other, pulse.Session(spark=spark)).segments()
    assert rows_of(there) == rows_of(ask(QUERY, one, other).segments())


def test_bounds_of_its_answer_are_inverted_to_both_inputs():
    data = feed([1, 2, 3, 4, 4])
    query = "select symbol, price from S intersect select symbol, price * 2 from S error within 0.5"
    model = local().fit(data, key="symbol", time="t", model={"price": "step"}, for_query=query, stream="S")
    assert 0 < float(model.manifest.fit["error"]["price"]) <= 0.5
