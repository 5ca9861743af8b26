"""Propagate deltas through a window evaluated at its closing times only: results are points on the grid of the advance.

A tuple, or a range within an advance, takes part in ``size / advance`` of them, so a revision reads and patches as many stored
results, or replays the rows of as many windows: with tumbling windows (size 1000, advance 1000) one result, or one window.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.certainty import LIKELY, POSSIBLE
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, changed_rows, nothing
from pulse.operators.output.sampling import as_points
from pulse.operators.patch.base import Patch
from pulse.operators.windows.incremental_window import IncrementalWindow


class GridWindow(IncrementalWindow):
    """A window that replays or patches, at multiples of the view's ``every``."""

    at_instants = True

    @property
    def every(self) -> int:
        """Return the distance of closing times in microseconds."""
        assert self.view.every is not None
        return self.view.every

    @property
    def patch(self) -> Patch:
        return self.node.operator.patch(self.every)

    @property
    def stays(self) -> int:
        return 0

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        grace = 0 if self.node.input.columns.points else END_MARGIN  # ends of ranges are real numbers
        below = self.inputs[0].content(stretches.widened(self.size + grace, grace))
        return self._complete(BeforeAfter(stretches, self.applied(below.relation), below.before, below.after))

    def _complete(self, made: BeforeAfter) -> BeforeAfter:
        return overlapping(made)

    def affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return the closing times that a change takes part in, from first to last; none where no window contains it."""
        every = self.every
        first = self.first_affected(stretches).start
        last = (stretches.end - 1 + self.size) // every * every
        some = np.flatnonzero(last >= first)
        return KeyRanges(stretches.code[some], first[some], last[some] + 1).merged()

    def first_affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return the first closing time after each change."""
        first = (stretches.start // self.every + 1) * self.every
        return KeyRanges(stretches.code, first, first + 1)

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        every, times = self.every, below.stretches
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

    def stored(self, affected: KeyRanges) -> IntArray:
        """Count the closing times in each stretch."""
        return (affected.end - 1 - affected.start) // self.every + 1

    def _concerned(self, affected: KeyRanges, results: Relation) -> Relation:
        return results

    def applied(self, relation: Relation) -> Relation:
        found = self.node.operator.samples(relation, self.every)
        points = as_points(found, least=POSSIBLE if self.possible else LIKELY, groups=relation.groups)
        return replace(points, columns=self.node.columns, keys=relation.keys)
