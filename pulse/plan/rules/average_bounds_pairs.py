"""Limit the pairs of a join that can matter: those that a predicate above it requires near each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pulse.core.expression import Column, Comparison, Constant, Expression, Function, Parameter, conjuncts
from pulse.operators.node import Duration, Node, transform
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join, Near
from pulse.operators.relational.project import Project
from pulse.operators.windows.window import Window
from pulse.plan.rewriting import below_project


def average_bounds_pairs(plan: Node) -> Node:
    """Turn a bound on the distance of a pair, at the instant or on average over a window, into its join's ``near``.

    An average over a window is at least the smallest value in it. So a pair with ``avg(distance) < k`` was within ``k`` of each
    other some time in the window, and a pair join may omit all others. The predicate stays where it is. ``reach`` is a distance
    of the models: the search for possible answers adds the errors of the positions.

    Only joins without equal keys, where all four coordinates are modelled columns, one point of each side.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> pairs = Join(*(Scan("O", alias, Columns((), ("x", "y"))) for alias in "RS"))
    >>> distance = Function("distance", tuple(map(Column, ("R.x", "R.y", "S.x", "S.y"))))
    >>> average = Window(Project(pairs, (("d", distance),), "t"), "avg", "d", "a", 60_000_000, None)
    >>> print(show(average_bounds_pairs(Filter(average, Comparison("<", Column("a"), Constant(100))))))
    Filter a < 100
      Window a = avg(d) over 1 min
        Project d = distance(R.x, R.y, S.x, S.y); time t
          Join near (R.x, R.y) (S.x, S.y) within 100 over 1 min
            Scan O as R
            Scan O as S
    """
    return transform(plan, _with_near)


def _with_near(node: Node) -> Node:
    if isinstance(node, Filter):
        below = node.input
        for small, bound in _bounds(node.predicate):
            below = _bounded(below, small, bound, 0)
        return node.with_inputs((below,))
    if isinstance(node, Join):
        for small, bound in _bounds(node.condition):
            node = _near(node, small, bound, 0)
    return node


def _bounds(predicate: Expression) -> Iterator[tuple[Expression, Expression]]:
    """Yield expressions that must stay below a constant, with the constant."""
    for one in conjuncts(predicate):
        match one:
            case Comparison("<" | "<=", small, Constant() | Parameter() as bound):
                yield small, bound


def _bounded(node: Node, small: Expression, bound: Expression, window: Duration) -> Node:
    """Set ``near`` in the subtree where ``small < bound`` follows for a distance of pairs; else return it unchanged.

    ``small`` is an expression over the node's columns. ``window`` is that of an average already passed.
    """
    match node:
        case Filter():
            return node.with_inputs((_bounded(node.input, small, bound, window),))
        case Project():
            return node.with_inputs((_bounded(node.input, below_project(small, node), bound, window),))
        case Window(function="avg") if window == 0 and small == Column(node.output):
            return node.with_inputs((_bounded(node.input, Column(node.argument), bound, node.size),))
        case Join():
            return _near(node, small, bound, window)
    return node


def _near(node: Join, small: Expression, bound: Expression, window: Duration) -> Join:
    points = _points(node, small)
    reach = _reach(small, bound)
    if node.equal or points is None or reach is None:
        return node
    if node.near is not None and not _tighter(window, node.near.window, reach, node.near.reach):
        return node
    return replace(node, near=Near(*points, reach, window))


def _tighter(window: Duration, old_window: Duration, reach: Expression, old_reach: Expression) -> bool:
    """Check whether another bound prunes more: one at the instant more than one over a window, then the smaller reach."""
    if (window == 0) != (old_window == 0):
        return window == 0
    return (
        window == old_window
        and isinstance(reach, Constant)
        and isinstance(old_reach, Constant)
        and reach.value < old_reach.value  # type: ignore[operator]
    )


def _points(node: Join, small: Expression) -> tuple[tuple[str, str], tuple[str, str]] | None:
    match small:
        case Function("distance" | "distance2", (Column(x1), Column(y1), Column(x2), Column(y2))):
            left, right = set(node.left.columns.modelled), set(node.right.columns.modelled)
            if {x1, y1} <= left and {x2, y2} <= right:
                return (x1, y1), (x2, y2)
            if {x1, y1} <= right and {x2, y2} <= left:
                return (x2, y2), (x1, y1)
    return None


def _reach(small: Expression, bound: Expression) -> Expression | None:
    squares = isinstance(small, Function) and small.name == "distance2"
    if isinstance(bound, Parameter):
        return None if squares else bound
    if not isinstance(bound, Constant) or isinstance(bound.value, (str, bool)) or bound.value < 0:
        return None
    if not squares:
        return bound
    root = math.sqrt(bound.value)
    return Constant(int(root)) if isinstance(bound.value, int) and root == int(root) else Constant(root)
