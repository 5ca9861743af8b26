"""Which windows are asked at their closing times only, when results are asked as tuples (semantics 3.8, 7.8).

Filters, projections, joins and unions give of an instant what their inputs have at that instant. So where nothing but these
lies above a window over tuples, it need not be known between the instants that are asked for. Nor need one over ranges, and
it is not the same there as at instants around it: where a step begins just as a window closes, it has no part in it::

    join ── project ── window                 at closing times
                       window over a window   its input at every instant
"""

from __future__ import annotations

from pulse.plan.nodes import Across, Exchange, Filter, Grid, Join, Mirror, Node, Project, Union, Window


def at_closings(plan: Node) -> frozenset[Node]:
    """The windows that are needed at the instants that are asked for, and at no other.

    Those over ranges only where a query's own tuples are evaluated at these instants, not sampled from segments: not below
    joins without equal keys.

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
        passes = isinstance(node, Filter | Project | Union) or (isinstance(node, Join) and node.near is None)
        for below in node.inputs:
            visit(below, instants and passes, evaluated and _of_one_instant(node))

    visit(plan, True, True)
    return frozenset(found - other)


def closes(node: Node) -> bool:
    """Whether what a node is at an instant may differ from what its segments say: a window over ranges is below it, with
    nothing between that needs its input at other instants.

    >>> from pulse.core.columns import Columns
    >>> from pulse.plan.nodes import Scan
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> closes(Across(Window(scan, "max", "S.x", "a", 10, 10), "min", "a", "b", ())), closes(scan)
    (True, False)
    """
    if isinstance(node, Window):
        return not node.input.columns.points
    return _of_one_instant(node) and any(closes(below) for below in node.inputs)


def exchanged_instants(plan: Node) -> frozenset[Exchange]:
    """Of a plan with exchanges, asked as tuples: those over which go the instants asked for, as points, in place of segments."""
    found: set[Exchange] = set()
    other: set[Node] = set()

    def visit(node: Node, instants: bool) -> None:
        if isinstance(node, Exchange):
            if instants and closes(node):
                found.add(node)
            else:
                other.add(node)
        for below in node.inputs:
            visit(below, instants and _of_one_instant(node))

    visit(plan, True)
    return frozenset(found - other)


def _of_one_instant(node: Node) -> bool:
    """Whether what a node gives of an instant is told by what its inputs are at that instant."""
    if isinstance(node, Join):
        return bool(node.equal)
    if isinstance(node, Exchange):
        return not isinstance(node.by, Grid)
    return isinstance(node, Filter | Project | Mirror | Union | Across)


def on_all_keys(node: Join) -> bool:
    """Whether a join pairs every key with one at most."""
    left, right = {a for a, _ in node.equal}, {b for _, b in node.equal}
    return (
        left == set(node.left.columns.key_names) and right == set(node.right.columns.key_names) and bool(left)
    )
