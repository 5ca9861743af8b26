from __future__ import annotations

import datetime as dt
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import DurationError, TimestampError
from pulse.core.time import (
    LIMIT,
    format_duration,
    format_instant,
    parse_duration,
    split_timestamps,
    to_datetime64,
    to_microseconds,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
microseconds = st.integers(-LIMIT, LIMIT)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10", 10_000_000),
        (10, 10_000_000),
        (0.1, 100_000),
        (1e-6, 1),
        ("10 s", 10_000_000),
        ("10s", 10_000_000),
        ("5 min", 300_000_000),
        ("1 h", 3_600_000_000),
        ("1.5 h", 5_400_000_000),
        (".5 d", 43_200_000_000),
        ("250 ms", 250_000),
        ("3 us", 3),
        ("3 µs", 3),
        ("2 d", 172_800_000_000),
        ("2 Days", 172_800_000_000),
        ("1e3 s", 1_000_000_000),
        (" 7 minutes ", 420_000_000),
        (np.int32(3), 3_000_000),
        (np.float64(0.25), 250_000),
        (dt.timedelta(days=1, microseconds=1), 86_400_000_001),
        (pd.Timedelta("3us"), 3),
    ],
)
def test_durations(text, us):
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "0", 0, "0 s", "-1", "-5 min", -1, "nan", float("nan"), float("inf"), "inf s", "5 m", "5 months", "10 s 5",
     "1:30", "five min", "1,5 h", "0.1 us", "1e-30 s", "1e99 d", "1e999999999999 s", "1e-999999999999 s", 10**30, True,
     None, "1 _", "٣ s", pd.Timedelta("1500ns"), dt.timedelta(0)],
)  # fmt: skip
def test_what_is_no_duration(text):
    with pytest.raises(DurationError, match="duration"):
        parse_duration(text)


@given(st.integers(1, LIMIT))
def test_durations_round_trip(us):
    assert parse_duration(format_duration(us)) == us


@given(st.integers(1, 10**15))
def test_seconds_as_floats_mean_the_decimal_they_print(us):
    assert parse_duration(us / 1e6) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [(1, "1 us"), (1500, "1500 us"), (250_000, "250 ms"), (90_000_000, "90 s"), (172_800_000_000, "2 d")],
)
def test_durations_for_people(us, text):
    assert format_duration(us) == text


@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns", "W", "M", "Y"])
def test_numpy_timestamps_of_any_unit(unit):
    day = np.array(["1969-01-01", "1970-01-01"], dtype=f"datetime64[{unit}]")
    expected = day.astype("datetime64[us]").view(np.int64)
    np.testing.assert_array_equal(to_microseconds(day), expected)
    assert expected[0] < 0


@given(st.lists(microseconds, max_size=5))
def test_microseconds_are_themselves(values):
    us = np.array(values, dtype=np.int64)
    np.testing.assert_array_equal(to_microseconds(us), us)
    np.testing.assert_array_equal(to_microseconds(to_datetime64(us)), us)
    np.testing.assert_array_equal(to_microseconds(pa.array(us).view(pa.timestamp("us"))), us)
    np.testing.assert_array_equal(to_microseconds(pa.array(us).view(pa.timestamp("us", tz="Asia/Tokyo"))), us)
    np.testing.assert_array_equal(to_microseconds(values), us)


@given(
    st.lists(
        st.datetimes(timezones=st.sampled_from([dt.UTC, zoneinfo.ZoneInfo("America/New_York")])), max_size=5
    )
)
def test_datetimes_in_any_zone(values):
    expected = [(value - EPOCH) // dt.timedelta(microseconds=1) for value in values]
    assert to_microseconds(values).tolist() == expected
    assert to_microseconds(pd.Series(values, dtype=object)).tolist() == expected


def test_far_and_zoned_pandas():
    far = pd.Series(np.array(["1700-01-01T00:00:00.000001", "2262-04-12"], dtype="datetime64[us]"))
    assert to_datetime64(to_microseconds(far)).tolist() == [
        dt.datetime(1700, 1, 1, 0, 0, 0, 1),
        dt.datetime(2262, 4, 12),
    ]
    zoned = pd.to_datetime(pd.Series(["2013-10-07T09:30:00"])).dt.tz_localize("America/New_York")
    assert to_microseconds(zoned).tolist() == [1_381_152_600_000_000]
    assert to_microseconds(pd.DatetimeIndex(zoned)).tolist() == [1_381_152_600_000_000]
    assert to_microseconds(pd.Timestamp("2013-10-07T09:30:00", tz="America/New_York")).tolist() == [
        1_381_152_600_000_000
    ]


def test_dates_and_scalars():
    assert to_microseconds(dt.date(1970, 1, 2)).tolist() == [86_400_000_000]
    assert to_microseconds(dt.datetime(1970, 1, 1, 0, 0, 1)).tolist() == [1_000_000]
    assert to_microseconds(np.datetime64("1970-01-01T00:00:01")).tolist() == [1_000_000]
    assert to_microseconds(pa.array([1], pa.date32())).tolist() == [86_400_000_000]
    assert to_microseconds(pa.array([86_400_000], pa.date64())).tolist() == [86_400_000_000]
    assert to_microseconds(7).tolist() == [7]
    assert to_microseconds("1970-01-01 01:00:00.5+01:00").tolist() == [500_000]
    assert to_microseconds([]).tolist() == []
    assert to_microseconds(pa.chunked_array([[1], [2]], pa.timestamp("s"))).tolist() == [1_000_000, 2_000_000]


@pytest.mark.parametrize(
    "values",
    [
        np.array([1000, 1001], dtype="datetime64[ns]"),
        pa.array([1000, 1001], pa.timestamp("ns")),
        pd.Series(np.array([1000, 1001], dtype="datetime64[ns]")),
        [np.datetime64(1, "us"), np.datetime64(1001, "ns")],
        [pd.Timestamp(1000), pd.Timestamp(1001)],
    ],
)
def test_digits_below_the_microsecond(values):
    with pytest.raises(
        TimestampError, match=r"row 1: 1970-01-01T00:00:00\.000001Z has digits below the microsecond"
    ):
        to_microseconds(values)
    whole, rest = split_timestamps(values)
    assert whole.tolist() == [1, 1]
    np.testing.assert_allclose(rest, [0.0, 1e-9])


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=5))
def test_splitting_nanoseconds_loses_nothing(values):
    whole, rest = split_timestamps(np.array(values, dtype="datetime64[ns]"))
    assert [1000 * int(us) + round(s * 1e9) for us, s in zip(whole, rest, strict=True)] == values
    assert (rest >= 0).all()
    assert (rest < 1e-6).all()


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, "NaT"], dtype="datetime64[s]"),
        pa.array([0, None], pa.timestamp("us")),
        pd.Series([pd.Timestamp(0), pd.NaT]),
        [EPOCH, None],
        [EPOCH, pd.NaT],
        np.array([EPOCH, float("nan")], dtype=object),
    ],
)
def test_missing_timestamps_are_named(values):
    with pytest.raises(TimestampError, match="row 1: missing"):
        to_microseconds(values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, 10**18 + 1]),
        np.array([0, 2**63], dtype=np.uint64),
        np.array([0, 2**62], dtype="datetime64[s]"),
        np.array([0, -(2**62)], dtype="datetime64[D]"),
        np.array([0, 10**15], dtype="datetime64[Y]"),
        pa.array([0, 2**62], pa.timestamp("ms")),
        [0, 10**30],
    ],
)
def test_timestamps_beyond_the_limit_are_named(values):
    with pytest.raises(TimestampError, match=r"row [01]: .*31,700 years"):
        to_microseconds(values)


@pytest.mark.parametrize(
    "values", [np.array([1.5]), ["yesterday"], np.zeros((2, 2), dtype=int), pa.array(["x"]), pd.Series([0.5])]
)
def test_what_is_no_timestamp(values):
    with pytest.raises(TimestampError, match="expected"):
        to_microseconds(values)


def test_a_text_that_is_no_instant_says_how_to_write_one():
    with pytest.raises(TimestampError, match="cannot read 'noon' as a point in time; write it as"):
        to_microseconds("noon")


def test_instants_for_people():
    assert format_instant(0, float("nan")).endswith("nan s")
    assert format_instant(-1) == "1969-12-31T23:59:59.999999Z"
