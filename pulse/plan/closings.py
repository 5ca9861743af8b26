"""Find the windows that are evaluated at their closing times only, when results are tuples (semantics 3.8, 7.8).

The results of filters, projections, joins and unions at an instant depend only on their inputs at that instant. So a window
over tuples with only these above it is not needed between the sampled instants. Nor is one over ranges, and its value there
differs from that at nearby instants: a step that begins just as a window closes has no part in it::

    join ── project ── window                 at closing times
                       window over a window   its input at every instant
"""

from __future__ import annotations

from pulse.plan.nodes import Across, Exchange, Filter, Grid, Join, Mirror, Node, Project, Union, Window


def at_closings(plan: Node) -> frozenset[Node]:
    """Return the windows that are needed at the sampled instants only.

    Windows over ranges count only where a query's tuples are evaluated at these instants, not sampled from segments: not below
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
    """Check whether a node's value at an instant may differ from its segments: a window over ranges is below it, with nothing
    between that needs its input at other instants.

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
    """Return the exchanges of a plan for tuples that carry the sampled instants, as points, in place of segments."""
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
    """Check whether a node's results at an instant depend only on its inputs at that instant."""
    if isinstance(node, Join):
        return bool(node.equal)
    if isinstance(node, Exchange):
        return not isinstance(node.by, Grid)
    return isinstance(node, Filter | Project | Mirror | Union | Across)


def on_all_keys(node: Join) -> bool:
    """Check whether a join pairs every key with one at most."""
    left, right = {a for a, _ in node.equal}, {b for _, b in node.equal}
    return (
        left == set(node.left.columns.key_names) and right == set(node.right.columns.key_names) and bool(left)
    )
