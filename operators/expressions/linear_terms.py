"""Write an expression as a sum of terms with constant factors."""

from __future__ import annotations

from pulse.core.expression import Arithmetic, Constant, Expression, Negative, number_of
from pulse.core.fold import Domain

Terms = list[tuple[float, Expression]]
"""Factors and what they multiply; constants, which have no error, are left out."""


def linear_terms(expression: Expression) -> Terms:
    """Return a sum as its terms with their factors; a term that is no sum or multiple of one stays whole.

    >>> from pulse.core.expression import Column
    >>> x, y = Column("x"), Column("y")
    >>> [(factor, str(one)) for factor, one in linear_terms(Arithmetic("-", x, Arithmetic("*", Constant(2), y)))]
    [(1.0, 'x'), (-2.0, 'y')]
    """
    return _LinearTerms().fold(expression)


class _LinearTerms(Domain[Terms]):
    def constant(self, e: Constant) -> Terms:
        return []

    def negative(self, e: Negative, operand: Terms) -> Terms:
        return _times(-1.0, operand)

    def arithmetic(self, e: Arithmetic, left: Terms, right: Terms) -> Terms:
        before, after = number_of(e.left), number_of(e.right)
        match e.op:
            case "+":
                return left + right
            case "-":
                return left + _times(-1.0, right)
            case "*" if before is not None:
                return _times(before, right)
            case "*" if after is not None:
                return _times(after, left)
            case "/" if after:
                return [(factor / after, one) for factor, one in left]
        return self.other(e)

    def other(self, e: Expression) -> Terms:
        return [(1.0, e)]


def _times(factor: float, terms: Terms) -> Terms:
    return [(factor * own, one) for own, one in terms]
