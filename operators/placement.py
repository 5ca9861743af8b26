"""Describe which rows lie together, so that a plan exchanges only those that must meet and do not.

A stored stream is partitioned by its stored key, exchanged rows by the exchange's columns. Rows that must meet and are
partitioned by the same columns need no exchange (MACD: both windows are of one stream, joined by its whole key). A grid brings
together what is near, not equal keys, so above it only work per key is in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]
"""Key columns of two inputs that are equal."""


@dataclass(frozen=True)
class Placement:
    """Which rows lie together: those with equal values in all of ``parts``.

    Each part is a set of key columns with the same value, by their names here. ``source`` is the stream whose stored layout it
    is, None for exchanged rows. ``parts`` is None for a grid.

    >>> Placement.exchanged(("venue", "symbol")).holds(("symbol", "venue", "size"))
    True
    """

    source: str | None
    parts: tuple[frozenset[str], ...] | None

    @classmethod
    def exchanged(cls, by: tuple[str, ...]) -> Placement:
        """Return the placement of rows exchanged by these columns."""
        return cls(None, tuple(frozenset({name}) for name in by))

    def holds(self, by: tuple[str, ...]) -> bool:
        """Check whether rows with equal ``by`` lie together."""
        return self.parts is not None and all(part & set(by) for part in self.parts)

    def joined(self, other: Placement, equal: Pairs) -> Placement | None:
        """Return the placement of pairs of rows that agree in ``equal``; None where these do not lie together."""
        if self.source != other.source or self.parts is None or other.parts is None:
            return None
        if len(self.parts) != len(other.parts):
            return None
        both = list(zip(self.parts, other.parts, strict=True))
        met = all(any(a in here and b in there for a, b in equal) for here, there in both)
        return Placement(self.source, tuple(here | there for here, there in both)) if met else None

    def matching(self, equal: Pairs) -> Pairs | None:
        """Return the pair of ``equal`` for each part of an exchanged placement; None if one is missing."""
        if self.source is not None or not self.parts:
            return None
        found = [next((pair for pair in equal if pair[0] in part), None) for part in self.parts]
        pairs = tuple(pair for pair in found if pair is not None)
        return pairs if len(pairs) == len(found) else None

    def positions(self, names: tuple[str, ...]) -> tuple[frozenset[int], ...] | None:
        """Return the positions of each part's columns among these names; None for a grid."""
        if self.parts is None:
            return None
        return tuple(frozenset(names.index(name) for name in part) for part in self.parts)


ON_A_GRID = Placement(None, None)
"""The placement of rows that lie together with what is near."""


@dataclass(frozen=True)
class Placing:
    """The layout of the streams that a plan reads.

    Each is stored by its own key. With ``alike``, all are partitioned by the values of some key attributes: those of each
    stream, in one order.
    """

    alike: Mapping[str, tuple[str, ...]] | None = None

    def layout(self, stream: str, version: str, keys: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Return what names a stream's layout, and the attributes it is partitioned by; versions may differ in theirs."""
        return (f"{stream}{version}", keys) if self.alike is None else ("", self.alike[stream])
