"""The time as of which streams are read, given beside the query's text."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from pulse.core.errors import PulseError
from pulse.language import parse
from pulse.operators.node import PlanError
from pulse.operators.parameters import ParameterError
from pulse.operators.relational.scan import AsOf, scans
from pulse.plan.exchanges import place_exchanges
from pulse.plan.show import show
from pulse.plan.versions import read_as_of
from tests.language.printing import STREAMS

JOIN = "select S.price, Q.price as before from S join S as Q as of version 3 on (S.symbol = Q.symbol)"
NOON = 43_200_000_000


def moments(query: Any) -> list[AsOf | None]:
    return [scan.at for scan in scans(query.plan)]


@pytest.mark.parametrize("time", [NOON, "1970-01-01 12:00", datetime.datetime(1970, 1, 1, 12)])
def test_a_time_is_for_streams_that_do_not_say_it(time: Any) -> None:
    assert moments(read_as_of(parse(JOIN, STREAMS), time, None)) == [AsOf(time=NOON), AsOf(version=3)]


def test_a_version_is_for_all_or_by_stream() -> None:
    query = parse("select A.x, B.y from A, B", STREAMS)
    assert moments(read_as_of(query, None, 2)) == [AsOf(version=2), AsOf(version=2)]
    assert moments(read_as_of(query, None, {"B": 4})) == [None, AsOf(version=4)]
    assert read_as_of(query, None, None) is query


def test_the_plan_shows_it() -> None:
    text = show(read_as_of(parse(JOIN, STREAMS), NOON, None).plan)
    assert "Scan S as S as of '1970-01-01T12:00:00" in text
    assert "Scan S as Q as of version 3" in text


def test_parameters_stand_for_either() -> None:
    query = parse(
        "select S.price from S as of version :v join S as Q on (S.symbol = Q.symbol) as of :when", STREAMS
    )
    assert set(query.parameters) == {"v", "when"}
    assert moments(query.bind({"v": 2, "when": "1970-01-01 12:00"})) == [AsOf(version=2), AsOf(time=NOON)]
    for wrong in ({"v": 0, "when": "1970-01-01"}, {"v": "a", "when": "1970-01-01"}, {"v": 2, "when": "noon"}):
        with pytest.raises(ParameterError, match=r":v: expected the number|:when: timestamp"):
            query.bind(wrong)


@pytest.mark.parametrize(
    ("time", "version", "reported"),
    [
        (NOON, 2, "give one of them"),
        (None, 0, "number of a version, from 1 on, got 0"),
        (None, True, "got True"),
        (None, {"A": 1}, "it reads S; name one of these"),
        (None, {"S": "new"}, "got 'new'"),
        ("noon", None, "cannot read 'noon'"),
    ],
)
def test_what_makes_no_sense_is_reported(time: Any, version: Any, reported: str) -> None:
    with pytest.raises((PlanError, PulseError), match=reported):
        read_as_of(parse(JOIN, STREAMS), time, version)


def test_versions_of_one_stream_are_different_streams() -> None:
    placed = show(place_exchanges(parse(JOIN, STREAMS).plan))
    assert placed.count("Exchange by") == 2
    same = "select S.price from S join S as Q on (S.symbol = Q.symbol) where S.price > 1 as of version 2"
    assert "Exchange" not in show(place_exchanges(parse(same, STREAMS).plan))
