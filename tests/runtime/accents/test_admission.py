"""What texts say of accents: read at once as they are read in full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.runtime.accents.admission import parse_line, parse_row
from pulse.stream.accents.accents import AccentError
from pulse.stream.accents.log import AccentLog

INSTANTS = [
    "2013-10-08",
    "2013-10-08T09:30:00",
    "2013-10-08T09:30:00.25",
    "2013-10-08T09:30:00.250001Z",
    "soon",
    "7",
]
NAMES = ["symbol", "t", "price", "true", "timestamp", "a.b"]
VALUES = ["AIG", "", "it''s", "a, b", "]]", "2013-10-08", "\\"]
PRIMITIVES = [
    "alter(price, y / 4)",
    " drop( size ) ",
    "+(p)",
    "alter(price, 0 * y)",
    "alter(symbol, y)",
    "rename(x)",
    "",
]


def test_a_line_that_is_no_accent_is_not_reported_to_be_the_first_of_its_log() -> None:
    with pytest.raises(AccentError, match=r"^expected an instant and an accent"):
        parse_line("garbage", "t", 0)


@given(*map(st.sampled_from, (INSTANTS, NAMES, VALUES, PRIMITIVES)), st.sampled_from(["", " "]))
def test_texts_are_read_at_once_as_they_are_read_in_full(
    instant: str, name: str, value: str, primitive: str, space: str
) -> None:
    text = f"[[{space}{name}{space}={space}'{value}'{space},{space}{primitive}]]"
    line = f"{instant} {text}"
    try:
        (expected,) = AccentLog.parse([line], where="log", times=["t"]).controls
    except pulse.PulseError:
        with pytest.raises(pulse.PulseError):
            parse_line(line, "t", 0)
        return
    assert parse_line(line, "t", 0) == expected
    assert parse_row(text, expected.position, "t", 0) == expected
