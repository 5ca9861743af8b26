"""Options as they are written on the command line: streams, parameters and their ranges, queries in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.commands.options import OptionError, axes, parameters, query_text, streams


def test_streams() -> None:
    assert streams(None) == {}
    assert streams(["S=prices", " V = a/b=c "]) == {"S": "prices", "V": "a/b=c"}
    for bad in ("S", "=prices", "S=", " = "):
        with pytest.raises(OptionError, match="expected NAME=DIR, such as S=prices"):
            streams([bad])
    with pytest.raises(OptionError, match="--stream: 'S' is named twice"):
        streams(["S=a", "S=b"])


def test_a_query_as_it_is_or_in_a_file(tmp_path: Path) -> None:
    assert query_text("select 1") == "select 1"
    file = tmp_path / "q.sql"
    file.write_text("select 'Größe'\n", encoding="utf-8")
    assert query_text(f"@{file}") == "select 'Größe'\n"
    with pytest.raises(OptionError, match=r"@.*gone\.sql: cannot read the query: .*No such file"):
        query_text(f"@{tmp_path / 'gone.sql'}")
    with pytest.raises(OptionError, match="cannot read the query"):
        query_text(f"@{tmp_path}")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match=r"cannot read the query: .*utf-8"):
        query_text(f"@{file}")


def test_parameters() -> None:
    assert parameters(None) == {}
    names = parameters(["a='007'", 'b="1e5"', "c=INF", "d=nan", "e='"])  # a share may be called INF
    assert names == {"a": "007", "b": "1e5", "c": "INF", "d": "nan", "e": "'"}
    given_ = parameters(["a=5", ":b=0.5", "c=10 s", "d=1e3", "e=x=y", "f=2013-10-07 13:30"])
    assert given_ == {"a": 5, "b": 0.5, "c": "10 s", "d": 1000.0, "e": "x=y", "f": "2013-10-07 13:30"}
    assert [type(given_[name]) for name in "abd"] == [int, float, float]
    for bad in ("a", "=5", "a=", ":=5"):
        with pytest.raises(OptionError, match="expected NAME=VALUE, such as short=10"):
            parameters([bad])
    with pytest.raises(OptionError, match="--param: 'a' is named twice"):
        parameters(["a=1", ":a=2"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5,10,20", [5, 10, 20]),
        ("5", [5]),
        ("30:300:90", [30, 120, 210, 300]),
        ("30:299:90", [30, 120, 210]),
        ("1:3", [1, 2, 3]),
        ("2:2:5", [2]),
        ("-2:0", [-2, -1, 0]),
        ("0:1:0.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("0.1:0.3:0.1", [0.1, 0.2, 0.3]),
        ("1e2:3e2:1e2", [100, 200, 300]),
        ("1, 5 : 6 ,9", [1, 5, 6, 9]),
        ("10 s,1 min", ["10 s", "1 min"]),
        ("2013-10-07 13:30,2013-10-07T14:00:00", ["2013-10-07 13:30", "2013-10-07T14:00:00"]),
    ],
)
def test_values_of_a_sweep(text: str, wanted: list[object]) -> None:
    found = axes([f"p={text}"])["p"]
    assert found == wanted
    assert [type(one) for one in found] == [type(one) for one in wanted]


@given(st.integers(-999, 999), st.integers(1, 300), st.integers(0, 60), st.integers(0, 3))
def test_a_range_has_both_ends_and_the_values_one_would_write(start, step, count, digits):
    def text(number: int) -> str:
        return f"{number / 10**digits:.{digits}f}"

    found = axes([f"p={text(start)}:{text(start + count * step)}:{text(step)}"])["p"]
    assert found == [float(text(start + i * step)) for i in range(count + 1)]
    assert np.all(np.diff(found) > 0)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("5,,6", "a value is missing between the commas"),
        ("5,", "a value is missing between the commas"),
        ("1:x", "expected FROM:TO or FROM:TO:STEP in numbers, got 1:x"),
        ("1:2:3:4", "expected FROM:TO"),
        (":", "expected FROM:TO"),
        ("nan:1", "expected FROM:TO"),
        ("1:inf:1", "expected FROM:TO"),
        ("3:1", "has no values; FROM must not exceed TO"),
        ("1:3:0", "STEP must be above 0"),
        ("1:3:-1", "STEP must be above 0"),
        ("0:1:1e-9", "has 1,000,000,001 values; choose a larger STEP"),
    ],
)
def test_values_that_are_none(text: str, reported: str) -> None:
    with pytest.raises(OptionError, match=f"--param p={text}: .*{reported}"):
        axes([f"p={text}"])


def test_a_parameter_needs_a_name_and_values() -> None:
    for bad in ("p", "p=", "=5"):
        with pytest.raises(
            OptionError, match="expected NAME=VALUES, such as short=5,10,20 or long=30:300:30"
        ):
            axes([bad])
    with pytest.raises(OptionError, match="'p' is named twice"):
        axes(["p=1", "p=2"])
    assert axes(None) == {}
