"""Which windows are asked at their closing times only, when results are asked as tuples (semantics 3.8, 7.8).

Filters, projections, joins and unions give of an instant what their inputs have at that instant. So where nothing but these
lies above a window over tuples, it need not be known between the instants that are asked for. Nor need one over ranges, and
it is not the same there as at instants around it: where a step begins just as a window closes, it has no part in it::

    join ── project ── window                 at closing times
                       window over a window   its input at every instant
"""

from __future__ import annotations

from pulse.plan.nodes import Filter, Join, Node, Project, Union, Window


def at_closings(plan: Node) -> frozenset[Node]:
    """The windows that are needed at the instants that are asked for, and at no other.

    Those over ranges only where a query's own tuples are evaluated at these instants, not sampled from segments: below filters,
    projections and joins on all keys.

    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.nodes import Scan
    >>> inner = Window(Scan("S", "S", Columns((), ("x",), points=True)), "sum", "S.x", "a", 10, 10)
    >>> outer = Window(inner, "max", "a", "b", 10, 10)
    >>> at_closings(inner) == {inner}, at_closings(outer) == {outer}
    (True, True)
    """
    found: set[Node] = set()
    other: set[Node] = set()

    def visit(node: Node, instants: bool, evaluated: bool) -> None:
        if isinstance(node, Window):
            (found if (instants if node.input.columns.points else evaluated) else other).add(node)
        row_by_row = isinstance(node, Filter | Project)
        passes = row_by_row or isinstance(node, Union) or (isinstance(node, Join) and node.near is None)
        own = row_by_row or (isinstance(node, Join) and on_all_keys(node))
        for below in node.inputs:
            visit(below, instants and passes, evaluated and own)

    visit(plan, True, True)
    return frozenset(found - other)


def on_all_keys(node: Join) -> bool:
    """Whether a join pairs every key with one at most."""
    left, right = {a for a, _ in node.equal}, {b for _, b in node.equal}
    return (
        left == set(node.left.columns.key_names) and right == set(node.right.columns.key_names) and bool(left)
    )
