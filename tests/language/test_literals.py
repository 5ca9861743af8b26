"""Numbers, durations, points in time and bounds, in queries and as values of parameters."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import Relative, RelativeWithFloor
from pulse.core.errors import TimestampError
from pulse.core.expression import Comparison, Constant, Instant, walk
from pulse.core.time import parse_instant
from pulse.language import parse
from pulse.operators.node import walk as walk_plan
from pulse.operators.parameters import ParameterError
from pulse.operators.relational.filter import Filter
from pulse.operators.windows.window import Window
from pulse.plan.query import Query
from tests.language.printing import STREAMS


def constant(written: str) -> object:
    predicate = predicate_of(parse(f"select price from S where price > {written}", STREAMS))
    return next(one.value for one in walk(predicate) if isinstance(one, Constant))


def predicate_of(query: Query) -> Comparison:
    found = next(one for one in walk_plan(query.plan) if isinstance(one, Filter)).predicate
    assert isinstance(found, Comparison)
    return found


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_exactly(value: float) -> None:
    assert constant(repr(value)) == value


@given(st.integers(0, 2**70))
def test_a_whole_number_is_an_int_as_long_as_floats_hold_it(value: int) -> None:
    read = constant(str(value))
    assert read == float(value)
    assert isinstance(read, int) == (value < 2**53)


@pytest.mark.parametrize(
    ("written", "value"), [(".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-2", 0.01), ("- 3", -3)]
)
def test_forms_of_numbers(written: str, value: float) -> None:
    assert constant(written) == value


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10", 10),
        ("10 s", 10),
        ("10s", 10),
        ("0.5", 0.5),
        (".5 min", 30),
        ("'1 h'", 3600),
        ("100 ms", 0.1),
        ("1e1", 10),
        ("2 d", 172800),
    ],
)
def test_forms_of_durations(written: str, seconds: float) -> None:
    query = parse(
        f"select symbol, avg(price) from S[size {written} advance 1] sample every {written}", STREAMS
    )
    window = next(one for one in walk_plan(query.plan) if isinstance(one, Window))
    assert (window.size, query.every) == (round(seconds * 1e6), round(seconds * 1e6))


@given(st.datetimes(min_value=datetime.datetime(1, 1, 3), max_value=datetime.datetime(9999, 12, 29)))
def test_a_point_in_time_is_read_exactly(when: datetime.datetime) -> None:
    asked = predicate_of(parse(f"select price from S where t < '{when}'", STREAMS)).right
    assert asked == Instant((when - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1))


def test_a_parameter_that_the_time_is_compared_with_is_a_point_in_time() -> None:
    query = parse("select price from S where :start <= t", STREAMS)
    for start in (
        "1970-01-01 00:00:01",
        datetime.datetime(1970, 1, 1, 0, 0, 1),
        np.datetime64("1970-01-01T00:00:01"),
    ):
        assert predicate_of(query.bind({"start": start})) == Comparison(
            ">=", predicate_of(query).left, Instant(1_000_000)
        )
    for wrong in (1, 2.5, "soon", np.datetime64("NaT"), None):
        with pytest.raises(ParameterError, match=":start"):
            query.bind({"start": wrong})


def test_an_instant_has_no_digits_below_the_microsecond() -> None:
    assert parse_instant("1970-01-01 00:00:00.1000000") == 100_000
    with pytest.raises(TimestampError, match="to the microsecond"):
        parse_instant("1970-01-01 00:00:00.1000001")


def test_forms_of_bounds() -> None:
    text = "select price, price * 2 as q from S error within '0.05% or 0.001' on price, 1 % on q"
    assert parse(text, STREAMS).errors == (("price", RelativeWithFloor(0.05, 0.001)), ("q", Relative(1.0)))
    bound = parse("select price from S error within :e", STREAMS).bind({"e": "1%"}).errors
    assert bound == ((None, Relative(1.0)),)
