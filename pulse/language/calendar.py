"""Bind conditions on the calendar: time of day, day of the week, sessions of an exchange.

Each is a comparison of the stream's time with a set of instants (:mod:`pulse.core.calendar`)::

    time_of_day(t, 'America/New_York') between '09:30' and '16:00'
    weekday(t, 'Europe/Berlin') in ('sat', 'sun')          weekday(t) <= 5          1 is Monday
    t in session 'XNYS'

Without a zone or a code they are those that the stream was fitted with; a stream without a zone has UTC's clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from sqlglot import exp

from pulse.core.calendar import DAY, ClockBefore, Sessions, Weekdays, session_codes
from pulse.core.expression import HOLDS, NEGATED, And, Column, Comparison, Expression, Or
from pulse.language.errors import known, source_text, wrong
from pulse.language.literals import number
from pulse.operators.node import Node
from pulse.operators.relational.scan import scans

UTC = "UTC"
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def compared_clock(relation: str, time: Column, zone: str, side: exp.Expr) -> Expression:
    """Bind ``time_of_day(t, zone) R 'hh:mm'``."""
    at = _clock(side)
    before, until = (Comparison("=", time, ClockBefore(zone, at, closed)) for closed in (False, True))
    if relation == "<":
        return before
    if relation == "<=":
        return until
    if relation == "=":
        return And((until, _opposite(before)))
    if relation == "!=":
        return Or((before, _opposite(until)))
    return _opposite(before if relation == ">=" else until)


def compared_weekday(relation: str, time: Column, zone: str, side: exp.Expr) -> Expression:
    """Bind ``weekday(t, zone) R day``."""
    day = _day(relation, side)
    return Comparison(
        "=", time, Weekdays(zone, tuple(one for one in range(1, 8) if HOLDS[relation](one, day)))
    )


CALENDAR: dict[str, Callable[[str, Column, str, exp.Expr], Expression]] = {
    "time_of_day": compared_clock,
    "weekday": compared_weekday,
}
"""The functions of the calendar, by name: they bind their comparison with a literal."""


def is_calendar(node: exp.Expr) -> bool:
    """Check whether the node is a call of a function of the calendar."""
    return isinstance(node, exp.Anonymous) and node.this in CALENDAR


def arguments_of(call: exp.Anonymous, nodes: Iterable[Node]) -> tuple[exp.Expr, str]:
    """Return the time and the zone of a call: by default that of the streams below the nodes, or UTC."""
    if len(call.expressions) not in (1, 2):
        raise wrong(
            f"{call.this} takes the time and a zone, {call.this}(t, 'America/New_York'), got {len(call.expressions)} arguments",
            call,
        )
    given = zone_of(call.expressions[1]) if len(call.expressions) == 2 else None
    return call.expressions[0], given or declared_zone(nodes, call)


def in_session(time: Column, code: exp.Expr | None, node: exp.Expr, nodes: Iterable[Node]) -> Expression:
    """Bind ``t in session 'code'``; without a code, in those of the streams below the nodes."""
    return Comparison("=", time, Sessions(session_code(code) if code else declared_session(nodes, node)))


def declared_zone(nodes: Iterable[Node], where: exp.Expr) -> str:
    """Return the zone that streams below the nodes were declared in, UTC if none was."""
    zones = dict.fromkeys(one.stored.clock.zone or UTC for node in nodes for one in scans(node))
    if len(zones) > 1:
        raise wrong(
            f"the streams have different zones: {', '.join(zones)}; name the one that is meant", where
        )
    return next(iter(zones), UTC)


def declared_session(nodes: Iterable[Node], where: exp.Expr) -> str:
    """Return the exchange whose sessions the streams below the nodes were fitted in; there must be one."""
    codes = dict.fromkeys(
        one.stored.clock.session for node in nodes for one in scans(node) if one.stored.clock.session
    )
    if not codes:
        raise wrong(
            "expected the code of an exchange, such as 'XNYS', after SESSION: the stream was fitted without --session",
            where,
        )
    if len(codes) > 1:
        raise wrong(f"the streams have sessions of {', '.join(codes)}; name the one that is meant", where)
    return next(iter(codes))


def session_code(node: exp.Expr) -> str:
    """Return the code of an exchange that has a calendar."""
    code = str(node.this)
    codes = session_codes()
    if code not in codes:
        raise wrong(f"there is no calendar of an exchange '{code}'; {known(code, codes)}", node)
    return code


def zone_of(node: exp.Expr) -> str:
    """Return the name of a time zone."""
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise wrong(
            f"expected a time zone in quotes, such as 'America/New_York', got '{source_text(node)}'", node
        )
    name = str(node.this)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zones = sorted(available_timezones())
        place = name.replace(" ", "_").casefold()
        near = next((one for one in zones if one.rpartition("/")[2].casefold() == place), None)
        hint = f"did you mean '{near}'?" if near else known(name, zones)
        raise wrong(f"there is no time zone '{name}'; {hint}", node) from None
    return name


def _opposite(comparison: Comparison) -> Comparison:
    return Comparison(NEGATED[comparison.relation], comparison.left, comparison.right)


def _clock(node: exp.Expr) -> int:
    """Return microseconds since midnight."""
    written = str(node.this) if isinstance(node, exp.Literal) and node.is_string else ""
    found = _CLOCK.fullmatch(written)
    if found is not None:
        hours, minutes, seconds = (int(one or 0) for one in found.groups()[:3])
        at = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((found[4] or "0").ljust(6, "0"))
        if minutes < 60 and seconds < 60 and at <= DAY:
            return at
    raise wrong(
        f"expected a time of day in quotes, '09:30' to '24:00', with seconds where needed, got '{source_text(node)}'",
        node,
    )


def _day(relation: str, node: exp.Expr) -> float:
    """Return a day's number: 1 is Monday."""
    if isinstance(node, exp.Literal) and not node.is_string:
        day = number(node)
        if relation in ("=", "!=") and day not in range(1, 8):
            raise wrong(f"expected a day, 1 (Monday) to 7 (Sunday), got {node.this}", node)
        return day
    written = str(node.this).lower() if isinstance(node, exp.Literal) else ""
    days = [day for day in _DAYS if len(written) >= 3 and day.startswith(written)]
    if not days:
        raise wrong(
            f"expected a day, 1 (Monday) to 7 or 'mon' to 'sun', got '{source_text(node)}'",
            node,
        )
    if relation not in ("=", "!="):
        raise wrong("names of days can be compared with = and <>, or in (…); 1 is Monday", node)
    return _DAYS.index(days[0]) + 1
