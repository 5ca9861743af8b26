"""Revision modes of each operator, and their costs (semantics 7.4 to 7.6).

**Upstream**: everything that shared a window with the change is replayed, and old and new results are compared. Any operator
can do it. **Downstream**: earlier results are retrieved from a connection point on the operator's output, and patched.
Operators that process one row at a time do neither: a revision carries all they need.

The cost of a mode is ``fixed + row * rows``, with the rows it touches: those of the input in the reach of the windows, before
and after, or the stored results. Points count rows in O(log n), so the choice is made for every operator and range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.time import format_duration
from pulse.operators.across.across import Across
from pulse.operators.node import Node, walk
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.radius import need, radius, reach
from pulse.plan.show import line

KINDS = ("integral", "extremum", "points")


@dataclass(frozen=True)
class Cost:
    """The cost of a mode in microseconds: ``fixed`` for a call, ``row`` for each row it touches."""

    fixed: float
    row: float

    def of(self, rows: float) -> float:
        """Return the cost of one call with so many rows.

        >>> Cost(100.0, 0.5).of(10)
        105.0
        """
        return self.fixed + self.row * rows


@dataclass(frozen=True)
class Costs:
    """The costs of both modes by kind of window, as measured by :mod:`pulse.benchmarks.calibrate_modes`."""

    upstream: tuple[Cost, ...] = (Cost(2500.0, 0.2), Cost(2500.0, 0.75), Cost(2500.0, 0.1))
    downstream: tuple[Cost, ...] = (Cost(3500.0, 0.33), Cost(3500.0, 0.4), Cost(3300.0, 0.23))

    def choose(self, kind: str, replayed: IntArray, stored: IntArray) -> BoolArray:
        """Return which ranges to patch: ``replayed`` and ``stored`` are the rows that either mode would touch in each.

        One call serves all ranges of a mode, so its fixed cost counts once.

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

    def gain(self, kind: str, replayed: IntArray, stored: IntArray) -> float:
        """Return how much cheaper a patch of all ranges is than their replay."""
        which = KINDS.index(kind)
        return self.upstream[which].of(float(replayed.sum())) - self.downstream[which].of(float(stored.sum()))

    def again(self, kind: str, rows: int) -> float:
        """Return the cost of computing all results of an input with so many rows."""
        return self.upstream[KINDS.index(kind)].of(float(rows))


def kind_of(node: Window) -> str:
    """Return which of :data:`KINDS` a window is."""
    if node.input.columns.points:
        return "points"
    return "extremum" if node.function in ("min", "max") else "integral"


def why_not_downstream(node: Node) -> str | None:
    """Return why an operator's results cannot be patched at all; None where they can be."""
    match node:
        case Window() if node.input.columns.points and node.function == "avg" and not _is_counted(node.input):
            return "an average of tuples does not determine their number, and they are not stored"
        case Across():
            return "all keys of a group contribute to a result; which ones is not stored with it"
        case _:
            return None


def _is_counted(node: Node) -> bool:
    """Check whether a connection point can count the rows of the node anywhere."""
    return isinstance(node, Scan) and node.start is None and node.end is None


def modes_of(node: Node) -> tuple[str, str]:
    """Return the modes an operator can use, and their conditions, as text."""
    without = why_not_downstream(node)
    if without is not None:
        return "upstream", f"not downstream: {without}"
    match node:
        case Scan():
            return "its connection point", "the anchor of everything above"
        case Filter() | Project() | Union():
            return "stateless", "a revised row is all it needs"
        case Join():
            return "downstream or upstream", "the other side's rows are stored on its arc, or replayed"
        case Window():
            return "upstream, or downstream with a connection point on its output", _PATCHED[kind_of(node)]
        case _:
            return "upstream", "by replay"


_PATCHED = {
    "integral": "patched where bounds stay and no hole opens or closes, else replayed",
    "extremum": "patched while the extremum itself is not withdrawn and no hole opens or closes, else replayed",
    "points": "patched where tuples are replaced at their instants, and an extremum is not withdrawn, else replayed",
}


def explain_modes(plan: Node, costs: Costs | None = None) -> Iterator[str]:
    """Explain how each operator handles a revision. Sizes of windows may be open.

    >>> from pulse.core.columns import Columns
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
    costs = costs or Costs()
    is_open = not all(map(_is_bound, walk(plan)))
    if is_open:
        yield "radius: open until the sizes of windows are given"
    else:
        before, after = radius(plan)
        if not (before or after):
            yield "radius: none; a result depends on its own instant alone"
        else:
            yield f"radius: {format_duration(before)} before and {format_duration(after)} after what is revised"
    for node in _inputs_first(plan):
        modes, why = modes_of(node)
        yield f"{line(node)}: {modes}" + (f"; {why}" if not isinstance(node, Window) else "")
        if not is_open:
            yield from _reaching(node)
        if isinstance(node, Window):
            yield from _costing(node, costs, why)


def _is_bound(node: Node) -> bool:
    if isinstance(node, Window):
        return isinstance(node.size, int)
    return not (isinstance(node, Join) and node.near is not None and not isinstance(node.near.window, int))


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
    far, back = reach(node), need(node)
    if far.after:
        early = f"{format_duration(far.before)} earlier and " if far.before else "up to "
        again = format_duration(back.before)
        yield f"  results change {early}{format_duration(far.after)} later; {again} before them are replayed"


def _costing(node: Window, costs: Costs, why: str) -> Iterator[str]:
    if why_not_downstream(node) is None:
        which = KINDS.index(kind_of(node))
        up, down = costs.upstream[which], costs.downstream[which]
        yield (
            f"  upstream {up.fixed:g} µs + {up.row:g} µs a row replayed, downstream {down.fixed:g} µs + "
            f"{down.row:g} µs a result stored: the cheaper, revision by revision"
        )
    yield f"  {why}"
