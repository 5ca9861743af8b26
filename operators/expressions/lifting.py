"""Approximate functions that leave the polynomials by piecewise polynomials with certified errors (semantics 3.3, 4.2).

``f(x)`` with ``|truth - x| <= e`` errs by the approximation's own error (:mod:`pulse.kernels.polynomial.lift`) plus the
propagated ``e`` on the piece's values ``[m, M]``:

============== ======================================================================================================
``abs``        ``e``, and rounding: rows are cut where ``x`` crosses zero
``sqrt``       ``e / (sqrt(m) + sqrt(m - e))``, or ``sqrt(e)`` where ``m < e``
``1 / x``      ``e / (|x| (|x| - e))`` with the smallest ``|x|``
``exp``        ``exp(M) (exp(e) - 1)``
``log``        ``-log(1 - e / m)``
``sin, cos``   ``min(e, 2)``
``distance``   ``hypot(ex, ey)`` of the coordinates' differences, since a distance changes by at most that
============== ======================================================================================================

The accuracy of the approximation is a free choice, since its error is reported. It is a share of the propagated ``e``
(:data:`SHARE`) or, for models without error, a fraction of the largest value (:data:`RELATIVE`): about ten pieces for a
distance that stays away from zero. Rows that miss the bound because of rounding are retried with laxer bounds.
A point (semantics 1.2) has one value and stays a point.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import SHARE as SHARE
from pulse.core.expression import Arithmetic, Constant, Expression, Function, Negative
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.lift import NEGATIVE_UNITS, UNIT, VALUE_UNITS, absolute, lift
from pulse.kernels.rounding import GROWN, evaluation, magnitudes
from pulse.kernels.status import NOT_CONVERGED, OK, OUT_OF_DOMAIN
from pulse.operators.errors import ApproximationError, DomainError
from pulse.operators.expressions.on_segments import Evaluation

RELATIVE = 1e-6  # of the row's largest value, for models without error
_LEAST = 1e-300  # bounds must be positive
_LAXER = 32.0
_ATTEMPTS = 8  # 32**8 = 1e12: from a millionth of the value to a million times it, which is a failure

_POINTWISE: dict[str, Callable[[FloatArray], FloatArray]] = {
    "sqrt": lambda v: np.sqrt(np.maximum(v, 0.0)),
    "reciprocal": lambda v: 1.0 / v,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
}


def absolute_value(work: Evaluation, name: str, expression: Expression) -> str:
    """Compute ``abs`` exactly, cutting rows where the model crosses zero; the drift is lost with the sign."""
    relation = work.relation
    c, err = relation.models[name], relation.err[name]
    made = absolute(relation.ref, relation.lo, relation.hi, c)
    _check(work, made.status, np.arange(len(relation)), "abs", expression)
    work.refine(made.source, made.lo, made.hi, made.ref)
    # At a computed crossing the value is zero up to rounding; on its wrong side the sign flips.
    rounding = 2.0 * evaluation(made.c, made.lo, made.hi)
    return work.add(made.c, err[made.source] + rounding)


def square_root(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``sqrt``; where the model is below zero by at most its error, take the root of its absolute value.

    There the truth lies in ``[0, e]`` and so does ``|x|``; the roots differ by at most ``sqrt(e)``, which is the bound. Below
    zero the rounding of the summed terms counts as error: a variance of equal values is zero only up to that rounding.
    """
    relation = work.relation
    low, high = work.values(name)
    rounding = NEGATIVE_UNITS * UNIT * _magnitude(work, name)
    err = relation.err[name]
    if (low < -(err + rounding)).any():
        assert isinstance(expression, Function)
        added = NEGATIVE_UNITS * UNIT * _size_of_terms(work, expression.arguments[0])
        err = np.where(low < -(err + rounding), err + added, err)
        name = work.add(relation.models[name], err)
    wrong = low < -(err + rounding)
    if wrong.any():
        row = int(wrong.argmax())
        raise DomainError(
            f"{work.operator}: {expression}: the operand falls to {low[row]:g} for {relation.where(row)}, which is "
            f"below zero by more than its error bound {err[row]:g}; filter that range away first (… >= 0), or take abs(…)"
        )
    if (low < -rounding).any():
        name = absolute_value(work, name, expression)
        low, high = work.values(name)
    if (low < 0.0).any():
        name, high = _raised(work, name, -np.minimum(low, 0.0)), high - np.minimum(low, 0.0)
    high = np.maximum(high, 0.0)
    caused = _root_error(high, work.relation.err[name])
    c, approximation = _lifted(work, name, "sqrt", caused, np.sqrt(high), expression)
    low, _ = work.values(name)
    return work.add(c, approximation + _root_error(low, work.relation.err[name]))


def _raised(work: Evaluation, name: str, by: FloatArray) -> str:
    """Raise a model by the amount that rounding left below zero, and widen its bound by it."""
    c = work.relation.models[name].copy()
    c[:, 0] += by
    return work.add(c, work.relation.err[name] + by)


def _size_of_terms(work: Evaluation, expression: Expression) -> FloatArray | float:
    """Bound per row the sum of the absolute terms of an expression, which its rounding is proportional to."""
    match expression:
        case Negative(operand):
            return _size_of_terms(work, operand)
        case Arithmetic("+" | "-", left, right):
            return _size_of_terms(work, left) + _size_of_terms(work, right)
        case Arithmetic("*", left, right):
            return _size_of_terms(work, left) * _size_of_terms(work, right)
        case Arithmetic("/", left, Constant(float() | int() as value)):
            return _size_of_terms(work, left) / abs(value)
        case Arithmetic("^", base, Constant(float() | int() as value)):
            size: FloatArray | float = _size_of_terms(work, base) ** value
            return size
    found = work.operand(expression)
    return abs(found) if isinstance(found, float) else _magnitude(work, found) + work.relation.err[found]


def _root_error(low: FloatArray, err: FloatArray) -> FloatArray:
    """Propagate ``err`` through ``sqrt`` for values from ``low`` up; decreasing in ``low``."""
    clear = (low >= err) & (low > 0.0)
    root = np.sqrt(np.where(clear, low, 1.0))
    other = np.sqrt(np.where(clear, low - err, 0.0))
    caused: FloatArray = np.where(clear, err / (root + other), np.sqrt(err)) * GROWN
    return caused


def distance(work: Evaluation, dx: str, dy: str, expression: Expression) -> str:
    """Approximate ``sqrt(dx^2 + dy^2)``."""
    squares = work.squares(dx, dy)
    caused = np.hypot(work.relation.err[dx], work.relation.err[dy])
    largest = work.sizes(squares)
    c, approximation = _lifted(work, squares, "sqrt", caused, np.sqrt(largest), expression)
    low, _ = work.values(squares)
    rounded = _root_error(np.maximum(low, 0.0), work.relation.err[squares])
    return work.add(
        c, approximation + rounded + np.hypot(work.relation.err[dx], work.relation.err[dy]) * GROWN
    )


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
            f"such as abs(divisor) > {_margin(err[row])}"
        )
    least = np.minimum(np.abs(low), np.abs(high))
    c, approximation = _lifted(
        work, name, "reciprocal", err / (least * (least - err)), 1.0 / least, expression
    )
    low, high = work.values(name)
    err, least = work.relation.err[name], np.minimum(np.abs(low), np.abs(high))
    return work.add(c, approximation + err / (least * (least - err)) * GROWN)


def exponential(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``exp``."""
    relation = work.relation
    _, high = work.values(name)
    wrong = high + relation.err[name] > 700.0
    if wrong.any():
        row = int(wrong.argmax())
        raise DomainError(
            f"{work.operator}: {expression}: the operand rises to {high[row]:g} for {relation.where(row)}, and its "
            "exponential is beyond the range of floating-point numbers; scale it down first"
        )
    largest = np.exp(high)
    caused = largest * np.expm1(relation.err[name])
    c, approximation = _lifted(work, name, "exp", caused, largest, expression)
    _, high = work.values(name)
    return work.add(c, approximation + np.exp(high) * np.expm1(work.relation.err[name]) * GROWN)


def logarithm(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``log``; fail where ``x - err`` reaches zero."""
    relation = work.relation
    low, high = work.values(name)
    err = relation.err[name]
    wrong = low - err <= 0.0
    if wrong.any():
        row = int(wrong.argmax())
        raise DomainError(
            f"{work.operator}: {expression}: the operand falls to {low[row]:g} ± {err[row]:g} for {relation.where(row)}; "
            f"a logarithm needs values above zero: filter them first (… > {_margin(err[row])})"
        )
    largest = np.maximum(1.0, np.maximum(np.abs(np.log(low)), np.abs(np.log(high))))
    c, approximation = _lifted(work, name, "log", -np.log1p(-err / high), largest, expression)
    low, _ = work.values(name)
    return work.add(c, approximation - np.log1p(-work.relation.err[name] / low) * GROWN)


def sine(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``sin``."""
    return _wave(work, name, "sin", np.minimum(work.sizes(name), 1.0), expression)


def cosine(work: Evaluation, name: str, expression: Expression) -> str:
    """Approximate ``cos``."""
    return _wave(work, name, "cos", np.ones(len(work.relation)), expression)


def _wave(work: Evaluation, name: str, function: str, largest: FloatArray, expression: Expression) -> str:
    caused = np.minimum(work.relation.err[name], 2.0)
    c, approximation = _lifted(work, name, function, caused, largest, expression)
    return work.add(c, approximation + np.minimum(work.relation.err[name], 2.0))


FUNCTIONS: dict[str, Callable[[Evaluation, str, Expression], str]] = {
    "abs": absolute_value,
    "sqrt": square_root,
    "exp": exponential,
    "log": logarithm,
    "sin": sine,
    "cos": cosine,
}


def _lifted(
    work: Evaluation,
    name: str,
    function: str,
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
            function,
            relation.ref[pending],
            relation.lo[pending],
            relation.hi[pending],
            c[pending],
            bound[pending],
        )
        parts.append((pending[made.source], made.ref, made.lo, made.hi, made.c, made.err))
        again = made.status == NOT_CONVERGED
        _check(work, np.where(again, OK, made.status), pending, function, expression)
        pending = pending[again]
        bound = bound * _LAXER
    if len(pending):
        raise ApproximationError(
            f"{work.operator}: {expression}: no piecewise polynomial approximates {function} for "
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


def _at_points(work: Evaluation, name: str, function: str, rows: IntArray) -> _Part:
    relation = work.relation
    at = relation.lo[rows]
    values = _POINTWISE[function](evaluate(relation.models[name][rows], at))
    return rows, relation.ref[rows], at, at, values[:, None], VALUE_UNITS * UNIT * np.abs(values)


def _same_width(parts: list[_Part]) -> list[_Part]:
    width = max(part[4].shape[1] for part in parts)
    return [(*part[:4], np.pad(part[4], ((0, 0), (0, width - part[4].shape[1]))), part[5]) for part in parts]


def _magnitude(work: Evaluation, name: str) -> FloatArray:
    """Return per row ``sum(|c_j| T^j)`` with the farthest time ``T``, which roundings are proportional to."""
    return magnitudes(work.relation.models[name], work.relation.lo, work.relation.hi)


def _margin(err: float) -> str:
    return f"{2.0 * err:g}" if err > 0.0 else "0.001"


def _check(work: Evaluation, status: IntArray, rows: IntArray, function: str, expression: Expression) -> None:
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
