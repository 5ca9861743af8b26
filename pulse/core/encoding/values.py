"""Encode plain values as columns: integers, floats, text, instants, fractions, and the values of keys."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pulse.core.encoding.codec import Codec, Reader, Writer, of_keys, of_length, refused

_LARGEST = 1 << 63
_LONG = 64  # from this many numbers on a buffer is smaller than their digits
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def of_types(plain: Any, count: int, types: set[type], at: str) -> list[Any]:
    """Check that ``plain`` is a list of ``count`` values of exactly these types and return it."""
    found = of_length(plain, count, at)
    other = set(map(type, found)) - types
    if other:
        wrong = next(one for one in found if type(one) in other)
        raise refused(at, " or ".join(sorted(one.__name__ for one in types)), wrong)
    return found


class Plain(Codec):
    """A codec of ``str`` or ``bool``, as JSON has them; only of texts in ``among`` if given."""

    def __init__(self, kind: type[str] | type[bool], among: tuple[str, ...] = ()) -> None:
        self.kind, self.among = kind, frozenset(among)
        self.layout = f"one of {'|'.join(among)}" if among else kind.__name__

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        return list(map(self.kind, values))

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        found = of_types(plain, count, {self.kind}, at)
        if self.among and (other := set(found) - self.among):
            raise refused(at, f"one of {', '.join(map(repr, sorted(self.among)))}", other.pop())
        return found


class Nothing(Codec):
    """A codec of ``None``."""

    layout = "none"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        return len(values)

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        if plain != count or type(plain) is not int:
            raise refused(at, f"a count of {count}", plain)
        return [None] * count


class NumberCodec(Codec):
    """A codec of ``int`` of 64 bits, or of any size if ``unbounded``, or of ``float``; many of them use a buffer."""

    def __init__(self, kind: type[int] | type[float], *, unbounded: bool = False) -> None:
        self.kind, self.layout = kind, f"unbounded {kind.__name__}" if unbounded else kind.__name__
        self.bounded = kind is int and not unbounded
        self.dtype: Any = np.int64 if kind is int else np.float64
        self.plain: Callable[[Any], Any] = operator.index if kind is int else float

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return a list, or the number of a buffer."""
        found = list(values) if set(map(type, values)) <= {self.kind} else [self.plain(one) for one in values]
        if len(found) >= _LONG:
            with suppress(OverflowError):
                return to.buffer(np.array(found, self.dtype))
        if self.bounded and found and not -_LARGEST <= min(found) <= max(found) < _LARGEST:
            raise TypeError(f"state: expected whole numbers of 64 bits, got {max(found, key=abs)}")
        return found

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        if type(plain) is list:
            found = of_types(plain, count, {self.kind}, at)
            if self.bounded and found and not -_LARGEST <= min(found) <= max(found) < _LARGEST:
                raise refused(at, "whole numbers of 64 bits", max(found, key=abs))
            return found
        data = of.buffer(plain, at)
        if data.nbytes != 8 * count:
            raise refused(at, f"{count} numbers", data.nbytes / 8)
        return list(np.frombuffer(data, self.dtype).tolist())


class Bytes(Codec):
    """A codec of ``bytes``, each in a buffer."""

    layout = "bytes"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return the numbers of their buffers."""
        return [to.buffer(bytes(one)) for one in values]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        return [bytes(of.buffer(one, at)) for one in of_length(plain, count, at)]


class Made(Codec):
    """A codec of values made of columns of plain ones: ``parts`` splits a value, ``make`` rebuilds it."""

    def __init__(
        self,
        layout: str,
        columns: tuple[Codec, ...],
        parts: Callable[[Any], tuple[Any, ...]],
        make: Callable[..., Any],
    ) -> None:
        self.layout, self.columns, self.parts, self.make = layout, columns, parts, make

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        parts = list(zip(*map(self.parts, values), strict=True)) or [()] * len(self.columns)
        return [codec.write(column, to) for codec, column in zip(self.columns, parts, strict=True)]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        """Rebuild the values, which checks them."""
        columns = of_length(plain, len(self.columns), at)
        parts = [codec.read(one, count, of, at) for codec, one in zip(self.columns, columns, strict=True)]
        try:
            return list(map(self.make, *parts))
        except (ArithmeticError, LookupError, OSError, ValueError, TypeError) as e:
            raise refused(at, self.layout, str(e)) from e


def _fraction(above: int, below: int) -> Fraction:
    if below < 1:
        raise ValueError(f"denominator {below}")
    return Fraction(above, below)


def _zone(value: Any) -> str:
    return "" if value.tzinfo is None else str(pa.lib.tzinfo_to_string(value.tzinfo))


def _instant(value: datetime.datetime) -> tuple[int, str]:
    zone = _zone(value)
    plain = value if not zone else value.astimezone(datetime.UTC).replace(tzinfo=None)
    return (plain - _EPOCH) // _MICROSECOND, zone


def _datetime(microseconds: int, zone: str) -> datetime.datetime:
    found = _EPOCH + microseconds * _MICROSECOND
    return found if not zone else found.replace(tzinfo=datetime.UTC).astimezone(pa.lib.string_to_tzinfo(zone))


def _timestamp(nanoseconds: int, zone: str) -> pd.Timestamp:
    return (
        pd.Timestamp(nanoseconds, unit="ns", tz="UTC").tz_convert(zone)
        if zone
        else pd.Timestamp(nanoseconds, unit="ns")
    )


def _time(microseconds: int) -> datetime.time:
    if not 0 <= microseconds < 86_400_000_000:
        raise ValueError(f"{microseconds} microseconds of a day")
    return (_EPOCH + microseconds * _MICROSECOND).time()


INT, FLOAT, TEXT, TRUTH, NOTHING, BYTES = (
    NumberCodec(int),
    NumberCodec(float),
    Plain(str),
    Plain(bool),
    Nothing(),
    Bytes(),
)
WHOLE = NumberCodec(int, unbounded=True)
FRACTION = Made("fraction", (WHOLE, WHOLE), lambda one: (one.numerator, one.denominator), _fraction)

OTHERS: dict[type, Codec] = {
    bytes: BYTES,
    Fraction: FRACTION,
    Decimal: Made("decimal", (TEXT,), lambda one: (str(one),), Decimal),
    datetime.datetime: Made("datetime", (INT, TEXT), _instant, _datetime),
    datetime.date: Made("date", (INT,), lambda one: (one.toordinal(),), datetime.date.fromordinal),
    datetime.time: Made(
        "time",
        (INT,),
        lambda one: ((datetime.datetime.combine(_EPOCH, one) - _EPOCH) // _MICROSECOND,),
        _time,
    ),
    datetime.timedelta: Made(
        "timedelta",  # the longest exceed 64 bits of microseconds
        (INT, INT),
        lambda one: (one.days, one.seconds * 1_000_000 + one.microseconds),
        lambda days, rest: datetime.timedelta(days=days, microseconds=rest),
    ),
    pd.Timestamp: Made(
        "timestamp", (INT, TEXT), lambda one: (one.as_unit("ns").value, _zone(one)), _timestamp
    ),
    pd.Timedelta: Made(
        "nanoseconds",
        (INT,),
        lambda one: (one.as_unit("ns").value,),
        lambda one: pd.Timedelta(one, unit="ns"),
    ),
}
_PLAIN: set[type] = {str, int, float, bool, type(None)}


class Values(Codec):
    """A codec of the values of keys: JSON's types, and instants, decimals, fractions, bytes."""

    layout = "value"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return a list of plain values, and the others by type, each with its index."""
        if set(map(type, values)) <= _PLAIN:
            return list(values)
        plain = [one if type(one) in _PLAIN else None for one in values]
        beside = {}
        for type_, codec in OTHERS.items():
            places = [place for place, one in enumerate(values) if type(one) is type_]
            if places:
                beside[codec.layout] = [
                    INT.write(places, to),
                    len(places),
                    codec.write([values[one] for one in places], to),
                ]
        known = {*_PLAIN, *OTHERS}
        if other := next((one for one in values if type(one) not in known), None):
            raise TypeError(f"state: expected a plain value, got {other!r} of {type(other)}")
        return {"plain": plain, "beside": beside}

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        if type(plain) is list:
            return of_types(plain, count, _PLAIN, at)
        fields = of_keys(plain, ("plain", "beside"), at)
        found = list(of_types(fields["plain"], count, _PLAIN, at))
        named = {codec.layout: codec for codec in OTHERS.values()}
        if type(fields["beside"]) is not dict or not set(fields["beside"]) <= set(named):
            raise refused(at, f"values of {', '.join(named)}", fields["beside"])
        for name, one in fields["beside"].items():
            places, number, values = of_length(one, 3, at)
            if type(number) is not int or not 0 <= number <= count:
                raise refused(at, f"at most {count} values", number)
            for place, value in zip(
                INT.read(places, number, of, at), named[name].read(values, number, of, at), strict=True
            ):
                if not 0 <= place < count:
                    raise refused(at, f"a place among {count}", place)
                found[place] = value
        return found


VALUE = Values()
