"""``least`` and ``greatest``: exact on models, since rows are cut where one operand becomes larger.

The largest of values that err by at most ``ea`` and ``eb`` errs by at most the larger of the two; where one operand is the larger
for every truth within the bounds, by that operand's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.expression import Expression, Function, in_order
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.lift import absolute
from pulse.kernels.rounding import GROWN, evaluation
from pulse.operators.expressions.lifting import check
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.stream.units.affine import Affine

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class _Extreme(ScalarFunction):
    arity = 2
    variadic = True
    needs_bounds = False
    approximated = False
    largest: ClassVar[bool]

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        a, b = (work.as_model(one) for one in arguments)
        difference = work.as_model(work.sum(a, b, -1.0))
        before = work.relation
        made = absolute(before.ref, before.lo, before.hi, before.models[difference])
        check(work, made.status, np.arange(len(before)), self.name, e)
        work.refine(made.source, made.lo, made.hi, made.ref)
        relation = work.relation
        d = relation.models[difference]
        first = (evaluate(d, relation.lo + 0.5 * (relation.hi - relation.lo)) >= 0.0) == self.largest
        ea, eb = relation.err[a], relation.err[b]
        low, high = work.values(difference)
        clear = np.maximum(low, -high) > relation.err[difference]
        err = np.where(clear, np.where(first, ea, eb), np.maximum(ea, eb))
        # Beyond a computed crossing the other operand is the right one, and differs by no more than rounding.
        rounding = 2.0 * evaluation(d, relation.lo, relation.hi)
        x, y = relation.models[a], relation.models[b]
        width = max(x.shape[1], y.shape[1])
        x, y = (np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in (x, y))
        return work.add(np.ascontiguousarray(np.where(first[:, None], x, y)), err * GROWN + rounding)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        (x, ex), (y, ey) = arguments
        value = self.of_arrays(x, y)
        clear = np.abs(x - y) > (ex + ey) * GROWN
        return value, np.where(clear, np.where(value == x, ex, ey), np.maximum(ex, ey))

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return np.maximum(*errors)

    def fit_parts(self, arguments: Sequence[Expression]) -> Sequence[tuple[float, Expression]]:
        return tuple((1.0, one) for one in arguments)

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        return maps[0] if maps[0] == maps[1] else None

    def ordered(self, e: Function) -> Function:
        return Function(self.name, in_order(*e.arguments))


class Least(_Extreme):
    """``least(x, y)``."""

    name = "least"
    largest = False
    of_numbers = staticmethod(min)
    of_arrays: Any = staticmethod(np.minimum)


class Greatest(_Extreme):
    """``greatest(x, y)``."""

    name = "greatest"
    largest = True
    of_numbers = staticmethod(max)
    of_arrays: Any = staticmethod(np.maximum)
