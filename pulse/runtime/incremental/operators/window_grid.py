"""Propagate deltas through a window evaluated at its closing times only: results are points on the grid of the advance.

A tuple, or a range within an advance, takes part in ``size / advance`` of them, so a revision reads and patches as many stored
results, or replays the rows of as many windows: with tumbling windows (size 1000, advance 1000) one result, or one window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.certainty import LIKELY, POSSIBLE
from pulse.operators.data.relation import Relation
from pulse.operators.node import Node
from pulse.operators.output.sampling import as_points
from pulse.operators.patch.on_grid import ExtremumClosings, IntegralClosings, PointClosings
from pulse.operators.windows.window import Window
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.incremental.delta import GRACE, BeforeAfter, Delta, KeyRanges, changed_rows
from pulse.runtime.incremental.operators.base import nothing, overlapping
from pulse.runtime.incremental.operators.window import PatchedWindow

_PATCHES: dict[str, type[IntegralClosings] | type[ExtremumClosings] | type[PointClosings]] = {
    "integral": IntegralClosings,
    "extremum": ExtremumClosings,
    "points": PointClosings,
}


class GridWindow(PatchedWindow):
    """A window that replays or patches, at multiples of ``every``."""

    def __init__(self, *arguments: Any) -> None:
        *base, every = arguments
        super().__init__(*base)
        self._every: int = every
        node = self.node
        self._patch = _PATCHES[self._kind](node.function, node.argument, node.output, self.size, every)

    @property
    def stays(self) -> int:
        return 0

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        grace = 0 if self.node.input.columns.points else GRACE  # ends of ranges are real numbers
        below = self.inputs[0].content(stretches.widened(self.size + grace, grace))
        return self._complete(BeforeAfter(stretches, self._apply(below.relation), below.before, below.after))

    def _complete(self, made: BeforeAfter) -> BeforeAfter:
        return overlapping(made)

    def affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return the closing times that a change takes part in, from first to last; none where no window contains it."""
        every = self._every
        first = self.first_affected(stretches).start
        last = (stretches.end - 1 + self.size) // every * every
        some = np.flatnonzero(last >= first)
        return KeyRanges(stretches.code[some], first[some], last[some] + 1).merged()

    def first_affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return the first closing time after each change."""
        first = (stretches.start // self._every + 1) * self._every
        return KeyRanges(stretches.code, first, first + 1)

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        every, times = self._every, below.stretches
        held = (times.end - 1 + self.size) // every > times.start // every
        if held.all():
            return self.changed(below)
        some = np.flatnonzero(held)
        if not len(some):
            return nothing(self.node.columns, absorbed=len(below))
        return self.changed(Delta(times.take(some), below.relation, below.old[some], below.new[some]))

    def upstream(self, affected: KeyRanges) -> Delta:
        if self.point is None:
            affected = affected.widened(*self.margin).merged()
        made = self.replay(affected)
        if self.point is None:
            self.cache = made
        return changed_rows(made)

    def replayed(self, affected: KeyRanges) -> IntArray:
        """Count the rows of all windows that close in each stretch, before and after."""
        return 2 * self.inputs[0].estimate(affected.widened(self.size, 0))

    def stored(self, affected: KeyRanges) -> IntArray:
        """Count the closing times in each stretch."""
        return (affected.end - 1 - affected.start) // self._every + 1

    def _concerned(self, affected: KeyRanges, results: Relation) -> Relation:
        return results

    def _apply(self, relation: Relation) -> Relation:
        return results_at(self.node, relation, self._every, possible=self.possible)


def results_at(node: Window, relation: Relation, every: int, *, possible: bool) -> Relation:
    """Evaluate a window at the multiples of ``every``, as points."""
    found = FragmentEvaluation({node.inputs[0]: relation}, possible=possible).samples(node, every)
    points = as_points(found, least=POSSIBLE if possible else LIKELY, groups=relation.groups)
    return replace(points, columns=node.columns, keys=relation.keys)


def with_results(
    scans: dict[Node, Relation], windows: frozenset[Node], every: int, *, possible: bool
) -> dict[Node, Relation]:
    """Return the scans, and these windows evaluated at multiples of ``every``: the inputs of everything above."""
    made = dict(scans)
    for node in windows:
        assert isinstance(node, Window)
        below = node.content(FragmentEvaluation(scans, possible=possible), possible)
        made[node] = results_at(node, below, every, possible=possible)
    return made
