"""Replace functions by equal ones that have better rules."""

from __future__ import annotations

from pulse.core.expression import Expression, Function, transform
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan


def simplify_functions(plan: Node) -> Node:
    """Let every function simplify itself: the root of a sum of two squares is a distance.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Arithmetic, Column, Constant
    >>> from pulse.operators.relational.project import Project
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> x, y = Column("S.x"), Column("S.y")
    >>> squares = Arithmetic("+", Arithmetic("^", x, Constant(2)), Arithmetic("*", y, y))
    >>> scan = Scan("S", "S", Columns((), ("x", "y")))
    >>> print(show(simplify_functions(Project(scan, (("r", Function("sqrt", (squares,))),), "t"))))
    Project r = distance(S.x, S.y, 0, 0); time t
      Scan S as S
    """

    def change(expression: Expression) -> Expression:
        return transform(expression, _simplified)

    return transform_plan(plan, lambda node: node.change_predicates(change).change_outputs(change))


def _simplified(e: Expression) -> Expression:
    return rules_of(e).simplified(e) if isinstance(e, Function) else e
