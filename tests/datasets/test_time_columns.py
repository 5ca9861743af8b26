from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import ColumnTypeError
from pulse.datasets.errors import UnknownFormatError, ValueParseError
from pulse.datasets.time_columns import TIME, check_time_unit, check_zone, local_to_zone, to_time

UTC = datetime.UTC


def place(row: int) -> str:
    return f"row {row}"


def us(array: pa.Array) -> list[int]:
    assert array.type == TIME
    return array.view(pa.int64()).to_pylist()


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        (pa.array([1, -1], pa.timestamp("ns")), None, [0, -1]),  # floored, also before 1970
        (pa.array([1999, 2000], pa.timestamp("ns", tz="Europe/Berlin")), None, [1, 2]),
        (pa.array([2], pa.timestamp("s")), None, [2_000_000]),
        (pa.array([1], pa.date32()), None, [86_400_000_000]),
        (pa.array([3], pa.int32()), "ms", [3000]),
        (pa.array([1.5, -0.25]), "s", [1_500_000, -250_000]),
        (pa.array(["1970-01-01 00:00:01.5", "1970-01-01T00:00:02"]), None, [1_500_000, 2_000_000]),
        (pa.array(["1970-01-01T01:00:00+01:00"]), None, [0]),
        (pa.array(["1970-01-01T00:00:00.0000019Z"]).dictionary_encode(), None, [1]),
        (pa.array([], pa.string()), None, []),
    ],
)
def test_times_of_many_kinds(values: pa.Array, unit: str | None, expected: list[int]) -> None:
    assert us(to_time(values, place, unit)) == expected


@given(st.lists(st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2250, 1, 1)), max_size=20))
def test_iso_text_reads_as_what_it_says(times: list[datetime.datetime]) -> None:
    texts = pa.array([t.isoformat(sep=" ") for t in times], pa.string())
    assert to_time(texts, place).to_pylist() == times


def test_a_format_of_ones_own() -> None:
    assert us(to_time(pa.array(["02.01.1970 00:01"]), place, None, "%d.%m.%Y %H:%M")) == [86_460_000_000]


def test_a_format_of_ones_own_with_fractions() -> None:
    texts = pa.array(["02.01.1970 00:00:01.5", "02.01.1970 00:00:01.0000019"])
    assert us(to_time(texts, place, None, "%d.%m.%Y %H:%M:%S.%f")) == [86_401_500_000, 86_401_000_001]
    with pytest.raises(ValueParseError, match=r"row 1: expected a time as .* got '02.01.1970 00:00:01'"):
        to_time(
            pa.array(["02.01.1970 00:00:01.5", "02.01.1970 00:00:01"]), place, None, "%d.%m.%Y %H:%M:%S.%f"
        )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(st.lists(st.integers(1_700_000_000_000_000, 1_700_000_000_999_999), max_size=20))
def test_microseconds_written_as_fractions_are_those_that_were_written(unit: str, times: list[int]) -> None:
    """1700000000.123456 lies below itself as a double: flooring made it the microsecond before."""
    scale = {"s": -6, "ms": -3, "us": 0, "ns": 3}[unit]
    written = [float(f"{t}e{scale}") for t in times]
    assert us(to_time(pa.array(written, pa.float64()), place, unit)) == times


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("1714564800000", "time_unit= .--read time_unit=ms."),
        ("31.12.2024", "time_format= .--read time_format="),
    ],
)
def test_a_text_that_is_no_time_says_what_to_do(text: str, reported: str) -> None:
    with pytest.raises(ValueParseError, match=reported):
        to_time(pa.array([text]), place)


@pytest.mark.parametrize(
    ("values", "unit", "error", "match"),
    [
        (pa.array(["1970-01-01", "x", "y"]), None, ValueParseError, "row 1: expected a time .* got 'x'"),
        (pa.array(["1970-01-01 00:00:00", None]), None, ValueParseError, "row 1: the time is missing"),
        (pa.array([1, None], TIME), None, ValueParseError, "row 1: the time is missing"),
        (pa.array([1, 2]), None, ColumnTypeError, "holds int64; say with time_unit="),
        (pa.array([1, 2**62]), "s", ValueParseError, "row 1: .* is not a time that fits"),
        (pa.array([1.0, float("nan")]), "s", ValueParseError, "row 1: nan s"),
        (pa.array([1e300]), "ns", ValueParseError, "row 0"),
        (pa.array([[1]]), None, ColumnTypeError, "type list"),
    ],
)
def test_what_is_no_time(values: pa.Array, unit: str | None, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        to_time(values, place, unit)


def test_new_york_to_other_zones() -> None:
    local = pa.array([datetime.datetime(2024, 1, 2, 9, 30), datetime.datetime(2024, 7, 2, 9, 30)], TIME)
    assert local_to_zone(local, "America/New_York", None) is local
    utc = local_to_zone(local, "America/New_York", "UTC").to_pylist()
    assert utc == [datetime.datetime(2024, 1, 2, 14, 30), datetime.datetime(2024, 7, 2, 13, 30)]
    berlin = local_to_zone(local, "America/New_York", "Europe/Berlin").to_pylist()
    assert berlin == [datetime.datetime(2024, 1, 2, 15, 30), datetime.datetime(2024, 7, 2, 15, 30)]


def test_options_are_checked() -> None:
    check_zone("UTC")
    check_time_unit("ns")
    with pytest.raises(UnknownFormatError, match="'Mars' is not a time zone"):
        check_zone("Mars")
    with pytest.raises(UnknownFormatError, match="expected one of s, ms, us, ns, got 'h'"):
        check_time_unit("h")


def test_floor_is_numpys_floor() -> None:
    ns = np.array([-1001, -1000, -999, 0, 999, 1000])
    assert us(to_time(pa.array(ns).view(pa.timestamp("ns")), place)) == (ns // 1000).tolist()
