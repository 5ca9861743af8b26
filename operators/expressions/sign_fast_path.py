"""Fast path: decide rows whose whole range satisfies or fails a predicate, without solving (semantics 3.2, 3.9).

A comparison of lines has one answer on a segment that stays clear of the level and its error band, and most segments do
(:mod:`pulse.kernels.polynomial.sign_bands`). The answer per row is a certainty, ABSENT included, or UNDECIDED if the row must
be solved. ``AND`` takes the least certain of its operands and ``OR`` the most certain; where one operand decides, the others
may be undecided::

              BELOW     UNDER     OVER      ABOVE
    D <  0    certain   likely    possible  absent     (<= alike; > and >= reversed)
    D =  0    absent    possible  possible  absent
    D != 0    certain   likely    likely    certain

This covers comparisons of modelled attributes with numbers and with each other, and of distances with numbers; all other
predicates are undecided.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import FLIPPED, And, Column, Comparison, Constant, Expression, Function, Or
from pulse.kernels.polynomial.arithmetic import subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.sign_bands import bands_about, bands_between, bands_of_distance
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.plane_distortion import distortion
from pulse.operators.expressions.solve import positive

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
    """Classify per row how certainly a predicate without NOT holds on the whole row, or UNDECIDED; None if all rows are.

    The row's own certainty plays no part.
    """
    match predicate:
        case Comparison():
            return _compared(relation, predicate)
        case Constant(bool() as value):
            return np.full(len(relation), CERTAIN if value else ABSENT, np.uint8)
        case And(operands) | Or(operands):
            parts = [classify(relation, one) for one in operands]
            if all(part is None for part in parts):
                return None
            join = _both if isinstance(predicate, And) else _either
            total = np.full(len(relation), CERTAIN if isinstance(predicate, And) else ABSENT, np.uint8)
            for part in parts:
                total = join(total, np.full(len(relation), UNDECIDED, np.uint8) if part is None else part)
            return total
    return None


def possible_rows(relation: Relation, predicate: Expression) -> Relation:
    """Drop rows on which the predicate holds nowhere for any truth, if there are enough of them to justify a copy."""
    codes = classify(relation, positive(predicate))
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


def _compared(relation: Relation, comparison: Comparison) -> CertaintyArray | None:
    left, right, form = comparison.left, comparison.right, comparison.relation
    if not isinstance(left, Column):
        left, right, form = right, left, FLIPPED[form]
    modelled = relation.columns.modelled
    if not isinstance(left, Column) and isinstance(right, Function):
        left, right, form = right, left, FLIPPED[form]
    if isinstance(left, Function) and left.name in ("distance", "distance2") and _is_number(right):
        return _distance(relation, left, form, float(right.value))
    if not isinstance(left, Column) or left.name not in modelled:
        return None
    c, err = relation.models[left.name], relation.err[left.name]
    bands: CertaintyArray
    if _is_number(right):
        bands = bands_about(c, relation.lo, relation.hi, err, float(right.value))
    elif isinstance(right, Column) and right.name in modelled:
        error: FloatArray = err + relation.err[right.name]
        bands = bands_between(c, relation.models[right.name], relation.lo, relation.hi, error)
    else:
        return None
    codes: CertaintyArray = _OF_BANDS[form].take(bands)
    return codes


def _distance(relation: Relation, function: Function, form: str, given: float) -> CertaintyArray | None:
    """Compare a distance of positions with a number; each coordinate is an attribute or a number."""
    square = given if function.name == "distance2" else given * abs(given)
    sides = [_coordinate(relation, one) for one in function.arguments]
    if not 0.0 <= square < np.inf or any(side is None for side in sides):
        return None
    (x1, ex1), (y1, ey1), (x2, ex2), (y2, ey2) = (side for side in sides if side is not None)
    err = np.hypot(ex1 + ex2, ey1 + ey2)
    if function.plane is not None:
        spans = [bounds(c, relation.lo, relation.hi)[:2] for c in (x1, y1, x2, y2)]
        err = err + distortion(function.plane, spans[0::2], spans[1::2]) * np.sqrt(square)
    bands = bands_of_distance(subtract(x1, x2), subtract(y1, y2), relation.lo, relation.hi, err, square)
    codes: CertaintyArray = _OF_BANDS[form].take(bands)
    return codes


def _coordinate(relation: Relation, expression: Expression) -> tuple[FloatArray, FloatArray] | None:
    if isinstance(expression, Column) and expression.name in relation.columns.modelled:
        return relation.models[expression.name], relation.err[expression.name]
    if _is_number(expression):
        return np.full((len(relation), 1), float(expression.value)), np.zeros(len(relation))
    return None


def _is_number(expression: Expression) -> TypeGuard[Constant]:
    return isinstance(expression, Constant) and not isinstance(expression.value, (bool, str))
