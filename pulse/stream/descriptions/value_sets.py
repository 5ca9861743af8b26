"""Exact sets of one attribute's values: the constraints of descriptions (semantics 8.1).

A set holds values of one kind and, separately, whether it includes *undefined* (null)::

    number    a union of intervals with open or closed ends: cuts at which membership changes
    string    finitely many strings, or all but finitely many
    boolean   some of True, False

The algebra treats undefined as a value like any other, so complements are exact: the complement of ``x < 5`` is ``x >= 5`` or
undefined. The empty set, the set of all values, and both with undefined have no kind: they are the same for every kind.
"""

from __future__ import annotations

import datetime
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from pulse.core.errors import PulseError
from pulse.core.time import parse_instant
from pulse.stream.units.affine import Affine

Scalar: TypeAlias = int | Fraction | str | bool
Kind: TypeAlias = Literal["", "number", "string", "boolean"]
Cut: TypeAlias = tuple[int | Fraction, int]  # (v, 0): just before v; (v, 1): just after it
COMPARATORS = ("=", "!=", "<", "<=", ">", ">=")


class DescriptionError(PulseError, ValueError):
    """A malformed description, or one that compares an attribute with values of different kinds."""


def scalar(value: Any) -> Scalar | None:
    """Normalise a value for comparison: whole numbers as int, others as Fraction, instants as microseconds; null and NaN as
    None.

    >>> scalar(2.5), scalar(datetime.date(1970, 1, 2)), scalar(float("nan"))
    (Fraction(5, 2), 86400000000, None)
    """
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else value
    if isinstance(value, datetime.date):
        return parse_instant(value)
    if hasattr(value, "item"):  # NumPy scalars; nanoseconds become a number
        return scalar(parse_instant(value) if value.dtype.kind == "M" else value.item())
    if isinstance(value, float) and math.isnan(value):
        return None
    try:
        return scalar(Fraction(value))
    except (TypeError, ValueError, OverflowError):
        raise DescriptionError(
            f"value: expected a finite number, a string, a boolean or an instant, got {value!r}"
        ) from None


def kind_of(value: Scalar) -> Kind:
    """Return the kind of a value."""
    return "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


@dataclass(frozen=True)
class ValueSet:
    """A set of values. ``rest`` is the membership of values that ``members`` and ``cuts`` do not mention.

    * number: ``cuts``, ascending; membership starts as ``rest`` and changes at each of them;
    * string, boolean: ``members`` are the exceptions to ``rest``; a boolean set has ``rest`` False;
    * no kind: ``rest`` alone.
    """

    kind: Kind
    rest: bool
    null: bool
    cuts: tuple[Cut, ...] = ()
    members: frozenset[str | bool] = frozenset()

    @classmethod
    def compare(cls, comparator: str, value: Any) -> ValueSet:
        """Return the values that satisfy a simple comparison; undefined satisfies none, not even ``!=``.

        >>> ValueSet.compare("!=", "FOO").contains("BAR"), ValueSet.compare("!=", "FOO").contains(None)
        (True, False)
        """
        v = scalar(value)
        if comparator not in COMPARATORS:
            raise DescriptionError(
                f"comparator: expected one of {', '.join(COMPARATORS)}, got {comparator!r}"
            )
        if v is None:
            raise DescriptionError(f"comparison: expected a value after {comparator}, got {value!r}")
        if isinstance(v, (bool, str)):
            if comparator not in ("=", "!="):
                raise DescriptionError(
                    f"comparison: {comparator} orders numbers and instants only, got {v!r}"
                )
            kind: Kind = kind_of(v)
            if kind == "boolean":
                return _make(kind, False, False, members=frozenset({v if comparator == "=" else not v}))
            return _make(kind, comparator == "!=", False, members=frozenset({v}))
        before, after = (v, 0), (v, 1)
        cuts: tuple[Cut, ...] = {"=": (before, after), "!=": (before, after)}.get(comparator, ())
        cuts = cuts or ((before,) if comparator in ("<", ">=") else (after,))
        return _make("number", comparator in ("!=", "<", "<="), False, cuts=cuts)

    @classmethod
    def of(cls, *values: Any) -> ValueSet:
        """Return the set of exactly these values; None among them is undefined."""
        result = NOTHING
        for value in values:
            v = scalar(value)
            result = result.union(UNDEFINED if v is None else cls.compare("=", v))
        return result

    @classmethod
    def between(cls, low: Any, high: Any) -> ValueSet:
        """Return the numbers of ``[low, high)``; None leaves that end open."""
        lower = DEFINED if low is None else cls.compare(">=", low)
        return lower if high is None else lower.intersection(cls.compare("<", high))

    @classmethod
    def from_cuts(cls, low: Cut | None, high: Cut | None) -> ValueSet:
        """Return the numbers from cut to cut; None is an infinite end."""
        if low is not None and high is not None and low >= high:
            return NOTHING
        cuts = tuple((_whole(at), after) for at, after in (cut for cut in (low, high) if cut is not None))
        return _make("number", low is None, False, cuts=cuts)

    @property
    def is_empty(self) -> bool:
        """Check whether the set has no values."""
        return self == NOTHING

    @property
    def is_all(self) -> bool:
        """Check whether the set has every value, including undefined."""
        return self == EVERYTHING

    @property
    def listed(self) -> tuple[Scalar, ...] | None:
        """Return the values of a finite set without undefined, in no certain order; None for any other set."""
        if self.null or self.rest:
            return None
        if self.kind != "number":
            return tuple(self.members)
        ends = zip_longest(self.cuts[::2], self.cuts[1::2], fillvalue=None)
        found = [low[0] if low and high and low[0] == high[0] else None for low, high in ends]
        return None if None in found else tuple(one for one in found if one is not None)

    @property
    def listed_texts(self) -> frozenset[str] | None:
        """Return the texts of a set that consists of them; None for any other set."""
        plain = self.kind == "string" and not self.rest and not self.null
        return frozenset(map(str, self.members)) if plain else None

    def contains(self, value: Any) -> bool:
        """Check whether the set has a value; None is undefined. It has no value of a different kind.

        >>> ValueSet.compare("<", 5).contains(4.5), ValueSet.compare("<", 5).contains("4")
        (True, False)
        """
        v = scalar(value)
        if v is None:
            return self.null
        if not self.kind:
            return self.rest
        if kind_of(v) != self.kind:
            return False
        if self.kind == "number":
            return self.rest ^ (bisect_left(self.cuts, (v, 1)) % 2 == 1)
        return self.rest ^ (v in self.members)

    def complement(self) -> ValueSet:
        """Return the set of all other values."""
        if self.kind == "boolean":
            return _make("boolean", False, not self.null, members=frozenset({True, False}) - self.members)
        return _make(self.kind, not self.rest, not self.null, cuts=self.cuts, members=self.members)

    def intersection(self, other: ValueSet) -> ValueSet:
        """Return the values in both sets."""
        if self is other or other.is_all:
            return self
        if self.is_all:
            return other
        null = self.null and other.null
        kind = _common(self, other)
        if kind == "number":
            rest, cuts = _sweep(self, other)
            return _make(kind, rest, null, cuts=cuts)
        if kind == "string":
            return _make(kind, self.rest and other.rest, null, members=_both(self, other))
        if kind == "boolean":
            return _make(kind, False, null, members=_booleans(self) & _booleans(other))
        return _make("", self.rest and other.rest, null)

    def union(self, other: ValueSet) -> ValueSet:
        """Return the values in either set."""
        return self.complement().intersection(other.complement()).complement()

    def minus(self, other: ValueSet) -> ValueSet:
        """Return the values in this set but not in the other."""
        return self.intersection(other.complement())

    def overlaps(self, other: ValueSet) -> bool:
        """Check whether some value is in both sets."""
        if self.kind == "string" and other.kind == "string" and not (self.rest or other.rest):
            return (self.null and other.null) or not self.members.isdisjoint(other.members)
        return not self.intersection(other).is_empty

    def image(self, map: Affine) -> ValueSet:
        """Return the set of ``map(v)`` for its numbers ``v``; undefined stays undefined."""
        if self.kind in ("string", "boolean"):
            raise DescriptionError(f"alter data: expected an attribute of numbers, got one of {self.kind}s")
        cuts = tuple((_whole(map(at)), side) for at, side in self.cuts)
        return ValueSet(self.kind, self.rest, self.null, cuts)

    def moved(self, low: Callable[[Cut], Cut], high: Callable[[Cut], Cut]) -> ValueSet:
        """Return the set with the finite ends of its intervals moved, which may then meet; undefined stays undefined."""
        found = UNDEFINED if self.null else NOTHING
        for a, b in self.intervals():
            found = found.union(self.from_cuts(None if a is None else low(a), None if b is None else high(b)))
        return found

    def intervals(self) -> list[tuple[Cut | None, Cut | None]]:
        """Return the numbers as intervals from cut to cut; None is an infinite end. A set without a kind has all numbers or
        none.
        """
        if self.kind not in ("", "number"):
            raise DescriptionError(f"intervals: expected a set of numbers, got one of {self.kind}s")
        if not self.cuts:
            return [(None, None)] if self.rest else []
        ends: list[Cut | None] = [None, *self.cuts] if self.rest else [*self.cuts]
        ends += [None] if len(ends) % 2 else []
        return list(zip(ends[::2], ends[1::2], strict=True))


def _make(
    kind: Kind,
    rest: bool,
    null: bool,
    *,
    cuts: tuple[Cut, ...] = (),
    members: frozenset[Any] = frozenset(),
) -> ValueSet:
    """Build a set in normal form: without a kind where none is needed."""
    if kind == "boolean" and len(members) == 2:
        return ValueSet("", True, null)
    if not cuts and not members:
        return ValueSet("", rest, null)
    return ValueSet(kind, rest, null, cuts, members)


NOTHING = ValueSet("", False, False)
UNDEFINED = ValueSet("", False, True)
DEFINED = ValueSet("", True, False)
EVERYTHING = ValueSet("", True, True)


def _whole(value: int | Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value


def _common(one: ValueSet, other: ValueSet) -> Kind:
    if one.kind and other.kind and one.kind != other.kind:
        raise DescriptionError(
            f"an attribute is compared with a {one.kind} and with a {other.kind}; choose one"
        )
    return one.kind or other.kind


def _booleans(one: ValueSet) -> frozenset[Any]:
    return one.members if one.kind else frozenset({True, False} if one.rest else ())


def _both(one: ValueSet, other: ValueSet) -> frozenset[Any]:
    """Return the exceptions of an intersection of sets of strings."""
    if one.rest and other.rest:
        return one.members | other.members
    if one.rest:
        return other.members - one.members
    return one.members - other.members if other.rest else one.members & other.members


def _sweep(one: ValueSet, other: ValueSet) -> tuple[bool, tuple[Cut, ...]]:
    """Return the cuts of an intersection: sweep both, toggling membership at each cut of either."""
    a, b = one.rest, other.rest
    start = inside = a and b
    found: list[Cut] = []
    mine, theirs = set(one.cuts), set(other.cuts)
    for cut in sorted(mine | theirs):
        a, b = a ^ (cut in mine), b ^ (cut in theirs)
        if (a and b) != inside:
            inside = a and b
            found.append(cut)
    return start, tuple(found)
