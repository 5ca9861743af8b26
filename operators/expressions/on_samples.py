"""Evaluate expressions on samples: a value at each instant and the bound of its error (semantics 3.3, 4.2).

All bounds hold for every truth within the inputs' bounds:

==================  =============================================================================================
``x + y, x - y``    ``ex + ey``
``x y``             ``|x| ey + |y| ex + ex ey``; ``x ^ n`` likewise, factor by factor
``x / y``           ``(|x| ey + |y| ex) / (|y| (|y| - ey))``; an error where ``|y| <= ey``
``sqrt x``          the larger deviation of ``sqrt(x ± ex)``, clipped at zero; an error where ``x + ex < 0``
``exp x, log x``    ``exp(x) (exp(ex) - 1)``, ``-log(1 - ex / x)``; log is an error where ``x <= ex``
``sin x, cos x``    ``min(ex, 2)``
``distance``        ``hypot(ex, ey)`` of the coordinates' differences; its square ``2 d e + e^2``
==================  =============================================================================================

The rounding of each operation is added (:mod:`pulse.kernels.rounding`): for a sum its exact rounding error, zero where the sum
is exact; for others a unit in the last place of the result, or a few for a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.certainty import ABSENT
from pulse.core.decimals import as_doubles
from pulse.core.expression import Arithmetic, Column, Constant, Expression, Function, Negative
from pulse.core.schema import Role
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.polynomial.lift import NEGATIVE_UNITS, UNIT
from pulse.kernels.rounding import FUNCTION, GROWN, errors_of
from pulse.operators.data.samples import Samples
from pulse.operators.errors import DomainError, MissingValueError, OperandError
from pulse.operators.expressions.plane_distortion import distance_error, distortion

Number = tuple[Any, Any]
"""A value and the bound of its error: each one float, or one per sample."""


class Numbers:
    """An evaluator of expressions on the samples of one arc; equal parts are evaluated once."""

    def __init__(self, samples: Samples, operator: str, *, null: float | None = None) -> None:
        self.samples, self.operator = samples, operator
        self._null = null  # replaces a null, if the caller handles the samples that have one
        self._cache: dict[Expression, Number] = {}

    def result(self, expression: Expression) -> tuple[FloatArray, FloatArray]:
        """Return value and bound per sample, finite where there is a sample."""
        value, err = self.number(expression)
        n = len(self.samples)
        value = np.full(n, value) if np.ndim(value) == 0 else value
        err = np.full(n, err) if np.ndim(err) == 0 else err
        if not isinstance(expression, Column):
            fine = np.isfinite(value)
            if not fine.all():
                self._refuse(~fine, expression, "is beyond the range of floating-point numbers")
                value = np.where(fine, value, 0.0)
        return value, err

    def number(self, expression: Expression) -> Number:
        """Return value and bound; either may be one float for all samples."""
        if expression not in self._cache:
            with np.errstate(all="ignore"):  # absent samples may hold any value; others are checked
                self._cache[expression] = self._evaluate(expression)
        return self._cache[expression]

    def _evaluate(self, expression: Expression) -> Number:
        match expression:
            case Constant(value) if not isinstance(value, (bool, str)):
                return float(value), 0.0
            case Column(name):
                return self._column(name)
            case Negative(operand):
                x, ex = self.number(operand)
                return -x, ex
            case Arithmetic("^", base, exponent):
                return self._power(self.number(base), exponent, expression)
            case Arithmetic("/", left, right):
                return self._quotient(self.number(left), self.number(right), expression)
            case Arithmetic(op, left, right):
                (x, ex), (y, ey) = self.number(left), self.number(right)
                if op == "*":
                    return self._product((x, ex), (y, ey))
                value = _sum(x, y, np.add if op == "+" else np.subtract)
                return value, self._errors(op, x, ex, y, ey)
            case Function(name, arguments) if name in ("distance", "distance2"):
                dx, dy, e = self.offsets(arguments)
                size = np.hypot(dx, dy)
                if expression.plane is not None:
                    e = distance_error(e, size, self.distortion(expression)) * GROWN
                if name == "distance":
                    return size, e + FUNCTION * size
                square = dx * dx + dy * dy
                return square, (2.0 * size + e) * e * GROWN + FUNCTION * square
            case Function(name, (argument,)):
                return self._function(name, self.number(argument), expression)
        raise OperandError(f"{self.operator}: expected a number, got {expression}")

    def offsets(self, arguments: Sequence[Expression]) -> tuple[Any, Any, Any]:
        """Return the differences of a distance's coordinates, and the bound of the distance's error."""
        (x1, a1), (y1, b1), (x2, a2), (y2, b2) = (self.number(one) for one in arguments)
        err = np.hypot(self._errors("-", x1, a1, x2, a2), self._errors("-", y1, b1, y2, b2))
        return x1 - x2, y1 - y2, err * GROWN

    def distortion(self, distance: Function) -> Any:
        """Return the relative error of a distance due to the plane of its positions; 0 without one."""
        if distance.plane is None:
            return 0.0
        spans = [(value, value) for value, _ in map(self.number, distance.arguments)]
        return distortion(distance.plane, spans[0::2], spans[1::2])

    def _errors(self, op: str, x: Any, ex: Any, y: Any, ey: Any) -> Any:
        if any(map(np.ndim, (x, ex, y, ey))):
            return errors_of(op, x, ex, y, ey, len(self.samples))
        return float(errors_of(op, x, ex, y, ey, 1)[0])

    def _product(self, a: Number, b: Number) -> Number:
        (x, ex), (y, ey) = a, b
        return x * y, self._errors("*", x, ex, y, ey)

    def _column(self, name: str) -> Number:
        samples = self.samples
        role = samples.columns.role(name)
        if role is Role.MODELLED:
            return samples.values[name], samples.err[name]
        if role is Role.TIME:
            raise OperandError(
                f"{self.operator}: the time '{name}' is not a number to compute with; compare it with an instant"
            )
        values = numbers_of(samples, name, self.operator)
        missing = np.isnan(values)
        if missing.any():
            if self._null is None:
                self._refuse_null(missing, name)
            values = np.where(missing, 1.0 if self._null is None else self._null, values)
        return values, 0.0

    def _refuse_null(self, missing: BoolArray, name: str) -> None:
        wrong = np.flatnonzero(missing & (self.samples.certainty != ABSENT))
        if len(wrong):
            raise MissingValueError(
                f"{self.operator}: '{name}' is null (or not a number) for {self.samples.where(int(wrong[0]))}; "
                f"filter such rows away first, by a comparison of '{name}'"
            )

    def _refuse(self, bad: Any, expression: Expression, why: str) -> None:
        """Raise if ``bad`` holds for any sample that is not ABSENT."""
        wrong = np.flatnonzero(np.broadcast_to(bad, len(self.samples)) & (self.samples.certainty != ABSENT))
        if len(wrong):
            raise DomainError(f"{self.operator}: {expression} {why} for {self.samples.where(int(wrong[0]))}")

    def _power(self, base: Number, exponent: Expression, expression: Expression) -> Number:
        n, _ = self.number(exponent)
        if np.ndim(n) or n < 0 or n != int(n):
            raise OperandError(
                f"{self.operator}: {expression}: expected a whole number, 0 or more, as the power; "
                "sqrt(…) is the root, and 1 / (…) the inverse"
            )
        if n == 0:
            return 1.0, 0.0
        result = base
        for _ in range(int(n) - 1):
            result = self._product(result, base)
        return result

    def _with_rounding(self, x: Any, e: Any, expression: Expression) -> Any:
        """Widen the bound of a root's operand by its rounding where it is below zero.

        A variance of equal values is a difference of large numbers, and zero only up to their rounding.
        """
        assert isinstance(expression, Function)
        if not np.any(x + e < 0.0):
            return e
        return np.where(x < 0.0, e + NEGATIVE_UNITS * UNIT * self._size_of_terms(expression.arguments[0]), e)

    def _size_of_terms(self, expression: Expression) -> Any:
        """Bound the sum of the absolute terms of an expression, which its rounding is proportional to."""
        match expression:
            case Negative(operand):
                return self._size_of_terms(operand)
            case Arithmetic("+" | "-", left, right):
                return self._size_of_terms(left) + self._size_of_terms(right)
            case Arithmetic("*", left, right):
                return self._size_of_terms(left) * self._size_of_terms(right)
            case Arithmetic("/", left, Constant() as right):
                return self._size_of_terms(left) / np.abs(self.number(right)[0])
            case Arithmetic("^", base, exponent):
                return self._size_of_terms(base) ** self.number(exponent)[0]
        value, err = self.number(expression)
        return np.abs(value) + err

    def _quotient(self, left: Number, right: Number, expression: Expression) -> Number:
        (x, ex), (y, ey) = left, right
        if np.ndim(y) == 0 and y == 0.0:
            raise DomainError(f"{self.operator}: {expression} divides by zero")
        size = np.abs(y)
        if np.ndim(y):
            self._refuse(
                size <= ey,
                expression,
                "divides by a value that may be zero within its error bound (filter it away from zero first)",
            )
        return x / y, self._errors("/", x, ex, y, ey)

    def _function(self, name: str, argument: Number, expression: Expression) -> Number:
        x, e = argument
        match name:
            case "abs":
                return np.abs(x), e
            case "sqrt":
                e = self._with_rounding(x, e, expression)
                self._refuse(
                    x + e < 0.0,
                    expression,
                    "is the root of a value below zero by more than its error bound (filter it away first: … >= 0)",
                )
                root = np.sqrt(np.maximum(x, 0.0))
                above = np.maximum(np.sqrt(np.maximum(x + e, 0.0)) - root, 0.0)
                return root, np.maximum(above, _below(root, x, e)) * GROWN + FUNCTION * root
            case "exp":
                value = np.exp(x)
                return value, value * (np.expm1(e) * GROWN + FUNCTION)
            case "log":
                self._refuse(
                    (x <= e),
                    expression,
                    "is the logarithm of a value that may be zero or less within its error bound",
                )
                value = np.log(x)
                return value, FUNCTION * np.abs(value) - np.log1p(-e / x) * (1.0 + FUNCTION)
            case "sin" | "cos":
                value = (np.sin if name == "sin" else np.cos)(x)
                return value, np.minimum(e, 2.0) + FUNCTION * np.abs(value)
        raise OperandError(f"{self.operator}: there is no function '{name}'")


def _sum(x: Any, y: Any, of: np.ufunc) -> Any:
    """Add or subtract; arrays go into pooled buffers, since they are large and short-lived."""
    return of(x, y, out=recycled(len(x))) if np.ndim(x) and np.ndim(y) else of(x, y)


def _below(root: Any, x: Any, e: Any) -> Any:
    """Compute ``sqrt(x) - sqrt(x - e)``, or ``sqrt(x)`` where ``x < e``, without cancellation."""
    low = np.sqrt(np.maximum(x - e, 0.0))
    return np.where(
        x >= e, np.divide(e, root + low, where=root + low > 0.0, out=np.zeros(np.shape(root))), root
    )


def numbers_of(samples: Samples, name: str, operator: str) -> FloatArray:
    """Return a key or unmodelled column as one float per sample, NaN for null; fail if it holds no numbers."""
    per_group = name in samples.columns.key_names
    column = samples.keys[samples.columns.key_names.index(name)] if per_group else samples.unmodelled[name]
    column = plain(column)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise OperandError(f"{operator}: '{name}' holds {kind}; expected numbers to compute with")
    values: FloatArray = as_doubles(column, safe=False).to_numpy(zero_copy_only=False)
    return values[samples.of_group] if per_group else values


def plain(column: pa.Array) -> pa.Array:
    """Decode the dictionary of a column."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
