"""``distance(x1, y1, x2, y2)`` in a plane, its square ``distance2``, and the error of a distance as a function of its own.

``e = hypot(ex, ey)`` of the differences of the coordinates bounds the error of a distance, since it changes by at most that.

A distance is no polynomial, but its square ``q`` is. So ``d R c`` is rewritten to ``q R c²``, and as ``d`` is not negative the
solution sets of both are exact for ``c >= 0``::

                certain                            model      possible
    d <  c    q < (c - e)^2, never where c <= e    q < c^2    q < (c + e)^2
    d >  c    q > (c + e)^2                        q > c^2    q > (c - e)^2, always where c < e

Positions may be projections to a :class:`~pulse.core.plane.Plane`, whose distortion then widens the error
(:mod:`pulse.operators.functions.plane_distortion`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.bounds import SHARE
from pulse.core.certainty import CertaintyArray
from pulse.core.expression import (
    FALSE,
    TRUE,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Parameter,
    in_order,
    number_of,
)
from pulse.core.plane import Plane
from pulse.kernels.polynomial.arithmetic import add, multiply, subtract
from pulse.kernels.polynomial.certainty import compare_distance
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.interval_sets import intersect, union
from pulse.kernels.polynomial.sign_bands import bands_of_distance
from pulse.kernels.rounding import FUNCTION, GROWN, TERM, UNIT, underflow
from pulse.operators.expressions.lifting import ROOT, lifted, root_error
from pulse.operators.expressions.solution_sets import Problem, Truths, chosen, nested, same
from pulse.operators.functions.base import Position, Ranges, ScalarFunction
from pulse.operators.functions.plane_distortion import distance_error, distortion
from pulse.stream.units.affine import Affine

if TYPE_CHECKING:
    from pulse.operators.data.relation import Relation
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


def distance_of(left: tuple[str, str], right: tuple[str, str]) -> Function:
    """Return the distance between positions in columns (x, y)."""
    return Function(Distance.name, tuple(map(Column, (*left, *right))))


def is_distance(e: Expression) -> bool:
    """Test whether an expression is a distance."""
    return isinstance(e, Function) and e.name == Distance.name


class _OfPositions(ScalarFunction):
    """A function of the distance between two positions."""

    arity = 4

    def in_plane(self, e: Function, plane: Plane) -> Function:
        return replace(e, plane=plane)

    def ordered(self, e: Function) -> Function:
        x1, y1, x2, y2 = e.arguments
        (a, b), (c, d) = sorted((in_order(x1, x2), in_order(y1, y2)), key=repr)
        return Function(self.name, (a, c, b, d))

    def objection(self, names: Sequence[str]) -> str | None:
        for pair in (names[:2], names[2:]):
            if _in_degrees(*pair):
                return (
                    f"{self.name} measures in a plane, in the units of its columns, and '{pair[0]}' and '{pair[1]}' are degrees: "
                    "500 would be 500 degrees, and one of longitude is shorter than one of latitude. Fit positions in metres: "
                    "--format ais projects them to x and y. If degrees are meant, give them other names: (select lon as x, "
                    "lat as y from …)"
                )
        return None

    def caution(self, names: Sequence[str]) -> str | None:
        if not (_in_degrees(*names[:2]) or _in_degrees(*names[2:])):
            return None
        return (
            "a distance in the units of its columns, which are degrees, not metres; --format ais projects positions to "
            "x and y, in metres"
        )

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        moved_alike = maps[0].b == maps[2].b and maps[1].b == maps[3].b
        return self._scaled(maps[0]) if moved_alike and len({one.a for one in maps}) == 1 else None

    def _scaled(self, by: Affine) -> Affine:
        """Return the map of results if all coordinates scale alike."""
        return Affine(by.a)

    # -- comparisons with a number ----------------------------------------------------------------------------

    def _square(self, level: float) -> float:
        """Return the square of a distance that a number stands for; negative: below all."""
        return level * abs(level)

    def solution(self, work: Evaluation, e: Function, level: float) -> _Compared:
        return _Compared(work, e, self._square(level))

    def bands(self, relation: Relation, e: Function, level: float) -> CertaintyArray | None:
        square = self._square(level)
        sides = [_coordinate(relation, one) for one in e.arguments]
        if not 0.0 <= square < np.inf or any(side is None for side in sides):
            return None
        (x1, ex1), (y1, ey1), (x2, ex2), (y2, ey2) = (side for side in sides if side is not None)
        err = np.hypot(ex1 + ex2, ey1 + ey2)
        if e.plane is not None:
            spans = [bounds(c, relation.lo, relation.hi)[:2] for c in (x1, y1, x2, y2)]
            err = err + distortion(e.plane, spans[0::2], spans[1::2]) * np.sqrt(square)
        dx, dy = subtract(x1, x2), subtract(y1, y2)
        bands: CertaintyArray = bands_of_distance(dx, dy, relation.lo, relation.hi, err, square)
        return bands

    def codes(self, work: Numbers, e: Function, relation: str, level: float) -> CertaintyArray:
        square = self._square(level)
        if square < 0.0:  # distances exceed a negative bound
            return work.always(relation in (">", ">=", "!="))
        arguments = [work.fold(one) for one in e.arguments]
        dx, dy, err = _offsets(work, arguments)
        widened = err + _share_of_samples(e, arguments) * np.sqrt(square)
        squares, widened = work.arrays(dx * dx + dy * dy, widened)
        return compare_distance(squares, widened, square, relation, work.samples.certainty)

    def margin(self, e: Function, level: float) -> tuple[Function, float]:
        return Function(Span.name, e.arguments), level

    def nearness(self, e: Function, bound: Expression) -> tuple[Position, Position, Expression] | None:
        reach = self._reach(bound)
        match e.arguments:
            case (Column(x1), Column(y1), Column(x2), Column(y2)) if reach is not None:
                return (x1, y1), (x2, y2), reach
        return None

    def _reach(self, bound: Expression) -> Expression | None:
        """Return the distance that a bound stands for; None if that is unknown or negative."""
        value = number_of(bound)
        return bound if isinstance(bound, Parameter) or (value is not None and value >= 0) else None


class Distance(_OfPositions):
    """``distance(x1, y1, x2, y2)``."""

    name = "distance"

    @staticmethod
    def of_numbers(x1: float, y1: float, x2: float, y2: float) -> float:
        return math.hypot(x1 - x2, y1 - y2)

    @staticmethod
    def of_arrays(x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
        return np.hypot(x1 - x2, y1 - y2)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        dx, dy = _differences(work, e)
        squared = _sum_of_squares(work, dx, dy)
        caused = np.hypot(work.relation.err[dx], work.relation.err[dy])
        largest = work.sizes(squared)
        c, approximation = lifted(work, squared, ROOT, caused, np.sqrt(largest), e)
        low, _ = work.values(squared)
        rounded = root_error(np.maximum(low, 0.0), work.relation.err[squared])
        propagated = np.hypot(work.relation.err[dx], work.relation.err[dy]) * GROWN
        return _distorted(work, e, work.add(c, approximation + rounded + propagated), arguments)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        _, _, size, err = _measured(work, e, arguments)
        return size, err + FUNCTION * size

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.hypot(errors[0] + errors[2], errors[1] + errors[3])

    def fit_parts(self, e: Function) -> Sequence[tuple[float, Expression]]:
        # The error is sqrt(2) of each difference's if they are equal, plus the share that the approximation adds.
        return [(math.sqrt(2) * (1.0 + SHARE), one) for one in differences(e)]

    def compared(self, e: Function, relation: str, level: Constant) -> Expression | None:
        """Compare the square, a polynomial; a distance exceeds a negative number.

        Exact (semantics 3.3): in floats, ``sqrt(k*k)`` is ``k`` again, so ``k`` can be recovered and with it the margins of
        certainty ``(k ± e)²``. Where ``k*k`` overflows or underflows the distance stays.
        """
        k = number_of(level)
        if k is None:
            return None
        if k < 0:
            return TRUE if relation in (">", ">=", "!=") else FALSE
        square = k * k
        if math.sqrt(square) != k:
            return None
        return Comparison(relation, self.squared(e), Constant(square))

    def squared(self, e: Function) -> Function:
        return replace(e, name=SquaredDistance.name)


class SquaredDistance(_OfPositions):
    """``distance2(x1, y1, x2, y2)``: the square of a distance."""

    name = "distance2"
    public = False
    approximated = False

    @staticmethod
    def of_numbers(x1: float, y1: float, x2: float, y2: float) -> float:
        return (x1 - x2) ** 2 + (y1 - y2) ** 2

    of_arrays = of_numbers

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        dx, dy = _differences(work, e)
        return _distorted(work, e, work.sum(work.product(dx, dx), work.product(dy, dy)), arguments)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        dx, dy, size, err = _measured(work, e, arguments)
        square = dx * dx + dy * dy
        return square, (2.0 * size + err) * err * GROWN + FUNCTION * square

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        each = (errors[0] + errors[2], errors[1] + errors[3])
        sizes = [ranges.sizes(one) for one in differences(e)]
        parts = (err * (2.0 * size + err) for err, size in zip(each, sizes, strict=True))
        return sum(parts, np.zeros(len(errors[0])))

    def expanded(self, e: Function) -> Expression:
        x1, y1, x2, y2 = e.arguments
        return Arithmetic("+", _square_of_difference(x1, x2), _square_of_difference(y1, y2))

    def _scaled(self, by: Affine) -> Affine:
        return Affine(by.a**2)

    def _square(self, level: float) -> float:
        return level

    def _reach(self, bound: Expression) -> Expression | None:
        value = number_of(bound)
        if value is None or value < 0:
            return None
        root = math.sqrt(value)
        return Constant(int(root)) if isinstance(value, int) and root == int(root) else Constant(root)

    def margin(self, e: Function, level: float) -> tuple[Function, float]:
        return super().margin(e, float(np.copysign(np.sqrt(abs(level)), level)))


class Span(ScalarFunction):
    """The square of a distance as model, whose bound covers its rounding alone, with the error of the distance itself."""

    name = "#span"
    arity = 4
    public = False
    approximated = False

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        return _sum_of_squares(work, *_differences(work, e))

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.hypot(errors[0] + errors[2], errors[1] + errors[3])

    def legs(self, e: Function) -> tuple[Expression, ...]:
        return differences(e)

    def positions(self, e: Function) -> tuple[tuple[Expression, Expression], ...]:
        x1, y1, x2, y2 = e.arguments
        return (x1, y1), (x2, y2)


def differences(e: Function) -> tuple[Expression, Expression]:
    """Return the differences of the coordinates."""
    x1, y1, x2, y2 = e.arguments
    return Arithmetic("-", x1, x2), Arithmetic("-", y1, y2)


def _square_of_difference(a: Expression, b: Expression) -> Expression:
    return Arithmetic("^", a if b == Constant(0) else Arithmetic("-", a, b), Constant(2))


# -- segments -----------------------------------------------------------------------------------------------


def _differences(work: Evaluation, e: Function) -> tuple[str, str]:
    dx, dy = (work.as_model(work.fold(one)) for one in differences(e))
    return dx, dy


def _sum_of_squares(work: Evaluation, dx: str, dy: str) -> str:
    """Compute ``dx^2 + dy^2`` of the models alone, bounding only its rounding; the caller bounds the distance itself."""
    work.near()
    relation = work.relation
    x, y = relation.models[dx], relation.models[dy]
    c = add(multiply(x, x), multiply(y, y))
    mx, my = work.magnitude(dx), work.magnitude(dy)
    size = mx**2 + my**2
    lost = underflow(size, mx + my > 0.0, c.shape[1], relation.lo, relation.hi)
    return work.add(c, TERM * (c.shape[1] + 1) * size + 2.0 * lost)


def _distorted(work: Evaluation, e: Function, made: Operand, ends: Sequence[Operand]) -> Operand:
    """Widen the error of a distance, or of its square, by the distortion of the plane of its positions."""
    if e.plane is None:
        return made
    name = work.as_model(made)
    share = distance_error(0.0, 1.0, _share_of_rows(work, e, ends))  # relative to the distance
    if e.name == SquaredDistance.name:
        share = (2.0 + share) * share
    err, size = work.relation.err[name], work.sizes(name)
    return work.add(work.relation.models[name], (err + share * (size + err)) * GROWN)


def _share_of_rows(work: Evaluation, e: Function, ends: Sequence[Operand]) -> FloatArray:
    """Return per row the relative error of a distance due to the plane of its coordinates; 0 without one."""
    if e.plane is None:
        return np.zeros(len(work.relation))
    spans = [work.values(one) if isinstance(one, str) else (one, one) for one in ends]
    return np.broadcast_to(distortion(e.plane, spans[0::2], spans[1::2]), len(work.relation))


class _Compared:
    """A distance, by its square, beside a number."""

    def __init__(self, work: Evaluation, e: Function, square: float) -> None:
        self._work, self._e, self._square = work, e, square
        self._ends = [work.fold(one) for one in e.arguments]
        self._dx, self._dy = _differences(work, e)
        self._squared = _sum_of_squares(work, self._dx, self._dy)

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


def _coordinate(relation: Relation, e: Expression) -> tuple[FloatArray, FloatArray] | None:
    if isinstance(e, Column) and e.name in relation.columns.modelled:
        return relation.models[e.name], relation.err[e.name]
    value = number_of(e)
    if value is None:
        return None
    return np.full((len(relation), 1), float(value)), np.zeros(len(relation))


# -- samples ------------------------------------------------------------------------------------------------


def _offsets(work: Numbers, arguments: Sequence[Number]) -> tuple[Any, Any, Any]:
    """Return the differences of the coordinates, and the bound of the distance's error."""
    (x1, a1), (y1, b1), (x2, a2), (y2, b2) = arguments
    err = np.hypot(work.errors("-", x1, a1, x2, a2), work.errors("-", y1, b1, y2, b2))
    return x1 - x2, y1 - y2, err * GROWN


def _measured(work: Numbers, e: Function, arguments: Sequence[Number]) -> tuple[Any, Any, Any, Any]:
    """Return the differences of the coordinates, the distance and its error, distortion included."""
    dx, dy, err = _offsets(work, arguments)
    size = np.hypot(dx, dy)
    if e.plane is not None:
        err = distance_error(err, size, _share_of_samples(e, arguments)) * GROWN
    return dx, dy, size, err


def _share_of_samples(e: Function, arguments: Sequence[Number]) -> Any:
    """Return the relative error of a distance due to the plane of its positions; 0 without one."""
    if e.plane is None:
        return 0.0
    spans = [(value, value) for value, _ in arguments]
    return distortion(e.plane, spans[0::2], spans[1::2])


# -- recognition --------------------------------------------------------------------------------------------


def root_of_squares(e: Expression) -> Expression | None:
    """Return the root of a sum of two squares, or of a squared distance, as a distance; None for any other root.

    Squares may be written as powers or products, of differences, of absolute values, or of single values (distance from zero).
    The second difference is turned so that both points are of the same alias each: (a-b)² = (b-a)².
    """
    if isinstance(e, Function) and e.name == SquaredDistance.name:
        return replace(e, name=Distance.name)
    if not (isinstance(e, Arithmetic) and e.op == "+"):
        return None
    first, second = _squared(e.left), _squared(e.right)
    if first is None or second is None:
        return None
    (a, b), (c, d) = _difference(first), _difference(second)
    here, there = _alias(a), _alias(b)
    if (here is not None and here == _alias(d) and here != _alias(c)) or (
        here is None and there is not None and there == _alias(c) and there != _alias(d)
    ):
        c, d = d, c
    return Function(Distance.name, (a, c, b, d))


def _squared(e: Expression) -> Expression | None:
    """Return the base of a square, without the absolute value around it; None if it is not a square."""
    match e:
        case Arithmetic("^", base, Constant(2)):
            inner = base
        case Arithmetic("*", base, other) if base == other:
            inner = base
        case _:
            return None
    return inner.arguments[0] if isinstance(inner, Function) and inner.name == "abs" else inner


def _difference(e: Expression) -> tuple[Expression, Expression]:
    return (e.left, e.right) if isinstance(e, Arithmetic) and e.op == "-" else (e, Constant(0))


def _alias(e: Expression) -> str | None:
    """Return the part of a column's name before the dot."""
    return e.name.rpartition(".")[0] if isinstance(e, Column) else None


_LATITUDE = frozenset(("lat", "latitude"))
_LONGITUDE = frozenset(("lon", "long", "lng", "longitude"))


def _in_degrees(one: str, other: str) -> bool:
    """Check whether two columns are named latitude and longitude, in either order, in one of the usual ways.

    >>> _in_degrees("lat", "lon"), _in_degrees("Longitude", "Latitude"), _in_degrees("pos_lat_deg", "pos_lon_deg")
    (True, True, True)
    >>> _in_degrees("x", "y"), _in_degrees("lat", "alt"), _in_degrees("plateau", "belong")
    (False, False, False)
    """
    first, second = (set(re.split(r"[\W_\d]+", name.casefold())) for name in (one, other))
    return bool((first & _LATITUDE and second & _LONGITUDE) or (first & _LONGITUDE and second & _LATITUDE))
