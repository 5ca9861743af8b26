"""``distance(x1, y1, x2, y2)`` in a plane, its square ``distance2``, and the error of a distance as a function of its own.

``e = hypot(ex, ey)`` of the differences of the coordinates bounds the error of a distance, since it changes by at most that.

A distance is no polynomial, but its square is, so comparisons with a number are rewritten to those of squares
(:class:`~pulse.operators.functions.positions.ComparedDistance`).

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
from pulse.kernels.polynomial.arithmetic import subtract
from pulse.kernels.polynomial.certainty import compare_distance
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.sign_bands import bands_of_distance
from pulse.kernels.rounding import FUNCTION, GROWN
from pulse.operators.expressions.lifting import ROOT, lifted, root_error
from pulse.operators.functions.base import Position, Ranges, ScalarFunction
from pulse.operators.functions.plane_distortion import distortion
from pulse.operators.functions.positions import (
    ComparedDistance,
    coordinate,
    differences,
    distorted,
    measured,
    modelled_differences,
    offsets,
    share_of_samples,
    sum_of_squares,
)
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
            if in_degrees(*pair):
                return (
                    f"{self.name} measures in a plane, in the units of its columns, and '{pair[0]}' and '{pair[1]}' are degrees: "
                    "500 would be 500 degrees, and one of longitude is shorter than one of latitude. Fit positions in metres: "
                    "--format ais projects them to x and y. If degrees are meant, give them other names: (select lon as x, "
                    "lat as y from …)"
                )
        return None

    def caution(self, names: Sequence[str]) -> str | None:
        if not (in_degrees(*names[:2]) or in_degrees(*names[2:])):
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

    def solution(self, work: Evaluation, e: Function, level: float) -> ComparedDistance:
        return ComparedDistance(work, e, self._square(level))

    def bands(self, relation: Relation, e: Function, level: float) -> CertaintyArray | None:
        square = self._square(level)
        sides = [coordinate(relation, one) for one in e.arguments]
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
        dx, dy, err = offsets(work, arguments)
        widened = err + share_of_samples(e, arguments) * np.sqrt(square)
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
        dx, dy = modelled_differences(work, e)
        squared = sum_of_squares(work, dx, dy)
        caused = np.hypot(work.relation.err[dx], work.relation.err[dy])
        largest = work.sizes(squared)
        c, approximation = lifted(work, squared, ROOT, caused, np.sqrt(largest), e)
        low, _ = work.values(squared)
        rounded = root_error(np.maximum(low, 0.0), work.relation.err[squared]) * GROWN
        propagated = np.hypot(work.relation.err[dx], work.relation.err[dy]) * GROWN
        return distorted(work, e, work.add(c, approximation + rounded + propagated), arguments, square=False)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        _, _, size, err = measured(work, e, arguments)
        return size, err + FUNCTION * size

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.hypot(errors[0] + errors[2], errors[1] + errors[3])

    def fit_parts(self, arguments: Sequence[Expression]) -> Sequence[tuple[float, Expression]]:
        # The error is sqrt(2) of each difference's if they are equal, plus the share that the approximation adds.
        return [(math.sqrt(2) * (1.0 + SHARE), one) for one in differences(arguments)]

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
        dx, dy = modelled_differences(work, e)
        return distorted(
            work, e, work.sum(work.product(dx, dx), work.product(dy, dy)), arguments, square=True
        )

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        dx, dy, size, err = measured(work, e, arguments)
        square = dx * dx + dy * dy
        return square, (2.0 * size + err) * err * GROWN + FUNCTION * square

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        each = (errors[0] + errors[2], errors[1] + errors[3])
        sizes = [ranges.sizes(one) for one in differences(e.arguments)]
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
        return sum_of_squares(work, *modelled_differences(work, e))

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.hypot(errors[0] + errors[2], errors[1] + errors[3])

    def legs(self, e: Function) -> tuple[Expression, ...]:
        return differences(e.arguments)

    def positions(self, e: Function) -> tuple[tuple[Expression, Expression], ...]:
        x1, y1, x2, y2 = e.arguments
        return (x1, y1), (x2, y2)


def _square_of_difference(a: Expression, b: Expression) -> Expression:
    return Arithmetic("^", a if b == Constant(0) else Arithmetic("-", a, b), Constant(2))


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


def in_degrees(one: str, other: str) -> bool:
    """Check whether two columns are named latitude and longitude, in either order, in one of the usual ways.

    >>> in_degrees("lat", "lon"), in_degrees("Longitude", "Latitude"), in_degrees("pos_lat_deg", "pos_lon_deg")
    (True, True, True)
    >>> in_degrees("x", "y"), in_degrees("lat", "alt"), in_degrees("plateau", "belong")
    (False, False, False)
    """
    first, second = (set(re.split(r"[\W_\d]+", name.casefold())) for name in (one, other))
    return bool((first & _LATITUDE and second & _LONGITUDE) or (first & _LONGITUDE and second & _LATITUDE))
