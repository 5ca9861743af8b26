"""``floor``: the largest whole number not above its operand, constant on pieces that end where the operand passes one.

While the operand is within its error of a whole number, the floors of truths differ, and the error covers them: ``floor(x + e) -
floor(x)`` and ``floor(x) - floor(x - e)`` over the piece. A boundary known up to rounding only counts as undecided for a
microsecond before and after it, as that of a case does. Ranges of more than :data:`MOST` whole numbers are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.expression import Function
from pulse.core.instants import tolerances
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.roots import real_roots
from pulse.kernels.rounding import evaluation
from pulse.operators.functions.base import Ranges, ScalarFunction

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand

MOST = 10_000
"""The most whole numbers that the operand may pass in one row."""
_AROUND = 1e-6  # seconds


class Floor(ScalarFunction):
    """``floor(x)``."""

    name = "floor"
    approximated = False
    of_arrays = staticmethod(np.floor)

    @staticmethod
    def of_numbers(x: float) -> float:
        return float(math.floor(x))

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        name = work.as_model(arguments[0])
        self._cut(work, name, e)
        relation = work.relation
        low, high = work.values(name)
        err = relation.err[name]
        middle = evaluate(relation.models[name], relation.lo + 0.5 * (relation.hi - relation.lo))
        value = np.floor(middle)
        return work.add(value[:, None], _error(value, low - err, high + err))

    @staticmethod
    def _cut(work: Evaluation, name: str, e: Function) -> None:
        """Cut rows where the operand, or the operand and its error, passes a whole number."""
        relation = work.relation
        low, high = work.values(name)
        c, err = relation.models[name], relation.err[name]
        margin = err + 8.0 * evaluation(c, relation.lo, relation.hi)
        first, last = np.ceil(low - margin), np.floor(high + margin)
        count = np.where(relation.is_point, 0.0, np.maximum(last - first + 1.0, 0.0))
        if (count > MOST).any():
            most = int(count.argmax())
            work.too_fine(most, e, f"the operand passes {count[most]:,.0f} whole numbers")
        counts = count.astype(np.int64)
        row = np.repeat(np.arange(len(relation)), counts)
        level = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(len(row))
        rows, at = [], []
        for shift in (0.0, -1.0, 1.0):
            moved = c[row].copy()
            moved[:, 0] -= level + shift * margin[row]
            roots = real_roots(moved, relation.lo[row], relation.hi[row])
            of = row[np.repeat(np.arange(len(row)), np.diff(roots.offsets))]
            for by in (-_AROUND, 0.0, _AROUND) if shift == 0.0 else (0.0,):
                rows.append(of)
                at.append(roots.roots + by)
        _refine(work, np.concatenate(rows), np.concatenate(at))

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        x, err = arguments[0]
        value = np.floor(x)
        return value, _error(value, x - err, x + err)

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        low, high = ranges.values(e.arguments[0])
        same = np.floor(low - errors[0]) == np.floor(high + errors[0])
        return np.where(same, 0.0, np.floor(errors[0]) + 1.0)


def _error(value: Any, low: Any, high: Any) -> Any:
    """Return how far floors of numbers between these are from this one."""
    return np.maximum(np.maximum(np.floor(high) - value, value - np.floor(low)), 0.0)


def _refine(work: Evaluation, row: IntArray, at: FloatArray) -> None:
    """Cut rows at instants, where that leaves parts longer than the timeline's tolerance."""
    relation = work.relation
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    ref = relation.ref[row]
    slack = tolerances(ref, at, ref, at)
    inside = (at - relation.lo[row] > slack) & (relation.hi[row] - at > slack)
    row, at, slack = row[inside], at[inside], slack[inside]
    apart = np.ones(len(row), bool)
    apart[1:] = (row[1:] != row[:-1]) | (at[1:] - at[:-1] > slack[1:])
    row, at = row[apart], at[apart]
    of = np.concatenate((np.arange(len(relation)), row))
    begin = np.concatenate((relation.lo, at))
    order = np.lexsort((begin, of))
    of, begin = of[order], begin[order]
    last = np.append(of[1:] != of[:-1], True)[: len(of)]
    stop = np.where(last, relation.hi[of], np.append(begin[1:], 0.0)[: len(of)])
    work.refine(of, begin, stop, relation.ref[of])
