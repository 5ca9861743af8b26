"""Limit the pairs of a join that can matter: those that a predicate above it requires near each other."""

from __future__ import annotations

from pulse.core.expression import Comparison, Constant, Parameter, conjuncts
from pulse.operators.node import Node, transform


def average_bounds_pairs(plan: Node) -> Node:
    """Turn a bound on the distance of a pair, at the instant or on average over a window, into its join's ``near``.

    An average over a window is at least the smallest value in it. So a pair with ``avg(distance) < k`` was within ``k`` of each
    other some time in the window, and a pair join may omit all others. The predicate stays where it is. ``reach`` is a distance
    of the models: the search for possible answers adds the errors of the positions.

    Only joins without equal keys, where all four coordinates are modelled columns, one point of each side.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Function
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.join import Join
    >>> from pulse.operators.relational.project import Project
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
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
    for one in conjuncts(node.selection):
        match one:
            case Comparison("<" | "<=", value, Constant() | Parameter() as bound):
                node = node.bound_pairs(value, bound, 0)
    return node
