"""``1 / x``: approximated on pieces; its propagated error is ``e / (|x| (|x| - e))`` with the smallest ``|x|``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Expression
from pulse.kernels.rounding import GROWN
from pulse.operators.errors import DomainError
from pulse.operators.expressions.lifting import Smooth, clear_of_zero, lifted

if TYPE_CHECKING:
    from pulse.operators.expressions.on_segments import Evaluation


def reciprocal(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``1 / x``; fail where ``x ± err`` reaches zero."""
    relation = work.relation
    low, high = work.values(name)
    err = relation.err[name]
    wrong = (low - err <= 0.0) & (high + err >= 0.0)
    if wrong.any():
        row = int(wrong.argmax())
        raise DomainError(
            f"{work.operator}: {expression}: division by a model that crosses zero: the divisor is within "
            f"[{low[row]:g}, {high[row]:g}] ± {err[row]:g} for {relation.where(row)}; keep it away from zero first, by a filter "
            f"such as abs(divisor) > {clear_of_zero(err[row])}"
        )
    least = np.minimum(np.abs(low), np.abs(high))
    caused = reciprocal_error(err, (low, high))
    c, approximation = lifted(
        work, name, Smooth("reciprocal", np.reciprocal), caused, 1.0 / least, expression
    )
    return work.add(c, approximation + reciprocal_error(work.relation.err[name], work.values(name)) * GROWN)


def reciprocal_error(err: FloatArray, values: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Propagate an error through ``1 / x`` for values between these; infinite where ``x`` may be zero."""
    low, high = values
    smallest = np.where(low > 0.0, low, np.where(high < 0.0, -high, 0.0))
    return np.where(err < smallest, err / (smallest * (smallest - err)), np.inf)
