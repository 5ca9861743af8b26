"""Measure the distance of positions, on segments and at instants, and compare it with a number by its square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Arithmetic, Column, Expression, Function, number_of
from pulse.kernels.polynomial.arithmetic import add, multiply
from pulse.kernels.polynomial.interval_sets import intersect, union
from pulse.kernels.rounding import GROWN, TERM, UNIT, underflow
from pulse.operators.expressions.solution_sets import Problem, Truths, chosen, nested, same
from pulse.operators.functions.plane_distortion import distance_error, distortion

if TYPE_CHECKING:
    from pulse.operators.data.relation import Relation
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


def differences(arguments: Sequence[Expression]) -> tuple[Expression, Expression]:
    """Return the differences of the coordinates ``(x1, y1, x2, y2)``."""
    x1, y1, x2, y2 = arguments
    return Arithmetic("-", x1, x2), Arithmetic("-", y1, y2)


# -- segments -----------------------------------------------------------------------------------------------


def modelled_differences(work: Evaluation, e: Function) -> tuple[str, str]:
    """Return the differences of the coordinates as models."""
    dx, dy = (work.as_model(work.fold(one)) for one in differences(e.arguments))
    return dx, dy


def sum_of_squares(work: Evaluation, dx: str, dy: str) -> str:
    """Compute ``dx^2 + dy^2`` of the models alone, bounding only its rounding; the caller bounds the distance itself."""
    work.near()
    relation = work.relation
    x, y = relation.models[dx], relation.models[dy]
    c = add(multiply(x, x), multiply(y, y))
    mx, my = work.magnitude(dx), work.magnitude(dy)
    size = mx**2 + my**2
    lost = underflow(size, mx + my > 0.0, c.shape[1], relation.lo, relation.hi)
    return work.add(c, TERM * (c.shape[1] + 1) * size + 2.0 * lost)


def distorted(
    work: Evaluation, e: Function, made: Operand, ends: Sequence[Operand], *, square: bool
) -> Operand:
    """Widen the error of a distance, or of its square, by the distortion of the plane of its positions."""
    if e.plane is None:
        return made
    name = work.as_model(made)
    share = distance_error(0.0, 1.0, _share_of_rows(work, e, ends))  # relative to the distance
    if square:
        share = (2.0 + share) * share
    err, size = work.relation.err[name], work.sizes(name)
    return work.add(work.relation.models[name], (err + share * (size + err)) * GROWN)


def _share_of_rows(work: Evaluation, e: Function, ends: Sequence[Operand]) -> FloatArray:
    """Return per row the relative error of a distance due to the plane of its coordinates; 0 without one."""
    if e.plane is None:
        return np.zeros(len(work.relation))
    spans = [work.values(one) if isinstance(one, str) else (one, one) for one in ends]
    return np.broadcast_to(distortion(e.plane, spans[0::2], spans[1::2]), len(work.relation))


class ComparedDistance:
    """A distance, by its square, beside a number.

    As ``d`` is not negative and its error is at most ``e``, the sets are exact for ``c >= 0``::

                certain                            model      possible
    d <  c    q < (c - e)^2, never where c <= e    q < c^2    q < (c + e)^2
    d >  c    q > (c + e)^2                        q > c^2    q > (c - e)^2, always where c < e
    """

    def __init__(self, work: Evaluation, e: Function, square: float) -> None:
        self._work, self._e, self._square = work, e, square
        self._ends = [work.fold(one) for one in e.arguments]
        self._dx, self._dy = modelled_differences(work, e)
        self._squared = sum_of_squares(work, self._dx, self._dy)

    def truths(self, relation: str, *, possible: bool) -> Truths:
        rows, square = self._work.relation, self._square
        if square < 0.0:
            return same(chosen(rows, np.full(len(rows), relation in (">", ">=", "!="))))
        q, rounding = rows.models[self._squared], rows.err[self._squared]
        problem = Problem(rows, q, np.zeros(len(rows)))
        errors = np.hypot(rows.err[self._dx], rows.err[self._dy])
        exact, c = (errors == 0.0) & (rounding == 0.0) & (self._e.plane is None), np.sqrt(square)
        e = errors * GROWN + (8 * UNIT + _share_of_rows(self._work, self._e, self._ends)) * c
        level = np.full(len(rows), square)
        inner, outer = (c - e) ** 2, (c + e) ** 2
        inner, outer = inner * (1 - 8 * UNIT) - 2.0 * rounding, outer * (1 + 8 * UNIT) + 2.0 * rounding
        model = Problem(rows, q, rounding).sets(relation, level)
        maybe = None
        if relation in ("<", "<="):
            certain = problem.sets(relation, inner, never=c <= e if relation == "<" else c < e)
            if possible:
                maybe = problem.sets(relation, outer)
        elif relation in (">", ">="):
            certain = problem.sets(relation, outer)
            if possible:
                maybe = problem.sets(relation, inner, always=c < e)
        elif relation == "=":
            certain = problem.sets("=", level, never=~exact)
            if possible:
                maybe = intersect(problem.sets("<=", outer), problem.sets(">=", inner, always=c < e))
        else:
            certain = union(problem.sets(">", outer), problem.sets("<", inner, never=c <= e))
            if possible:
                maybe = problem.sets("!=", level, always=np.ones(len(rows), bool))
        return nested(certain, model, maybe)


def coordinate(relation: Relation, e: Expression) -> tuple[FloatArray, FloatArray] | None:
    """Return coefficients and error of a coordinate that is an attribute or a number; None for any other."""
    if isinstance(e, Column) and e.name in relation.columns.modelled:
        return relation.models[e.name], relation.err[e.name]
    value = number_of(e)
    if value is None:
        return None
    return np.full((len(relation), 1), float(value)), np.zeros(len(relation))


# -- samples ------------------------------------------------------------------------------------------------


def offsets(work: Numbers, arguments: Sequence[Number]) -> tuple[Any, Any, Any]:
    """Return the differences of the coordinates, and the bound of the distance's error."""
    (x1, a1), (y1, b1), (x2, a2), (y2, b2) = arguments
    err = np.hypot(work.errors("-", x1, a1, x2, a2), work.errors("-", y1, b1, y2, b2))
    return x1 - x2, y1 - y2, err * GROWN


def measured(work: Numbers, e: Function, arguments: Sequence[Number]) -> tuple[Any, Any, Any, Any]:
    """Return the differences of the coordinates, the distance and its error, distortion included."""
    dx, dy, err = offsets(work, arguments)
    size = np.hypot(dx, dy)
    if e.plane is not None:
        err = distance_error(err, size, share_of_samples(e, arguments)) * GROWN
    return dx, dy, size, err


def share_of_samples(e: Function, arguments: Sequence[Number]) -> Any:
    """Return the relative error of a distance due to the plane of its positions; 0 without one."""
    if e.plane is None:
        return 0.0
    spans = [(value, value) for value, _ in arguments]
    return distortion(e.plane, spans[0::2], spans[1::2])
