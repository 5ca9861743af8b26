"""Rows in the forms of other libraries, and what notebooks show of answers without running what is costly."""

from __future__ import annotations

import duckdb
import polars
import pyarrow as pa
import pytest

import pulse
from pulse.runtime.accents.query_units import QueryAbortedError
from pulse.runtime.results import answer as answers
from pulse.runtime.results.answer import Answer
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD, local, prices

SAMPLED = "select symbol, price from S where price > 20 sample every 1 s"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("rows") / "prices")


def _never() -> pulse.Session:
    raise AssertionError("Spark was started")


def test_an_answer_in_all_forms(stored: Model) -> None:
    answer = local().sql(SAMPLED, streams={"S": stored})
    wanted = answer.to_arrow()
    assert wanted.num_rows > 0
    for table in (pa.table(answer), answer.reader().read_all(), answer.to_polars().to_arrow()):
        assert table.num_rows == wanted.num_rows
        assert table.column_names == wanted.column_names
    assert pa.table(answer).equals(wanted)
    assert polars.DataFrame(answer).height == wanted.num_rows
    assert duckdb.sql("select count(*) from answer").fetchall() == [(wanted.num_rows,)]
    assert answer.to_pandas().shape == wanted.shape


def test_segments_where_there_is_no_rate(stored: Model) -> None:
    answer = local().sql("select symbol, price from S where price > 20", streams={"S": stored})
    assert pa.table(answer).equals(answer.segments())


def test_sweeps_and_revised_answers_too(stored: Model) -> None:
    swept = local().sweep(MACD, streams={"S": stored}, short=[4, 6], long=12)
    assert swept.to_arrow().equals(swept.tuples())
    assert swept.to_polars().columns[:2] == ["short", "long"]
    details = local().revised(SAMPLED, 1, streams={"S": stored})
    assert polars.DataFrame(details).columns[0] == details.to_arrow().column_names[0]


def test_a_reader_ends_where_the_query_does(stored: Model) -> None:
    log = ["2020-09-13T12:27:00Z [[true, drop(price)]]"]
    answer = local().sql(SAMPLED, streams={"S": stored}, accents=log)
    with pytest.raises(QueryAbortedError):
        answer.to_arrow()
    with pytest.raises(QueryAbortedError, match="cannot go on after"):
        answer.reader().read_all()


def test_a_notebook_shows_the_first_rows_of_a_small_answer(stored: Model) -> None:
    answer = local().sql(SAMPLED, streams={"S": stored})
    shown = answer._repr_html_()
    assert "<th>price_err</th>" in shown
    assert shown.count("<tr>") == 11
    assert "there are more" in shown
    assert "price &gt; 20" in shown


def test_it_shows_none_on_spark_of_exchanges_or_of_large_models(
    stored: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(Answer, "head", never)
    session = pulse.Session(engine="spark")
    assert "Not run" in session.sql(SAMPLED, streams={"S": stored})._repr_html_()
    assert "not started" in repr(session)
    pairs = "select A.symbol, B.symbol as other from S as A join S as B on (A.symbol <> B.symbol) where A.price > B.price"
    assert "Not run" in local().sql(pairs, streams={"S": stored})._repr_html_()
    monkeypatch.setattr(answers, "_SMALL", 3)
    assert "Not run" in local().sql(SAMPLED, streams={"S": stored})._repr_html_()


def test_an_answer_that_fails_says_so_in_a_notebook(stored: Model) -> None:
    answer = local().sql("select symbol, price from S error within 0.001", streams={"S": stored})
    assert "is certain to" in answer._repr_html_()


def test_sweeps_plans_and_revisions_are_shown_without_running(stored: Model) -> None:
    swept = local().sweep(MACD, streams={"S": stored}, short=[2, 4, 6, 8, 10], long=12)
    assert "5 variants: short 2, 4 … 10 (5), long 12; in process, runs when asked" in repr(swept)
    assert "S.ap &gt; L.ap" in swept._repr_html_()
    details = local().revised(SAMPLED, 1, streams={"S": stored})
    assert "since version 1" in details._repr_html_()
    plan = local().explain(MACD, streams={"S": stored}, short=4, long=12)
    assert repr(plan) == str(plan)
    assert next(iter(plan.sections)) == "logical plan"
    assert "S.ap &gt; L.ap" in plan._repr_html_()


def test_without_polars_it_says_what_to_do(stored: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(pulse.PulseError, match="pip install polars"):
        local().sql(SAMPLED, streams={"S": stored}).to_polars()


def test_the_first_rows_of_a_sweep_are_of_its_first_variants(stored: Model) -> None:
    swept = local().sweep(MACD, streams={"S": stored}, short=[2, 4], long=12)
    rows, more = swept.head(3)
    assert more
    assert rows == swept.to_arrow().slice(0, 3)
