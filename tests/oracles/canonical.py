"""Canonical streams: all adds, then the rows, then all alter data, then all drops (paper §5, semantics 8.6).

A stream is brought there by replacing neighbours, by the paper's rules and no others:

* commute: accent and row that does not match; accents with disjoint descriptions; adding and dropping of different attributes;
  adding or dropping and a row that lacks the attribute; alter data and a row, which is undone; alter data and another accent,
  whose description is carried through it;
* divide and combine descriptions; annihilate adding with dropping, and alter data with its inverse; compose alter data.

An oracle for tests: operators never call it. The order within the four groups is that of the stream; the *normal form* of a
canonical stream is its content (:mod:`tests.oracles.content`), by which equivalence is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    DropAttribute,
    Punctuation,
)
from pulse.stream.descriptions.description import Description
from pulse.stream.descriptions.value_sets import scalar
from tests.oracles.content import StreamElement, content_of
from tests.oracles.rows import Row, altered, carried_back, undone

_ADD, _ROW, _ALTER, _DROP = range(4)
_RANKS: dict[type[Any], int] = {AddAttribute: _ADD, AlterData: _ALTER, DropAttribute: _DROP}
Stream = Sequence[StreamElement]
Rule = Callable[[Any, Any], "list[StreamElement] | None"]


def rank(element: StreamElement) -> int:
    """The group of a canonical stream that an element belongs to."""
    return _RANKS[type(element.primitive)] if isinstance(element, Accent) else _ROW


def is_canonical(stream: Stream) -> bool:
    """Whether the groups stand in order."""
    ranks = [rank(element) for element in stream]
    return ranks == sorted(ranks)


def canonicalise(
    stream: Stream, *, choose: Callable[[Sequence[int]], int] = lambda places: places[0]
) -> list[StreamElement]:
    """A canonical stream of the same content. ``choose`` picks which of the places that are out of order comes next.

    Punctuation is left out: it says nothing of the rows that came.

    >>> stream = [{"t": 77}, Accent.parse("[[true, alter(t, (y - 32) * 5/9)]]"), {"t": 25}, Accent.parse("[[true, add(p)]]")]
    >>> [str(element) for element in canonicalise(stream)]
    ['[[true, add(p)]]', "{'t': 77}", "{'t': 77}", '[[true, alter(t, (y - 32) * 5/9, y * 9/5 + 32)]]']
    """
    found: list[StreamElement] = [element for element in stream if not isinstance(element, Punctuation)]
    while True:
        ranks = [rank(element) for element in found]
        places = [i for i in range(len(found) - 1) if ranks[i] > ranks[i + 1]]
        if not places:
            return found
        at = choose(places)
        found[at : at + 2] = reordered(found[at], found[at + 1])


def reordered(one: StreamElement, two: StreamElement) -> list[StreamElement]:
    """A replacement of two neighbours by elements in canonical order: the six cases of the paper's §5.2."""
    if isinstance(one, Accent) and isinstance(two, Accent) and _undoes(one, two):
        # Divided, the common parts annihilate; what is left of both is disjoint and commutes.
        dropped, added = divide(one, two.description)[1], divide(two, one.description)[1]
        return [element for element in (added, dropped) if element is not None]
    for rule in COMMUTATIONS:
        swapped = rule(one, two)
        if swapped is not None:
            return swapped
    raise AccentError(f"canonical streams: no rule swaps {one} and {two}; the stream is not valid")


def _undoes(one: Accent, two: Accent) -> bool:
    """Whether an attribute is dropped and then added."""
    kinds = isinstance(one.primitive, DropAttribute) and isinstance(two.primitive, AddAttribute)
    return kinds and one.attribute == two.attribute


# -- Rules that commute neighbours: the pair in the other order, or None where the rule does not apply.


def commute_unmatched(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """An accent and a row that its description does not match, in either order."""
    accent, row = _accent_and_row(one, two)
    return None if accent is None or accent.description.matches(row) else [two, one]


def commute_undefined(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Adding or dropping an attribute, and a row that lacks it, in either order."""
    accent, row = _accent_and_row(one, two)
    if accent is None or isinstance(accent.primitive, AlterData):
        return None
    return [two, one] if scalar(row.get(accent.attribute)) is None else None


def commute_alter_with_row(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Alter data and a row: behind it the row is altered, before it is not."""
    accent, row = _accent_and_row(one, two)
    if accent is None or not isinstance(accent.primitive, AlterData):
        return None
    return [undone(accent, row), accent] if one is accent else [accent, altered(accent, row)]


def commute_disjoint(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Accents whose descriptions do not overlap."""
    if not isinstance(one, Accent) or not isinstance(two, Accent):
        return None
    return None if one.description.overlaps(two.description) else [two, one]


def commute_attributes(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Adding and dropping of different attributes."""
    if not isinstance(one, Accent) or not isinstance(two, Accent) or one.attribute == two.attribute:
        return None
    altering = isinstance(one.primitive, AlterData) or isinstance(two.primitive, AlterData)
    return None if altering else [two, one]


def commute_alter_with_accent(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Alter data and adding or dropping: the other's description is carried through the alteration."""
    if not isinstance(one, Accent) or not isinstance(two, Accent):
        return None
    if isinstance(one.primitive, AlterData) and not isinstance(two.primitive, AlterData):
        return [replace(two, description=carried_back(one, two.description)), one]
    if isinstance(two.primitive, AlterData) and not isinstance(one.primitive, AlterData):
        return [two, replace(one, description=two.carried(one.description))]
    return None


COMMUTATIONS: tuple[Rule, ...] = (
    commute_unmatched,
    commute_undefined,
    commute_alter_with_row,
    commute_disjoint,
    commute_attributes,
    commute_alter_with_accent,
)


# -- Rules that change the number of accents.


def divide(accent: Accent, by: Description) -> tuple[Accent | None, Accent | None]:
    """The accent for the rows that match ``by``, and for the others; None where there are none."""
    parts = (accent.description & by, accent.description - by)
    inside, outside = (None if part.is_empty else replace(accent, description=part) for part in parts)
    return inside, outside


def combine(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Two accents of the same primitive on different rows become one."""
    if not isinstance(one, Accent) or not isinstance(two, Accent) or one.primitive != two.primitive:
        return None
    disjoint = not one.description.overlaps(two.description)
    return [replace(one, description=one.description | two.description)] if disjoint else None


def annihilate(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Adding and dropping of the same rows' attribute, and alter data and its inverse, are nothing."""
    if not isinstance(one, Accent) or not isinstance(two, Accent) or one.attribute != two.attribute:
        return None
    kinds = {type(one.primitive), type(two.primitive)}
    opposed = kinds == {AddAttribute, DropAttribute}
    if isinstance(one.primitive, AlterData) and isinstance(two.primitive, AlterData):
        opposed = one.primitive.alpha == two.primitive.beta and one.primitive.weight == two.primitive.weight
    return [] if opposed and one.description.equivalent(two.description) else None


def compose(one: StreamElement, two: StreamElement) -> list[StreamElement] | None:
    """Two alter data of the same rows' attribute are one."""
    if not isinstance(one, Accent) or not isinstance(two, Accent):
        return None
    first, second = one.primitive, two.primitive
    if not isinstance(first, AlterData) or not isinstance(second, AlterData):
        return None
    same = first.attribute == second.attribute and first.weight == second.weight
    if not same or not one.description.equivalent(two.description):
        return None
    both = AlterData(first.attribute, second.alpha.after(first.alpha), weight=first.weight)
    return [replace(one, primitive=both)]


REDUCTIONS: tuple[Rule, ...] = (annihilate, combine, compose)


def reduced(stream: Stream) -> list[StreamElement]:
    """The stream with its neighbours annihilated, combined and composed, as long as any can be."""
    found = list(stream)
    at = 0
    while at < len(found) - 1:
        results = (rule(found[at], found[at + 1]) for rule in REDUCTIONS)
        fewer = next((result for result in results if result is not None), None)
        if fewer is None:
            at += 1
        else:
            found[at : at + 2] = fewer
            at = max(at - 1, 0)
    return found


def equivalent(one: Stream, two: Stream, attributes: Iterable[str]) -> bool:
    """Whether two streams of the same first schema have the same content."""
    names = tuple(attributes)
    return not content_of(one, names).difference(content_of(two, names))


def _accent_and_row(one: StreamElement, two: StreamElement) -> tuple[Accent | None, Row]:
    if isinstance(one, Accent) and not isinstance(two, (Accent, Punctuation)):
        return one, two
    if isinstance(two, Accent) and not isinstance(one, (Accent, Punctuation)):
        return two, one
    return None, {}
