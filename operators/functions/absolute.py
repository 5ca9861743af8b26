"""``abs``: exact on models, since rows are cut where the operand crosses zero; its error is its operand's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pulse.core.arrays import FloatArray
from pulse.core.expression import Arithmetic, Expression, Function, in_order
from pulse.kernels.polynomial.lift import absolute
from pulse.kernels.rounding import evaluation
from pulse.kernels.samples import vector_program
from pulse.operators.expressions.lifting import check
from pulse.operators.functions.base import Ranges, ScalarFunction
from pulse.operators.functions.distance import is_distance
from pulse.stream.units.affine import Affine

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class Absolute(ScalarFunction):
    """``abs(x)``."""

    name = "abs"
    needs_bounds = False
    approximated = False
    step = vector_program.ABSOLUTE
    of_numbers = staticmethod(abs)
    of_arrays = staticmethod(np.abs)
    of_keys = staticmethod(pc.abs_checked)

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        return absolute_value(work, work.as_model(arguments[0]), e)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        value, err = arguments[0]
        return np.abs(value), err

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        return errors[0]

    def fit_parts(self, arguments: Sequence[Expression]) -> Sequence[tuple[float, Expression]]:
        return ((1.0, arguments[0]),)

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        return None if maps[0].b else Affine(maps[0].a)

    def simplified(self, e: Function) -> Expression:
        return e.arguments[0] if is_distance(e.arguments[0]) else e

    def ordered(self, e: Function) -> Function:
        return Function(self.name, (either_sign(e.arguments[0]),))


def absolute_value(work: Evaluation, name: str, e: Expression) -> str:
    """Cut rows where the model crosses zero; the drift is lost with the sign."""
    relation = work.relation
    c, err = relation.models[name], relation.err[name]
    made = absolute(relation.ref, relation.lo, relation.hi, c)
    check(work, made.status, np.arange(len(relation)), "abs", e)
    work.refine(made.source, made.lo, made.hi, made.ref)
    # At a computed crossing the value is zero up to rounding; on its wrong side the sign flips.
    rounding = 2.0 * evaluation(made.c, made.lo, made.hi)
    return work.add(made.c, err[made.source] + rounding)


def either_sign(e: Expression) -> Expression:
    """Order a difference of which only the size counts."""
    return Arithmetic("-", *in_order(e.left, e.right)) if isinstance(e, Arithmetic) and e.op == "-" else e
