"""Recognise equal expressions in another order, and equal plans over another alias."""

from __future__ import annotations

from dataclasses import replace

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
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.window import Window

Names = dict[str, str]
"""Names of columns in another plan."""


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


def called(expression: Expression, names: Names) -> Expression:
    """Rename the columns of an expression."""
    return renamed(expression, {old: Column(new) for old, new in names.items()})


def equal_as(a: Expression, b: Expression, names: Names) -> bool:
    """Check whether one expression equals the other under renaming."""
    return normal(called(a, names)) == normal(b)


def same_but_for_names(left: Node, right: Node) -> Names | None:
    """Return the names of the left plan's columns (and time) on the right, if both are equal except for names; else None."""
    match left, right:
        case Scan(), Scan():
            return _same_scans(left, right)
        case Filter(), Filter():
            names = same_but_for_names(left.input, right.input)
            return names if names is not None and equal_as(left.predicate, right.predicate, names) else None
        case Window(), Window():
            names = same_but_for_names(left.input, right.input)
            as_right = replace(left, input=right.input, argument="", output="")
            if names is None or as_right != replace(right, argument="", output=""):
                return None
            return _by_place(left, right) if names[left.argument] == right.argument else None
        case Project(), Project():
            names = same_but_for_names(left.input, right.input)
            if names is None or len(left.outputs) != len(right.outputs):
                return None
            pairs = zip(left.outputs, right.outputs, strict=True)
            same = all(equal_as(a, b, names) for (_, a), (_, b) in pairs)
            return _by_place(left, right) if same else None
    return None


def _same_scans(left: Scan, right: Scan) -> Names | None:
    stored = (*left.stored.names, left.stored.time, *(name for name, _ in left.models))
    names = {f"{left.alias}.{name}": f"{right.alias}.{name}" for name in stored}
    models = tuple((name, called(expression, names)) for name, expression in left.models)
    as_right = replace(left, alias=right.alias, models=models, keys=right.keys)
    same = as_right == right and equal_as(left.keys, right.keys, names)
    return _by_place(left, right) if same else None


def _by_place(left: Node, right: Node) -> Names:
    a, b = left.columns, right.columns
    return dict(zip((*a.names, a.time), (*b.names, b.time), strict=True))
