"""Descriptions: the set of stream elements that an accent or punctuation covers, with an exact algebra (semantics 8.1).

A description is a union of boxes (:mod:`pulse.stream.descriptions.boxes`), kept disjoint. ``and``, ``or``, ``not``, difference,
implication, overlap and cover are decided exactly; nothing is sampled. Undefined (null) satisfies no comparison, and the
negation of a comparison includes undefined: the algebra is Boolean, on rows with and without the attribute.

A **domain** is a box of promises: every row of the stream, now and later, lies in it (``s`` is 1 or 2; ``t`` is never
undefined). Without a promise an attribute may take any value, including undefined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pulse.stream.descriptions import boxes as box_algebra
from pulse.stream.descriptions.box_index import LEAST, BoxIndex, index_of
from pulse.stream.descriptions.boxes import Box
from pulse.stream.descriptions.value_sets import DEFINED, EVERYTHING, DescriptionError, ValueSet
from pulse.stream.units.affine import Affine

_FEW = 24  # boxes up to which a union is merged at once and printed as short as possible


@dataclass(frozen=True)
class Description:
    """A union of disjoint boxes. Build one with :meth:`parse`, :meth:`where`, :meth:`of`.

    ``==`` compares the form, :meth:`equivalent` the meaning.

    >>> d = Description.parse("symbol = 'AIG' and price < 5")
    >>> d.matches({"symbol": "AIG", "price": 4}), str(~d)
    (True, "price >= 5 or price is null or symbol != 'AIG' or symbol is null")
    """

    boxes: tuple[Box, ...]

    @classmethod
    def of(cls, boxes: Iterable[Box]) -> Description:
        """Build the union of boxes that may overlap."""
        return cls._tidy(box_algebra.disjoint(boxes))

    @classmethod
    def where(cls, **constraints: Any) -> Description:
        """Build a conjunction: an attribute equals a value, is one of a set of values, or lies in a :class:`ValueSet`.

        >>> str(Description.where(s=2, l={"A", "B"}))
        "l in ('A', 'B') and s = 2"
        """
        box = box_algebra.box_of({name: values_of(values) for name, values in constraints.items()})
        return FALSE if box is None else cls((box,))

    @classmethod
    def parse(cls, text: str, *, times: Collection[str] = ()) -> Description:
        """Parse the text of a description; see :func:`pulse.stream.descriptions.text.parse_description`."""
        from pulse.stream.descriptions.text import parse_description

        return parse_description(text, times=times)

    @classmethod
    def _tidy(cls, found: list[Box]) -> Description:
        return cls(tuple(box_algebra.merged(found) if 1 < len(found) <= _FEW else found))

    def __reduce__(self) -> tuple[type[Description], tuple[tuple[Box, ...]]]:
        return Description, (self.boxes,)  # without the caches

    @cached_property
    def _index(self) -> tuple[BoxIndex | None, int]:
        """Return an index and the number of boxes it covers; later boxes are scanned."""
        index = index_of(self.boxes) if len(self.boxes) >= LEAST else None
        return index, 0 if index is None else len(self.boxes)

    def _near(self, box: Box) -> Sequence[Box]:
        """Return the boxes that may overlap one."""
        index, below = self._index
        near = None if index is None else index.near(box, below)
        return self.boxes if near is None else [*(self.boxes[at] for at in near), *self.boxes[below:]]

    def _changed(self, kept: int, boxes: tuple[Box, ...]) -> Description:
        """Build a large description whose first boxes are this one's: they stay in the shared index."""
        found = Description(boxes)
        index, below = self.__dict__.get("_index", (None, 0))
        if index is None:
            return found
        if index.size == kept == below:
            index.extend(boxes[kept:])
            found.__dict__["_index"] = (index, len(boxes))
        elif len(boxes) - min(below, kept) <= _FEW:
            found.__dict__["_index"] = (index, min(below, kept))
        return found

    def __and__(self, other: Description) -> Description:
        if TRUE in (self, other):
            return self if other == TRUE else other
        few, many = (self, other) if len(self.boxes) <= len(other.boxes) else (other, self)
        met = (box_algebra.meet(one, two) for one in few.boxes for two in many._near(one))
        return self._tidy([box for box in met if box is not None])

    def __or__(self, other: Description) -> Description:
        if not self.boxes or not other.boxes:
            return self if self.boxes else other
        base, more = (self, other) if len(self.boxes) >= len(other.boxes) else (other, self)
        new = [piece for box in more.boxes for piece in box_algebra.subtract_all(box, base._near(box))]
        if len(base.boxes) + len(new) <= _FEW:
            return self._tidy([*base.boxes, *new])
        return base._changed(len(base.boxes), (*base.boxes, *new)) if new else base

    def __sub__(self, other: Description) -> Description:
        touched = self._touched(other)
        if not touched:
            return self
        first = touched[0]
        left = list(self.boxes[:first])
        for at, box in enumerate(self.boxes[first:], first):
            left += box_algebra.subtract_all(box, other._near(box)) if at in touched else [box]
        return self._tidy(left) if len(left) <= _FEW else self._changed(first, tuple(left))

    def _touched(self, other: Description) -> list[int]:
        """Return the positions of boxes that overlap another description."""
        index, below = self._index
        near = [None if index is None else index.near(box, below) for box in other.boxes]
        if any(positions is None for positions in near):
            tried: Iterable[int] = range(len(self.boxes))
        else:
            found = {at for positions in near for at in positions or ()}
            tried = sorted(found | set(range(below, len(self.boxes))))
        return [
            at
            for at in tried
            if any(box_algebra.overlap(self.boxes[at], box) for box in other._near(self.boxes[at]))
        ]

    def __invert__(self) -> Description:
        return TRUE - self

    def __bool__(self) -> bool:
        raise DescriptionError(
            "a description is neither true nor false by itself; use is_empty or matches(row)"
        )

    @property
    def is_empty(self) -> bool:
        """Check whether no row matches."""
        return not self.boxes

    @property
    def is_true(self) -> bool:
        """Check whether every row matches."""
        return (~self).is_empty

    def implies(self, other: Description, domain: Domain | None = None) -> bool:
        """Check whether every row (of the domain) that matches this also matches the other."""
        boxes = self.boxes if domain is None else (self & domain.description).boxes
        return all(box_algebra.covered(box, other._near(box)) for box in boxes)

    def overlaps(self, other: Description) -> bool:
        """Check whether some row matches both."""
        few, many = (self, other) if len(self.boxes) <= len(other.boxes) else (other, self)
        return any(box_algebra.overlap(one, two) for one in few.boxes for two in many._near(one))

    def equivalent(self, other: Description, domain: Domain | None = None) -> bool:
        """Check whether the same rows (of the domain) match both."""
        return self == other or (self.implies(other, domain) and other.implies(self, domain))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Return the attributes that matter, as far as the form shows; use ``simplified`` first to be exact."""
        return frozenset(name for box in self.boxes for name, _ in box)

    @property
    def listed_values(self) -> tuple[str, frozenset[str]] | None:
        """Return the column whose text values name the rows, and the values; None for any other description."""
        if len(self.boxes) != 1 or len(self.boxes[0]) != 1:
            return None
        name, values = self.boxes[0][0]
        members = values.listed_texts
        return None if members is None else (name, members)

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Check whether a row matches; a missing attribute, None and NaN are undefined.

        >>> Description.parse("p < 5").matches({}), (~Description.parse("p < 5")).matches({})
        (False, True)
        """
        index, below = self._index
        boxes = self.boxes
        if index is not None:
            boxes = (*(boxes[at] for at in index.holding(row, below)), *boxes[below:])
        return any(all(values.contains(row.get(name)) for name, values in box) for box in boxes)

    def without(self, *attributes: str) -> Description:
        """Project attributes away: match what matches for *some* value of them."""
        if not self.attributes & set(attributes):
            return self
        return Description.of(tuple(pair for pair in box if pair[0] not in attributes) for box in self.boxes)

    def free_of(self, attribute: str) -> Description | None:
        """Describe the same rows without an attribute; None where that is impossible.

        >>> str(Description.parse("s = 1 and t < 5 or s = 1 and not t < 5").free_of("t"))
        's = 1'
        """
        if attribute not in self.attributes:
            return self
        projected = self.without(attribute)
        return projected if projected.implies(self) else None

    def throughout(self, *attributes: str, domain: Domain | None = None) -> Description:
        """Match what matches for *every* value of these attributes that the domain allows.

        >>> str(Description.parse("s = 1 and t < 5 or s = 1 and t >= 5 or s = 2 and t < 5").throughout(
        ...     "t", domain=Domain.of(t=DEFINED)))
        's = 1'
        """
        if not self.attributes & set(attributes):
            return self
        allowed = {name: values for name, values in (domain or NO_PROMISES).promises if name in attributes}
        candidates = self.without(*attributes)
        missing = (candidates & Description.where(**allowed)) - self
        return candidates - missing.without(*attributes)

    def rewritten(self, attribute: str, map: Affine) -> Description:
        """Return the image: the rows that match once ``attribute`` is replaced by ``map`` of it.

        >>> str(Description.parse("t < 212").rewritten("t", Affine.parse("(y - 32) * 5/9")))
        't < 100'
        """
        if attribute not in self.attributes or map.is_identity:
            return self
        return Description(
            tuple(
                tuple((name, values.image(map) if name == attribute else values) for name, values in box)
                for box in self.boxes
            )
        )

    def simplified(self, domain: Domain | None = None) -> Description:
        """Describe the same rows of the domain in few boxes, without constraints that the domain implies.

        >>> str((~Description.where(s=1)).simplified(Domain.of(s={1, 2})))
        's = 2'
        """
        found = list(self.boxes)
        for name, allowed in (domain or NO_PROMISES).promises:
            found = [box for box in (_promised(box, name, allowed) for box in found) if box is not None]
        found = box_algebra.merged(found)
        return Description(tuple(sorted(found, key=box_algebra.sort_key)))

    def stretched(self, limit: Description) -> Description:
        """Remove every constraint that is not needed to stay within ``limit``.

        >>> str(Description.parse("l = 'A' and wid >= 3").stretched(Description.parse("l = 'A' or wid < 3")))
        "l = 'A'"
        """
        found = []
        for box in self.boxes:
            wide = box
            for name, _ in box:
                trial = tuple(pair for pair in wide if pair[0] != name)
                wide = trial if box_algebra.covered(trial, limit.boxes) else wide
            found.append(wide)
        return Description.of(found)

    def cover(self) -> list[Box]:
        """Return boxes for display: few and wide; they may overlap."""
        found = box_algebra.merged(self.boxes)
        return box_algebra.prime(found) if len(found) <= _FEW else sorted(found, key=box_algebra.sort_key)

    def __str__(self) -> str:
        from pulse.stream.descriptions.text import format_description

        return format_description(self)

    def __repr__(self) -> str:
        return f"Description({str(self)!r})"

    def to_json(self) -> list[dict[str, Any]]:
        """Return the boxes as JSON, each a mapping of attribute to values; numbers that are not whole become exact text."""
        from pulse.stream.descriptions.json import set_to_json

        return [{name: set_to_json(values) for name, values in box} for box in self.boxes]

    @classmethod
    def from_json(cls, value: Any) -> Description:
        """Read the output of :meth:`to_json`, or a text as :meth:`parse` reads it."""
        from pulse.stream.descriptions.json import description_from_json

        return cls.parse(value) if isinstance(value, str) else description_from_json(value)


TRUE = Description((box_algebra.TRUE,))
FALSE = Description(())


@dataclass(frozen=True)
class Domain:
    """Promises about every row of a stream, per attribute: its values, and that it is never undefined."""

    promises: Box = ()

    @classmethod
    def of(cls, **promises: Any) -> Domain:
        """Build promises as :meth:`Description.where` takes them; ``DEFINED`` promises only that there is a value.

        >>> Domain.of(s={1, 2}).description.implies(Description.parse("s = 1 or s = 2"))
        True
        """
        return cls.from_values({name: values_of(values) for name, values in promises.items()})

    @classmethod
    def from_values(cls, promises: Mapping[str, ValueSet]) -> Domain:
        """Build a domain from sets of values."""
        box = box_algebra.box_of(promises)
        if box is None:
            raise DescriptionError("domain: expected values for every attribute, got an attribute with none")
        return cls(box)

    @property
    def description(self) -> Description:
        """Return the rows that satisfy the promises."""
        return Description((self.promises,))

    def __getitem__(self, attribute: str) -> ValueSet:
        return dict(self.promises).get(attribute, EVERYTHING)

    def altered(self, attribute: str) -> Domain:
        """Return the promises that survive an alteration of an attribute: only that it has a value."""
        if self[attribute].is_all:
            return self
        left = EVERYTHING if self[attribute].null else DEFINED
        return Domain.from_values({**dict(self.promises), attribute: left})

    def and_(self, other: Domain) -> Domain:
        """Combine the promises of both, for joined streams."""
        both = box_algebra.meet(self.promises, other.promises)
        if both is None:
            raise DescriptionError("domain: the promises of two streams contradict each other")
        return Domain(both)

    def or_(self, other: Domain) -> Domain:
        """Return the promises that both make, for a stream that merges rows of either."""
        return Domain.from_values({name: values.union(other[name]) for name, values in self.promises})

    def only(self, attributes: Collection[str]) -> Domain:
        """Return the promises about these attributes."""
        return Domain(tuple(pair for pair in self.promises if pair[0] in attributes))


NO_PROMISES = Domain()


def any_of(descriptions: Iterable[Description]) -> Description:
    """Unite descriptions; those that list values of one column are merged at once.

    >>> str(any_of(Description.where(s=one) for one in "ABA"))
    "s in ('A', 'B')"
    """
    values: dict[str, set[str]] = {}
    found = FALSE
    for one in descriptions:
        listed = one.listed_values
        if listed is None:
            found = found | one
        else:
            values.setdefault(listed[0], set()).update(listed[1])
    for name, members in values.items():
        found = found | rows_with_values(name, members)
    return found


def rows_with_values(column: str, values: Iterable[str]) -> Description:
    """Describe the rows that have one of these texts in a column."""
    return Description((((column, ValueSet("string", False, False, members=frozenset(values))),),))


def values_of(values: Any) -> ValueSet:
    """Build a set of values from one value, a collection of them (None is undefined), or a set."""
    if isinstance(values, ValueSet):
        return values
    if isinstance(values, (set, frozenset, list, tuple, range)):
        return ValueSet.of(*values)
    return ValueSet.of(values)


def _promised(box: Box, name: str, allowed: ValueSet) -> Box | None:
    """Intersect one constraint of a box with the promised values, and omit it where it then adds nothing."""
    values = dict(box).get(name)
    if values is None:
        return box
    kept = values.intersection(allowed)
    if kept.is_empty:
        return None
    return box_algebra.with_values(box, name, EVERYTHING if kept == allowed else kept)
