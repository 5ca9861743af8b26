"""Explain the revision modes of each operator, and their costs (semantics 7.4 to 7.6).

**Upstream**: everything that shared a window with the change is replayed, and old and new results are compared. Any operator
can do it. **Downstream**: earlier results are retrieved from a connection point on the operator's output, and patched.
Operators that process one row at a time do neither: a revision carries all they need.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulse.core.time import format_duration
from pulse.operators.incremental.costs import Costs
from pulse.operators.node import Node, walk
from pulse.plan.radius import radius


def explain_modes(plan: Node) -> Iterator[str]:
    """Explain how each operator handles a revision. Sizes of windows may be open.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> for text in explain_modes(Window(scan, "sum", "S.x", "a", 10_000_000, None)):
    ...     print(text)
    radius: 10 s before and 10 s after what is revised
    Scan S as S: its connection point; the anchor of everything above
    Window a = sum(S.x) over 10 s: upstream, or downstream with a connection point on its output
      results change up to 10 s later; 10 s before them are replayed
      upstream 2500 µs + 0.2 µs a row replayed, downstream 3500 µs + 0.33 µs a result stored: the cheaper, revision by revision
      patched where bounds stay and no hole opens or closes, else replayed
    """
    is_open = not all(node.is_sized for node in walk(plan))
    if is_open:
        yield "radius: open until the sizes of windows are given"
    else:
        before, after = radius(plan)
        if not (before or after):
            yield "radius: none; a result depends on its own instant alone"
        else:
            yield f"radius: {format_duration(before)} before and {format_duration(after)} after what is revised"
    for node in _inputs_first(plan):
        (modes, why), costs = node.revision_modes, node.costs
        yield f"{node.label}: {modes}" + (f"; {why}" if costs is None else "")
        if not is_open:
            yield from _reaching(node)
        if costs is not None:
            if node.why_not_patched is None:
                yield _costing(costs)
            yield f"  {why}"


def _inputs_first(plan: Node) -> list[Node]:
    """Return every node once, after its inputs."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        for below in node.inputs:
            visit(below)
        found.setdefault(node)

    visit(plan)
    return list(found)


def _reaching(node: Node) -> Iterator[str]:
    far, back = node.reach, node.need
    if far.after:
        early = f"{format_duration(far.before)} earlier and " if far.before else "up to "
        again = format_duration(back.before)
        yield f"  results change {early}{format_duration(far.after)} later; {again} before them are replayed"


def _costing(costs: Costs) -> str:
    up, down = costs.upstream, costs.downstream
    return (
        f"  upstream {up.fixed:g} µs + {up.row:g} µs a row replayed, downstream {down.fixed:g} µs + "
        f"{down.row:g} µs a result stored: the cheaper, revision by revision"
    )
