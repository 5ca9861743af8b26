"""``course``: the direction of a displacement in degrees clockwise from the y axis, and ``angle_between`` two directions.

A displacement ``(dx, dy)`` that errs by at most ``e`` in any direction has a direction that errs by ``asin(e / length)`` on the
circle; where its length is not above ``e``, any direction is possible, and the error is 180 degrees. The direction of the models
is approximated on pieces, as ``k 90° + atan(v / w)`` with ``|v| <= w``, in the four sectors between the diagonals.

A course is a number from 0 to 360, which jumps where the direction passes the y axis. Within its error of it, as a number, it
errs by up to 360. ``angle_between`` has no jump: its error is at most the sum of both on the circle, and at most 180.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Expression, Function
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.lift import absolute
from pulse.kernels.rounding import FUNCTION, GROWN, evaluation
from pulse.operators.expressions.lifting import Smooth, check, lifted
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.operators.functions.positions import sum_of_squares
from pulse.operators.functions.reciprocal import reciprocal
from pulse.stream.units.affine import IDENTITY, Affine

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand

_DEGREES = 180.0 / math.pi
_ATAN = Smooth("atan", np.arctan)
_LEAST = 1e-6  # of a displacement's largest part: one below it has no direction
_LARGEST = 1e6  # of the terms of a ratio that is at most 1: beyond it they cancel too much to be approximated


def _direction(dx: Any, dy: Any) -> Any:
    """Return the direction of displacements, in ``[0, 360)``."""
    turned = np.degrees(np.arctan2(dx, dy))
    return np.where(turned < 0.0, np.minimum(turned + 360.0, np.nextafter(360.0, 0.0)), turned)


def _uncertainty(error: Any, length: Any) -> Any:
    """Return the error of the direction on the circle, of a displacement of at least this length; at most 180."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.degrees(np.arcsin(np.minimum(error / length, 1.0)))
    return np.where(error < length, np.minimum(inside * (1.0 + 4 * FUNCTION), 180.0), 180.0)


class Heading(ScalarFunction):
    """The direction of ``(dx, dy)``, whose error is that on the circle."""

    name = "heading"
    arity = 2
    public = False
    needs_bounds = False

    @staticmethod
    def of_numbers(dx: float, dy: float) -> float:
        return float(_direction(dx, dy))

    of_arrays = staticmethod(_direction)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        dx, dy = (work.as_model(one) for one in arguments)
        work.near()
        error = work.add(
            np.hypot(work.relation.err[dx], work.relation.err[dy])[:, None], np.zeros(len(work.relation))
        )
        square = sum_of_squares(work, dx, dy)
        for one in (dx, work.as_model(work.sum(dx, dy)), work.as_model(work.sum(dx, dy, -1.0))):
            _cut(work, one, 0.0, e)
        side, across, least = self._sectors(work, dx, dy, error)
        for _ in range(
            2
        ):  # cut where the displacement becomes long enough to have a direction, on either side
            _cut(work, side, work.relation.models[least][:, 0], e)
        side, across, known = self._known(work, side, across, least)
        ratio = work.as_model(work.product(across, reciprocal(work, side, e)))
        relation = work.relation
        steep = work.magnitude(ratio) > _LARGEST
        ratio = work.add(
            np.where(steep[:, None], 0.0, relation.models[ratio]), np.where(steep, 0.0, relation.err[ratio])
        )
        known = work.add(np.where(steep[:, None], 0.0, relation.models[known]), np.zeros(len(relation)))
        found = _uncertainty(relation.models[error][:, 0], self._length(work, square))
        caused = np.minimum(found, 4.0) / _DEGREES
        c, approximation = lifted(work, ratio, _ATAN, caused, np.full(len(relation), 1.0), e)
        c, approximation = c * _DEGREES, (approximation + work.relation.err[ratio]) * _DEGREES
        relation = work.relation
        x, y = (
            evaluate(relation.models[one], relation.lo + 0.5 * (relation.hi - relation.lo))
            for one in (dx, dy)
        )
        east, north = np.abs(x) > np.abs(y), y >= 0.0
        base = np.where(
            east, np.where(x > 0.0, 90.0, 270.0), np.where(north, np.where(x < 0.0, 360.0, 0.0), 180.0)
        )
        c[:, 0] += base
        rounding = 8 * FUNCTION * 360.0 + evaluation(c, relation.lo, relation.hi)
        found = _uncertainty(relation.models[error][:, 0], self._length(work, square))
        found = np.where(
            relation.models[known][:, 0] > 0.0, np.minimum(found + approximation + rounding, 180.0), 180.0
        )
        return work.add(np.ascontiguousarray(c), found * GROWN)

    @staticmethod
    def _length(work: Evaluation, square: str) -> FloatArray:
        low, _ = work.values(square)
        length: FloatArray = np.sqrt(np.maximum(low - work.relation.err[square], 0.0)) / GROWN
        return length

    @staticmethod
    def _sectors(work: Evaluation, dx: str, dy: str, error: str) -> tuple[str, str, str]:
        """Return the part of the displacement along its sector's axis, the part across, clockwise, and the least known length."""
        relation = work.relation
        x, y = relation.models[dx], relation.models[dy]
        width = max(x.shape[1], y.shape[1])
        x, y = (np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in (x, y))
        middle = relation.lo + 0.5 * (relation.hi - relation.lo)
        at_x, at_y = evaluate(x, middle), evaluate(y, middle)
        east = (np.abs(at_x) > np.abs(at_y))[:, None]
        sign = np.where(
            east, np.where(at_x > 0.0, 1.0, -1.0)[:, None], np.where(at_y >= 0.0, 1.0, -1.0)[:, None]
        )
        none = np.zeros(len(relation))
        largest = np.maximum(work.sizes(dx), work.sizes(dy))
        least = np.maximum(
            relation.models[error][:, 0] / math.sqrt(2.0), np.maximum(_LEAST * largest, 1e-150)
        )
        side = work.add(np.ascontiguousarray(np.where(east, x, y) * sign), none)
        across = work.add(np.ascontiguousarray(np.where(east, -y, x) * sign), none)
        return side, across, work.add(least[:, None], none)

    @staticmethod
    def _known(work: Evaluation, side: str, across: str, least: str) -> tuple[str, str, str]:
        """Replace displacements too short to have a direction by their sector's axis; return also which rows have one."""
        relation = work.relation
        low, _ = work.values(side)
        known = low >= 0.5 * relation.models[least][:, 0]
        none = np.zeros(len(relation))
        unit = np.zeros(relation.models[side].shape)
        unit[:, 0] = 1.0
        side = work.add(np.where(known[:, None], relation.models[side], unit), none)
        across = work.add(np.where(known[:, None], relation.models[across], 0.0), none)
        return side, across, work.add(known[:, None].astype(np.float64), none)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        (dx, ex), (dy, ey) = arguments
        found = _uncertainty(np.hypot(ex, ey) * GROWN, np.hypot(dx, dy) / GROWN)
        return _direction(dx, dy), np.minimum(found + 8 * FUNCTION * 360.0, 180.0)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        (xl, xh), (yl, yh) = (ranges.values(one) for one in e.arguments)
        nearest = np.hypot(np.maximum(np.maximum(xl, -xh), 0.0), np.maximum(np.maximum(yl, -yh), 0.0))
        found: FloatArray = _uncertainty(np.hypot(*errors), nearest)
        return found

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        return IDENTITY if maps[0] == maps[1] and not maps[0].b else None


class Bearing(Heading):
    """The direction of ``(dx, dy)`` as a number in ``[0, 360)``, with the jump from 360 to 0 in its error."""

    name = "bearing"

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        turned = work.as_model(work.fold(Function(Heading.name, e.arguments)))
        error = work.add(work.relation.err[turned][:, None], np.zeros(len(work.relation)))
        _cut(work, turned, work.relation.models[error][:, 0] * GROWN, e)
        _cut(work, turned, 360.0 - work.relation.models[error][:, 0] * GROWN, e)
        low, high = work.values(turned)
        found = work.relation.models[error][:, 0]
        passes = (low - found < 0.0) | (high + found >= 360.0)
        whole = np.maximum(np.abs(high), np.abs(360.0 - low)) * GROWN
        return work.add(work.relation.models[turned], np.where(passes, np.maximum(found, whole), found))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        value, found = super().samples(work, e, arguments)
        passes = (value - found < 0.0) | (value + found >= 360.0)
        return value, np.where(passes, np.maximum(value, 360.0 - value), found)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        found = super().error(e, errors, ranges)
        (xl, xh), (_, yh) = (ranges.values(one) for one in e.arguments)
        away = (xl > errors[0]) | (xh < -errors[0]) | (yh < -errors[1])
        return np.where(away, found, 360.0)


class AngleBetween(ScalarFunction):
    """``angle_between(a, b)``: the angle between two directions in degrees, from 0 to 180."""

    name = "angle_between"
    arity = 2
    needs_bounds = False
    approximated = False

    @staticmethod
    def of_numbers(a: float, b: float) -> float:
        return abs(math.remainder(a - b, 360.0))

    @staticmethod
    def of_arrays(a: Any, b: Any) -> Any:
        turned = np.mod(a - b, 360.0)
        return np.minimum(turned, 360.0 - turned)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        a, b = (work.fold(_on_circle(one)) for one in e.arguments)
        name = work.as_model(work.sum(a, b, -1.0))
        low, high = work.values(name)
        first, last = np.floor(low / 180.0), np.ceil(high / 180.0)
        most = int((last - first).max(initial=0.0))
        if most > 10_000:
            row = int((last - first).argmax())
            work.too_fine(row, e, f"its operands differ by up to {max(-low[row], high[row]):g} degrees")
        turns = work.add(first[:, None], np.zeros(len(work.relation)))
        for k in range(1, most):
            _cut(work, name, 180.0 * (work.relation.models[turns][:, 0] + k), e)
        relation = work.relation
        c = relation.models[name].copy()
        middle = evaluate(c, relation.lo + 0.5 * (relation.hi - relation.lo))
        half = np.floor(middle / 180.0)
        odd = np.mod(half, 2.0) == 1.0
        c[:, 0] -= 180.0 * (half + odd)
        c = np.where(odd[:, None], -c, c)
        # Beyond a computed crossing the line goes on in the wrong direction, by no more than rounding.
        rounding = 4.0 * evaluation(relation.models[name], relation.lo, relation.hi) + 8 * FUNCTION * np.abs(
            180.0 * half
        )
        return work.add(np.ascontiguousarray(c), np.minimum(relation.err[name] + rounding, 180.0))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        (a, ea), (b, eb) = (work.fold(_on_circle(one)) for one in e.arguments)
        rounding = 2 * FUNCTION * (np.abs(a) + np.abs(b) + 360.0)
        return self.of_arrays(a, b), np.minimum((ea + eb) * GROWN + rounding, 180.0)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.minimum(errors[0] + errors[1], 180.0)

    def fit_parts(self, arguments: Sequence[Expression]) -> Sequence[tuple[float, Expression]]:
        return tuple((2.0, one) for one in arguments)

    def simplified(self, e: Function) -> Expression:
        return Function(self.name, tuple(map(_on_circle, e.arguments)))


def _on_circle(e: Expression) -> Expression:
    """Return the direction of a displacement with its error on the circle: the jump at 360 does not matter."""
    return Function(Heading.name, e.arguments) if isinstance(e, Function) and e.name == Bearing.name else e


def _cut(work: Evaluation, name: str, level: Any, e: Expression) -> None:
    """Cut rows where a model crosses a level."""
    relation = work.relation
    c = relation.models[name].copy()
    c[:, 0] -= level
    made = absolute(relation.ref, relation.lo, relation.hi, c)
    check(work, made.status, np.arange(len(relation)), "course", e)
    work.refine(made.source, made.lo, made.hi, made.ref)
