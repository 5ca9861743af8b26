"""Parse and format durations and timestamps, both as exact int64 microseconds.

A timestamp is microseconds since 1970-01-01T00:00:00 UTC; one without a zone is read as UTC. Timestamps
and durations lie within ±10**18 microseconds (about 31,700 years), so that neither the sum
nor the difference of two overflows int64.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.errors import DurationError, TimestampError

LIMIT = 10**18
EARLIEST, LATEST = -(1 << 62), 1 << 62
"""Microseconds before and after every instant, with room to add a duration."""
_FINER = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}  # units per microsecond
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

# unit: microseconds, names. Largest first: that is the order in which format_duration tries them.
_UNITS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("d", 86_400_000_000, ("day", "days")),
    ("h", 3_600_000_000, ("hr", "hour", "hours")),
    ("min", 60_000_000, ("mins", "minute", "minutes")),
    ("s", 1_000_000, ("", "sec", "secs", "second", "seconds")),
    ("ms", 1_000, ("millisecond", "milliseconds")),
    ("us", 1, ("µs", "μs", "microsecond", "microseconds")),
)
_MICROSECONDS_OF = {name: us for unit, us, names in _UNITS for name in (unit, *names)}


def is_unit(name: str) -> bool:
    """Check whether a word is a unit of durations.

    >>> is_unit("min"), is_unit("m")
    (True, False)
    """
    return name != "" and name in _MICROSECONDS_OF


_DURATION = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([^\W\d_]*)", re.IGNORECASE)
_BELOW_MICROSECOND = re.compile(r"[.,]\d{6}\d*[1-9]")
_DURATION_FORMS = (
    "write seconds as a plain number (10) or a number with a unit: 3 us, 250 ms, 10 s, 5 min, 1.5 h, 2 d"
)


def parse_duration(duration: str | float | datetime.timedelta) -> int:
    """Return the microseconds of a duration: a number of seconds, a text such as ``5 min``, or a ``timedelta``.

    Exact: a duration that is not a whole number of microseconds is an error, as is one that is not positive.
    A float stands for the shortest decimal that reads as it, so ``0.1`` is 100,000.

    >>> parse_duration("1.5 h"), parse_duration(10)
    (5400000000, 10000000)
    """
    if isinstance(duration, (bool, np.bool_)):
        raise DurationError(f"duration: expected a duration, got {duration!r}; {_DURATION_FORMS}")
    if isinstance(duration, datetime.timedelta):  # pandas' subclass may have nanoseconds
        whole, rest = divmod(duration, _MICROSECOND)
        text = f"{whole}{'.5' if rest else ''} us"
    else:
        text = str(duration).strip()
    match = _DURATION.fullmatch(text)
    unit = _MICROSECONDS_OF.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise DurationError(f"duration: cannot read {duration!r}; {_DURATION_FORMS}")
    return _whole_microseconds(match[1], unit, duration)


def _whole_microseconds(digits: str, unit: int, given: object) -> int:
    try:
        number = Decimal(digits)
    except InvalidOperation:  # an exponent beyond Decimal's range
        raise DurationError(f"duration: cannot read {given!r}; {_DURATION_FORMS}") from None
    if number <= 0:
        raise DurationError(f"duration: must be positive, got {given!r}")
    if number.adjusted() > 20:  # before Fraction expands all its zeros
        raise DurationError(f"duration: {given!r} is longer than the {format_duration(LIMIT)} that fit")
    exact = Fraction(number) * unit if number.adjusted() > -20 else Fraction(1, 2)
    if exact > LIMIT:
        raise DurationError(f"duration: {given!r} is longer than the {format_duration(LIMIT)} that fit")
    if exact.denominator != 1:
        raise DurationError(f"duration: {given!r} is not a whole number of microseconds; round it")
    return exact.numerator


def format_duration(microseconds: int) -> str:
    """Return the shortest text that :func:`parse_duration` reads back as exactly this.

    >>> format_duration(5_400_000_000), format_duration(1)
    ('90 min', '1 us')
    """
    for unit, size, _ in _UNITS:
        if microseconds % size == 0:
            return f"{microseconds // size} {unit}"
    raise DurationError(f"duration: expected a whole number of microseconds, got {microseconds!r}")


def to_microseconds(values: Any) -> IntArray:
    """Convert timestamps to exact microseconds since the epoch, as an int64 array of one dimension.

    Takes numpy ``datetime64`` of any unit, Arrow timestamps and dates of any unit and zone, pandas columns,
    ``datetime`` objects and sequences of them, and integers, which are microseconds already; one instant may also be a
    text, as :func:`parse_instant` reads it. Missing values, digits below the microsecond and values beyond ±10**18
    microseconds are a :class:`TimestampError`.

    >>> to_microseconds(np.array(["1970-01-01T00:00:01"], dtype="datetime64[s]"))
    array([1000000])
    """
    whole, rest = split_timestamps(values)
    if rest.any():
        row = int(np.flatnonzero(rest)[0])
        raise TimestampError(
            f"timestamp in row {row}: {format_instant(int(whole[row]))} has digits below the microsecond; "
            "round it, or keep them as an offset with split_timestamps"
        )
    return whole


def split_timestamps(values: Any) -> tuple[IntArray, FloatArray]:
    """Convert as :func:`to_microseconds` does, rounding down, and return the truncated seconds too: ``[0, 1e-6)``.

    >>> split_timestamps(np.array([-1], dtype="datetime64[ns]"))
    (array([-1]), array([9.99e-07]))
    """
    if isinstance(values, str):
        values = parse_instant(values)
    if isinstance(values, (datetime.date, np.datetime64)):  # a datetime is a date
        values = [values]
    if isinstance(values, (list, tuple)):
        values = np.array([*values, None], dtype=object)[:-1]  # the None keeps numpy from guessing a unit
    if isinstance(values, (pa.Array, pa.ChunkedArray)) or _is_pandas(values):
        values = _arrow_to_numpy(values)
    array = np.atleast_1d(np.asarray(values))
    if array.ndim == 1 and array.dtype == object:
        return _split_objects(array)
    if array.ndim == 1 and array.dtype.kind in "iu":
        return _within_limits(array), np.zeros(len(array))
    if array.ndim == 1 and array.dtype.kind == "M":
        return _split_datetime64(array)
    raise TimestampError(
        f"timestamps: expected datetime64, Arrow timestamps, datetime objects or integer microseconds "
        f"in one dimension, got {array.dtype} of shape {array.shape}; parse or convert the column first"
    )


def parse_instant(instant: str | datetime.date | np.datetime64) -> int:
    """Return the microseconds since the epoch of one point in time: an ISO text, a ``datetime`` or a ``datetime64``.

    >>> parse_instant("1970-01-01 01:00:00.5+01:00")
    500000
    """
    if isinstance(instant, str):
        text = instant.strip()
        try:
            if _BELOW_MICROSECOND.search(text):  # fromisoformat would truncate these digits
                raise ValueError
            return _since_epoch(datetime.datetime.fromisoformat(text))
        except ValueError:
            raise TimestampError(
                f"timestamp: cannot read '{text}' as a point in time; write it as '2013-10-07', '2013-10-07 10:00' or "
                "'2013-10-07T10:00:00.5+02:00', to the microsecond; without a zone it is UTC"
            ) from None
    if not isinstance(instant, (datetime.date, np.datetime64)):
        raise TimestampError(
            f"timestamp: expected a point in time such as '2013-10-07 10:00', got {instant!r}"
        )
    return int(to_microseconds([instant])[0])


def _since_epoch(instant: datetime.datetime) -> int:
    """Return the microseconds since the epoch; without a zone it is UTC."""
    since = instant.replace(tzinfo=instant.tzinfo or datetime.UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def to_datetime64(microseconds: IntArray) -> Any:
    """Return a zone-less ``datetime64[us]`` view of microseconds since the epoch."""
    return np.asarray(microseconds, dtype=np.int64).view("datetime64[us]")


def to_scalar(microseconds: int) -> pa.Scalar:
    """Return an Arrow timestamp of an instant, to compare columns with."""
    return pa.scalar(microseconds, pa.int64()).cast(pa.timestamp("us"))


def format_instant(microseconds: int, offset: float = 0.0) -> str:
    """Format an instant for people, in UTC.

    >>> format_instant(1_500_000), format_instant(0, 2.25)
    ('1970-01-01T00:00:01.500000Z', '1970-01-01T00:00:02.250000Z')
    """
    if not abs(offset) < LIMIT / 1e6:
        return f"{np.datetime64(int(microseconds), 'us')}Z + {offset} s"
    return f"{np.datetime64(int(microseconds) + round(offset * 1e6), 'us')}Z"


def _within_limits(array: Any) -> IntArray:
    beyond = (array > LIMIT) | (array < -LIMIT) if array.dtype.itemsize == 8 else np.zeros(len(array), bool)
    if beyond.any():
        raise _beyond(int(np.flatnonzero(beyond)[0]), array)
    microseconds: IntArray = array.astype(np.int64, copy=False)
    return microseconds


def _split_datetime64(array: Any) -> tuple[IntArray, FloatArray]:
    missing = np.isnat(array)
    if missing.any():
        raise _missing(int(np.flatnonzero(missing)[0]))
    unit, count = np.datetime_data(array.dtype)
    if unit == "us" and count == 1:
        return _within_limits(array.view(np.int64)), np.zeros(len(array))
    if unit in _FINER:
        whole, rest = np.divmod(array.view(np.int64) * count, _FINER[unit])
        return whole, rest / (_FINER[unit] * 1e6)
    # Coarser than a microsecond: compare with the limits in the coarse unit, which cannot overflow.
    low, high = (np.datetime64(limit, "us").astype(array.dtype) for limit in (-LIMIT, LIMIT))
    beyond = (array <= low) | (array >= high)
    if beyond.any():
        raise _beyond(int(np.flatnonzero(beyond)[0]), array)
    return array.astype("datetime64[us]").view(np.int64), np.zeros(len(array))


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "dtype") and type(values).__module__.split(".")[0] == "pandas"


def _arrow_to_numpy(values: Any) -> Any:
    """Convert Arrow or pandas timestamps to zone-less datetime64; both store zoned values in UTC."""
    if _is_pandas(values):
        if values.dtype == object:
            return values.to_numpy()
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s" if pa.types.is_date32(values.type) else "ms"))
    if values.null_count:
        raise _missing(int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]))
    if pa.types.is_timestamp(values.type):
        return values.view(pa.int64()).to_numpy().view(f"datetime64[{values.type.unit}]")
    if pa.types.is_integer(values.type):
        return values.to_numpy()
    raise TimestampError(
        f"timestamps: expected a timestamp, date or integer column, got {values.type}; parse the column first"
    )


def _split_objects(values: Any) -> tuple[IntArray, FloatArray]:
    """Convert ``datetime``, ``date``, pandas ``Timestamp``, ``datetime64`` and integer objects one by one."""
    whole = np.empty(len(values), dtype=np.int64)
    rest = np.zeros(len(values))
    for row, value in enumerate(values):
        if value is None or str(value) in ("NaT", "nan", "<NA>"):
            raise _missing(row)
        if isinstance(value, (np.datetime64, int, np.integer)):
            one = np.array([value])
            if one.dtype == object or one.dtype == bool:
                raise _beyond(row, values)
            (whole[row],), (rest[row],) = split_timestamps(one)
        elif isinstance(value, datetime.datetime):
            rest[row] = getattr(value, "nanosecond", 0) * 1e-9
            value = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
            whole[row] = (
                (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)) - _EPOCH
            ) // _MICROSECOND
        elif isinstance(value, datetime.date):
            whole[row] = (value.toordinal() - _EPOCH.toordinal()) * 86_400_000_000
        else:
            raise TimestampError(
                f"timestamp in row {row}: expected a datetime, got {value!r}; parse it first"
            )
    return whole, rest


def _missing(row: int) -> TimestampError:
    return TimestampError(f"timestamp in row {row}: missing; drop or fill such rows")


def _beyond(row: int, array: Any) -> TimestampError:
    return TimestampError(
        f"timestamp in row {row}: {array[row]} lies beyond ±10**18 microseconds of 1970 "
        "(about 31,700 years); check the column's unit"
    )
