"""What can go wrong, by layer: each error is a :class:`PulseError` and also the fitting builtin.

A message says where (column, row, key, time), what was expected, what came, and what to do. Errors carry only
their message, so that they survive the pickling between Spark's workers and the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PulseError(Exception):
    """Every error that Pulse raises on purpose."""


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: libraries that are interrupted fail in ways of their own.

    >>> was_interrupted(KeyboardInterrupt()), was_interrupted(ValueError())
    (True, False)
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class SessionError(PulseError, ValueError):
    """The session was asked for something it cannot do."""


class SchemaError(PulseError, ValueError):
    """A stream's description contradicts itself, or the data does not fit it."""


class UnknownColumnError(SchemaError):
    """A column was named that is not there, or one is there that nobody named."""


class ColumnTypeError(SchemaError, TypeError):
    """A column's type is not the one its role asks for."""


class AmbiguousColumnError(SchemaError):
    """A column was named that is there several times."""


class SchemaMismatchError(SchemaError):
    """Batches of different streams were put together."""


class SegmentError(PulseError, ValueError):
    """Segments that break the rules of semantics 1."""


class ReversedRangeError(SegmentError):
    """A segment ends before it begins."""


class NotFiniteError(SegmentError):
    """A coefficient, range or bound is NaN, infinite or null."""


class NegativeBoundError(SegmentError):
    """A certified bound is below zero."""


class EmptyModelError(SegmentError):
    """A modelled attribute has no coefficient."""


class NullKeyError(SegmentError):
    """A key column holds a null: the segment belongs to nobody."""


class PointError(SegmentError):
    """The point flag and the range of a segment disagree."""


class OverlapError(SegmentError):
    """Two segments of one key claim the same instant in a table at rest."""


class ElementError(PulseError, ValueError):
    """A changelog that is not made of insertions, deletions and replacements."""


class BoundError(PulseError, ValueError):
    """An error bound that is none."""


class DurationError(PulseError, ValueError):
    """A duration that is none."""


class TimestampError(PulseError, ValueError):
    """A timestamp that is missing, out of range, or finer than a microsecond."""


class JavaNotFoundError(PulseError, RuntimeError):
    """No Java that Spark can run on."""


def unknown_column(name: str, available: Iterable[str], where: str) -> UnknownColumnError:
    """The error for a column that is not there: lists what is, and suggests the nearest name.

    >>> print(unknown_column("prise", ["symbol", "price"], "trades"))
    trades: there is no column 'prise'; did you mean 'price'? There are: 'symbol', 'price'
    """
    names = list(available)
    by_fold = {other.casefold(): other for other in names}
    near = difflib.get_close_matches(name.casefold(), list(by_fold), n=1)
    hint = f"did you mean '{by_fold[near[0]]}'? " if near else ""
    listed = ", ".join(f"'{other}'" for other in names) or "none"
    return UnknownColumnError(f"{where}: there is no column '{name}'; {hint}There are: {listed}")


def check_once(name: str, available: Iterable[str], where: str) -> None:
    """Refuse a column that several of the available ones are called by.

    >>> check_once("price", ["symbol", "price"], "trades")
    """
    count = list(available).count(name)
    if count > 1:
        raise AmbiguousColumnError(
            f"{where}: {count} columns are called '{name}', and which is meant is not clear; rename all but one"
        )
