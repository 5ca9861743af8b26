"""Define stream elements: insertions, deletions, replacements and control elements (semantics 7.1, 8).

In a table an element is one row, or two for a replacement, with a ``kind`` column of changelog codes as Flink
and Debezium write them::

    +I  insertion (also a late one)        -U  the old value of a replacement
    -D  deletion, carries the old value    +U  its new value, the row right after

Ordering rule: elements are ordered by ``position``. A control element describes data that comes *after*
it, so at one position control elements come before data (:attr:`Element.order`); data of one position stays in
the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from pulse.core.errors import ElementError

T = TypeVar("T")


class ElementKind(Enum):
    """The kind of a changelog row; the value is its code."""

    INSERTION = "+I"
    DELETION = "-D"
    OLD = "-U"
    NEW = "+U"

    @classmethod
    def parse(cls, code: str) -> ElementKind:
        """Return the kind of a code.

        >>> ElementKind.parse("-U")
        <ElementKind.OLD: '-U'>
        """
        try:
            return cls(code)
        except ValueError:
            codes = ", ".join(kind.value for kind in cls)
            raise ElementError(f"element kind: expected one of {codes}, got {code!r}") from None

    @property
    def weight(self) -> int:
        """Return +1 where the row's value is added to the stream, -1 where it is retracted."""
        return 1 if self in (ElementKind.INSERTION, ElementKind.NEW) else -1


KIND_CODES = tuple(kind.value for kind in ElementKind)


@dataclass(frozen=True, kw_only=True)
class Element:
    """An element of a stream at its position in the order of arrival."""

    position: int
    _rank: ClassVar[int] = 1

    @property
    def order(self) -> tuple[int, int]:
        """Return the sort key: position, control elements before data."""
        return (self.position, self._rank)


@dataclass(frozen=True, kw_only=True)
class ControlElement(Element):
    """The base of elements that describe data and carry none: accents (8.1) and punctuation (8.7).

    One describes all data after it, so it sorts before data of its own position.
    """

    _rank: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class Insertion(Element, Generic[T]):
    """A new value; late when its time lies before the newest one."""

    new: T

    def changes(self) -> tuple[tuple[ElementKind, T], ...]:
        """The element as rows of a changelog."""
        return ((ElementKind.INSERTION, self.new),)


@dataclass(frozen=True, kw_only=True)
class Deletion(Element, Generic[T]):
    """An old value that was recorded in error."""

    old: T

    def changes(self) -> tuple[tuple[ElementKind, T], ...]:
        """The element as rows of a changelog."""
        return ((ElementKind.DELETION, self.old),)


@dataclass(frozen=True, kw_only=True)
class Replacement(Element, Generic[T]):
    """An old value and the one that should have been recorded."""

    old: T
    new: T

    def changes(self) -> tuple[tuple[ElementKind, T], ...]:
        """The element as rows of a changelog: the old value, then the new."""
        return ((ElementKind.OLD, self.old), (ElementKind.NEW, self.new))


def read_changelog(
    rows: Iterable[tuple[ElementKind | str, T]], *, start: int = 0
) -> Iterator[Insertion[T] | Deletion[T] | Replacement[T]]:
    """Yield the elements of rows of (kind, value); positions count elements from ``start``.

    An old value must be followed immediately by its new one; anything else is an :class:`ElementError`.

    >>> list(read_changelog([("-U", 25), ("+U", 22)]))
    [Replacement(position=0, old=25, new=22)]
    """
    position = start
    pending: list[T] = []  # the old value whose new value has not come yet
    for row, (code, value) in enumerate(rows):
        kind = ElementKind.parse(code) if isinstance(code, str) else code
        if pending and kind is not ElementKind.NEW:
            raise ElementError(
                f"changelog row {row}: expected +U, the new value of the -U before it, got {kind.value}"
            )
        if kind is ElementKind.OLD:
            pending.append(value)
            continue
        if kind is ElementKind.INSERTION:
            yield Insertion(position=position, new=value)
        elif kind is ElementKind.DELETION:
            yield Deletion(position=position, old=value)
        elif pending:
            yield Replacement(position=position, old=pending.pop(), new=value)
        else:
            raise ElementError(f"changelog row {row}: +U without the -U that carries the old value before it")
        position += 1
    if pending:
        raise ElementError("changelog: ends after -U; the +U with the new value is missing")
