"""Convert columns of times in any storage type to zone-less UTC microseconds: ``timestamp[us]``.

Digits below the microsecond are floored (semantics 1.1: references are whole microseconds). A zoned column is converted to UTC,
one without a zone is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import decoded
from pulse.core.errors import ColumnTypeError
from pulse.core.time import LIMIT
from pulse.datasets.errors import UnknownFormatError, ValueParseError

TIME = pa.timestamp("us")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?", re.ASCII)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Place = Callable[[int], str]  # names the place of a row: file and line, or file, row group and row


def check_time_unit(unit: str | None) -> None:
    """Check for None, or one of s, ms, us, ns."""
    if unit is not None and unit not in PER_SECOND:
        raise UnknownFormatError(f"time_unit: expected one of {', '.join(PER_SECOND)}, got {unit!r}")


def to_time(
    values: pa.Array, place: Place, unit: str | None = None, time_format: str | None = None
) -> pa.Array:
    """Convert a column to ``timestamp[us]``.

    It takes timestamps and dates of any unit and zone; numbers since the epoch in ``unit``; text in ISO 8601, or in
    ``time_format`` (of ``strptime``). A missing or unreadable time is an error.
    """
    values = decoded(values)
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(values, place, time_format)
    reject_nulls(values, place)
    if pa.types.is_timestamp(kind):
        return _scaled(values.view(pa.int64()).to_numpy(), kind.unit, place)
    if pa.types.is_date(kind):
        day = values.cast(pa.date32()).view(pa.int32()).to_numpy().astype(np.int64)
        return _scaled(day * 86_400, "s", place)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if unit is None:
            raise ColumnTypeError(
                f"{place(0)}: the time column holds {kind}; say with time_unit= (--read time_unit=…) whether it counts "
                "s, ms, us or ns since 1970"
            )
        numbers = values.cast(pa.float64() if pa.types.is_floating(kind) else pa.int64(), safe=True).to_numpy(
            zero_copy_only=False
        )
        return _scaled(numbers, unit, place)
    raise ColumnTypeError(
        f"{place(0)}: a time column of type {kind} cannot be read; expected a timestamp, text or number"
    )


def to_time_or_null(
    values: pa.Array, place: Place, unit: str | None = None, time_format: str | None = None
) -> pa.Array:
    """Convert like :func:`to_time`, with missing times and empty texts as null: accents may have dropped the time."""
    values = decoded(values)
    known = values.is_valid()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        known = pc.and_(known, pc.not_equal(values.fill_null(""), ""))
    if not pc.all(known).as_py():
        made = to_time(values.filter(known), place, unit, time_format)
        return pc.replace_with_mask(pa.nulls(len(values), TIME), known, made)
    return to_time(values, place, unit, time_format)


def reject_nulls(values: pa.Array, place: Place) -> None:
    """Raise for the first missing time."""
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise ValueParseError(f"{place(row)}: the time is missing; remove the row, or give it a time")


def _scaled(values: Any, unit: str, place: Place) -> pa.Array:
    """Convert numbers of ``unit`` since the epoch, floored to microseconds.

    A fraction that a double holds only approximately (1700000000.123456 s) is the written microsecond, not the one before.
    """
    scale = PER_SECOND[unit]
    with np.errstate(over="ignore", invalid="ignore"):
        if scale > 10**6:
            per = scale // 10**6
            us = values / per if np.asarray(values).dtype.kind == "f" else np.floor_divide(values, per)
        else:
            beyond = ~(np.abs(values) <= LIMIT // (10**6 // scale))
            us = np.where(beyond, 0, values) * (10**6 // scale)
            us[beyond] = 2 * LIMIT
        beyond = ~(np.abs(us) <= LIMIT)  # NaN is beyond, too
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        raise ValueParseError(
            f"{place(row)}: {values[row]} {unit} since 1970 is not a time that fits; is time_unit right?"
        )
    if np.asarray(values).dtype.kind == "f":
        near = np.rint(us)
        grain = np.spacing(np.abs(us)) + np.spacing(np.abs(values)) * (10**6 / scale) / 2
        us = np.where(np.abs(us - near) <= grain, near, us)
    whole: IntArray = np.floor(us).astype(np.int64)
    return pa.array(whole).view(TIME)


def _from_text(values: pa.Array, place: Place, time_format: str | None) -> pa.Array:
    values = pc.utf8_trim_whitespace(values)
    try:
        if time_format is None:
            # Text with an offset parses as zoned only; text without one as zone-less only.
            zoned = pc.match_substring_regex(values, r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
            kind = (
                pa.timestamp("ns", tz="UTC")
                if pc.any(zoned).as_py() and pc.all(zoned).as_py()
                else pa.timestamp("ns")
            )
            parsed = pc.cast(values, kind)
        else:
            parsed = _as_written(values, time_format)
    except pa.ArrowException:
        row = _first_unreadable(values, lambda part: _from_text(part, lambda _: "", time_format))
        expected = f"as {time_format}" if time_format else "such as 2024-05-31 09:30:00.123"
        got = values[row].as_py()
        raise ValueParseError(
            f"{place(row)}: expected a time {expected}, got {got!r}; {_advice(got)}"
        ) from None
    return to_time(parsed, place)


def _as_written(values: pa.Array, time_format: str) -> pa.Array:
    """Parse text by a ``strptime`` format; adds ``%f``, which Arrow lacks: up to nine digits of a fraction, at the end."""
    if not time_format.endswith("%f"):
        return pc.strptime(values, format=time_format, unit="us")
    parts = pc.extract_regex(values, r"^(?P<rest>.*[^0-9])(?P<digits>[0-9]{1,9})$")
    if parts.null_count > values.null_count:
        raise pa.ArrowInvalid("a fraction is missing")
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(parts.field("digits"), 6, "0"), 0, 6)
    whole = pc.strptime(parts.field("rest"), format=time_format.removesuffix("%f"), unit="us")
    return pc.add(whole.view(pa.int64()), digits.cast(pa.int64())).view(TIME)


def _advice(text: str | None) -> str:
    """Return advice about a text that is no time: it may count since 1970, or have another format."""
    if text and _NUMBER.fullmatch(text):
        return (
            "where it counts since 1970, say of what with time_unit= (--read time_unit=ms), else how it is written with "
            "time_format= (--read time_format=%Y%m%d%H%M%S)"
        )
    return "correct it, or say how it is written with time_format= (--read time_format='%d.%m.%Y %H:%M')"


def _first_unreadable(values: pa.Array, parse: Callable[[pa.Array], object]) -> int:
    """Halve until one value is left that fails by itself."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(values.slice(low, middle - low))
            low = middle
        except ValueParseError:
            high = middle
    return low


def local_to_zone(times: pa.Array, local: str, tz: str | None) -> pa.Array:
    """Convert zone-less local times of ``local`` to zone-less times of ``tz``; None leaves them.

    A time that a change of clocks repeats is the earlier one; one that it skips moves behind the gap.
    """
    if tz is None or tz == local:
        return times
    zoned = pc.assume_timezone(times, local, ambiguous="earliest", nonexistent="latest")
    if tz == "UTC":
        return zoned.view(pa.int64()).view(TIME)
    return pc.local_timestamp(zoned.cast(pa.timestamp("us", tz=tz)))


def check_zone(tz: str | None) -> None:
    """Check for None, or a time zone that Arrow supports."""
    if tz is None:
        return
    try:
        pc.assume_timezone(pa.array([0], TIME), str(tz))
    except pa.ArrowException:
        raise UnknownFormatError(
            f"tz: {tz!r} is not a time zone; use None for local time, 'UTC', or 'Europe/Berlin' …"
        ) from None
