"""Saved answers: queries on them give what the nested query gives, row for row, bounds and certainty included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.runtime.execution import bound_plan, local_driver
from pulse.runtime.results import saving
from pulse.runtime.results.saving import SaveError
from pulse.store.errors import HistoryGoneError, ModelExistsError, StoreError
from pulse.store.manifest import Manifest
from pulse.store.model import Model
from tests.runtime.execution.asking import local, prices, ticks, vessels
from tests.store.documents import fields_of

INNER = (
    "select symbol, price from S where price > {c}",
    "select symbol, price, venue from S where price > {c} or price < {c} - 1",
    "select symbol, price * price - {c} * price as price from S where price * price > {c} * 20",
    "select symbol, abs(price - {c}) as price from S",
    "select symbol, avg(price) as price from S[size {w} advance 2]",
    "select symbol, min(price) as price from S[size {w} advance 2] where price > {c}",
    "select symbol, avg(price) as price from S[size {w} advance 2] group by symbol having avg(price) > {c}",
    "select A.symbol as symbol, A.price - B.price as price from S A join S B on (A.symbol = B.symbol) where A.price > {c}",
    "select max(price) as price from S where price > {c}",
    "select symbol, price from S where price = {c}",
)
OUTER = (
    "select * from {q} where price > {d}",
    "select price + 1 as y from {q} where price < {d}",
    "select avg(price) as y from {q}[size {v} advance 3]",
    "select max(price) as y from {q}[size {v} advance 3]",
    "select sum(price) as y from {q}",
    "select min(price) as y from {q}",
    "select avg(price) as y from {q}[size {v} advance 3] where price > {d}",
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("saving") / "prices")


def answered(session: pulse.Session, text: str, streams: dict[str, Any], possible: bool) -> pa.Table | str:
    """The segments of the answer in order, or the error's kind."""
    try:
        table = session.sql(text, streams=streams, possible=possible).segments()
    except PulseError as error:
        return type(error).__name__
    return table


@pytest.fixture(autouse=True)
def _as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate plans as they are written, in one unit.

    A rewritten nested query solves both predicates at once and cuts segments less often, and aggregates across keys are merged
    from one part per unit; bounds of products, and of keys that may be absent, depend on either.
    """
    monkeypatch.setattr(bound_plan, "optimise", lambda plan: plan)
    monkeypatch.setattr(local_driver, "cores", lambda: 1)


def drawn(data: Any) -> tuple[str, str]:
    """A query, and one over it with a place for the first."""
    number = st.sampled_from([18.0, 19.75, 20.0, 20.25, 21.5])
    inner = data.draw(st.sampled_from(INNER)).format(
        c=data.draw(number), w=data.draw(st.sampled_from([4, 10]))
    )
    return inner, data.draw(st.sampled_from(OUTER))


@given(st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_queries_on_a_saved_answer_give_what_the_nested_query_gives(
    stored: Model, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    session, (inner, outer) = local(), drawn(data)
    more = {
        "d": data.draw(st.sampled_from([0.0, 19.9, 20.25, 400.0])),
        "v": data.draw(st.sampled_from([3, 7])),
    }
    possible = data.draw(st.booleans())
    saved = session.sql(inner, streams={"S": stored}).save(tmp_path_factory.mktemp("saved") / "model")
    nested = answered(session, outer.format(q=f"({inner})", **more), {"S": stored}, possible)
    again = answered(session, outer.format(q="Q", **more), {"Q": saved}, possible)
    if isinstance(nested, str) or isinstance(again, str):
        assert nested == again
    else:
        assert again.equals(nested)


@given(st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chains_of_saved_answers(stored: Model, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Several answers, each saved and queried by the next, equal one nested query with its possible ranges.

    (Without possible ranges a nested filter ends the drift at the holes that it leaves, and averages above lose its bound.)
    """
    session, folder = local(), tmp_path_factory.mktemp("chain")
    steps = (
        "select symbol, price from {q} where price > 19",
        "select symbol, price + 1 as price from {q}",
        "select symbol, avg(price) as price from {q}[size 4 advance 2]",
        "select symbol, price from {q} where price < 22",
        "select symbol, max(price) as price from {q}[size 3 advance 1]",
    )
    chain = data.draw(st.lists(st.sampled_from(steps), min_size=2, max_size=4))
    nested, at = "S", stored
    for number, step in enumerate(chain[:-1]):
        nested = f"({step.format(q=nested)})"
        at = session.sql(step.format(q="Q"), streams={"Q": at}).save(folder / f"{number}")
    whole = answered(session, chain[-1].format(q=nested), {"S": stored}, True)
    last = answered(session, chain[-1].format(q="Q"), {"Q": at}, True)
    if isinstance(whole, str) or isinstance(last, str):
        assert whole == last
    else:
        assert last.equals(whole)


def test_tuples_and_episodes_of_a_saved_answer(stored: Model, tmp_path: Path) -> None:
    inner = "select symbol, price from S where price > 20.1"  # not a value at an instant: a range includes its start
    saved = local().sql(inner, streams={"S": stored}).save(tmp_path / "high")
    for outer in (
        "select symbol, price from {q} where price < 21 sample every 0.5",
        "select avg(price) as y from {q}[size 3 advance 1]",
    ):
        nested = local().sql(outer.format(q=f"({inner})"), streams={"S": stored})
        again = local().sql(outer.format(q="Q"), streams={"Q": saved})
        assert again.tuples().equals(nested.tuples())
        assert again.tuples().num_rows
        assert again.episodes().equals(nested.episodes())


def test_pairs_are_saved(tmp_path: Path) -> None:
    """A join of a stream with itself is solved in buckets of time: a key's segments come from several."""
    session = local()
    fitted = session.fit(vessels(), key="id", time="t", model={"x": "linear", "y": "linear"}, error=0.5)
    pairs = "select R.id as a, S.id as b, R.x - S.x as dx from V R join V S on (R.id <> S.id) where {near}"
    pairs = pairs.format(near="distance(R.x, R.y, S.x, S.y) < 60")
    saved = session.sql(pairs, streams={"V": fitted}).save(tmp_path / "pairs")
    asked = session.sql(pairs, streams={"V": fitted}, possible=True).segments()
    kept = session.sql("select * from P", streams={"P": saved}, possible=True).segments()
    order = [(name, "ascending") for name in ("a", "b", "ref", "lo")]
    assert kept.sort_by(order).equals(asked.select(kept.column_names).sort_by(order))
    assert kept.num_rows > 10


def test_certainty_is_stored_and_possible_rows_show_on_request(stored: Model, tmp_path: Path) -> None:
    inner = "select symbol, price from S where price > 20"
    saved = local().sql(inner, streams={"S": stored}).save(tmp_path / "high")
    plain = local().sql("select * from Q", streams={"Q": saved})
    wide = local().sql("select * from Q", streams={"Q": saved}, possible=True)
    assert set(plain.segments().column("certainty").to_pylist()) == {"certain", "likely"}
    assert set(wide.segments().column("certainty").to_pylist()) == {"certain", "likely", "possible"}
    assert saved.read().column("certainty").to_pylist() == wide.segments().column("certainty").to_pylist()
    assert Model(tmp_path / "high").dataset().to_table().column_names == saved.schema.stored_columns


def test_drift_ends_where_dropped_possible_ranges_leave_a_hole() -> None:
    """Averages over what is left must not use a drift that was certified across the hole."""
    from pulse.core.columns import Columns

    certainty = np.array([3, 1, 3, 3], np.uint8)
    rows = Relation(
        Columns((("k", pa.string()),), ("x",)),
        (pa.array(["a", "b"]),),
        np.array([0, 3, 4]),
        np.zeros(4, np.int64),
        np.array([0.0, 1.0, 2.0, 0.0]),
        np.array([1.0, 2.0, 3.0, 1.0]),
        {"x": np.ones((4, 1))},
        {"x": np.zeros(4)},
        {"x": np.full(4, 0.5)},
        certainty,
    )
    assert rows.without_possible().drift["x"].tolist() == [np.inf, np.inf, 0.5]


def test_lineage_names_the_inputs(stored: Model, tmp_path: Path) -> None:
    text = "select symbol, price from S where price > :c"
    saved = local().sql(text, streams={"S": stored}, c=20).save(tmp_path / "high")
    derived = Manifest.read(tmp_path / "high").derived
    assert derived["query"] == text
    assert derived["parameters"] == {"c": 20}
    assert derived["inputs"] == [
        {"stream": "S", "path": str(stored.path.absolute()), "version": 1, "as_of": None}
    ]
    assert "saved answer" in repr(saved)
    causes = local().sql("select * from Q", streams={"Q": saved}).causes()
    assert causes.num_rows


def test_a_reader_without_certainty_refuses_it(stored: Model, tmp_path: Path) -> None:
    local().sql("select symbol, price from S where price > 20", streams={"S": stored}).save(tmp_path / "high")
    assert fields_of(tmp_path / "high")["schema"]["certainty"] is True
    assert not fields_of(stored.path)["schema"].get("certainty")


def test_an_empty_answer(stored: Model, tmp_path: Path) -> None:
    saved = (
        local()
        .sql("select symbol, price from S where price > 1000", streams={"S": stored})
        .save(tmp_path / "none")
    )
    assert len(saved) == 0
    assert local().sql("select * from Q", streams={"Q": saved}).segments().num_rows == 0
    assert local().sql("select max(price) as m from Q", streams={"Q": saved}).segments().num_rows == 0


def test_files_are_written_as_keys_are_done(
    stored: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "ROWS_PER_FILE", 10)
    monkeypatch.setattr(local_driver, "cores", lambda: 4)
    inner = "select symbol, price from S where price > 20"
    saved = local().sql(inner, streams={"S": stored}).save(tmp_path / "high")
    assert len(saved.manifest.files) > 1
    again = local().sql("select * from Q where price < 22", streams={"Q": saved}).segments()
    nested = local().sql(f"select * from ({inner}) as Q where price < 22", streams={"S": stored}).segments()
    assert again.equals(nested)


def test_a_part_of_a_saved_answer_is_read_by_time(stored: Model, tmp_path: Path) -> None:
    """Ranges of results begin far from their reference, before it or after; no segment may be missed."""
    saved = (
        local()
        .sql("select symbol, avg(price) as a from S[size 10 advance 2]", streams={"S": stored})
        .save(tmp_path / "avg")
    )
    whole = saved.read()
    begin, end = int((whole.ref + whole.lo * 1e6).min()), int((whole.ref + whole.hi * 1e6).max())
    middle, later = begin + (end - begin) // 3, begin + (end - begin) // 2
    expected = whole.restrict(middle, later)
    assert saved.read(start=middle, end=later).equals(expected)
    assert len(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select symbol from S where price > 20", "no modelled attribute.*select one more"),
    ],
)
def test_what_a_model_cannot_hold_is_refused(stored: Model, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SaveError, match=message):
        local().sql(text, streams={"S": stored}).save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_answers_of_tuples_are_refused(tmp_path: Path) -> None:
    points = local().fit(ticks(), key="symbol", time="t", model={"price": "samples"}, points=True)
    with pytest.raises(SaveError, match=r"of tuples \(points\).*fit the file"):
        local().sql("select symbol, price from P where price > 20", streams={"P": points}).save(
            tmp_path / "m"
        )


def test_answers_with_several_units_are_refused(tmp_path: Path) -> None:
    log = ["2020-09-13T12:26:50 [[true, alter(price, 2 * y)]]"]
    fitted = local().fit(ticks(), key="symbol", time="t", model={"price": "step"}, error=0.1, accents=log)
    answer = local().sql("select symbol, price from S", streams={"S": fitted})
    with pytest.raises(SaveError, match=r"accents alter price.*several units.*--policy alter=ignore"):
        answer.save(tmp_path / "m")
    ignored = local().sql("select symbol, price from S", streams={"S": fitted}, evolution={"alter": "ignore"})
    assert len(ignored.save(tmp_path / "m")) == len(fitted)


def test_a_place_in_use_is_not_replaced(stored: Model, tmp_path: Path) -> None:
    answer = local().sql("select symbol, price from S where price > 20", streams={"S": stored})
    with pytest.raises(SaveError, match="the model of stream S, which the query reads"):
        answer.save(stored.path, overwrite=True)
    answer.save(tmp_path / "m")
    with pytest.raises(ModelExistsError, match="exists already"):
        answer.save(tmp_path / "m")
    assert len(answer.save(tmp_path / "m", overwrite=True))


def test_what_needs_tuples_is_refused(stored: Model, tmp_path: Path) -> None:
    session = local()
    saved = session.sql("select symbol, price from S where price > 20", streams={"S": stored}).save(
        tmp_path / "m"
    )
    with pytest.raises(HistoryGoneError, match="saved, not fitted to tuples"):
        session.sql("select * from Q", streams={"Q": saved}, as_of="2020-09-13T12:27:00").segments()
    with pytest.raises(StoreError, match=r"revisions of stream Q.*saved from an answer"):
        session.revised("select * from Q", 1, streams={"Q": saved})
    changes = pa.table(
        {"kind": ["+I"], "symbol": ["a"], "t": pa.array([0], pa.timestamp("us")), "price": [1.0]}
    )
    with pytest.raises(StoreError, match="revise: the model was saved from an answer"):
        session.revise(saved, changes)
    with pytest.raises(StoreError, match="--append: the model was saved from an answer"):
        session.fit(
            ticks(), key="symbol", time="t", model={"price": "linear"}, error=1.0, out=saved.path, append=True
        )


@pytest.mark.parametrize(
    "inner",
    [
        "select symbol, price, venue from S where price > 20.1",
        "select symbol, avg(price) as price from S[size 4 advance 2]",
        "select max(price) as price from S where price > 20.1",
        "select A.symbol as a, B.symbol as b, A.price - B.price as price from S A join S B on (A.symbol <> B.symbol)",
    ],
)
def test_spark_saves_the_same_model(
    stored: Model, spark: SparkSession, tmp_path: Path, inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers write the files; the model holds the rows that this process saves, and either engine queries either."""
    session = pulse.Session(spark=spark)
    monkeypatch.setattr(local_driver, "cores", lambda: spark.sparkContext.defaultParallelism)
    here = local().sql(inner, streams={"S": stored}).save(tmp_path / "here")
    there = session.sql(inner, streams={"S": stored}).save(tmp_path / "there")
    assert there.read().sort().equals(here.read().sort())
    assert there.manifest.statistics == here.manifest.statistics
    outer = "select price from Q where price > 0.1"
    asked = [one.sql(outer, streams={"Q": there}).to_arrow() for one in (session, local())]
    assert asked[0].sort_by([("ref", "ascending"), ("lo", "ascending")]).num_rows == asked[1].num_rows > 0
