"""Propagate errors of columns to errors of expressions on them (semantics 4.2).

The rules of :mod:`pulse.operators.expressions.on_segments` and :mod:`pulse.operators.expressions.lifting` as functions of the
columns' errors alone: the models are evaluated once, and the inputs of the rules (the range of every part, and the approximation
errors) are kept. The inverse, from a bound to shares of it, is :mod:`pulse.validation.inversion.apportion`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.expression import (
    Arithmetic,
    Column,
    Constant,
    Expression,
    Function,
    Negative,
    transform,
    walk,
)
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError
from pulse.operators.expressions.lifting import SHARE
from pulse.operators.expressions.on_segments import Evaluation
from pulse.operators.inversion.needs import group_max, group_min

_ROW = "#row"

SPAN = "#span"
"""The name of ``Function(SPAN, (x1, y1, x2, y2))`` at the top of an expression: a distance's error, its square as model."""

Errors = Mapping[str, FloatArray]
"""Per column the bound of its error in each row; a missing column has no error."""


class Forward:
    """Expressions over a relation, evaluated once; computes their errors for any errors of the columns.

    ``relation`` is cut as the expressions need it; ``row`` maps each of its rows to the original row.
    """

    def __init__(self, relation: Relation, expressions: Sequence[Expression], operator: str) -> None:
        self.expressions = tuple(transform(one, _as_product) for one in expressions)
        self._lifted = any(_is_lifted(part) for one in self.expressions for part in walk(one))
        traced = {**relation.unmodelled, _ROW: pa.array(np.arange(len(relation)))}
        exact = {name: np.zeros(len(relation)) for name in relation.columns.modelled}
        try:
            self._work = self._evaluated(replace(relation, err=exact, drift={}, unmodelled=traced), operator)
        except DomainError:  # a root of a value below zero by no more than its error
            self._work = self._evaluated(replace(relation, drift={}, unmodelled=traced), operator)
        self.relation = self._work.relation
        self.row: IntArray = self.relation.unmodelled[_ROW].to_numpy()
        self._ranges: dict[str, tuple[FloatArray, FloatArray]] = {}
        self._added: dict[Expression, FloatArray] = {}

    def _evaluated(self, relation: Relation, operator: str) -> Evaluation:
        work = Evaluation(relation, operator, null=1.0)
        work.near()  # rounding is proportional to the times that are multiplied
        self._squares: dict[Expression, str] = {}
        for expression in self.expressions:
            if isinstance(expression, Function) and expression.name == SPAN:
                dx, dy = (work.as_model(work.operand(one)) for one in _differences(expression))
                self._squares[expression] = work.squares(dx, dy)
                continue
            for part in walk(expression):
                if isinstance(part, Function) and part.name in ("distance", "distance2"):
                    for difference in _differences(part):
                        work.operand(difference)
            work.operand(expression)
        return work

    # -- inputs of the rules -------------------------------------------------------------------------------

    def _found(self, index: int) -> float | str:
        expression = self.expressions[index]
        return self._squares.get(expression) or self._work.operand(expression)

    def coefficients(self, index: int) -> FloatArray:
        """Return the model of an expression."""
        found = self._found(index)
        return (
            np.full((len(self.relation), 1), found)
            if isinstance(found, float)
            else self.relation.models[found]
        )

    def approximation(self, index: int) -> FloatArray:
        """Return the bound on the difference between an expression's model and the expression of the models."""
        found = self._found(index)
        return np.zeros(len(self.relation)) if isinstance(found, float) else self.relation.err[found]

    def _range(self, expression: Expression) -> tuple[FloatArray, FloatArray]:
        """Return the least and largest value of an expression in each row."""
        found = self._work.operand(expression)
        if isinstance(found, float):
            level = np.full(len(self.relation), found)
            return level, level
        if found not in self._ranges:
            low, high, _ = bounds(self.relation.models[found], self.relation.lo, self.relation.hi)
            if self._lifted:
                # Errors make approximations coarser: a range over the whole row holds for any pieces of it.
                n = int(self.row.max(initial=-1)) + 1
                low, high = group_min(low, self.row, n)[self.row], group_max(high, self.row, n)[self.row]
            self._ranges[found] = low, high
        return self._ranges[found]

    def size(self, name: str) -> FloatArray:
        """Return the largest absolute value of a column in each row."""
        return self._size(Column(name))

    def _size(self, expression: Expression) -> FloatArray:
        low, high = self._range(expression)
        return np.maximum(np.abs(low), np.abs(high))

    def _lifting(self, expression: Expression) -> FloatArray:
        """Return the part of a function's error that its approximation itself added."""
        if expression not in self._added:
            found = self._work.operand(expression)
            err = self.relation.err
            inside = {name: err[name] for name in self.relation.columns.modelled}
            known = err[found] if isinstance(found, str) else np.zeros(len(self.relation))
            caused = self._caused(expression, inside)
            self._added[expression] = np.where(np.isfinite(caused), np.maximum(known - caused, 0.0), known)
        return self._added[expression]

    # -- the rules ------------------------------------------------------------------------------------------

    def error(self, index: int, errors: Errors) -> FloatArray:
        """Return the bound of an expression's error per row, approximations included; infinite without one."""
        with np.errstate(all="ignore"):
            found = self._error(self.expressions[index], errors)
        return np.where(np.isnan(found), np.inf, found)

    def _error(self, e: Expression, errors: Errors) -> FloatArray:
        zero = np.zeros(len(self.relation))
        match e:
            case Column(name):
                return errors.get(name, zero)
            case Constant():
                return zero
            case Negative(operand) | Function("abs", (operand,)):
                return self._error(operand, errors)
            case Arithmetic("+" | "-", left, right):
                return self._error(left, errors) + self._error(right, errors)
            case Arithmetic("*", left, right):
                return self._product(left, right, errors)
            case Arithmetic("/", left, Constant(by)):
                return self._error(left, errors) / abs(float(by))
            case Arithmetic("^", base, Constant(n)):
                return self._power(base, int(n), errors)
            case Function("#span", _):
                dx, dy = (self._error(one, errors) for one in _differences(e))
                return np.hypot(dx, dy)
            case Function("distance2"):
                each = [(self._error(d, errors), self._size(d)) for d in _differences(e)]
                return sum((err * (2.0 * size + err) for err, size in each), zero)
        return self._caused(e, errors) * (1.0 + SHARE) + self._lifting(e)

    def _product(self, left: Expression, right: Expression, errors: Errors) -> FloatArray:
        ea, eb = self._error(left, errors), self._error(right, errors)
        return self._size(left) * eb + self._size(right) * ea + ea * eb

    def _power(self, base: Expression, n: int, errors: Errors) -> FloatArray:
        e, x = self._error(base, errors), self._size(base)
        terms = [(x + e) ** j * x ** (n - 1 - j) for j in range(n)]
        return np.where(e > 0.0, e * np.sum(terms, axis=0), 0.0) if n else np.zeros(len(e))

    def _caused(self, e: Expression, errors: Errors) -> FloatArray:
        """Return the error that a non-polynomial function makes of its operand's error."""
        match e:
            case Function("distance"):
                dx, dy = (self._error(one, errors) for one in _differences(e))
                return np.hypot(dx, dy)
            case Arithmetic("/", _, operand) | Function(_, (operand,)):
                err = self._error(operand, errors)
                low, high = self._range(operand)
        match e:
            case Arithmetic("/"):
                smallest = np.where(low > 0.0, low, np.where(high < 0.0, -high, 0.0))
                return np.where(err < smallest, err / (smallest * (smallest - err)), np.inf)
            case Function("sqrt"):
                clear = (low >= err) & (low > 0.0)
                root = np.sqrt(np.where(clear, low, 1.0)) + np.sqrt(np.where(clear, low - err, 0.0))
                return np.where(clear, err / root, np.sqrt(err))
            case Function("exp"):
                return np.where(high + err > 700.0, np.inf, np.exp(high) * np.expm1(np.minimum(err, 1e3)))
            case Function("log"):
                inside = err < low
                return np.where(inside, -np.log1p(-np.where(inside, err, 0.0) / low), np.inf)
            case Function("sin" | "cos"):
                return np.minimum(err, 2.0)
        raise AssertionError(f"no rule for the error of {e}")


def _as_product(e: Expression) -> Expression:
    """Rewrite ``a / b`` as ``a (1 / b)``, which is how it is evaluated."""
    if isinstance(e, Arithmetic) and e.op == "/" and not isinstance(e.right, Constant):
        return Arithmetic("*", e.left, Arithmetic("/", Constant(1.0), e.right))
    return e


def _is_lifted(e: Expression) -> bool:
    """Return whether an expression is not polynomial, and so is approximated on pieces."""
    if isinstance(e, Arithmetic):
        return e.op == "/" and not isinstance(e.right, Constant)
    return isinstance(e, Function) and e.name not in ("abs", "distance2", SPAN)


def _differences(distance: Expression) -> tuple[Expression, Expression]:
    x1, y1, x2, y2 = distance.parts
    return Arithmetic("-", x1, x2), Arithmetic("-", y1, y2)


def linear_factors(expression: Expression, modelled: Sequence[str]) -> dict[str, float] | None:
    """Return ``|factor|`` of each modelled column of an expression linear in them with constant factors, else None.

    >>> linear_factors(Arithmetic("-", Column("x"), Arithmetic("*", Constant(2), Column("y"))), ("x", "y"))
    {'x': 1.0, 'y': 2.0}
    """

    def factors(e: Expression, by: float) -> dict[str, float] | None:
        match e:
            case Column(name):
                return {name: by} if name in modelled else {}
            case Constant():
                return {}
            case Negative(operand):
                return factors(operand, by)
            case Arithmetic("+" | "-", left, right):
                a, b = factors(left, by), factors(right, by)
                if a is None or b is None:
                    return None
                return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in (*a, *b)}
            case Arithmetic("*", Constant(int() | float() as k), other):
                return factors(other, by * abs(k))
            case Arithmetic("*", other, Constant(int() | float() as k)):
                return factors(other, by * abs(k))
            case Arithmetic("/", other, Constant(int() | float() as k)) if k:
                return factors(other, by / abs(k))
            case Function("#span", _):  # at most the hypotenuse of both differences
                a, b = (factors(one, by) for one in _differences(e))
                if a is None or b is None:
                    return None
                return {name: math.hypot(a.get(name, 0.0), b.get(name, 0.0)) for name in (*a, *b)}
        return None

    return factors(expression, 1.0)


def linear_legs(expression: Expression, modelled: Sequence[str]) -> list[dict[str, float]] | None:
    """Return the factors of the sums whose hypotenuse is an expression's error: two for a distance, one if linear."""
    spans = isinstance(expression, Function) and expression.name == SPAN
    parts = _differences(expression) if spans else (expression,)
    legs = [linear_factors(one, modelled) for one in parts]
    return None if any(one is None for one in legs) else [one for one in legs if one is not None]
