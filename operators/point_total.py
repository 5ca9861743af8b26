"""Aggregates across keys of what is defined at points only: of the tuples of each instant (semantics 1.2, 3.7).

1 Transforms: the points of all keys of a group (:mod:`pulse.operators.gather`), and of those of one instant, all of them, the
  ``function``: one point.
2 Bounds: as a window's over tuples (:mod:`pulse.operators.point_window`), of one instant; of an extremum that is certain as
  an envelope's (:mod:`pulse.operators.envelope`).
3 Inverts: likewise.
4 Revises: upstream, by the points of all keys of the group where one of them changed.
5 Accents: aggregate by ``by`` (semantics 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.core.instants import split
from pulse.kernels.point_window import MAX, aggregate_spans
from pulse.kernels.polynomial import evaluate
from pulse.operators.across import AcrossKeys
from pulse.operators.gather import Gather
from pulse.operators.point_window import PointWindow
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class PointTotal(AcrossKeys):
    """Any function of the points at each instant. A partial phase gathers points, a merge those of all parts."""

    def segments(self, relation: Relation) -> Relation:
        """One point for each group and instant that has some."""
        gathered = Gather("each", self.argument, self.output, self.by, self.phase).segments(relation)
        if self.phase == "partial":
            return gathered
        instant, group = split(gathered.ref, gathered.lo)[0], gathered.group
        begins = np.ones(len(gathered), bool)
        begins[1:] = (instant[1:] != instant[:-1]) | (group[1:] != group[:-1])
        tail = np.flatnonzero(begins)
        head = np.append(tail[1:], len(gathered))[: len(tail)]
        window = PointWindow(self.function, self.output, self.output, 1)
        values, err, certainty = window.results(gathered, tail, head)
        if self.function in ("min", "max"):
            err = np.where(certainty == CERTAIN, self._between(gathered, values, tail, head), err)
        at = np.zeros(len(tail))
        return replace(
            gathered,
            offsets=np.searchsorted(tail, gathered.offsets),
            ref=instant[tail],
            lo=at,
            hi=at,
            models={self.output: values[:, None]},
            err={self.output: err},
            certainty=certainty,
            lineage=None if gathered.lineage is None else gathered.lineage.spans(tail, head - 1),
        )

    def _between(self, points: Relation, values: FloatArray, tail: IntArray, head: IntArray) -> FloatArray:
        """An extremum lies between those of the lower and of the upper ends, as an envelope does."""
        sign = 1.0 if self.function == "max" else -1.0
        x, e = sign * evaluate(points.models[self.output], points.lo), points.err[self.output]
        high, low = (aggregate_spans(ends, tail, head, MAX) for ends in (x + e, x - e))
        between: FloatArray = np.maximum(np.maximum(high - sign * values, sign * values - low), 0.0)
        return between
