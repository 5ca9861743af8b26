"""Aggregates across keys of what is defined at points only: of the tuples of each instant (semantics 1.2, 3.7).

1 Transforms: the points of all keys of a group (:mod:`pulse.operators.across.gather`), and of those of one instant, all of them,
  the ``function``: one point.
2 Bounds: as a window's over tuples (:mod:`pulse.operators.windows.tuple_window`), of one instant; an extremum's as an envelope's
  (:mod:`pulse.operators.across.envelope`). Where it is not certain which tuples take part, they hold for every choice of them,
  and a point is certain where one of them is (:mod:`pulse.operators.across.membership`).
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
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import GROWN
from pulse.kernels.windows.tuple_window import MAX, SUM, aggregate_spans
from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.gather import Gather
from pulse.operators.across.membership import LARGEST, SUMS, mean_bound, member_columns, sum_bound
from pulse.operators.data.relation import Relation
from pulse.operators.windows.tuple_window import PointWindow, point_rounding


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
        sure = gathered.certainty == CERTAIN
        if self.function in ("min", "max"):
            err = self._between(gathered, values, tail, head)
        elif self.function != "count" and not sure.all():
            err = self._in_doubt(gathered, values, tail, head)
        if not sure.all():
            some = aggregate_spans(sure.astype(np.float64), tail, head, MAX) > 0.0
            certainty = np.where(some, np.uint8(CERTAIN), certainty)
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
        """How far an extremum may be off: outwards to the farthest end of any bound, inwards to that of those that are sure,
        and where none is to the nearest of any."""
        sign = 1.0 if self.function == "max" else -1.0
        x, e = sign * evaluate(points.models[self.output], points.lo), points.err[self.output]
        sure = points.certainty == CERTAIN
        own = np.repeat(sign * values, head - tail)
        outwards = aggregate_spans(_rounded_up(x, -own, e), tail, head, MAX)
        back = _rounded_up(own, -x, e)
        inwards = -aggregate_spans(np.where(sure, -back, -np.inf), tail, head, MAX)
        if not sure.all():
            inwards = np.where(np.isfinite(inwards), inwards, aggregate_spans(back, tail, head, MAX))
        between: FloatArray = np.maximum(np.maximum(outwards, inwards), 0.0)
        return between

    def _in_doubt(self, points: Relation, values: FloatArray, tail: IntArray, head: IntArray) -> FloatArray:
        """How far a sum or a mean may be off, whichever of the doubtful points take part."""
        x = evaluate(points.models[self.output], points.lo)
        rows = member_columns(points.certainty, points.err[self.output], x, x)
        of = {name: aggregate_spans(rows[name], tail, head, SUM) for name in SUMS}
        of |= {name: aggregate_spans(rows[name], tail, head, MAX) for name in LARGEST}
        if self.function == "sum":
            return sum_bound(of) * GROWN + point_rounding(x, values, tail, head, None)
        members = np.where(of["held"] > 0, of["held"], of["every"])
        return mean_bound(of, values, values) * GROWN + point_rounding(x, values, tail, head, members)


def _rounded_up(a: FloatArray, b: FloatArray, e: FloatArray) -> FloatArray:
    """``a + b + e``, and what the two additions lost, so that it is no less than the exact sum."""
    distance, lost = _sum(a, b)
    total, lost_too = _sum(distance, e)
    lost = np.abs(lost) + np.abs(lost_too)
    return np.where(lost > 0.0, np.nextafter(total + lost, np.inf), total)


def _sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``a + b``, and the exact sum less that (Knuth's two-sum)."""
    total: FloatArray = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
