"""Compare squares of distances, which are polynomials, with constants instead of the distances, which are not."""

from __future__ import annotations

import math

from pulse.core.expression import FALSE, FLIPPED, TRUE, Comparison, Constant, Expression, Function, transform
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan


def distance_to_squares(plan: Node) -> Node:
    """Rewrite ``distance(…) R k`` in a predicate to ``distance2(…) R k*k``; for ``k < 0`` to a constant.

    Exact (semantics 3.3): in floats, ``sqrt(k*k)`` is ``k`` again, so the solver can recover ``k`` and with it the margins of
    certainty ``(k ± e)²``. Where ``k*k`` overflows or underflows the distance stays. A parameter has no sign yet: the rule is
    for bound plans.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> distance = Function("distance", (Column("S.x"), Column("S.y"), Constant(0), Constant(0)))
    >>> print(show(distance_to_squares(Filter(scan, Comparison("<", distance, Constant(5))))))
    Filter distance2(S.x, S.y, 0, 0) < 25
      Scan S as S
    """
    return transform_plan(plan, lambda node: node.change_predicates(lambda e: transform(e, _squared)))


def _squared(e: Expression) -> Expression:
    match e:
        case Comparison(relation, Constant() as k, Function("distance") as d):
            return _compared(FLIPPED[relation], d, k, e)
        case Comparison(relation, Function("distance") as d, Constant() as k):
            return _compared(relation, d, k, e)
    return e


def _compared(relation: str, distance: Function, k: Constant, e: Expression) -> Expression:
    if isinstance(k.value, (str, bool)):
        return e
    if k.value < 0:
        return TRUE if relation in (">", ">=", "!=") else FALSE
    square = k.value * k.value
    if math.sqrt(square) != k.value:  # overflow or underflow
        return e
    return Comparison(relation, Function("distance2", distance.arguments, distance.plane), Constant(square))
