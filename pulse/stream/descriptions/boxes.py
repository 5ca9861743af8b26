"""Boxes: conjunctions of one constraint per attribute; the terms of a description (semantics 8.1).

A box is a tuple of ``(attribute, set of values)`` sorted by name, without unconstrained attributes. The empty tuple is *true*.
No constraint is empty: *false* is the absence of a box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from pulse.stream.descriptions.value_sets import EVERYTHING, DescriptionError, ValueSet

Box: TypeAlias = tuple[tuple[str, ValueSet], ...]
TRUE: Box = ()
T = TypeVar("T")


def box_of(constraints: Mapping[str, ValueSet]) -> Box | None:
    """Build the box of these constraints; None where one of them is empty."""
    if any(values.is_empty for values in constraints.values()):
        return None
    return tuple((name, constraints[name]) for name in sorted(constraints) if not constraints[name].is_all)


def meet(one: Box, other: Box) -> Box | None:
    """Intersect two boxes; None where they are disjoint."""
    if not one or not other:
        return one or other
    found = dict(one)
    for name, values in other:
        mine = found.get(name)
        if mine is not None:
            values = _compared(name, mine.intersection, values)
            if values.is_empty:
                return None
        found[name] = values
    return tuple(sorted(found.items(), key=_name))


def overlap(one: Box, other: Box) -> bool:
    """Check whether some row lies in both boxes."""
    mine = dict(one)
    return all(name not in mine or _compared(name, mine[name].overlaps, values) for name, values in other)


def subtract(one: Box, other: Box) -> list[Box]:
    """Subtract one box from another, as disjoint boxes.

    It proceeds one attribute at a time: first the values that the other excludes, then on with those it allows.
    """
    if not overlap(one, other):
        return [one]
    pieces = []
    inside = dict(one)
    for name, values in other:
        mine = inside.get(name, EVERYTHING)
        outside = mine.minus(values)
        if not outside.is_empty:
            pieces.append(tuple(sorted({**inside, name: outside}.items(), key=_name)))
        inside[name] = mine.intersection(values)
    return pieces


def subtract_all(one: Box, others: Iterable[Box]) -> list[Box]:
    """Subtract several boxes from one, as disjoint boxes."""
    left = [one]
    for other in others:
        if not left:
            break
        left = [piece for box in left for piece in subtract(box, other)]
    return left


def disjoint(boxes: Iterable[Box]) -> list[Box]:
    """Split boxes into disjoint ones of the same union."""
    found: list[Box] = []
    for box in boxes:
        found += subtract_all(box, tuple(found))
    return found


def merged(boxes: Iterable[Box]) -> list[Box]:
    """Merge boxes that differ in one attribute only, until none do; the union stays the same.

    Grouping on the other attributes finds them in linear time; disjoint boxes stay disjoint.
    """
    found = list(dict.fromkeys(boxes))
    changed = True
    while changed and len(found) > 1:
        changed = False
        for name in sorted({name for box in found for name, _ in box}):
            groups: dict[Box, ValueSet] = {}
            for box in found:
                rest = tuple(pair for pair in box if pair[0] != name)
                values = dict(box).get(name, EVERYTHING)
                groups[rest] = groups[rest].union(values) if rest in groups else values
            if len(groups) < len(found):
                changed = True
                found = [with_values(rest, name, values) for rest, values in groups.items()]
    return found


def covered(box: Box, boxes: Iterable[Box]) -> bool:
    """Check whether every row of the box lies in one of the boxes."""
    return not subtract_all(box, boxes)


def prime(boxes: list[Box]) -> list[Box]:
    """Find a short, readable cover of the same union: each box as wide as possible, none redundant.

    Boxes may overlap. Exponential in the worst case, so only for few boxes.
    """
    wide = []
    for box in boxes:
        grown = box
        for name, values in box:
            others = [dict(other).get(name, EVERYTHING) for other in boxes]
            for candidate in (EVERYTHING, *(values.union(other) for other in others)):
                trial = with_values(grown, name, dict(grown).get(name, EVERYTHING).union(candidate))
                if covered(trial, boxes):
                    grown = trial
        wide.append(grown)
    kept = sorted(dict.fromkeys(wide), key=sort_key)
    # Longest first: removing those shortens the text most.
    for box in sorted(kept, key=len, reverse=True):
        spared = [other for other in kept if other != box]
        if covered(box, spared):
            kept = spared
    return kept


def sort_key(box: Box) -> tuple[Any, ...]:
    """Return a sort key that does not depend on how boxes were built."""
    return tuple(
        (name, values.kind, values.cuts, sorted(map(str, values.members)), values.rest, values.null)
        for name, values in box
    )


def with_values(box: Box, name: str, values: ValueSet) -> Box:
    """Replace the constraint on one attribute by a set that is not empty."""
    rest = [pair for pair in box if pair[0] != name]
    return tuple(rest if values.is_all else sorted((*rest, (name, values)), key=_name))


def _name(pair: tuple[str, ValueSet]) -> str:
    return pair[0]


def _compared(name: str, combine: Callable[[ValueSet], T], values: ValueSet) -> T:
    try:
        return combine(values)
    except DescriptionError as e:
        raise DescriptionError(f"attribute '{name}': {e}") from None
