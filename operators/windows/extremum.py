"""Compute the smallest or largest value over a window, per key (semantics 3.6).

1 Transforms: the extremum over ``[t - size, t)`` as a function of the closing time ``t`` is piecewise one of three:
  the model at the window's tail, the model at its head, or the best value in between, a constant. Points take part.
  Windows that touch a hole, or reach outside, have no result.
2 Bounds: the largest bound of any row that the windows of a piece touch, since the true extremum lies on one
  of them. The rounding of a shift is added. Pieces are cut where windows start or stop touching rows of another
  certainty, or rows without a bound, so that no window is doubtful because of a row that only a later window touches.
3 Inverts: passes the bound itself to each contributing row (semantics 4.3).
4 Revises: upstream by replaying; downstream only while the extremum itself is not withdrawn (semantics 7.5;
  :mod:`pulse.operators.patch.extremum`).
5 Accents: as the integral; an alteration is increasing, so it keeps the order, and acts on results (semantics 8.1,
  8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import UNBOUNDED
from pulse.core.instants import gaps, tolerances
from pulse.kernels.pieces.window_cover import touched
from pulse.kernels.rounding import evaluation
from pulse.kernels.windows.extremum import sliding_extremum
from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.patch.extremum import ExtremumClosings, PatchExtremum
from pulse.operators.windows.base import WindowFunction, least_certain, present


@dataclass(frozen=True)
class Extremum(WindowFunction):
    """The window aggregate ``min`` or ``max``."""

    known: ClassVar[tuple[str, ...]] = ("min", "max")
    may_stay: ClassVar[bool] = True
    costs: ClassVar[Costs] = Costs(Cost(2500.0, 0.75), Cost(3500.0, 0.4))
    results_per_row: ClassVar[float] = 0.5
    patches: ClassVar = (PatchExtremum, ExtremumClosings)
    patched_where: ClassVar[str] = (
        "patched while the extremum itself is not withdrawn and no hole opens or closes, else replayed"
    )

    def segments(self, relation: Relation) -> Relation:
        found = sliding_extremum(
            relation.ref,
            relation.lo,
            relation.hi,
            relation.models[self.argument],
            relation.offsets,
            self.size,
            upper=self.function == "max",
        )
        pieces = (found.offsets, found.ref, found.lo, found.hi)
        none = np.zeros(len(found.ref))
        made = self.pieces(relation, pieces, found.c, none, none.astype(np.uint8), None)
        err, c = relation.err[self.argument], relation.models[self.argument]
        if c.shape[1] > 1:  # the results move to other references and are evaluated there
            err = err + 4.0 * evaluation(c, relation.lo, relation.hi)
        rows, lo, hi = cut_at_changes(made, relation, self.size)
        made = made.take(rows, lo=lo, hi=hi)
        # The windows of a piece cover the time from `size` before its start to its end.
        first, last, widest = touched(
            (relation.ref, relation.lo, relation.hi, relation.offsets),
            err,
            (made.ref, made.lo, made.hi, made.offsets),
            self.size,
        )
        return replace(
            made,
            err={self.output: widest},
            certainty=least_certain(relation.certainty, first, last),
            lineage=None if relation.lineage is None else relation.lineage.spans(first, last),
        )

    def samples(self, relation: Relation, every: int) -> Samples:
        rows = present(relation)
        found = window_extremum_every(
            (rows.ref, rows.lo, rows.hi, rows.models[self.argument]),
            rows.offsets,
            err=rows.err[self.argument],
            certainty=rows.certainty,
            size_us=self.size,
            advance_us=every,
            upper=self.function == "max",
        )
        return self.closings(rows, every, found[:3], found.values, found.err, found.certainty)

    def equations(self, size: str) -> tuple[str, ...]:
        envelope = "lower" if self.function == "min" else "upper"
        (result,) = super().equations(size)
        return (f"{result}, the sliding extremum of the {envelope} envelope of its segments",)


def cut_at_changes(made: Relation, relation: Relation, size: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cut results where their windows start or stop touching rows of another certainty or rows without a bound.

    Windows start touching a row when they close at its start, and stop when they close ``size`` after its end. Returns the row
    and the range of each part.
    """
    doubt = relation.certainty.astype(np.int64)
    for err in relation.err.values():
        doubt = 2 * doubt + (err >= UNBOUNDED**0.5)
    group = relation.group
    change = np.flatnonzero((doubt[1:] != doubt[:-1]) & (group[1:] == group[:-1]))
    if not len(change) or not len(made):
        return np.arange(len(made)), made.lo, made.hi
    ref = np.concatenate((relation.ref[change + 1], relation.ref[change] + size))
    offset = np.concatenate((relation.lo[change + 1], relation.hi[change]))
    return _cut(made, np.tile(group[change], 2), ref, offset)


def _cut(
    made: Relation, group: IntArray, ref: IntArray, offset: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cut the rows of groups at instants ``(ref, offset)``; an instant outside all rows, or at the end of one, has no effect."""
    start = int(made.ref.min())  # only to find the row: the test below subtracts references exactly
    starts, at = (made.ref - start) / 1e6 + made.lo, (ref - start) / 1e6 + offset
    order = np.lexsort((at, group))
    group, ref, offset, at = group[order], ref[order], offset[order], at[order]
    is_cut = np.repeat([False, True], [len(made), len(at)])
    merged = np.lexsort((is_cut, np.concatenate((starts, at)), np.concatenate((made.group, group))))
    row = (np.cumsum(~is_cut[merged]) - 1)[is_cut[merged]]
    found = row >= made.offsets[group]
    row, ref, offset = row[found], ref[found], offset[found]
    lead = gaps(made.ref[row], made.lo[row], ref, offset)
    rest = gaps(ref, offset, made.ref[row], made.hi[row])
    least = tolerances(made.ref[row], made.lo[row], ref, offset)
    inside = (lead > least) & (rest > least)
    row, cut = row[inside], (made.lo[row] + lead)[inside]
    fresh = np.concatenate(([True], (row[1:] != row[:-1]) | (cut[1:] - cut[:-1] > least[inside][1:])))[
        : len(row)
    ]
    row, cut = row[fresh], cut[fresh]
    rows = np.sort(np.concatenate((np.arange(len(made)), row)))
    lo, hi = made.lo[rows], made.hi[rows]
    second = np.flatnonzero(np.concatenate(([False], rows[1:] == rows[:-1])))
    lo[second] = cut
    hi[second - 1] = cut
    return rows, lo, hi
