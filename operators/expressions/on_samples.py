"""Evaluate expressions on samples: a value at each instant and the bound of its error (semantics 3.3, 4.2).

All bounds hold for every truth within the inputs' bounds:

==================  =============================================================================================
``x + y, x - y``    ``ex + ey``
``x y``             ``|x| ey + |y| ex + ex ey``; ``x ^ n`` likewise, factor by factor
``x / y``           ``(|x| ey + |y| ex) / (|y| (|y| - ey))``; an error where ``|y| <= ey``
==================  =============================================================================================

Functions have rules of their own (:mod:`pulse.operators.functions`).

The rounding of each operation is added (:mod:`pulse.kernels.rounding`): for a sum its exact rounding error, zero where the sum
is exact; for others a unit in the last place of the result, or a few for a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.certainty import ABSENT, CertaintyArray
from pulse.core.expression import (
    Arithmetic,
    Case,
    Column,
    Constant,
    Expression,
    Function,
    Negative,
    number_of,
)
from pulse.core.fold import Domain
from pulse.core.schema import Role
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.rounding import errors_of
from pulse.operators.data.samples import Samples
from pulse.operators.errors import DomainError, MissingValueError, OperandError
from pulse.operators.expressions.by_value import numbers_of
from pulse.operators.functions.registry import rules_of

Number = tuple[Any, Any]
"""A value and the bound of its error: each one float, or one per sample."""


class Numbers(Domain[Number]):
    """An evaluator of expressions on the samples of one arc; equal parts are evaluated once."""

    def __init__(self, samples: Samples, operator: str, *, null: float | None = None) -> None:
        self.samples, self.operator = samples, operator
        self._null = null  # replaces a null, if the caller handles the samples that have one
        self._cache: dict[Expression, Number] = {}

    def result(self, expression: Expression) -> tuple[FloatArray, FloatArray]:
        """Return value and bound per sample, finite where there is a sample."""
        value, err = self.arrays(*self.fold(expression))
        if not isinstance(expression, Column):
            fine = np.isfinite(value)
            if not fine.all():
                self.refuse(~fine, expression, "is beyond the range of floating-point numbers")
                value = np.where(fine, value, 0.0)
        return value, err

    def fold(self, e: Expression) -> Number:
        """Return value and bound; either may be one float for all samples."""
        if e not in self._cache:
            with np.errstate(all="ignore"):  # absent samples may hold any value; others are checked
                self._cache[e] = super().fold(e)
        return self._cache[e]

    def magnitude_of(self, e: Expression) -> Any:
        """Return the largest absolute value within the bound."""
        value, err = self.fold(e)
        return np.abs(value) + err

    def arrays(self, *numbers: Any) -> Any:
        """Return numbers with an entry for each sample."""
        n = len(self.samples)
        return [np.full(n, x, np.float64) if np.ndim(x) == 0 else x for x in numbers]

    def always(self, value: bool) -> CertaintyArray:
        """Return how certainly something holds that is always true, or never."""
        return self.samples.certainty.copy() if value else np.zeros(len(self.samples), np.uint8)

    def constant(self, e: Constant) -> Number:
        value = number_of(e)
        return self.other(e) if value is None else (float(value), 0.0)

    def negative(self, e: Negative, operand: Number) -> Number:
        x, ex = operand
        return -x, ex

    def arithmetic(self, e: Arithmetic, left: Number, right: Number) -> Number:
        match e.op:
            case "^":
                return self._power(left, right, e)
            case "/":
                return self._quotient(left, right, e)
            case "*":
                return self._product(left, right)
        (x, ex), (y, ey) = left, right
        return _sum(x, y, np.add if e.op == "+" else np.subtract), self.errors(e.op, x, ex, y, ey)

    def function(self, e: Function, arguments: Sequence[Number]) -> Number:
        return rules_of(e).samples(self, e, arguments)

    def case(self, e: Case) -> Number:
        from pulse.operators.expressions.case import (
            case_of_numbers,  # it decides predicates, which are evaluated here
        )

        return case_of_numbers(self, e)

    def other(self, e: Expression) -> NoReturn:
        raise OperandError(f"{self.operator}: expected a number, got {e}")

    def errors(self, op: str, x: Any, ex: Any, y: Any, ey: Any) -> Any:
        """Return the bound of ``x op y``, its rounding included."""
        if any(map(np.ndim, (x, ex, y, ey))):
            return errors_of(op, x, ex, y, ey, len(self.samples))
        return float(errors_of(op, x, ex, y, ey, 1)[0])

    def _product(self, a: Number, b: Number) -> Number:
        (x, ex), (y, ey) = a, b
        return x * y, self.errors("*", x, ex, y, ey)

    def column(self, e: Column) -> Number:
        samples, name = self.samples, e.name
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

    def refuse(self, bad: Any, expression: Expression, why: str) -> None:
        """Raise if ``bad`` holds for any sample that is not ABSENT."""
        wrong = np.flatnonzero(np.broadcast_to(bad, len(self.samples)) & (self.samples.certainty != ABSENT))
        if len(wrong):
            raise DomainError(f"{self.operator}: {expression} {why} for {self.samples.where(int(wrong[0]))}")

    def _power(self, base: Number, exponent: Number, expression: Expression) -> Number:
        n, _ = exponent
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

    def _quotient(self, left: Number, right: Number, expression: Expression) -> Number:
        (x, ex), (y, ey) = left, right
        if np.ndim(y) == 0 and y == 0.0:
            raise DomainError(f"{self.operator}: {expression} divides by zero")
        size = np.abs(y)
        if np.ndim(y):
            self.refuse(
                size <= ey,
                expression,
                "divides by a value that may be zero within its error bound (filter it away from zero first)",
            )
        return x / y, self.errors("/", x, ex, y, ey)


def _sum(x: Any, y: Any, of: np.ufunc) -> Any:
    """Add or subtract; arrays go into pooled buffers, since they are large and short-lived."""
    return of(x, y, out=recycled(len(x))) if np.ndim(x) and np.ndim(y) else of(x, y)
