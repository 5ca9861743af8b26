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
    renamed,
    transform,
)

Renaming = dict[str, str]
"""Renaming of columns in another plan."""


def normal(expression: Expression) -> Expression:
    """Order the operands of commutative operations.

    These are sums, products, distances (on each axis, and the axes), absolute values and even powers of differences,
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
            turned = _either_sign(left)
            return Arithmetic("*", turned, turned)
        case Arithmetic("+" | "*" as op, left, right):
            return Arithmetic(op, *_sorted(left, right))
        case Arithmetic("^", base, Constant(int() as exponent) as power) if exponent % 2 == 0:
            return Arithmetic("^", _either_sign(base), power)
        case Function("abs", (inner,)):
            return Function("abs", (_either_sign(inner),))
        case Function("distance" | "distance2" as name, (x1, y1, x2, y2)):
            (a, b), (c, d) = sorted((_sorted(x1, x2), _sorted(y1, y2)), key=repr)
            return Function(name, (a, c, b, d))
        case Comparison(relation, left, right):
            first, second = _sorted(left, right)
            return e if (first, second) == (left, right) else Comparison(FLIPPED[relation], first, second)
        case And(operands) | Or(operands):
            return type(e)(_sorted(*operands))
    return e


def _either_sign(e: Expression) -> Expression:
    """Order a difference of which only the size counts."""
    return Arithmetic("-", *_sorted(e.left, e.right)) if isinstance(e, Arithmetic) and e.op == "-" else e


def _sorted(*operands: Expression) -> tuple[Expression, ...]:
    return tuple(sorted(operands, key=repr))


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
