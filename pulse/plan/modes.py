"""How each operator can take a revision, and what either way costs (semantics 7.4 to 7.6).

**Upstream**: everything that shared a window with what changed is replayed, and old and new results are compared. Any operator can.
**Downstream**: the results that were given are retrieved from a connection point on the operator's output, and patched. Operators
that look at one row at a time do neither: a revision carries all they need.

The cost of a mode is ``fixed + row * rows``, rows being those it touches: the input's in the reach of the windows, before and after,
or the stored results'. Points count rows in O(log n), so the choice is made for every operator and stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.time import format_duration
from pulse.plan.nodes import Across, Filter, Join, Node, Project, Scan, Union, Window
from pulse.plan.radius import need, radius, reach
from pulse.plan.show import line

KINDS = ("integral", "extremum", "points")


@dataclass(frozen=True)
class Cost:
    """Microseconds of a mode: ``fixed`` for a call, ``row`` for each row it touches."""

    fixed: float
    row: float

    def of(self, rows: float) -> float:
        """What so many rows cost in one call.

        >>> Cost(100.0, 0.5).of(10)
        105.0
        """
        return self.fixed + self.row * rows


@dataclass(frozen=True)
class Costs:
    """The costs of both modes by kind of window: as measured by :mod:`pulse.runtime.mode_costs`, on a quiet core of a 2.x GHz server."""

    upstream: tuple[Cost, ...] = (Cost(250.0, 0.35), Cost(350.0, 1.2), Cost(200.0, 0.3))
    downstream: tuple[Cost, ...] = (Cost(330.0, 0.30), Cost(520.0, 0.8), Cost(260.0, 0.3))

    def choose(self, kind: str, replayed: IntArray, stored: IntArray) -> BoolArray:
        """Which stretches to patch: ``replayed`` and ``stored`` are the rows that either mode would touch in each.

        One call serves all stretches of a mode, so its fixed cost counts once.

        >>> Costs().choose("integral", np.array([10_000]), np.array([10]))
        array([ True])
        """
        which = KINDS.index(kind)
        up, down = self.upstream[which], self.downstream[which]
        each_up, each_down = up.row * replayed, down.row * stored
        patch = each_down < each_up
        options: list[tuple[float, BoolArray]] = [
            (up.fixed + float(each_up.sum()), np.zeros(len(replayed), bool)),
            (down.fixed + float(each_down.sum()), np.ones(len(replayed), bool)),
            (up.fixed + down.fixed + float(np.minimum(each_up, each_down).sum()), patch),
        ]
        return min(options, key=lambda option: option[0])[1]


def kind_of(node: Window) -> str:
    """Which of :data:`KINDS` a window is of."""
    if node.input.columns.points:
        return "points"
    return "extremum" if node.function in ("min", "max") else "integral"


def why_not_downstream(node: Node) -> str | None:
    """Why an operator's results cannot be patched, whatever is stored; None where they can be."""
    match node:
        case Window() if node.input.columns.points and node.function == "avg":
            return "an average of tuples does not tell how many there were"
        case Across():
            return "all keys of a group make a result; which did is not stored with it"
        case _:
            return None


def modes_of(node: Node) -> tuple[str, str]:
    """The modes an operator can use, and what holds of them, in words."""
    without = why_not_downstream(node)
    if without is not None:
        return "upstream", f"not downstream: {without}"
    match node:
        case Scan():
            return "its connection point", "the anchor of everything above"
        case Filter() | Project() | Union():
            return "stateless", "a revised row is all it needs"
        case Join():
            return (
                "downstream, upstream",
                "the other side's rows in the regions, stored on its arc or replayed",
            )
        case Window() if kind_of(node) == "extremum":
            return (
                "upstream, downstream",
                "downstream with a connection point on its output, while the extremum is not withdrawn",
            )
        case Window() if kind_of(node) == "points":
            return (
                "upstream, downstream",
                "downstream with a connection point on its output, of tuples replaced at their instants",
            )
        case Window():
            return (
                "upstream, downstream",
                "downstream with a connection point on its output, where bounds stay and no hole opens or closes",
            )
        case _:
            return "upstream", "by replay"


def explain_modes(plan: Node, costs: Costs | None = None) -> Iterator[str]:
    """How each operator would take a revision; the plan's windows are bound.

    >>> from pulse.core.columns import Columns
    >>> scan = Scan("S", "S", Columns((), ("x",)))
    >>> for text in explain_modes(Window(scan, "avg", "S.x", "a", 10_000_000, None)):
    ...     print(text)
    radius: 10 s before and 10 s after what is revised
    Scan S as S: its connection point; the anchor of everything above
    Window a = avg(S.x) over 10 s: upstream, downstream; downstream with a connection point on its output, where bounds stay and no hole opens or closes
      changes reach 10 s further, replayed from 10 s before
      upstream 250 µs + 0.35 µs a row of the input; downstream 330 µs + 0.3 µs a stored result: the cheaper for each revision
    """
    costs = costs or Costs()
    before, after = radius(plan)
    yield f"radius: {format_duration(before)} before and {format_duration(after)} after what is revised"
    seen: set[Node] = set()
    yield from _lines(plan, costs, seen)


def _lines(node: Node, costs: Costs, seen: set[Node]) -> Iterator[str]:
    if node in seen:
        return
    seen.add(node)
    for below in node.inputs:
        yield from _lines(below, costs, seen)
    modes, why = modes_of(node)
    yield f"{line(node)}: {modes}; {why}"
    far, back = reach(node), need(node)
    if far.after:
        first = f", and {format_duration(far.before)} earlier" if far.before else ""
        yield f"  changes reach {format_duration(far.after)} further{first}, replayed from {format_duration(back.before)} before"
    if isinstance(node, Window) and "downstream" in modes:
        which = KINDS.index(kind_of(node))
        up, down = costs.upstream[which], costs.downstream[which]
        yield (
            f"  upstream {up.fixed:g} µs + {up.row:g} µs a row of the input; downstream {down.fixed:g} µs + "
            f"{down.row:g} µs a stored result: the cheaper for each revision"
        )


def expected(costs: Costs, kind: str, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What one call costs in either mode for numbers of rows: for tables and plots."""
    which = KINDS.index(kind)
    up, down = costs.upstream[which], costs.downstream[which]
    return up.fixed + up.row * rows, down.fixed + down.row * rows
