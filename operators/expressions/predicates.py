"""Fold predicates: comparisons under AND and OR, with negations pushed down to the comparisons first.

So nothing is complemented, and a comparison with a null is false as is its opposite: for predicates in this form that equals
SQL's three-valued logic, where a filter keeps only true rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import NoReturn

from pulse.core.columns import Columns
from pulse.core.expression import (
    TRUE,
    And,
    Case,
    Column,
    Comparison,
    Constant,
    Expression,
    Not,
    Or,
    Parameter,
    columns_of,
    transform,
)
from pulse.core.fold import Domain, V, negated
from pulse.operators.errors import OperandError


class Truth(Domain[V]):
    """A domain of truths: of comparisons, combined by AND and OR. Its predicates are :func:`positive`."""

    def always(self, value: bool) -> V:
        """Return the value of what is true, or false, everywhere."""
        raise NotImplementedError

    def both(self, a: V, b: V) -> V:
        """Return the value of ``a AND b``."""
        raise NotImplementedError

    def either(self, a: V, b: V) -> V:
        """Return the value of ``a OR b``."""
        raise NotImplementedError

    def constant(self, e: Constant) -> V:
        return self.always(bool(e.value))

    def conjunction(self, e: And, operands: Sequence[V]) -> V:
        return reduce(self.both, operands) if operands else self.always(True)

    def disjunction(self, e: Or, operands: Sequence[V]) -> V:
        return reduce(self.either, operands) if operands else self.always(False)


def positive(predicate: Expression) -> Expression:
    """Rewrite a predicate without NOT, as comparisons and truth values under AND and OR.

    >>> str(positive(Not(Or((Column("open"), Comparison("=", Column("x"), Constant(1)))))))
    '(open != True and x != 1)'
    """
    return _Positive().fold(predicate)


class _Positive(Domain[Expression]):
    def column(self, e: Column) -> Expression:
        return Comparison("=", e, TRUE)

    def constant(self, e: Constant) -> Expression:
        return e if isinstance(e.value, bool) else self.other(e)

    def comparison(self, e: Comparison) -> Expression:
        return e

    def conjunction(self, e: And, operands: Sequence[Expression]) -> Expression:
        return And(tuple(operands))

    def disjunction(self, e: Or, operands: Sequence[Expression]) -> Expression:
        return Or(tuple(operands))

    def negation(self, e: Not, operand: Expression) -> Expression:
        return negated(operand)

    def other(self, e: Expression) -> NoReturn:
        raise OperandError(f"filter: expected a predicate, got {e}")


def comparisons_of(predicate: Expression) -> tuple[Comparison, ...]:
    """Return the comparisons of a predicate, each once; not those within a compared value."""
    return tuple(dict.fromkeys(_Comparisons().fold(predicate)))


def computed_columns(e: Expression) -> set[str]:
    """Return the columns that a value is computed from; not those of a case, which handles its own nulls."""
    return columns_of(transform(e, lambda one: TRUE if isinstance(one, Case) else one))


class _Comparisons(Domain[tuple[Comparison, ...]]):
    def comparison(self, e: Comparison) -> tuple[Comparison, ...]:
        return (e,)

    def conjunction(self, e: And, operands: Sequence[tuple[Comparison, ...]]) -> tuple[Comparison, ...]:
        return sum(operands, ())

    def disjunction(self, e: Or, operands: Sequence[tuple[Comparison, ...]]) -> tuple[Comparison, ...]:
        return sum(operands, ())

    def negation(self, e: Not, operand: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
        return operand

    def parameter(self, e: Parameter) -> tuple[Comparison, ...]:
        return ()

    def other(self, e: Expression) -> tuple[Comparison, ...]:
        return ()


def only_mentions(expression: Expression, names: Collection[str]) -> bool:
    """Check that no other columns occur."""
    return columns_of(expression) <= set(names)


def equates_model(predicate: Expression, columns: Columns) -> bool:
    """Check whether a predicate equates a modelled attribute with something: it then holds at single instants."""
    modelled = set(columns.modelled)
    return any(one.relation == "=" and columns_of(one) & modelled for one in comparisons_of(predicate))


def compares_keys(predicate: Expression, keys: Collection[str]) -> bool:
    """Check whether a predicate consists of comparisons of one of the keys with a constant or parameter."""
    return _ComparesKeys(keys).fold(predicate)


class _ComparesKeys(Domain[bool]):
    def __init__(self, keys: Collection[str]) -> None:
        self._keys = keys

    def comparison(self, e: Comparison) -> bool:
        names = [one.name for one in e.parts if isinstance(one, Column)]
        fixed = any(isinstance(one, (Constant, Parameter)) for one in e.parts)
        return fixed and len(names) == 1 and names[0] in self._keys

    def conjunction(self, e: And, operands: Sequence[bool]) -> bool:
        return all(operands)

    def disjunction(self, e: Or, operands: Sequence[bool]) -> bool:
        return all(operands)

    def negation(self, e: Not, operand: bool) -> bool:
        return operand

    def parameter(self, e: Parameter) -> bool:
        return False

    def other(self, e: Expression) -> bool:
        return False
