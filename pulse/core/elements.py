"""Define the kinds of a changelog's rows, and control elements (semantics 7.1, 8).

In a table an element is one row, or two for a replacement, with a ``kind`` column of changelog codes as Flink
and Debezium write them::

    +I  insertion (also a late one)        -U  the old value of a replacement
    -D  deletion, carries the old value    +U  its new value, the row right after
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ElementKind(Enum):
    """The kind of a changelog row; the value is its code."""

    INSERTION = "+I"
    DELETION = "-D"
    OLD = "-U"
    NEW = "+U"

    @property
    def weight(self) -> int:
        """Return +1 where the row's value is added to the stream, -1 where it is retracted."""
        return 1 if self in (ElementKind.INSERTION, ElementKind.NEW) else -1


KIND_CODES = tuple(kind.value for kind in ElementKind)


@dataclass(frozen=True, kw_only=True)
class ControlElement:
    """The base of elements that describe data and carry none: accents (8.1) and punctuation (8.7).

    One describes all data after its ``position``, and data of that position too.
    """

    position: int
