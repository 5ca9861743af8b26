"""Represent sets of instants that a calendar defines: parts of the day, days of the week, sessions of an exchange.

A condition such as ``time_of_day(t, 'America/New_York') >= '09:30'`` is a comparison of the time attribute with such a set:
``=`` is "in the set", ``!=`` "not in it". A set lists its ranges between two instants, so that segments are cut by them and
samples looked up in them. Clocks are those of the zone: over ranges of constant offset from UTC the clock's reading is a
line, so that days on which clocks are put forward or back are exact.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.errors import PulseError
from pulse.core.expression import Expression

DAY = 86_400_000_000
"""Microseconds of a day."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000
_LOADING = threading.Lock()  # a calendar is computed once, and filters of warnings are the process's


class CalendarError(PulseError, ValueError):
    """A calendar does not say which instants belong to a set."""


class TimeRanges(NamedTuple):
    """Ranges of time in microseconds, (n, 2), sorted and disjoint, each with its lower end; ``closed`` has the upper end, too."""

    bounds: IntArray
    closed: BoolArray


@dataclass(frozen=True)
class TimeSet(Expression):
    """A set of instants to compare the time attribute with: ``=`` is "in the set", ``!=`` "not in it"."""

    def ranges(self, begin: int, end: int) -> TimeRanges:
        """Return all of its ranges that meet ``[begin, end]``, whole or cut anywhere outside of it."""
        raise NotImplementedError

    def contains(self, times: IntArray) -> BoolArray:
        """Find which instants, in microseconds, belong to the set."""
        if not len(times):
            return np.zeros(0, bool)
        bounds, closed = self.ranges(int(times.min()), int(times.max()))
        row = np.searchsorted(bounds[:, 0], times, side="right") - 1
        known = row >= 0
        row[~known] = 0
        if not len(bounds):
            return known
        upper = bounds[row, 1]
        inside: BoolArray = known & ((times < upper) | (closed[row] & (times == upper)))
        return inside


@dataclass(frozen=True)
class ClockBefore(TimeSet):
    """The instants at which the clock of ``zone`` has not reached a time of day; with ``closed`` also those at that time.

    ``clock`` is in microseconds since midnight.
    """

    zone: str
    clock: int
    closed: bool = False

    def ranges(self, begin: int, end: int) -> TimeRanges:
        return _by_clock(
            self.zone, begin, end, lambda midnight: (midnight, midnight + self.clock), self.closed
        )

    def __str__(self) -> str:
        at = timedelta(microseconds=self.clock)
        return f"clock {'<=' if self.closed else '<'} {at} in {self.zone}"


@dataclass(frozen=True)
class Weekdays(TimeSet):
    """The days of the week of ``zone`` that are listed: 1 is Monday, 7 Sunday."""

    zone: str
    days: tuple[int, ...]

    def ranges(self, begin: int, end: int) -> TimeRanges:
        def whole_day(midnight: IntArray) -> tuple[IntArray, IntArray]:
            weekday = (midnight // DAY + 3) % 7 + 1  # the epoch was a Thursday
            return midnight, np.where(np.isin(weekday, self.days), midnight + DAY, midnight)

        return _by_clock(self.zone, begin, end, whole_day, False)

    def __str__(self) -> str:
        return f"weekday in ({', '.join(map(str, self.days))}) in {self.zone}"


@dataclass(frozen=True)
class Sessions(TimeSet):
    """The trading hours of an exchange, by its calendar's code (``XNYS``): without breaks, holidays, and after early closes.

    Each session includes the instant at which it closes.
    """

    code: str

    def ranges(self, begin: int, end: int) -> TimeRanges:
        with _LOADING:
            bounds = _sessions(self.code, _year(begin), _year(end)).trading
        meets = (bounds[:, 1] >= begin) & (bounds[:, 0] <= end)
        return TimeRanges(bounds[meets], np.ones(int(meets.sum()), bool))

    def __str__(self) -> str:
        return f"session {self.code}"


LONGEST_PERIOD = 2 * DAY
"""The length in microseconds that no period exceeds: a day with clocks put back is longer than 24 hours."""


@dataclass(frozen=True)
class Periods:
    """Periods of a calendar that are aggregated, disjoint and ascending."""

    longest: ClassVar[int] = LONGEST_PERIOD
    """The length in microseconds that none of them exceeds."""

    def whole(self, begin: int, end: int) -> IntArray:
        """Return opening and closing time of all periods that meet ``[begin, end]``, (n, 2)."""
        raise NotImplementedError


@dataclass(frozen=True)
class EachSession(Periods):
    """The sessions of an exchange, from opening to closing, with their breaks."""

    code: str

    def whole(self, begin: int, end: int) -> IntArray:
        with _LOADING:
            schedule = _sessions(self.code, _year(begin - DAY), _year(end + DAY)).whole
        return _meeting(schedule, begin, end)

    def __str__(self) -> str:
        return f"each session of {self.code}"


@dataclass(frozen=True)
class EachDay(Periods):
    """The days of a zone, each from the first instant at which its clock shows that date, or a later one."""

    zone: str

    def whole(self, begin: int, end: int) -> IntArray:
        opens = _day_starts(self.zone, begin - 3 * DAY, end + 3 * DAY)
        return _meeting(np.stack((opens[:-1], opens[1:]), axis=1), begin, end)

    def __str__(self) -> str:
        return f"each day in {self.zone}"


FOREVER = 1 << 57
"""A length in microseconds, 4567 years, that the times of no stream exceed."""


@dataclass(frozen=True)
class AllTime(Periods):
    """One period without a beginning or an end, which aggregates all that a key has."""

    longest: ClassVar[int] = FOREVER

    def whole(self, begin: int, end: int) -> IntArray:
        return np.array([[-FOREVER, FOREVER]])

    def __str__(self) -> str:
        return "the model's start"


@dataclass(frozen=True)
class Since:
    """Windows from the opening of the period that an instant lies in up to the instant."""

    periods: Periods

    def __str__(self) -> str:
        of = {EachSession: "the opening of ", EachDay: "the midnight of "}.get(type(self.periods), "")
        return f"since {of}{self.periods}"


def _meeting(bounds: IntArray, begin: int, end: int) -> IntArray:
    meets = (bounds[:, 1] > begin) & (bounds[:, 0] <= end)
    return bounds[meets]


def _by_clock(zone: str, begin: int, end: int, of_day: Any, closed: bool) -> TimeRanges:
    """Return ranges of every day by the clock, ``of_day(midnight)``, within the zone's ranges of constant offset from UTC."""
    parts, ends = [], []
    for start, stop, offset in _offsets(zone, begin - DAY, end + DAY):
        midnight = np.arange((start + offset) // DAY, (stop + offset) // DAY + 1, dtype=np.int64) * DAY
        low, high = of_day(midnight)
        low, high = low - offset, high - offset
        whole = (
            closed & (high >= start) & (high < stop)
        )  # the offset may end before the clock reaches the upper end
        low, high = np.maximum(low, start), np.minimum(high, stop)
        some = (low < high) | (whole & (low == high))
        parts.append(np.stack((low[some], high[some]), axis=1))
        ends.append(np.broadcast_to(whole, low.shape)[some])
    return _merged(np.concatenate(parts), np.concatenate(ends))


def _day_starts(zone: str, begin: int, end: int) -> IntArray:
    """Return the first instant of each date that the clock shows, in order; a date that is skipped has none."""
    dates, starts = [], []
    for start, stop, offset in _offsets(zone, begin, end):
        date = np.arange((start + offset) // DAY, (stop + offset - 1) // DAY + 1, dtype=np.int64)
        dates.append(date)
        starts.append(np.maximum(date * DAY - offset, start))
    date = np.concatenate(dates)
    # A clock that is put back over midnight shows a date again, which has begun.
    latest = np.maximum.accumulate(date)
    fresh = np.append(True, latest[1:] > latest[:-1])
    return np.asarray(np.concatenate(starts)[fresh], dtype=np.int64)


def _merged(bounds: IntArray, closed: BoolArray) -> TimeRanges:
    """Join ranges of which one begins where the one before ends."""
    if not len(bounds):
        return TimeRanges(bounds, closed)
    begins = np.concatenate(([True], bounds[1:, 0] > bounds[:-1, 1]))
    last = np.concatenate((begins[1:], [True]))
    return TimeRanges(np.stack((bounds[begins, 0], bounds[last, 1]), axis=1), closed[last])


def _offsets(zone: str, begin: int, end: int) -> list[tuple[int, int, int]]:
    """Return the ranges of constant offset from UTC that make up ``[begin, end)``, as (begin, end, offset)."""
    clock = ZoneInfo(zone)
    marks = [*range(begin, end, DAY), end]
    changes = [begin]
    for a, b in pairwise(marks):
        if _offset(clock, a) != _offset(clock, b):
            changes.append(_change(clock, a, b))
    changes.append(end)
    return [(a, b, _offset(clock, a)) for a, b in pairwise(changes) if a < b]


def _change(clock: ZoneInfo, a: int, b: int) -> int:
    """Find the instant, a whole second, from which the offset is that of ``b``."""
    before = _offset(clock, a)
    low, high = a // _SECOND, -(-b // _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(clock, middle * _SECOND) == before:
            low = middle
        else:
            high = middle
    return high * _SECOND


def _offset(clock: ZoneInfo, at: int) -> int:
    offset = _instant(at).astimezone(clock).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _year(at: int) -> int:
    return _instant(at).year


def _instant(at: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        raise CalendarError(
            f"time: calendars reach from year 1 to 9999; expected microseconds since 1970 within them, got {at}"
        ) from None


class _Schedule(NamedTuple):
    """Opening and closing times, (n, 2): of sessions, and of the trading hours in them, without breaks."""

    whole: IntArray
    trading: IntArray


@lru_cache(maxsize=32)
def _sessions(code: str, first: int, last: int) -> _Schedule:
    """Return the sessions from one year to another."""
    import exchange_calendars
    import pandas as pd
    from exchange_calendars import errors

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas, about that library's own code
        try:
            known = exchange_calendars.get_calendar(code)
            start = max(pd.Timestamp(first, 1, 1), known.bound_min() or pd.Timestamp.min)
            end = min(pd.Timestamp(last, 12, 31), known.bound_max() or pd.Timestamp.max)
            schedule = exchange_calendars.get_calendar(code, start=start, end=end).schedule
        except (errors.CalendarError, ValueError) as error:
            raise CalendarError(
                f"session '{code}': there is no calendar from {first} to {last}: {error}; "
                "give the hours with time_of_day and weekday instead"
            ) from error
    columns = {
        name: schedule[name].to_numpy("datetime64[us]").astype(np.int64)
        for name in ("open", "break_start", "break_end", "close")
    }
    whole = schedule["break_start"].isna().to_numpy()
    parts = [
        np.stack((columns["open"][whole], columns["close"][whole]), axis=1),
        np.stack((columns["open"][~whole], columns["break_start"][~whole]), axis=1),
        np.stack((columns["break_end"][~whole], columns["close"][~whole]), axis=1),
    ]
    trading = np.concatenate(parts)
    sessions = np.stack((columns["open"], columns["close"]), axis=1)
    return _Schedule(sessions, trading[np.argsort(trading[:, 0], kind="stable")])


def longest_silence(code: str) -> int:
    """Return a length in microseconds that no session exceeds, and every night does: a longer silence is between sessions.

    >>> longest_silence("XNYS") // 60_000_000
    390
    """
    year = datetime.now(UTC).year
    with _LOADING:
        sessions = _sessions(code, year - 15, year).whole
    longest, night = int(np.diff(sessions, axis=1).max()), int((sessions[1:, 0] - sessions[:-1, 1]).min())
    if longest >= night:
        raise CalendarError(
            f"session '{code}': its sessions last up to {longest / 3.6e9:g} h and its nights no more than {night / 3.6e9:g} h, "
            "so that a silence does not show the end of a session; leave it out, and cut with max_gap or in queries, t in session"
        )
    return longest


def session_codes() -> list[str]:
    """Return the codes of the exchanges whose sessions are known."""
    import exchange_calendars

    return sorted(exchange_calendars.get_calendar_names())
