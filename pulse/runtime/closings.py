"""The arc of a window over tuples that is asked at its closing times only: its results are points on the grid of the advance.

A tuple takes part in ``size / advance`` of them, so a revision reads and patches as many stored results, and replays the
tuples of as many windows: with windows that follow each other (size 1000, advance 1000) one result, or one window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import LIKELY, POSSIBLE
from pulse.operators.patch_points import PatchClosings
from pulse.operators.relation import Relation
from pulse.plan.nodes import Node, Window
from pulse.runtime.arcs import nothing
from pulse.runtime.delta import Content, Delta, Stretches, changed_rows
from pulse.runtime.evaluate import Evaluation
from pulse.runtime.patching import PatchedArc


class ClosingsArc(PatchedArc):
    """As a window with a choice, at multiples of ``every``."""

    def __init__(self, *told: Any) -> None:
        *base, every = told
        super().__init__(*base)
        self._every: int = every
        size = self.size
        self._patch = PatchClosings(self.node.function, self.node.argument, self.node.output, size)

    @property
    def stays(self) -> int:
        return 0

    def replay(self, stretches: Stretches) -> Content:
        below = self.inputs[0].content(stretches.widened(self.size, 0))
        return self._known(Content(stretches, self._apply(below.relation), below.before, below.after))

    def affected(self, stretches: Stretches) -> Stretches:
        """From the first closing time after a change to the last that it takes part in; none where no window holds it."""
        every = self._every
        first = (stretches.start // every + 1) * every
        last = (stretches.end - 1 + self.size) // every * every
        some = np.flatnonzero(last >= first)
        return Stretches(stretches.code[some], first[some], last[some] + 1).merged()

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

    def upstream(self, affected: Stretches) -> Delta:
        if self.point is None:
            affected = affected.widened(*self.margin).merged()
        made = self.replay(affected)
        if self.point is None:
            self.cache = made
        return changed_rows(made)

    def replayed(self, affected: Stretches) -> IntArray:
        """The tuples of all windows that close in each stretch, before and after."""
        return 2 * self.inputs[0].estimate(affected.widened(self.size, 0))

    def stored(self, affected: Stretches) -> IntArray:
        """How many closing times lie in each stretch."""
        return (affected.end - 1 - affected.start) // self._every + 1

    def _concerned(self, affected: Stretches, results: Relation) -> Relation:
        return results

    def _apply(self, relation: Relation) -> Relation:
        return results_at(self.node, relation, self._every, possible=self.possible)


def results_at(node: Window, relation: Relation, every: int, *, possible: bool) -> Relation:
    """A window over tuples at the multiples of ``every``, as points."""
    found = Evaluation({node.inputs[0]: relation}, possible=possible).samples(node, every)
    times, group = found.times, found.of_group
    values, err, certainty = dict(found.values), dict(found.err), found.certainty
    kept: BoolArray = certainty >= (POSSIBLE if possible else LIKELY)
    if not kept.all():
        times, group, certainty = times[kept], group[kept], certainty[kept]
        values = {name: one[kept] for name, one in values.items()}
        err = {name: one[kept] for name, one in err.items()}
    zero = np.zeros(len(times))
    return Relation(
        columns=node.columns,
        keys=relation.keys,
        offsets=np.searchsorted(group, np.arange(relation.groups + 1)),
        ref=times,
        lo=zero,
        hi=zero,
        models={name: one[:, None] for name, one in values.items()},
        err=err,
        drift={},
        certainty=certainty,
    )


def with_results(
    scans: dict[Node, Relation], windows: frozenset[Node], every: int, *, possible: bool
) -> dict[Node, Relation]:
    """The scans, and these windows at the multiples of ``every``: what everything above is evaluated from."""
    made = dict(scans)
    for node in windows:
        assert isinstance(node, Window)
        below = Evaluation(scans, possible=possible)._points(node.input, possible)
        made[node] = results_at(node, below, every, possible=possible)
    return made
