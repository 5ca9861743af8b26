"""``sign``: -1, 0 or 1, a case of the sign of its operand; its error is 2 where the operand's sign is not decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Case, Comparison, Constant, Function
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.stream.units.affine import IDENTITY, Affine

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class Sign(ScalarFunction):
    """``sign(x)``."""

    name = "sign"
    needs_bounds = False
    approximated = False
    of_arrays = staticmethod(np.sign)

    @staticmethod
    def of_numbers(x: float) -> float:
        return float(np.sign(x))

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        return work.fold(_as_case(e))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        return work.fold(_as_case(e))

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        low, high = ranges.values(e.arguments[0])
        decided = (
            (low > errors[0]) | (high < -errors[0]) | ((low == 0.0) & (high == 0.0) & (errors[0] == 0.0))
        )
        return np.where(decided, 0.0, 2.0)

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        return None if maps[0].b else IDENTITY


def _as_case(e: Function) -> Case:
    (x,), zero = e.arguments, Constant(0)
    negative = Case(Comparison("<", x, zero), Constant(-1), zero)
    return Case(Comparison(">", x, zero), Constant(1), negative)
