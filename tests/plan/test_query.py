"""Queries: their parameters, found and bound wherever they stand, and the rate of their tuples."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from pulse.core.bounds import Absolute, ErrorBound
from pulse.core.expression import Comparison, Constant, Instant
from pulse.language import parse
from pulse.operators.node import walk
from pulse.operators.parameters import ParameterError
from pulse.operators.relational.filter import Filter
from pulse.operators.windows.window import Window
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from tests.language.printing import STREAMS

EVERYWHERE = """
select symbol, max(price) - :margin as top from S[size :long advance :step]
where t >= :start and symbol <> :who and price > 2 * :least
having max(price) > :high
error within :bound on top
sample every :rate
"""
VALUES: dict[str, Any] = {
    "margin": 1.5,
    "long": "1 min",
    "step": 2,
    "start": "2013-10-07 13:30",
    "who": "IBM",
    "least": 3,
    "high": np.float64(9),
    "bound": "1%",
    "rate": "500 ms",
}


def asked(text: str, *names: str) -> Query:
    return parse(text, STREAMS, names)


def bound(text: str, **values: Any) -> Query:
    return asked(text, *values).bind(values)


def test_parameters_are_found_wherever_they_stand() -> None:
    assert set(asked(EVERYWHERE).parameters) == set(VALUES)
    assert asked("select price from S").parameters == ()


def test_all_are_bound() -> None:
    query = bound(EVERYWHERE, **VALUES)
    assert query.parameters == ()
    (window,) = (node for node in walk(query.plan) if isinstance(node, Window))
    assert (window.size, window.advance) == (60_000_000, 2_000_000)
    assert query.every == query.rate == 500_000
    assert query.errors == (("top", ErrorBound.parse("1%")),)
    predicates = [str(node.predicate) for node in walk(query.plan) if isinstance(node, Filter)]
    reported = " ".join(predicates)
    assert "'2013-10-07T13:30:00.000000Z'" in reported
    assert "'IBM'" in reported
    assert ":" + "least" not in reported


def test_the_rewritten_plan_knows_its_parameters_too() -> None:
    """A reach that a rule derives from a predicate is bound like the predicate."""
    text = "select R.id from objects R join objects S on R.id <> S.id where distance(R.x, R.y, S.x, S.y) < :c"
    open_ = asked(text)
    assert "c" in open_.parameters
    rewritten = Query(optimise(open_.bind({"c": 5}).plan), open_.select)
    assert rewritten.parameters == ()


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"margin": None}, r"parameter :margin: expected a number or text, got None"),
        ({"margin": True}, r"parameter :margin: expected a number or text, got True \(bool\)"),
        ({"margin": float("inf")}, "parameter :margin: expected a finite number, got inf"),
        ({"margin": float("nan")}, "parameter :margin: expected a finite number"),
        ({"margin": [1]}, r"parameter :margin: expected a number or text, got \[1\] \(list\)"),
        ({"long": "soon"}, r"parameter :long \(window size\): expected a duration, .* got 'soon'"),
        ({"long": -1}, r"parameter :long"),
        ({"long": None}, r"parameter :long"),
        ({"step": 0}, r"parameter :step"),
        ({"rate": "never"}, r"parameter :rate \(sample every\)"),
        ({"start": "yesterday"}, "parameter :start: "),
    ],
)
def test_values_that_do_not_fit_are_named(changed: dict[str, Any], reported: str) -> None:
    with pytest.raises(ParameterError, match=reported):
        bound(EVERYWHERE, **{**VALUES, **changed})


def test_missing_and_unknown_ones() -> None:
    query = asked("select symbol, price - :a as p from S where price > :b")
    with pytest.raises(ParameterError, match=r"no value for :\w, :\w; give it as a keyword"):
        query.bind({})
    with pytest.raises(ParameterError, match="no value for :b"):
        query.bind({"a": 1})
    with pytest.raises(ParameterError, match="there is no parameter :c; it has :"):
        query.bind({"a": 1, "b": 2, "c": 3})
    with pytest.raises(ParameterError, match="there is no parameter :c; it has none"):
        asked("select price from S").bind({"c": 3})


def test_numbers_of_numpy_are_plain_ones() -> None:
    query = bound("select symbol from S where price > :p", p=np.int64(3))
    (predicate,) = (node.predicate for node in walk(query.plan) if isinstance(node, Filter))
    assert isinstance(predicate, Comparison)
    assert isinstance(predicate.right, Constant)
    assert type(predicate.right.value) is int


def test_times_in_any_form() -> None:
    wanted = Instant(1_381_152_600_000_000)
    for given in ("2013-10-07 13:30", "2013-10-07T15:30+02:00", datetime(2013, 10, 7, 13, 30, tzinfo=UTC)):
        query = bound("select symbol from S where t >= :start", start=given)
        (predicate,) = (node.predicate for node in walk(query.plan) if isinstance(node, Filter))
        assert predicate.right == wanted


def test_bounds_as_parameters() -> None:
    for given, wanted in ((0.5, Absolute(0.5)), ("0.5", Absolute(0.5))):
        assert bound("select price from S error within :e", e=given).errors == ((None, wanted),)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("select price from S", None),
        ("select price from S sample every 3 s", 3_000_000),
        ("select symbol, avg(price) from S[size 10 advance 2]", 2_000_000),
        ("select symbol, avg(price) from S[size 10]", 10_000_000),
        ("select symbol, avg(price) from S[size 10 advance 2] sample every 100 ms", 100_000),
        (
            "select A.symbol from (select symbol, avg(price) as a from S[size 10 advance 4]) as A join "
            "(select symbol, avg(price) as a from S[size 10 advance 6]) as B on A.symbol = B.symbol",
            12_000_000,
        ),
        (
            "select symbol, max(a) from (select symbol, avg(price) as a from S[size 10 advance 4])[size 60 advance 6] "
            "group by symbol",
            6_000_000,
        ),
        ("select max(price) from S", None),
    ],
)
def test_rates(text: str, rate: int | None) -> None:
    assert asked(text).rate == rate
