"""Which windows are asked at their closing times only, when results are asked as tuples (semantics 3.8, 7.8).

Filters, projections, joins and unions give of an instant what their inputs have at that instant. So where nothing but these
lies above a window over tuples, it need not be known between the instants that are asked for::

    join ── project ── window over tuples        at closing times
                       window over a window      its input at every instant
"""

from __future__ import annotations

from pulse.plan.nodes import Filter, Join, Node, Project, Union, Window


def at_closings(plan: Node) -> frozenset[Node]:
    """The windows over tuples that are needed at the instants that are asked for, and at no other.

    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.nodes import Scan
    >>> inner = Window(Scan("S", "S", Columns((), ("x",), points=True)), "sum", "S.x", "a", 10, 10)
    >>> at_closings(inner) == {inner}, at_closings(Window(inner, "max", "a", "b", 10, 10))
    (True, frozenset())
    """
    found: set[Node] = set()
    other: set[Node] = set()

    def visit(node: Node, instants: bool) -> None:
        if isinstance(node, Window) and node.input.columns.points:
            (found if instants else other).add(node)
        own = isinstance(node, Filter | Project | Union) or (isinstance(node, Join) and node.near is None)
        for below in node.inputs:
            visit(below, instants and own)

    visit(plan, True)
    return frozenset(found - other)
