"""Recognise expressions that are equal except for the order of operands and for names."""

from __future__ import annotations

from pulse.core.expression import (
    FLIPPED,
    And,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Or,
    in_order,
    renamed,
    transform,
)
from pulse.operators.functions.absolute import either_sign
from pulse.operators.functions.registry import rules_of

Renaming = dict[str, str]
"""Renaming of columns in another plan."""


def normal(expression: Expression) -> Expression:
    """Order the operands of commutative operations.

    These are sums, products, even powers of differences, functions that do not depend on an order of their arguments,
    comparisons either way round, and connectives. Nothing is reassociated: expressions with one normal form have one value, to
    the last bit.

    >>> from pulse.core.expression import Column
    >>> x, y = Column("x"), Column("y")
    >>> normal(Comparison("<", Arithmetic("+", x, y), x)) == normal(Comparison(">", x, Arithmetic("+", y, x)))
    True
    >>> normal(Arithmetic("-", x, y)) == normal(Arithmetic("-", y, x))
    False
    """
    return transform(expression, _ordered)


def _ordered(e: Expression) -> Expression:
    match e:
        case Arithmetic("*", Arithmetic("-") as left, right) if left == right:
            turned = either_sign(left)
            return Arithmetic("*", turned, turned)
        case Arithmetic("+" | "*" as op, left, right):
            return Arithmetic(op, *in_order(left, right))
        case Arithmetic("^", base, Constant(int() as exponent) as power) if exponent % 2 == 0:
            return Arithmetic("^", either_sign(base), power)
        case Function():
            return rules_of(e).ordered(e)
        case Comparison(relation, left, right):
            first, second = in_order(left, right)
            return e if (first, second) == (left, right) else Comparison(FLIPPED[relation], first, second)
        case And(operands) | Or(operands):
            return type(e)(in_order(*operands))
    return e


def called(expression: Expression, names: Renaming) -> Expression:
    """Rename the columns of an expression."""
    return renamed(expression, {old: Column(new) for old, new in names.items()})


def equal_as(a: Expression, b: Expression, names: Renaming) -> bool:
    """Check whether one expression equals the other under renaming."""
    return normal(called(a, names)) == normal(b)


def swaps_of(exchanged: Renaming, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return each pair of exchanged columns once, in the order of the columns.

    >>> swaps_of({"a": "b", "b": "a"}, ("b", "c", "a"))
    (('b', 'a'),)
    """
    places = {name: i for i, name in enumerate(names)}
    return tuple(
        (name, exchanged[name])
        for name in names
        if name in exchanged and places[name] < places[exchanged[name]]
    )
