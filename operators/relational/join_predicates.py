"""Distribute the predicates on a join to its sides, its equal keys and its condition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison, Expression, columns_of
from pulse.operators.expressions.predicates import equates_model, only_mentions
from pulse.operators.expressions.symmetry import called
from pulse.operators.node import Node, Predicates


class Distributed(NamedTuple):
    """Predicates for the ``left`` and the ``right`` side, pairs of ``equal`` keys, and what ``stays`` in the condition."""

    left: Predicates
    right: Predicates
    equal: tuple[tuple[str, str], ...]
    stays: Predicates


def distribute(
    predicates: Iterable[Expression], left: Node, right: Node, equal: tuple[tuple[str, str], ...]
) -> Distributed:
    """Push predicates to the side whose columns they mention, those on time to both.

    An equality of keys of both sides becomes a pair of ``equal``, and predicates on keys so paired apply to both sides. A
    predicate on one side's models stays where an equation reduces the other side to single instants: a range, which is half
    open, would include or exclude the instant at its end regardless of the predicate.
    """
    a, b = left.columns, right.columns
    to_left: list[Expression] = []
    to_right: list[Expression] = []
    stays: list[Expression] = []
    pairs = list(equal)
    for predicate in predicates:
        if (pair := _key_pair(predicate, a, b)) is not None:
            pairs.append(pair)
            continue
        here, there = called(predicate, {b.time: a.time}), called(predicate, {a.time: b.time})
        fits_left = only_mentions(here, (*a.names, a.time))
        fits_right = only_mentions(there, (*b.names, b.time))
        on_time = columns_of(predicate) & {a.time, b.time}
        if fits_left:
            to_left.append(here)
        if fits_right and (on_time or not fits_left):
            to_right.append(there)
        if not fits_left and not fits_right:
            stays.append(predicate)
    stay_left = _beside_equation(to_left, a, right, to_right)
    stay_right = _beside_equation(to_right, b, left, to_left)
    to_left = [one for one in to_left if one not in stay_left]
    to_right = [one for one in to_right if one not in stay_right]
    return Distributed(
        (*to_left, *_of_equal_keys(to_right, {y: x for x, y in pairs})),
        (*to_right, *_of_equal_keys(to_left, dict(pairs))),
        tuple(dict.fromkeys(pairs)),
        (*stays, *stay_left, *stay_right),
    )


def _beside_equation(
    predicates: list[Expression], columns: Columns, other: Node, for_other: list[Expression]
) -> list[Expression]:
    """Return the predicates on one side's models that stay as an equation may reduce the other side to instants."""
    if not (other.has_equation or any(equates_model(one, other.columns) for one in for_other)):
        return []
    models = set(columns.modelled)
    return [one for one in predicates if columns_of(one) & models and not equates_model(one, columns)]


def _of_equal_keys(predicates: list[Expression], names: dict[str, str]) -> list[Expression]:
    """Return the predicates on paired keys alone, on those of the other side."""
    return [called(one, names) for one in predicates if columns_of(one) and only_mentions(one, tuple(names))]


def _key_pair(predicate: Expression, left: Columns, right: Columns) -> tuple[str, str] | None:
    """Return the names, left and right, of an equality of keys of the same type."""
    match predicate:
        case Comparison("=", Column(x), Column(y)):
            for a, b in ((x, y), (y, x)):
                both_keys = a in left.key_names and b in right.key_names
                if both_keys and left.type_of(a) == right.type_of(b):
                    return a, b
    return None
