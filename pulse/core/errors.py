"""Define the errors of each layer: each is a :class:`PulseError` and also the matching builtin.

A message gives where (column, row, key, time), what was expected, what came, and what to do. Errors carry only
their message, so that they survive the pickling between Spark's workers and the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PulseError(Exception):
    """The base of all errors that Pulse raises on purpose."""


def was_interrupted(error: BaseException | None) -> bool:
    """Test whether Ctrl-C caused an error: interrupted libraries raise various errors of their own.

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
    """A request that the session cannot fulfil."""


class SchemaError(PulseError, ValueError):
    """A stream's schema is inconsistent, or the data does not match it."""


class UnknownColumnError(SchemaError):
    """A named column does not exist, or an unexpected column exists."""


class ColumnTypeError(SchemaError, TypeError):
    """A column's type is not the one its role requires."""


class AmbiguousColumnError(SchemaError):
    """A named column occurs several times."""


class SchemaMismatchError(SchemaError):
    """Batches of different streams were combined."""


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
    """A key column contains a null; every segment needs a key."""


class PointError(SegmentError):
    """The point flag and the range of a segment disagree."""


class OverlapError(SegmentError):
    """Two segments of one key cover the same instant in a table at rest."""


class ElementError(PulseError, ValueError):
    """A changelog contains other rows than insertions, deletions and replacements."""


class BoundError(PulseError, ValueError):
    """An error bound is malformed or out of range."""


class DurationError(PulseError, ValueError):
    """A duration is malformed or out of range."""


class TimestampError(PulseError, ValueError):
    """A timestamp is missing, out of range, or finer than a microsecond."""


class JavaNotFoundError(PulseError, RuntimeError):
    """Spark needs a Java, and no suitable one was found."""


def unknown_column(name: str, available: Iterable[str], where: str) -> UnknownColumnError:
    """Build the error for a column that does not exist: list the columns and suggest the nearest name.

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
    """Reject a column name that occurs several times.

    >>> check_once("price", ["symbol", "price"], "trades")
    """
    count = list(available).count(name)
    if count > 1:
        raise AmbiguousColumnError(
            f"{where}: {count} columns are called '{name}', which is ambiguous; rename all but one"
        )


class UnitsWarning(UserWarning):
    """A query's values are probably in other units than it assumes."""
