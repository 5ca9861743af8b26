"""Frames: translate descriptions between an operator's input and its output (semantics 8.3, 8.4).

An operator's output may lack attributes of its input (accumulators), or have a window id in place of a time. A description of
the input then has two counterparts on the output:

* ``some``: rows that match for some value of the lost attributes — where an attribute has been added at all;
* ``every``: rows that match for every value that the domain allows — where dropping or altering is complete.

For a window: ``t > 10`` with windows of 5 touches window 2 (that of 10 itself) and all later ones, and fills those from 3 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from pulse.stream.descriptions.boxes import Box, box_of
from pulse.stream.descriptions.description import NO_PROMISES, Description, Domain
from pulse.stream.descriptions.value_classes import first_whole
from pulse.stream.descriptions.value_sets import Cut, ValueSet


@dataclass(frozen=True)
class Names:
    """Finitely many attributes, or all but finitely many.

    >>> "t" in Names.all_but("s"), "s" in Names.all_but("s")
    (True, False)
    """

    names: frozenset[str]
    but: bool = False

    @classmethod
    def of(cls, *names: str) -> Names:
        """Return the set of exactly these names."""
        return cls(frozenset(names))

    @classmethod
    def all_but(cls, *names: str) -> Names:
        """Return the set of all other names."""
        return cls(frozenset(names), True)

    def __contains__(self, name: str) -> bool:
        return (name in self.names) != self.but

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of these names are in the set, sorted."""
        return tuple(name for name in sorted(set(names)) if name in self)


NO_NAMES, ALL_NAMES = Names.of(), Names.all_but()


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size: ``wid = floor((t - origin) / size)``, half open, so an instant on a boundary begins a window.

    >>> days = Tumbling("t", "wid", Fraction(5))
    >>> days.wid(10), days.wid(Fraction(99, 10))
    (2, 1)
    """

    attribute: str
    name: str
    size: Fraction
    origin: Fraction = Fraction(0)

    def wid(self, value: Fraction | int) -> int:
        """Return the id of the window that contains a time."""
        return math.floor((value - self.origin) / self.size)

    def start(self, wid: int) -> Fraction:
        """Return the start of a window."""
        return self.origin + wid * self.size

    def touched(self, times: ValueSet) -> ValueSet:
        """Return the windows that a set of times intersects, as intervals ``[first, last + 1)`` of ids."""
        return times.moved(lambda cut: (self.wid(cut[0]), 0), lambda cut: (self._last(cut) + 1, 0))

    def times(self, wids: ValueSet) -> ValueSet:
        """Return the times of a set of windows."""

        def start(cut: Cut) -> Cut:
            return self.start(first_whole(cut)), 0

        return wids.moved(start, start)

    def _last(self, cut: Cut) -> int:
        at, after = cut
        wid = self.wid(at)
        return wid - 1 if after == 0 and self.start(wid) == at else wid


@dataclass(frozen=True)
class Frame:
    """The translation between an operator's input and output: ``hidden`` attributes are lost, a window id replaces its time."""

    hidden: Names = NO_NAMES
    window: Tumbling | None = None

    def some(self, description: Description, domain: Domain = NO_PROMISES) -> Description:
        """Return the output rows that come from some matching row, with lost attributes limited to the domain."""
        description = description & self._lost(domain)
        shown = description.without(*self.hidden.among(description.attributes))
        if self.window is None or self.window.attribute not in shown.attributes:
            return shown
        return _replaced(shown, self.window.attribute, self.window.name, self.window.touched)

    def every(self, description: Description, domain: Domain) -> Description:
        """Return the output rows that come only from matching rows of the domain."""
        if not self.hidden.among(description.attributes) and self.window is None:
            return description
        candidates = self.some(description)
        missing = (self.up(candidates) & self._lost(domain)) - description
        return candidates - self.some(missing)

    def up(self, description: Description) -> Description:
        """Return the input rows of matching output rows."""
        if self.window is None or self.window.name not in description.attributes:
            return description
        return _replaced(description, self.window.name, self.window.attribute, self.window.times)

    def _lost(self, domain: Domain) -> Description:
        """Return the promises about attributes that the output lacks."""
        names = self.hidden.among(name for name, _ in domain.promises)
        return domain.only(names if self.window is None else (*names, self.window.attribute)).description

    def domain(self, domain: Domain) -> Domain:
        """Return the promises of an input that hold for the output."""
        kept = {name: values for name, values in domain.promises if name not in self.hidden}
        if self.window is not None:
            kept.pop(self.window.attribute, None)
            kept[self.window.name] = self.window.touched(domain[self.window.attribute])
        return Domain.from_values(kept)


def _replaced(
    description: Description, old: str, new: str, translate: Callable[[ValueSet], ValueSet]
) -> Description:
    """Translate each box's constraint on one attribute to another, and intersect it with the existing constraint there."""
    found: list[Box] = []
    for box in description.boxes:
        values = dict(box)
        if old in values:
            moved = translate(values.pop(old))
            values[new] = moved.intersection(values[new]) if new in values else moved
        replaced = box_of(values)
        if replaced is not None:
            found.append(replaced)
    return Description.of(found)
