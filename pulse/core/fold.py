"""Fold expressions over domains of values: one recursion, and one class for each meaning that an expression can have.

A domain says what a column, a number, a sum … mean in it: coefficients of a segment, values at instants, bounds of errors, steps
of a program, text. Methods get the node itself beside the values of its parts, because some meanings depend on how a
part is written: a quotient by a number is a polynomial, one by a model is not.

A comparison's sides are not folded: where its truth is found depends on what is compared, and a domain folds them where it needs
them. Nor are the parts of a case: each value counts only where its condition may hold.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pulse.core.expression import (
    NEGATED,
    And,
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    Not,
    Or,
    Parameter,
)

V = TypeVar("V")


class Domain(Generic[V]):
    """What expressions mean; what a domain does not define goes to :meth:`other`.

    >>> class Depth(Domain[int]):
    ...     def other(self, e: Expression) -> int:
    ...         return 0
    ...     def arithmetic(self, e: Arithmetic, left: int, right: int) -> int:
    ...         return 1 + max(left, right)
    >>> Depth().fold(Arithmetic("+", Column("x"), Arithmetic("*", Constant(2), Column("y"))))
    2
    """

    def fold(self, e: Expression) -> V:
        """Return the value of an expression, its parts' first."""
        match e:
            case Column():
                return self.column(e)
            case Constant():
                return self.constant(e)
            case Arithmetic():
                return self.arithmetic(e, self.fold(e.left), self.fold(e.right))
            case Function():
                return self.function(e, [self.fold(one) for one in e.arguments])
            case Negative():
                return self.negative(e, self.fold(e.operand))
            case Comparison():
                return self.comparison(e)
            case Case():
                return self.case(e)
            case And():
                return self.conjunction(e, [self.fold(one) for one in e.operands])
            case Or():
                return self.disjunction(e, [self.fold(one) for one in e.operands])
            case Not():
                return self.negation(e, self.fold(e.operand))
            case Elapsed():
                return self.elapsed(e)
            case Parameter():
                return self.parameter(e)
        return self.other(e)

    def column(self, e: Column) -> V:
        """Return the value of a column."""
        return self.other(e)

    def constant(self, e: Constant) -> V:
        """Return the value of a number, text or truth value."""
        return self.other(e)

    def parameter(self, e: Parameter) -> V:
        """Return the value of a parameter, which most domains expect to be bound."""
        raise AssertionError(f"parameter {e} was not bound")

    def elapsed(self, e: Elapsed) -> V:
        """Return the value of the time since a segment's start."""
        return self.other(e)

    def negative(self, e: Negative, operand: V) -> V:
        """Return the value of ``-operand``."""
        return self.other(e)

    def arithmetic(self, e: Arithmetic, left: V, right: V) -> V:
        """Return the value of a sum, difference, product, quotient or power."""
        return self.other(e)

    def function(self, e: Function, arguments: list[V]) -> V:
        """Return the value of a function."""
        return self.other(e)

    def comparison(self, e: Comparison) -> V:
        """Return the value of a comparison, whose sides are not folded."""
        return self.other(e)

    def case(self, e: Case) -> V:
        """Return the value of a case, whose parts are not folded."""
        return self.other(e)

    def conjunction(self, e: And, operands: list[V]) -> V:
        """Return the value of a conjunction."""
        return self.other(e)

    def disjunction(self, e: Or, operands: list[V]) -> V:
        """Return the value of a disjunction."""
        return self.other(e)

    def negation(self, e: Not, operand: V) -> V:
        """Return the value of a negation."""
        return self.other(e)

    def other(self, e: Expression) -> V:
        """Return the value of what has no method of its own; by default there is none."""
        raise TypeError(f"{type(self).__name__}: expected no {type(e).__name__}, got {e}")


def negated(predicate: Expression) -> Expression:
    """Push a negation down to the comparisons, which have opposites; only what has none gets a NOT.

    Certainty allows it (semantics 3.9 is symmetric under negation), and SQL's three-valued logic too: a comparison with a null
    is not true, and neither is its opposite.

    >>> str(negated(And((Comparison("<", Column("x"), Constant(1)), Not(Column("y"))))))
    '(x >= 1 or y)'
    """
    match predicate:
        case Not():
            return predicate.operand
        case Comparison():
            return Comparison(NEGATED[predicate.relation], predicate.left, predicate.right)
        case And():
            return Or(tuple(map(negated, predicate.operands)))
        case Or():
            return And(tuple(map(negated, predicate.operands)))
        case Constant(bool() as value):
            return Constant(not value)
    return Not(predicate)
