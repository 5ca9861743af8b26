"""Find the windows that are evaluated at their closing times only, when results are tuples (semantics 3.8, 7.8).

The results of filters, projections, joins and unions at an instant depend only on their inputs at that instant. So a window
over tuples with only these above it is not needed between the sampled instants. Nor is one over ranges, and its value there
differs from that at nearby instants: a step that begins just as a window closes has no part in it::

    join ── project ── window                 at closing times
                       window over a window   its input at every instant
"""

from __future__ import annotations

from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange


def at_closings(plan: Node) -> frozenset[Node]:
    """Return the windows that are needed at the sampled instants only.

    Windows over ranges count only where a query's tuples are evaluated at these instants, not sampled from segments: not below
    joins without equal keys.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> inner = Window(Scan("S", "S", Columns((), ("x",), points=True)), "sum", "S.x", "a", 10, 10)
    >>> outer = Window(inner, "max", "a", "b", 10, 10)
    >>> at_closings(inner) == {inner}, at_closings(outer) == {outer}
    (True, True)
    """
    found: set[Node] = set()
    other: set[Node] = set()

    def visit(node: Node, instants: bool, evaluated: bool) -> None:
        if node.is_window:
            (found if (evaluated if node.closes else instants) else other).add(node)
        for below in node.inputs:
            visit(below, instants and node.passes_instants, evaluated and node.of_one_instant)

    visit(plan, True, True)
    return frozenset(found - other)


def exchanged_instants(plan: Node) -> frozenset[Exchange]:
    """Return the exchanges of a plan for tuples that carry the sampled instants, as points, in place of segments."""
    found: set[Exchange] = set()
    other: set[Node] = set()

    def visit(node: Node, instants: bool) -> None:
        if node.is_leaf and node.inputs:
            assert isinstance(node, Exchange)
            if instants and node.closes:
                found.add(node)
            else:
                other.add(node)
        for below in node.inputs:
            visit(below, instants and node.of_one_instant)

    visit(plan, True)
    return frozenset(found - other)
