"""Approximate functions that leave the polynomials by piecewise polynomials with certified errors (semantics 3.3, 4.2).

``f(x)`` errs by the approximation's own error (:mod:`pulse.kernels.polynomial.lift`) plus the error of ``x`` propagated by ``f``,
which each function bounds (:mod:`pulse.operators.functions`).

The accuracy of the approximation is a free choice, since its error is reported. It is a share of the propagated ``e``
(:data:`SHARE`) or, for models without error, a fraction of the largest value (:data:`RELATIVE`): about ten pieces for a
distance that stays away from zero. Rows that miss the bound because of rounding are retried with laxer bounds.
A point (semantics 1.2) has one value and stays a point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import SHARE
from pulse.core.expression import Expression
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.lift import UNIT, VALUE_UNITS, lift
from pulse.kernels.rounding import GROWN, evaluation
from pulse.kernels.status import NOT_CONVERGED, OK, OUT_OF_DOMAIN
from pulse.operators.errors import ApproximationError, DomainError

if TYPE_CHECKING:
    from pulse.operators.expressions.on_segments import Evaluation

RELATIVE = 1e-6  # of the row's largest value, for models without error
_LEAST = 1e-300  # bounds must be positive
_LAXER = 32.0
_ATTEMPTS = 8  # 32**8 = 1e12: from a millionth of the value to a million times it, which is a failure


class Smooth(NamedTuple):
    """A function that the kernel approximates: its name there, and how its value at a point is computed."""

    name: str
    at: Callable[[FloatArray], FloatArray]


ROOT = Smooth("sqrt", lambda v: np.sqrt(np.maximum(v, 0.0)))


def lifted(
    work: Evaluation,
    name: str,
    function: Smooth,
    caused: FloatArray,
    largest: FloatArray,
    expression: Expression,
) -> tuple[FloatArray, FloatArray]:
    """Cut rows to the pieces of a function of a model; return coefficients and approximation errors.

    Per row ``caused`` is the propagated error and ``largest`` the largest result; see the module's docstring.
    """
    relation = work.relation
    c = relation.models[name]
    bound = np.maximum(np.maximum(SHARE * caused, RELATIVE * largest), _LEAST)
    point = relation.is_point
    parts = [_at_points(work, name, function, np.flatnonzero(point))]
    pending = np.flatnonzero(~point)
    for _ in range(_ATTEMPTS):
        if not len(pending):
            break
        made = lift(
            function.name,
            relation.ref[pending],
            relation.lo[pending],
            relation.hi[pending],
            c[pending],
            bound[pending],
        )
        parts.append((pending[made.source], made.ref, made.lo, made.hi, made.c, made.err))
        again = made.status == NOT_CONVERGED
        check(work, np.where(again, OK, made.status), pending, function.name, expression)
        pending = pending[again]
        bound = bound * _LAXER
    if len(pending):
        raise ApproximationError(
            f"{work.operator}: {expression}: no piecewise polynomial approximates {function.name} for "
            f"{relation.where(int(pending[0]))}: its operand is too large or too steep there; "
            "filter that range away or scale the operand"
        )
    source, ref, lo, hi, coefficients, err = (
        np.concatenate(column) for column in zip(*_same_width(parts), strict=True)
    )
    order = np.argsort(source, kind="stable")
    work.refine(source[order], lo[order], hi[order], ref[order])
    made_c = np.ascontiguousarray(coefficients[order])
    return made_c, (err[order] + evaluation(made_c, lo[order], hi[order])) * GROWN


_Part = tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray, FloatArray]


def _at_points(work: Evaluation, name: str, function: Smooth, rows: IntArray) -> _Part:
    relation = work.relation
    at = relation.lo[rows]
    values = function.at(evaluate(relation.models[name][rows], at))
    return rows, relation.ref[rows], at, at, values[:, None], VALUE_UNITS * UNIT * np.abs(values)


def _same_width(parts: list[_Part]) -> list[_Part]:
    width = max(part[4].shape[1] for part in parts)
    return [(*part[:4], np.pad(part[4], ((0, 0), (0, width - part[4].shape[1]))), part[5]) for part in parts]


def root_error(low: FloatArray, err: FloatArray) -> FloatArray:
    """Propagate ``err`` through ``sqrt`` for values from ``low`` up; decreasing in ``low``."""
    clear = (low >= err) & (low > 0.0)
    roots = np.sqrt(np.where(clear, low, 1.0)) + np.sqrt(np.where(clear, low - err, 0.0))
    return np.where(clear, err / roots, np.sqrt(err))


def clear_of_zero(err: float) -> str:
    """Return a level that a filter may keep an operand of this error above."""
    return f"{2.0 * err:g}" if err > 0.0 else "0.001"


def check(work: Evaluation, status: IntArray, rows: IntArray, function: str, expression: Expression) -> None:
    """Raise an error for rows on which a kernel found no result."""
    bad = status != OK
    if not bad.any():
        return
    i = int(bad.argmax())
    why = (
        "is not defined on all values of its operand"
        if status[i] == OUT_OF_DOMAIN
        else "has an operand that is not finite"
    )
    raise DomainError(
        f"{work.operator}: {expression}: {function} {why} for {work.relation.where(int(rows[i]))}; filter that range away first"
    )
