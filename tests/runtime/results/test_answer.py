"""Answers: lazy, in all their forms, and how they speak of themselves."""

from __future__ import annotations

import pyarrow as pa
import pytest

import pulse
from pulse.core.errors import PulseError
from pulse.runtime.execution.bound_plan import RateError
from pulse.runtime.execution.fragment import NotWithinError
from pulse.runtime.results import answer as answer_module
from pulse.session import Session
from pulse.store.errors import StoreError
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD, local, prices, rows_of

SAMPLED = "select symbol, price from S where price > 20 sample every 1 s"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("answer") / "prices")


def test_nothing_is_read_before_it_is_asked_for(stored: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(answer_module.local_driver, "batches", never)
    answer = local().sql(SAMPLED, streams={"S": stored})
    assert "scan" in answer.explain().lower()
    with pytest.raises(AssertionError, match="work was begun"):
        answer.tuples()


def test_what_fails_fails_when_it_is_asked_for(stored: Model) -> None:
    answer = local().sql("select symbol, price from S error within 0.001", streams={"S": stored})
    with pytest.raises(
        NotWithinError, match=r"price of symbol='.' at .* is certain to 0\.\d+ only, .* requires 0.001"
    ):
        answer.segments()
    with pytest.raises(RateError, match="SAMPLE EVERY"):
        answer.tuples()


def test_tuples_where_there_is_a_rate_else_segments(stored: Model) -> None:
    sampled = local().sql(SAMPLED, streams={"S": stored})
    assert sampled.to_arrow().equals(sampled.tuples())
    assert sampled.to_pandas()["price"].tolist() == sampled.tuples().column("price").to_pylist()
    selective = local().sql("select symbol, price from S where price > 20", streams={"S": stored})
    assert selective.to_arrow().equals(selective.segments())


def test_lineage_if_asked_for(stored: Model) -> None:
    asked = local().sql(SAMPLED, streams={"S": stored}, lineage=True)
    assert "lineage" in asked.segments().column_names
    assert "lineage" not in asked.segments(lineage=False).column_names
    assert "lineage" not in asked.tuples().column_names
    plain = local().sql(SAMPLED, streams={"S": stored})
    for row in plain.segments(lineage=True).to_pylist():
        (cause,) = row["lineage"]
        assert cause["key"] == row["symbol"]
        start = (row["ref"] - cause["ref"]).total_seconds() + row["lo"]
        assert cause["lo"] - 1e-6 <= start <= cause["hi"] + 1e-6


def test_the_head_stops_the_work(stored: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module.local_driver, "cores", lambda: 1)
    answer = local().sql(SAMPLED, streams={"S": stored})
    rows, more = answer.head(4)
    assert (rows.num_rows, more) == (4, True)
    assert rows.equals(answer.tuples().slice(0, 4))
    every, more = answer.head(10**6)
    assert (every.num_rows, more) == (answer.tuples().num_rows, False)
    segments, _ = answer.head(2, tuples=False)
    assert segments.column_names == answer.segments().column_names
    none, more = local().sql(SAMPLED.replace("20", "1e9"), streams={"S": stored}).head(3)
    assert (none.num_rows, more) == (0, False)
    assert none.schema == answer.tuples().schema


def test_what_it_says_of_itself(stored: Model) -> None:
    answer = local().sql(SAMPLED, streams={"S": stored})
    assert (
        repr(answer) == f"Answer('{SAMPLED}'; symbol, price; tuples every 1 s; in process, runs when asked)"
    )
    selective = pulse.Session().sql("select symbol from S where price > 20", streams={"S": stored})
    assert repr(selective).endswith("symbol; segments only (no rate); on Spark, runs when asked)")


def test_explained_with_the_values_of_its_parameters(stored: Model) -> None:
    answer = local().sql(MACD, streams={"S": stored}, short=4, long=12)
    text = answer.explain()
    assert "over 4 s" in text
    assert "over 12 s" in text
    assert "parameters: :short = 4, :long = 12" in text
    assert text == local().explain(MACD, streams={"S": stored}, short=4, long=12)
    assert local().explain(MACD, streams={"S": stored}) == local().explain(
        MACD, streams={"S": stored}, short=4
    )
    bound = local().explain(MACD, streams={"S": stored}, short=4, long=12)
    assert "over 4 s" in bound
    assert "over :short" not in bound


# -- sessions -----------------------------------------------------------------------------------------------------


def test_streams_are_named_once_for_a_session_or_for_a_query(stored: Model) -> None:
    session = local()
    assert session.register("S", stored.path).path == stored.path
    wanted = rows_of(session.sql(SAMPLED).tuples())
    assert rows_of(local().sql(SAMPLED, streams={"S": str(stored.path)}).tuples()) == wanted
    other = prices(data=pa.table({n: stored_column(n) for n in ("symbol", "t", "price", "venue")}))
    assert session.sql(SAMPLED, streams={"S": other}).tuples().num_rows == 0  # a query's own go first
    assert rows_of(session.sql(SAMPLED).tuples()) == wanted


def stored_column(name: str) -> pa.Array:
    values = {
        "symbol": ["a", "a"],
        "price": [1.0, 1.0],
        "venue": ["N", "N"],
        "t": [1_600_000_000_000_000, 1_600_000_009_000_000],
    }
    return pa.array(values[name], pa.timestamp("us") if name == "t" else None)


def test_what_is_no_model_is_reported_at_once(tmp_path: object) -> None:
    session = Session(engine="local")
    with pytest.raises(StoreError, match="not a stored model"):
        session.sql(SAMPLED, streams={"S": str(tmp_path)})
    with pytest.raises(StoreError, match="not a stored model"):
        session.register("S", str(tmp_path))
    with pytest.raises(PulseError, match="'S'"):
        session.sql(SAMPLED)


def test_parameters_as_keywords_or_in_a_mapping(stored: Model) -> None:
    text = "select symbol, price from S where price > :streams"
    answer = local().sql(text, streams={"S": stored}, parameters={"streams": 20})
    assert answer.segments().num_rows > 0
    both = local().sql(MACD, streams={"S": stored}, parameters={"short": 4}, long=12)
    assert both.query.parameters == ()


def test_notes_of_what_is_read_as_of_a_time(stored: Model) -> None:
    session, text = local(), "select symbol, price from S where price > 20 sample every 1 s"
    assert session.sql(text, streams={"S": stored}).notes == ()
    assert session.sql(text, streams={"S": stored}, version=1).notes == ()
    asked = [
        session.sql(text, streams={"S": stored}, as_of="2020-09-13 12:27:00"),
        session.sql(f"{text} as of '2020-09-13 12:27:00'", streams={"S": stored}),
        session.sql(f"{text} as of :when", streams={"S": stored}, when="2020-09-13 12:27:00"),
        session.sql(text, streams={"S": session.open(stored.path, as_of="2020-09-13 12:27:00")}),
    ]
    for answer in asked:
        (note,) = answer.notes
        assert note.startswith("S as of 2020-09-13T12:27:00")
        assert "count as known at their own times" in note
        assert note in answer.explain()
    both = "select A.symbol, A.price - B.price as d from S A as of '2020-09-13 12:27:00' join S B on (A.symbol = B.symbol)"
    assert len(session.sql(both, streams={"S": stored}).notes) == 1


def test_notes_of_a_sweep_and_of_revisions_since_a_time(stored: Model) -> None:
    session, text = local(), "select symbol, price from S where price > :p sample every 1 s"
    at, later = "2020-09-13 12:27:00", "2020-09-13 12:28:00"
    assert session.sweep(text, streams={"S": stored}, p=[1, 2]).notes == ()
    (note,) = session.sweep(f"{text} as of '{at}'", streams={"S": stored}, p=[1, 2]).notes
    assert note.startswith("S as of 2020-09-13T12:27:00")
    both = session.sweep(f"{text} as of :when", streams={"S": stored}, p=[1, 2], when=[at, later]).notes
    assert [one[:27] for one in both] == ["S as of 2020-09-13T12:27:00", "S as of 2020-09-13T12:28:00"]
    plain = text.replace(":p", "1")
    (own,) = session.revised(plain, at, streams={"S": stored}).notes
    assert own == note
    assert session.revised(plain, 1, streams={"S": stored}).notes == ()
    assert session.revised(plain, 1, streams={"S": stored}, as_of=at).notes == (note,)
    assert session.revised(plain, at, streams={"S": stored}, as_of=later).notes == both
