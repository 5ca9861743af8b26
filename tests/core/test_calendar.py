"""Sets of a calendar against the clock of each zone, instant by instant."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.calendar import DAY, CalendarError, ClockBefore, EachDay, Sessions, TimeSet, Weekdays

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
)
zones = st.sampled_from(ZONES)


def microseconds(*at: int) -> int:
    return (datetime(*at, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)  # type: ignore[misc]


# Changes of clocks: New York in spring and autumn, Berlin, Lord Howe (half an hour), Sao Paulo (at midnight).
CHANGES = [
    microseconds(2013, 3, 10, 7),
    microseconds(2013, 11, 3, 6),
    microseconds(2013, 3, 31, 1),
    microseconds(2013, 10, 5, 15, 30),
    microseconds(2013, 10, 20, 3),
]
instants = st.one_of(
    st.integers(microseconds(1975, 1, 1), microseconds(2035, 1, 1)),
    st.builds(lambda at, by: at + by, st.sampled_from(CHANGES), st.integers(-DAY, DAY)),
    st.builds(lambda at, by: at + by * 60_000_000, st.sampled_from(CHANGES), st.integers(-1440, 1440)),
)
clocks = st.one_of(st.integers(0, DAY), st.integers(0, 48).map(lambda half: half * DAY // 48))


def wall(zone: str, at: int) -> tuple[int, int]:
    """The clock in microseconds since midnight, and the day of the week, by the standard library."""
    local = (EPOCH + timedelta(microseconds=at)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    return (local - midnight) // timedelta(microseconds=1), local.isoweekday()


def in_ranges(members: TimeSet, at: int, begin: int, end: int) -> bool:
    bounds, closed = members.ranges(begin, end)
    assert (bounds[:, 0] <= bounds[:, 1]).all()
    assert (bounds[1:, 0] > bounds[:-1, 1]).all()
    return any(
        low <= at and (at < high or (at == high and last))
        for (low, high), last in zip(bounds, closed, strict=True)
    )


@given(zones, clocks, st.booleans(), instants, st.integers(0, 3 * DAY), st.integers(0, 3 * DAY))
def test_the_clock(zone: str, clock: int, closed: bool, at: int, before: int, after: int) -> None:
    reading, _ = wall(zone, at)
    expected = reading < clock or (closed and reading == clock)
    members = ClockBefore(zone, clock, closed)
    assert in_ranges(members, at, at - before, at + after) == expected
    assert members.contains(np.array([at, at])).tolist() == [expected] * 2


@given(zones, st.sets(st.integers(1, 7)), instants, st.integers(0, 9 * DAY))
def test_days_of_the_week(zone: str, days: set[int], at: int, around: int) -> None:
    _, weekday = wall(zone, at)
    members = Weekdays(zone, tuple(sorted(days)))
    assert in_ranges(members, at, at - around, at + around) == (weekday in days)
    assert members.contains(np.array([at])).tolist() == [weekday in days]


@given(st.lists(instants, max_size=20), zones, clocks)
def test_many_instants_at_once(times: list[int], zone: str, clock: int) -> None:
    found = ClockBefore(zone, clock).contains(np.array(times, np.int64))
    assert found.tolist() == [wall(zone, at)[0] < clock for at in times]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ((2013, 11, 27, 14, 29, 59), False),
        ((2013, 11, 27, 14, 30), True),
        ((2013, 11, 27, 21), True),  # the closing auction
        ((2013, 11, 27, 21, 0, 0, 1), False),
        ((2013, 11, 28, 15), False),  # Thanksgiving
        ((2013, 11, 29, 17, 59), True),
        ((2013, 11, 29, 18, 1), False),  # an early close
        ((2013, 7, 1, 13, 30), True),  # daylight saving
        ((2013, 7, 1, 20, 30), False),
        ((2013, 11, 30, 16), False),
    ],
)
def test_sessions_of_new_york(at: tuple[int, ...], expected: bool) -> None:
    assert Sessions("XNYS").contains(np.array([microseconds(*at)])).tolist() == [expected]


def test_a_break_is_not_part_of_a_session() -> None:
    hours = [microseconds(2024, 5, 2, *at) for at in ((1, 30), (3, 59), (4, 30), (5, 0), (8, 0), (8, 1))]
    assert Sessions("XHKG").contains(np.array(hours)).tolist() == [True, True, False, True, True, False]


def test_sessions_across_the_turn_of_a_year_are_all_there() -> None:
    bounds, _ = Sessions("XNYS").ranges(microseconds(2012, 12, 28), microseconds(2013, 1, 5))
    assert len(bounds) == 5  # 28 and 31 December, 2 to 4 January


def test_times_that_no_calendar_has() -> None:
    with pytest.raises(CalendarError, match="year 1 to 9999"):
        ClockBefore("UTC", 0).ranges(2**62, 2**62)
    with pytest.raises(CalendarError, match="session 'XKRX': there is no calendar from 2090 to 2090"):
        Sessions("XKRX").ranges(microseconds(2090, 1, 1), microseconds(2090, 1, 2))


def test_sets_pickle_and_are_described() -> None:
    for members in (ClockBefore("UTC", DAY // 2, True), Weekdays("UTC", (6, 7)), Sessions("XNYS")):
        assert pickle.loads(pickle.dumps(members)) == members
    assert str(ClockBefore("Europe/Berlin", 34_200_000_000)) == "clock < 9:30:00 in Europe/Berlin"
    assert str(Weekdays("UTC", (6, 7))) == "weekday in (6, 7) in UTC"
    assert str(Sessions("XNYS")) == "session XNYS"


@pytest.mark.parametrize(
    ("zone", "first", "dates"),
    [
        ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC), "27 28 29 31"),  # the 30th was skipped
        (
            "America/St_Johns",
            datetime(2006, 10, 28, 12, tzinfo=UTC),
            "28 29 30 31",
        ),  # at 0:01 back to 23:01 of the 28th
        ("America/Havana", datetime(2024, 3, 9, 12, tzinfo=UTC), "9 10 11 12"),  # no midnight on the 10th
    ],
)
def test_days_of_clocks_that_pass_midnight_never_or_twice(zone: str, first: datetime, dates: str) -> None:
    clock, begin = ZoneInfo(zone), int(first.timestamp()) * 1_000_000
    found = EachDay(zone).whole(begin, begin + 3 * DAY)
    assert (found[1:, 0] == found[:-1, 1]).all()
    shown = []
    for opens, _ in found.tolist():
        at = datetime.fromtimestamp(opens // 1_000_000, clock)
        before = datetime.fromtimestamp(opens // 1_000_000 - 1, clock)
        assert at.date() > before.date()
        shown.append(str(at.day))
    assert shown == dates.split()
