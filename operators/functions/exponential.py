"""``exp`` and ``log``: approximated on pieces.

With ``|truth - x| <= e`` and values in ``[m, M]`` the propagated errors are ``exp(M) (exp(e) - 1)`` and ``-log(1 - e / m)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Function
from pulse.kernels.rounding import FUNCTION, GROWN
from pulse.operators.errors import DomainError
from pulse.operators.expressions.lifting import Smooth, clear_of_zero, lifted
from pulse.operators.functions.base import Ranges, ScalarFunction

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand

_LARGEST = 700.0  # of the operand, whose exponential still is a float


class Exponential(ScalarFunction):
    """``exp(x)``."""

    name = "exp"
    of_numbers = staticmethod(math.exp)
    of_arrays = staticmethod(np.exp)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        name = work.as_model(arguments[0])
        relation = work.relation
        _, high = work.values(name)
        wrong = high + relation.err[name] > _LARGEST
        if wrong.any():
            row = int(wrong.argmax())
            raise DomainError(
                f"{work.operator}: {e}: the operand rises to {high[row]:g} for {relation.where(row)}, and its "
                "exponential is beyond the range of floating-point numbers; scale it down first"
            )
        largest = np.exp(high)
        caused = self._propagated(high, relation.err[name])
        c, approximation = lifted(work, name, Smooth(self.name, np.exp), caused, largest, e)
        _, high = work.values(name)
        return work.add(c, approximation + self._propagated(high, work.relation.err[name]) * GROWN)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        x, err = arguments[0]
        value = np.exp(x)
        return value, value * (np.expm1(err) * GROWN + FUNCTION)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return self._propagated(ranges.values(e.arguments[0])[1], errors[0])

    def _propagated(self, high: FloatArray, err: FloatArray) -> FloatArray:
        grown = np.exp(high) * np.expm1(np.minimum(err, 1e3))
        return np.where(high + err > _LARGEST, np.inf, grown)


class Logarithm(ScalarFunction):
    """``log(x)``, the natural one; an error where ``x - e`` reaches zero."""

    name = "log"
    of_numbers = staticmethod(math.log)
    of_arrays = staticmethod(np.log)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        name = work.as_model(arguments[0])
        relation = work.relation
        low, high = work.values(name)
        err = relation.err[name]
        wrong = low - err <= 0.0
        if wrong.any():
            row = int(wrong.argmax())
            raise DomainError(
                f"{work.operator}: {e}: the operand falls to {low[row]:g} ± {err[row]:g} for {relation.where(row)}; "
                f"a logarithm needs values above zero: filter them first (… > {clear_of_zero(err[row])})"
            )
        largest = np.maximum(1.0, np.maximum(np.abs(np.log(low)), np.abs(np.log(high))))
        caused = self._propagated(high, err)
        c, approximation = lifted(work, name, Smooth(self.name, np.log), caused, largest, e)
        low, _ = work.values(name)
        return work.add(c, approximation + self._propagated(low, work.relation.err[name]) * GROWN)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        x, err = arguments[0]
        work.refuse(
            x <= err, e, "is the logarithm of a value that may be zero or less within its error bound"
        )
        value = np.log(x)
        return value, FUNCTION * np.abs(value) - np.log1p(-err / x) * (1.0 + FUNCTION)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return self._propagated(ranges.values(e.arguments[0])[0], errors[0])

    def _propagated(self, low: FloatArray, err: FloatArray) -> FloatArray:
        inside = err < low
        return np.where(inside, -np.log1p(-np.where(inside, err, 0.0) / low), np.inf)
