"""Compute how far a revision reaches, when the plan is made (semantics 7.4).

A change of an input in ``[a, b)`` can change results in ``[a - before, b + after)``: a window ``[t - size, t)`` contains it for
closing times up to ``size`` later. To compute these results, before and after, everything that shared a window with them is
needed again::

    changed            [a  b)
    results            [a  b ───── size)          own reach: (0, size)
    replayed [size ─── a  b ───── size)           what an anchor replays

Along a path reaches add up; the **radius** of a plan is the longest of them, and the history that a connection point has to
keep.
"""

from __future__ import annotations

from pulse.operators.node import Node, walk
from pulse.operators.reach import NONE, Reach
from pulse.operators.relational.scan import scans


def radius(plan: Node) -> Reach:
    """Return how far around a revised range of a stream history must be kept, on the longest path.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> radius(Window(Window(scan, "avg", "S.x", "a", 3, None), "avg", "a", "b", 4, None))
    Reach(before=7, after=7)
    """
    return farthest(plan).plus(_back(plan))


def farthest(plan: Node) -> Reach:
    """Return how far before and after a change of a stream results can change, on the longest path."""
    far = NONE
    for found in _reaches(plan)[plan].values():
        far = far.over(found)
    return far


def margins(plan: Node) -> dict[Node, Reach]:
    """Return how much more of a node is requested than can have changed, when a revision propagates above it.

    In a join of a short and a long window of one stream, the short one is requested for the range that the long one changed.
    """
    reaches = _reaches(plan)
    requested: dict[Node, dict[str, Reach]] = {plan: dict(reaches[plan])}
    for node in _from_root(plan):
        for below in node.inputs:
            mine = requested.setdefault(below, {})
            for stream, wanted in requested[node].items():
                if stream in reaches[below]:
                    mine[stream] = mine.get(stream, NONE).over(wanted.plus(node.need))
    return {
        node: Reach(
            max((one.before - reaches[node][stream].before for stream, one in mine.items()), default=0),
            max((one.after - reaches[node][stream].after for stream, one in mine.items()), default=0),
        )
        for node, mine in requested.items()
    }


def below_windows(plan: Node) -> frozenset[Node]:
    """Return the nodes whose output some window replays, directly or through others."""
    found: set[Node] = set()

    def visit(node: Node, below: bool) -> None:
        if below:
            found.add(node)
        for one in node.inputs:
            visit(one, below or node.is_window)

    visit(plan, False)
    return frozenset(found)


def _reaches(plan: Node) -> dict[Node, dict[str, Reach]]:
    """Return for every node how far from a change of each stream below it its results can change."""
    found: dict[Node, dict[str, Reach]] = {scan: {scan.stream: NONE} for scan in scans(plan)}

    def visit(node: Node) -> dict[str, Reach]:
        if node not in found:
            own: dict[str, Reach] = {}
            for below in node.inputs:
                for stream, one in visit(below).items():
                    own[stream] = own.get(stream, NONE).over(one.plus(node.reach))
            found[node] = own
        return found[node]

    visit(plan)
    return found


def _back(node: Node) -> Reach:
    far = NONE
    for below in node.inputs:
        far = far.over(_back(below))
    return far.plus(node.need)


def _from_root(plan: Node) -> list[Node]:
    """Return every node once, after all that take its output."""
    order: dict[Node, None] = {}
    for node in walk(plan):
        order.pop(node, None)
        order[node] = None
    return list(order)
