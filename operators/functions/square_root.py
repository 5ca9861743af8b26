"""``sqrt``: approximated on pieces; of an operand below zero by at most its error, the root of its absolute value.

With ``|truth - x| <= e`` and values from ``m`` up the propagated error is ``e / (sqrt(m) + sqrt(m - e))``, or ``sqrt(e)`` where
``m < e``. At an instant it is the larger deviation of ``sqrt(x ± e)``, clipped at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Arithmetic, Expression, Function, Negative, number_of
from pulse.core.fold import Domain
from pulse.kernels.polynomial.lift import NEGATIVE_UNITS, UNIT
from pulse.kernels.rounding import FUNCTION, GROWN
from pulse.operators.errors import DomainError
from pulse.operators.expressions.lifting import ROOT, lifted, root_error
from pulse.operators.functions.absolute import absolute_value
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.operators.functions.distance import root_of_squares
from pulse.stream.units.affine import Affine

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class SquareRoot(ScalarFunction):
    """``sqrt(x)``."""

    name = "sqrt"
    needs_bounds = False
    of_numbers = staticmethod(math.sqrt)
    of_arrays = staticmethod(np.sqrt)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        """Approximate the root; where the model is below zero by at most its error, take that of its absolute value.

        There the truth lies in ``[0, e]`` and so does ``|x|``; the roots differ by at most ``sqrt(e)``, which is the bound. Below
        zero the rounding of the summed terms counts as error: a variance of equal values is zero only up to that rounding.
        """
        name = work.as_model(arguments[0])
        relation = work.relation
        low, high = work.values(name)
        rounding = NEGATIVE_UNITS * UNIT * work.magnitude(name)
        err = relation.err[name]
        if (low < -(err + rounding)).any():
            added = NEGATIVE_UNITS * UNIT * _TermSizes(work.magnitude_of).fold(e.arguments[0])
            err = np.where(low < -(err + rounding), err + added, err)
            name = work.add(relation.models[name], err)
        wrong = low < -(err + rounding)
        if wrong.any():
            row = int(wrong.argmax())
            raise DomainError(
                f"{work.operator}: {e}: the operand falls to {low[row]:g} for {relation.where(row)}, which is "
                f"below zero by more than its error bound {err[row]:g}; filter that range away first (… >= 0), or take abs(…)"
            )
        if (low < -rounding).any():
            name = absolute_value(work, name, e)
            low, high = work.values(name)
        if (low < 0.0).any():
            name, high = _raised(work, name, -np.minimum(low, 0.0)), high - np.minimum(low, 0.0)
        high = np.maximum(high, 0.0)
        caused = root_error(high, work.relation.err[name]) * GROWN
        c, approximation = lifted(work, name, ROOT, caused, np.sqrt(high), e)
        low, _ = work.values(name)
        return work.add(c, approximation + root_error(low, work.relation.err[name]) * GROWN)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        x, err = arguments[0]
        if np.any(x + err < 0.0):
            # A variance of equal values is a difference of large numbers, and zero only up to their rounding.
            size = _TermSizes(work.magnitude_of).fold(e.arguments[0])
            err = np.where(x < 0.0, err + NEGATIVE_UNITS * UNIT * size, err)
        work.refuse(
            x + err < 0.0,
            e,
            "is the root of a value below zero by more than its error bound (filter it away first: … >= 0)",
        )
        root = np.sqrt(np.maximum(x, 0.0))
        above = np.maximum(np.sqrt(np.maximum(x + err, 0.0)) - root, 0.0)
        return root, np.maximum(above, _below(root, x, err)) * GROWN + FUNCTION * root

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return root_error(ranges.values(e.arguments[0])[0], errors[0])

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        scale = maps[0].a
        root = Fraction(math.isqrt(scale.numerator), math.isqrt(scale.denominator))
        return Affine(root) if not maps[0].b and root**2 == scale else None

    def simplified(self, e: Function) -> Expression:
        return root_of_squares(e.arguments[0]) or e


def _raised(work: Evaluation, name: str, by: FloatArray) -> str:
    """Raise a model by the amount that rounding left below zero, and widen its bound by it."""
    c = work.relation.models[name].copy()
    c[:, 0] += by
    return work.add(c, work.relation.err[name] + by)


def _below(root: Any, x: Any, e: Any) -> Any:
    """Compute ``sqrt(x) - sqrt(x - e)``, or ``sqrt(x)`` where ``x < e``, without cancellation."""
    low = np.sqrt(np.maximum(x - e, 0.0))
    return np.where(
        x >= e, np.divide(e, root + low, where=root + low > 0.0, out=np.zeros(np.shape(root))), root
    )


class _TermSizes(Domain[Any]):
    """Bounds of the sums of absolute terms, which the rounding of an expression is proportional to."""

    def __init__(self, size: Callable[[Expression], Any]) -> None:
        self._size = size

    def other(self, e: Expression) -> Any:
        return self._size(e)

    def negative(self, e: Negative, operand: Any) -> Any:
        return operand

    def arithmetic(self, e: Arithmetic, left: Any, right: Any) -> Any:
        if e.op in "+-":
            return left + right
        if e.op == "*":
            return left * right
        if number_of(e.right) is None:
            return self.other(e)
        return left / right if e.op == "/" else left**right
