"""Fast path: decide rows whose whole range satisfies or fails a predicate, without solving (semantics 3.2, 3.9).

A comparison of lines has one answer on a segment that stays clear of the level and its error band, and most segments do
(:mod:`pulse.kernels.polynomial.sign_bands`). The answer per row is a certainty, ABSENT included, or UNDECIDED if the row must
be solved. ``AND`` takes the least certain of its operands and ``OR`` the most certain; where one operand decides, the others
may be undecided::

              BELOW     UNDER     OVER      ABOVE
    D <  0    certain   likely    possible  absent     (<= alike; > and >= reversed)
    D =  0    absent    possible  possible  absent
    D != 0    certain   likely    likely    certain

This covers comparisons of modelled attributes with numbers and with each other, and of functions that have bands of their own
with numbers; all other predicates are undecided.
"""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import Column, Comparison, Expression, Function, number_of
from pulse.kernels.polynomial.sign_bands import bands_about, bands_between
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.predicates import Truth, positive
from pulse.operators.functions.registry import rules_of

UNDECIDED = 255

_BELOW = (CERTAIN, LIKELY, POSSIBLE, ABSENT, UNDECIDED)
_ABOVE = (ABSENT, POSSIBLE, LIKELY, CERTAIN, UNDECIDED)
_CODES = {
    "<": _BELOW,
    "<=": _BELOW,
    "=": (ABSENT, POSSIBLE, POSSIBLE, ABSENT, UNDECIDED),
    "!=": (CERTAIN, LIKELY, LIKELY, CERTAIN, UNDECIDED),
    ">=": _ABOVE,
    ">": _ABOVE,
}
_OF_BANDS = {relation: np.array(codes, np.uint8) for relation, codes in _CODES.items()}


def classify(relation: Relation, predicate: Expression) -> CertaintyArray | None:
    """Classify per row how certainly a predicate holds on the whole row, or UNDECIDED; None if all rows are.

    The row's own certainty plays no part.
    """
    return _Classes(relation).fold(positive(predicate))


def possible_rows(relation: Relation, predicate: Expression) -> Relation:
    """Drop rows on which the predicate holds nowhere for any truth, if there are enough of them to justify a copy."""
    codes = classify(relation, predicate)
    if codes is None:
        return relation
    rows = np.flatnonzero(codes != ABSENT)
    return relation.take(rows) if 4 * len(rows) < 3 * len(relation) else relation


def _both(a: CertaintyArray, b: CertaintyArray) -> CertaintyArray:
    least, most = np.minimum(a, b), np.maximum(a, b)
    least[(most == UNDECIDED) & (least != ABSENT)] = UNDECIDED
    return least


def _either(a: CertaintyArray, b: CertaintyArray) -> CertaintyArray:
    most = np.maximum(a, b)
    most[(a == CERTAIN) | (b == CERTAIN)] = CERTAIN
    return most


class _Classes(Truth[CertaintyArray | None]):
    """Certainties of whole rows; None where all are undecided."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def always(self, value: bool) -> CertaintyArray:
        return np.full(len(self._relation), CERTAIN if value else ABSENT, np.uint8)

    def both(self, a: CertaintyArray | None, b: CertaintyArray | None) -> CertaintyArray | None:
        return None if a is None and b is None else _both(self._known(a), self._known(b))

    def either(self, a: CertaintyArray | None, b: CertaintyArray | None) -> CertaintyArray | None:
        return None if a is None and b is None else _either(self._known(a), self._known(b))

    def _known(self, codes: CertaintyArray | None) -> CertaintyArray:
        return np.full(len(self._relation), UNDECIDED, np.uint8) if codes is None else codes

    def comparison(self, e: Comparison) -> CertaintyArray | None:
        turned = e.with_constant_last
        bands = self._bands(turned.left, turned.right)
        return None if bands is None else _OF_BANDS[turned.relation].take(bands)

    def _bands(self, left: Expression, right: Expression) -> CertaintyArray | None:
        relation, level = self._relation, number_of(right)
        modelled = relation.columns.modelled
        bands: CertaintyArray
        if isinstance(left, Function) and level is not None:
            return rules_of(left).bands(relation, left, float(level))
        if not isinstance(left, Column) or left.name not in modelled:
            return None
        c, err = relation.models[left.name], relation.err[left.name]
        if level is not None:
            bands = bands_about(c, relation.lo, relation.hi, err, float(level))
        elif isinstance(right, Column) and right.name in modelled:
            error: FloatArray = err + relation.err[right.name]
            bands = bands_between(c, relation.models[right.name], relation.lo, relation.hi, error)
        else:
            return None
        return bands
