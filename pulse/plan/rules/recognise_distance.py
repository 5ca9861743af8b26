"""Recognise the root of a sum of two squares as a distance."""

from __future__ import annotations

from pulse.core.expression import Arithmetic, Column, Constant, Expression, Function, transform
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan


def recognise_distance(plan: Node) -> Node:
    """Rewrite ``sqrt((a-b)^2 + (c-d)^2)`` to ``distance(a, c, b, d)``, and ``abs`` of a distance to the distance.

    Squares may be written as powers or products, of differences, of absolute values, or of single values (distance from zero).
    The second difference is turned so that both points are of the same alias each: (a-b)² = (b-a)².

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.project import Project
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> x, y = Column("S.x"), Column("S.y")
    >>> squares = Arithmetic("+", Arithmetic("^", x, Constant(2)), Arithmetic("*", y, y))
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> print(show(recognise_distance(Project(scan, (("r", Function("sqrt", (squares,))),), "t"))))
    Project r = distance(S.x, S.y, 0, 0); time t
      Scan S as S
    """

    def change(expression: Expression) -> Expression:
        return transform(expression, _recognised)

    return transform_plan(plan, lambda node: node.change_predicates(change).change_outputs(change))


def _recognised(e: Expression) -> Expression:
    match e:
        case Function("abs", (Function("distance"),)):
            return e.arguments[0]
        case Function("sqrt", (Function("distance2", arguments, plane),)):
            return Function("distance", arguments, plane)
        case Function("sqrt", (Arithmetic("+", left, right),)):
            first, second = _squared(left), _squared(right)
            if first is not None and second is not None:
                return _distance(_difference(first), _difference(second))
    return e


def _squared(e: Expression) -> Expression | None:
    """Return the base of a square, without the absolute value around it; None if it is not a square."""
    match e:
        case Arithmetic("^", base, Constant(2)):
            inner = base
        case Arithmetic("*", base, other) if base == other:
            inner = base
        case _:
            return None
    return inner.arguments[0] if isinstance(inner, Function) and inner.name == "abs" else inner


def _difference(e: Expression) -> tuple[Expression, Expression]:
    return (e.left, e.right) if isinstance(e, Arithmetic) and e.op == "-" else (e, Constant(0))


def _distance(first: tuple[Expression, Expression], second: tuple[Expression, Expression]) -> Expression:
    (a, b), (c, d) = first, second
    here, there = _alias(a), _alias(b)
    if (here is not None and here == _alias(d) and here != _alias(c)) or (
        here is None and there is not None and there == _alias(c) and there != _alias(d)
    ):
        c, d = d, c
    return Function("distance", (a, c, b, d))


def _alias(e: Expression) -> str | None:
    """Return the part of a column's name before the dot."""
    return e.name.rpartition(".")[0] if isinstance(e, Column) else None
