"""Decide predicates on samples: how certainly each holds at every instant (semantics 3.9).

AND takes the smallest code of :mod:`pulse.core.certainty`, OR the largest (:mod:`pulse.operators.expressions.predicates`).
"""

from __future__ import annotations

import numpy as np

from pulse.core.certainty import ABSENT, CertaintyArray
from pulse.core.expression import (
    FLIPPED,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    number_of,
)
from pulse.core.schema import Role
from pulse.kernels.polynomial.certainty import compare, compare_constant
from pulse.operators.data.samples import Samples
from pulse.operators.expressions.by_value import holds_by_value, is_by_value, numbers_of
from pulse.operators.expressions.on_samples import Numbers
from pulse.operators.expressions.predicates import Truth, computed_columns, positive
from pulse.operators.expressions.time_sets import holds_at
from pulse.operators.functions.registry import rules_of


def certainties(samples: Samples, predicate: Expression) -> CertaintyArray:
    """Return how certainly a predicate holds at each sample; at most the sample's own certainty."""
    return _Certainties(samples).fold(positive(predicate))


class _Certainties(Truth[CertaintyArray]):
    """How certainly predicates hold at each sample of one arc; at most the sample's own certainty."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._work = Numbers(samples, "filter", null=1.0)

    def always(self, value: bool) -> CertaintyArray:
        return self._work.always(value)

    def both(self, a: CertaintyArray, b: CertaintyArray) -> CertaintyArray:
        return np.minimum(a, b, out=a)

    def either(self, a: CertaintyArray, b: CertaintyArray) -> CertaintyArray:
        return np.maximum(a, b, out=a)

    def comparison(self, e: Comparison) -> CertaintyArray:
        turned = e.with_constant_last
        relation, left, right = turned.relation, turned.left, turned.right
        samples = self._samples
        columns = samples.columns
        own = samples.certainty
        if isinstance(left, Column) and columns.role(left.name) is Role.TIME:
            return np.where(holds_at(samples.times, turned), own, ABSENT)
        if is_by_value(turned, columns):
            return np.where(holds_by_value(e, samples), own, ABSENT)
        codes = self._numbers(relation, left, right)
        for name in computed_columns(e) & set(columns.unmodelled_names):  # a comparison with a null is false
            codes[np.isnan(numbers_of(samples, name, "filter"))] = ABSENT
        return codes

    def _numbers(self, relation: str, left: Expression, right: Expression) -> CertaintyArray:
        own, work = self._samples.certainty, self._work
        level = number_of(right)
        if isinstance(left, Function) and level is not None:
            codes = rules_of(left).codes(work, left, relation, float(level))
            if codes is not None:
                return codes
        (x, ex), (y, ey) = work.fold(left), work.fold(right)
        for expression, value in ((left, x), (right, y)):
            if not isinstance(expression, (Column, Constant)) and not np.isfinite(value).all():
                work.result(expression)  # raises an error that names key and instant
        if np.ndim(y) == 0:
            values, e = work.arrays(x, ex + ey)
            return compare_constant(values, e, float(y), relation, own)
        if np.ndim(x) == 0:
            values, e = work.arrays(y, ex + ey)
            return compare_constant(values, e, float(x), FLIPPED[relation], own)
        x, ex, y, ey = work.arrays(x, ex, y, ey)
        return compare(x, ex, y, ey, relation, own)
