"""Differentiate the formulas of MODEL clauses by the elapsed time.

A formula is a polynomial of the time since its segment's start, whose coefficients are attributes there: its derivative is one
too, and its bound is propagated from the bounds of those attributes. A model that was fitted has no such derivative: within its
bound of the truth it may rise where the truth falls.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulse.core.expression import (
    Arithmetic,
    Column,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    Parameter,
    number_of,
    walk,
)
from pulse.core.fold import Domain
from pulse.operators.errors import OperandError

_NONE = Constant(0)


def derivative(formula: Expression) -> Expression:
    """Return the derivative of a formula by the elapsed time, in seconds.

    >>> fall = Arithmetic("-", Column("h"), Arithmetic("*", Constant(5), Arithmetic("^", Elapsed(), Constant(2))))
    >>> str(derivative(fall))
    '-(5 * (2 * t))'
    """
    return _Derivative().fold(formula)


class _Derivative(Domain[Expression]):
    """Derivatives by the elapsed time; zero is :data:`_NONE`."""

    def column(self, e: Column) -> Expression:
        return _NONE

    def constant(self, e: Constant) -> Expression:
        return _NONE

    def parameter(self, e: Parameter) -> Expression:
        return _NONE

    def elapsed(self, e: Elapsed) -> Expression:
        return Constant(1)

    def negative(self, e: Negative, operand: Expression) -> Expression:
        return _NONE if operand == _NONE else Negative(operand)

    def arithmetic(self, e: Arithmetic, left: Expression, right: Expression) -> Expression:
        power = number_of(e.right)
        match e.op:
            case "+":
                return _sum(left, right)
            case "-":
                return _sum(left, self.negative(Negative(e.right), right))
            case "*":
                return _sum(_product(left, e.right), _product(e.left, right))
            case "/" if right == _NONE:
                return _NONE if left == _NONE else Arithmetic("/", left, e.right)
            case "^" if power is not None:
                if power == 0 or left == _NONE:
                    return _NONE
                lower = e.left if power == 2 else Arithmetic("^", e.left, Constant(power - 1))
                return left if power == 1 else _product(left, Arithmetic("*", Constant(power), lower))
        return self.other(e)

    def function(self, e: Function, arguments: Sequence[Expression]) -> Expression:
        timed = any(isinstance(part, Elapsed) for part in walk(e))
        return self.other(e) if timed else _NONE

    def other(self, e: Expression) -> Expression:
        raise OperandError(f"derivative: {e}: expected a polynomial of t")


def _sum(a: Expression, b: Expression) -> Expression:
    if a == _NONE:
        return b
    return a if b == _NONE else Arithmetic("+", a, b)


def _product(a: Expression, b: Expression) -> Expression:
    if _NONE in (a, b):
        return _NONE
    if a == Constant(1):
        return b
    return a if b == Constant(1) else Arithmetic("*", a, b)
