"""Polynomials in ``t`` whose coefficients are sums of products of named attributes.

A term is ``factor · a · b · … · t^power``; terms keep their order, with those of the same names merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

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
)
from pulse.core.fold import Domain
from pulse.operators.functions.registry import rules_of
from pulse.plan.notation import signed_sum, superscript

Term = tuple[int, tuple[str, ...]]
"""The power of t, and the multiplied names, in order."""


@dataclass(frozen=True)
class Symbolic:
    """Terms and their factors, without zeros."""

    terms: Mapping[Term, float]

    @classmethod
    def of(cls, name: str, power: int = 0) -> Symbolic:
        """Return ``name · t^power``."""
        return cls({(power, (name,)): 1})

    @classmethod
    def number(cls, value: float) -> Symbolic:
        """Return a constant."""
        return cls({(0, ()): value} if value else {})

    def plus(self, other: Symbolic, times: float = 1) -> Symbolic:
        """Add a multiple of another polynomial."""
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            terms[term] = terms.get(term, 0) + times * factor
        return Symbolic({term: factor for term, factor in terms.items() if factor})

    def times(self, other: Symbolic) -> Symbolic:
        """Multiply by another polynomial."""
        product = Symbolic({})
        for (p, a), f in self.terms.items():
            for (q, b), g in other.terms.items():
                product = product.plus(Symbolic({(p + q, tuple(sorted((*a, *b)))): f * g}))
        return product

    @property
    def degree(self) -> int:
        """Return the highest power of t."""
        return max((power for power, _ in self.terms), default=0)

    def coefficient(self, power: int) -> list[tuple[tuple[str, ...], float]]:
        """Return the coefficient of a power of t."""
        return [(names, factor) for (p, names), factor in self.terms.items() if p == power]

    def __str__(self) -> str:
        parts = []
        for power in range(self.degree + 1):
            own = self.coefficient(power)
            if not own:
                continue
            t = "" if power == 0 else f"t{superscript(power)}"
            if len(own) == 1 or power == 0:
                parts += [(factor < 0, _product(names, abs(factor), t)) for names, factor in own]
            else:
                inner = signed_sum((factor < 0, _product(names, abs(factor), "")) for names, factor in own)
                parts.append((False, f"({inner})·{t}"))
        return signed_sum(parts)


def _product(names: tuple[str, ...], factor: float, t: str) -> str:
    counted = [name + superscript(count) for name, count in Counter(names).items()]
    parts = [*([] if factor == 1 and (names or t) else [f"{factor:g}"]), *counted, *([t] if t else [])]
    return "·".join(parts)


def symbolic(expression: Expression, column: Callable[[str], Symbolic | None]) -> Symbolic | None:
    """Convert an expression to a polynomial in t, columns replaced by ``column``; None if it is not a polynomial.

    >>> moved = Arithmetic("+", Column("x"), Arithmetic("*", Column("v"), Elapsed()))
    >>> str(symbolic(Arithmetic("*", moved, moved), Symbolic.of))
    'x² + 2·v·x·t + v²·t²'
    """
    return _Polynomials(column).fold(expression)


class _Polynomials(Domain[Symbolic | None]):
    """Polynomials in t; None where there is none."""

    def __init__(self, column: Callable[[str], Symbolic | None]) -> None:
        self._column = column

    def column(self, e: Column) -> Symbolic | None:
        return self._column(e.name)

    def constant(self, e: Constant) -> Symbolic | None:
        return Symbolic.number(e.value) if isinstance(e.value, (int, float)) else None

    def parameter(self, e: Parameter) -> Symbolic:
        return Symbolic.of(str(e))

    def elapsed(self, e: Elapsed) -> Symbolic:
        return Symbolic({(1, ()): 1})

    def negative(self, e: Negative, operand: Symbolic | None) -> Symbolic | None:
        return None if operand is None else Symbolic.number(0).plus(operand, -1)

    def arithmetic(self, e: Arithmetic, left: Symbolic | None, right: Symbolic | None) -> Symbolic | None:
        if left is None or right is None:
            return None
        by = number_of(e.right)
        match e.op:
            case "+":
                return left.plus(right)
            case "-":
                return left.plus(right, -1)
            case "*":
                return left.times(right)
            case "/" if by:
                return Symbolic.number(0).plus(left, 1 / by)
            case "^" if isinstance(by, int) and 0 <= by <= 6:
                return reduce(Symbolic.times, [left] * by, Symbolic.number(1))
        return None

    def function(self, e: Function, arguments: Sequence[Symbolic | None]) -> Symbolic | None:
        expanded = rules_of(e).expanded(e)
        return None if expanded is None else self.fold(expanded)

    def other(self, e: Expression) -> None:
        return None
