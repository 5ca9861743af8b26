"""Aggregate tuples across keys at each instant, for streams defined only at points (semantics 1.2, 3.7).

1 Transforms: gathers the points of all keys of a group (:mod:`pulse.operators.across.gather`) and reduces all those of one
  instant by the ``function`` to one point.
2 Bounds: as a window over tuples (:mod:`pulse.operators.windows.tuple_window`) of one instant; for an extremum as an envelope
  (:mod:`pulse.operators.across.envelope`). Where tuples take part only possibly, they hold for every choice of them,
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
from pulse.operators.across.envelope import two_sum
from pulse.operators.across.gather import Gather
from pulse.operators.across.membership import LARGEST, SUMS, mean_bound, member_columns, sum_bound
from pulse.operators.data.relation import Relation
from pulse.operators.windows.tuple_window import PointWindow, point_rounding


@dataclass(frozen=True)
class PointTotal(AcrossKeys):
    """An aggregate of the points at each instant; the partial phase gathers points, the merge those of all parts."""

    @property
    def equations(self) -> tuple[str, ...]:
        tuples = f"the tuples of {self.argument} at t"
        return (f"{self.of_keys}: {self.output}(t) = {self.function} of {tuples}",)

    def segments(self, relation: Relation) -> Relation:
        """Compute one point for each group and instant with points."""
        gathered = Gather("each", self.argument, self.output, self.by, self.phase).segments(relation)
        if self.phase == "partial":
            return gathered
        instant, group = split(gathered.ref, gathered.lo)[0], gathered.group
        begins = np.ones(len(gathered), bool)
        begins[1:] = (instant[1:] != instant[:-1]) | (group[1:] != group[:-1])
        tail = np.flatnonzero(begins)
        head = np.append(tail[1:], len(gathered))[: len(tail)]
        window = PointWindow(self.function, self.output, self.output, 1)
        values, err, certainty = window.results(gathered, tail, head, instant[tail])
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
        """Bound the error of an extremum: outwards by the farthest end of any bound, inwards by that of the certain points.

        Without certain points, inwards by the nearest end of any.
        """
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
        """Bound the error of a sum or a mean for every choice of doubtful points."""
        x = evaluate(points.models[self.output], points.lo)
        rows = member_columns(points.certainty, points.err[self.output], x, x)
        of = {name: aggregate_spans(rows[name], tail, head, SUM) for name in SUMS}
        of |= {name: aggregate_spans(rows[name], tail, head, MAX) for name in LARGEST}
        if self.function == "sum":
            return sum_bound(of) * GROWN + point_rounding(x, values, tail, head, None)
        members = np.where(of["held"] > 0, of["held"], of["every"])
        return mean_bound(of, values, values) * GROWN + point_rounding(x, values, tail, head, members)


def _rounded_up(a: FloatArray, b: FloatArray, e: FloatArray) -> FloatArray:
    """Return ``a + b + e`` plus the loss of both additions, so that it is at least the exact sum."""
    distance, lost = two_sum(a, b)
    total, lost_too = two_sum(distance, e)
    lost = np.abs(lost) + np.abs(lost_too)
    return np.where(lost > 0.0, np.nextafter(total + lost, np.inf), total)
