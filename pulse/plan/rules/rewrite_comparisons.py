"""Compare what is easier to solve than a function itself with a number."""

from __future__ import annotations

from pulse.core.expression import Comparison, Constant, Expression, Function, transform
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan


def rewrite_comparisons(plan: Node) -> Node:
    """Let functions in predicates rewrite their comparison with a number: of distances the squares, polynomials, are compared.

    A parameter has no value yet: the rule is for bound plans.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> distance = Function("distance", (Column("S.x"), Column("S.y"), Constant(0), Constant(0)))
    >>> print(show(rewrite_comparisons(Filter(scan, Comparison("<", distance, Constant(5))))))
    Filter distance2(S.x, S.y, 0, 0) < 25
      Scan S as S
    """
    return transform_plan(plan, lambda node: node.change_predicates(lambda e: transform(e, _rewritten)))


def _rewritten(e: Expression) -> Expression:
    if not isinstance(e, Comparison):
        return e
    turned = e.with_constant_last
    if not (isinstance(turned.left, Function) and isinstance(turned.right, Constant)):
        return e
    return rules_of(turned.left).compared(turned.left, turned.relation, turned.right) or e
