"""Aggregate tuples over a window, per key (semantics 1.2, 3.5, 7.8), for streams defined only at their points.

1 Transforms: ``sum``, ``avg``, ``min``, ``max`` and ``count`` of the tuples in ``[t - size, t)``: each counts once, however long
  it was the latest, and tuples of one instant all count. As a function of the closing time ``t`` the result is a step function
  that changes just after a tuple's instant, where it enters, and just after ``size`` later, where it leaves. A window without a
  tuple has no result, whatever the function.
2 Bounds: for a sum the sum of the bounds, for an average their mean, for an extremum the largest, for a count zero. A tuple
  that takes part only possibly adds the change that it could cause: its own value to a sum, one to a count, and to the
  others the spread of the values in the window.
3 Inverts: splits a bound on a sum over the tuples of the window; passes one on an average or an extremum to each (4.3).
4 Revises: downstream by subtracting the old and adding the new value of tuples replaced at their instants (7.5), an extremum
  only while it is not the one withdrawn (:mod:`pulse.operators.patch.tuple_window`); upstream by replaying the tuples that shared
  a window, ``size`` before and after.
5 Accents: as the integral (semantics 8.2, 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.instants import split
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import GROWN, SMALL, TINY, UNIT
from pulse.kernels.windows.tuple_window import MAX, SUM, aggregate_spans, window_closings, window_pieces
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import OperatorError
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.patch.base import Patch
from pulse.operators.patch.tuple_window import PatchPoints, PointClosings
from pulse.operators.windows.base import WindowFunction


@dataclass(frozen=True)
class PointWindow(WindowFunction):
    """A window aggregate over points: ``function`` of ``argument``, windows of ``size`` microseconds, named ``output``."""

    known: ClassVar[tuple[str, ...]] = ("min", "max", "sum", "avg", "count")
    may_stay: ClassVar[bool] = True
    costs: ClassVar[Costs] = Costs(Cost(2500.0, 0.1), Cost(3300.0, 0.23))
    patches: ClassVar[tuple[type[Patch], type[Patch]] | None] = (PatchPoints, PointClosings)
    slope: ClassVar[float] = 0.0
    """How a result changes with the closing time while a window has the same tuples, a second."""

    patched_where: ClassVar[str] = (
        "patched where tuples are replaced at their instants, and an extremum is not withdrawn, else replayed"
    )

    def segments(self, relation: Relation) -> Relation:
        spans = window_pieces(self._instants(relation), relation.offsets, self.size)
        values, err, certainty = self.results(relation, spans.tail, spans.head, spans.start)
        pieces = (spans.offsets, spans.start, np.zeros(len(values)), (spans.end - spans.start) / 1e6)
        lineage = None if relation.lineage is None else relation.lineage.spans(spans.tail, spans.head - 1)
        c = (
            values[:, None]
            if self.slope == 0.0
            else np.stack((values, np.full(len(values), self.slope)), axis=1)
        )
        return self.finite(self.pieces(relation, pieces, c, err, certainty, lineage), values)

    def samples(self, relation: Relation, every: int) -> Samples:
        found = window_closings(self._instants(relation), relation.offsets, self.size, every)
        counts = np.diff(found.offsets)
        closing = np.repeat(found.first - every * found.offsets[:-1], counts) + every * np.arange(
            counts.sum()
        )
        values, err, certainty = self.results(relation, found.tail, found.head, closing)
        made = self.closings(relation, every, found[:3], values, err, certainty)
        return self.finite(made, values)

    def answer(self, relation: Relation, possible: bool) -> Relation:
        """Compute the results as segments; the input has possible rows also where the output has none."""
        made = self.segments(relation)
        return made if possible else made.without_possible()

    def _instants(self, relation: Relation) -> IntArray:
        """Return the microsecond of each point; several of one instant lie within the timeline's tolerance of it."""
        ranges = np.flatnonzero(relation.lo != relation.hi)
        if len(ranges):
            raise OperatorError(
                f"window {self.function}({self.argument}): expected points, got a range of {relation.where(int(ranges[0]))}"
            )
        return split(relation.ref, relation.lo)[0]

    def results(
        self, relation: Relation, tail: IntArray, head: IntArray, closing: IntArray
    ) -> tuple[FloatArray, FloatArray, CertaintyArray]:
        """Return values, bounds and certainties of the rows ``tail[i]:head[i]`` at closing times; spans never move back."""
        x = evaluate(relation.models[self.argument], relation.lo)
        e = relation.err[self.argument]
        sure, held = relation.certainty == CERTAIN, relation.certainty >= LIKELY
        if sure.all():
            values, err = self.reduce(x, e, tail, head)
            return values, err, np.full(len(tail), CERTAIN, np.uint8)
        # Use the rows on the model; in a window without any, the possible ones.
        some, doubted, certainty = standing(relation.certainty, tail, head)
        values, err = self.reduce(x, e, tail, head)
        mine = np.flatnonzero(held)
        first, last = (np.searchsorted(mine, ends) for ends in (tail[some], head[some]))
        values[some], err[some] = self.reduce(x[mine], e[mine], first, last)
        err = np.where(doubted, err + self._doubt(x, e, ~sure, tail, head), err)
        return values, err, certainty

    def reduce(
        self, x: FloatArray, e: FloatArray, tail: IntArray, head: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return values and bounds of spans of rows that all take part."""
        count = (head - tail).astype(np.float64)
        exact = not e.any()
        if self.function == "count":
            return count, np.zeros(len(tail))
        if self.function in ("min", "max"):
            sign = 1.0 if self.function == "max" else -1.0
            values = sign * aggregate_spans(sign * x, tail, head, MAX)
            return values, np.zeros(len(tail)) if exact else aggregate_spans(e, tail, head, MAX)
        values = aggregate_spans(x, tail, head, SUM)
        err = np.zeros(len(tail)) if exact else aggregate_spans(e, tail, head, SUM) * GROWN
        if self.function == "avg":
            values, err = values / count, err / count * GROWN
        return values, err + point_rounding(x, values, tail, head, count if self.function == "avg" else None)

    def _doubt(
        self, x: FloatArray, e: FloatArray, unsure: CertaintyArray, tail: IntArray, head: IntArray
    ) -> FloatArray:
        """Bound how much rows that take part only possibly may change the results."""
        if self.function in ("sum", "count"):
            each = np.abs(x) + e if self.function == "sum" else np.ones(len(x))
            return aggregate_spans(np.where(unsure, each, 0.0), tail, head, SUM)
        return aggregate_spans(x + e, tail, head, MAX) + aggregate_spans(e - x, tail, head, MAX)

    def why_not_patched(self, *, counted: bool) -> str | None:
        if self.function == "avg" and not counted:
            return "an average of tuples does not determine their number, and they are not stored"
        return super().why_not_patched(counted=counted)

    def equations(self, size: str) -> tuple[str, ...]:
        what = f"{self.function} of the tuples of {self.argument}"
        return (f"{self.function}: {self.output}(t) = {what} in [t - {size}, t), constant between changes",)

    # -- inversion ------------------------------------------------------------------------------------------

    def gain(self, relation: Relation) -> float:
        """Return for a sum the number of tuples in the fullest window, each of which errs."""
        if self.function != "sum":
            return 1.0
        spans = window_pieces(self._instants(relation), relation.offsets, self.size)
        return float((spans.head - spans.tail).max(initial=1))

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        # The number of tuples decides the error of a sum.
        return UNKNOWN if self.function in ("sum", "count") else Fit(fit.error)


def standing(
    certainty: CertaintyArray, tail: IntArray, head: IntArray
) -> tuple[BoolArray, BoolArray, CertaintyArray]:
    """Return which spans of tuples have some on the model, which have some that take part only possibly, and their certainty."""
    some = aggregate_spans((certainty >= LIKELY).astype(np.float64), tail, head, MAX) > 0.0
    doubted = aggregate_spans((certainty < CERTAIN).astype(np.float64), tail, head, MAX) > 0.0
    return some, doubted, np.where(some, np.where(doubted, LIKELY, CERTAIN), POSSIBLE).astype(np.uint8)


def point_rounding(
    x: FloatArray, values: FloatArray, tail: IntArray, head: IntArray, divisor: FloatArray | None
) -> FloatArray:
    """Bound the rounding of a sum, or with a ``divisor`` of a mean, equal to ``values``, of any of the rows ``tail[i]:head[i]``.

    A double-double is rounded to a double; with ``n`` terms it is accurate to ``n`` of its own units.
    """
    count = (head - tail).astype(np.float64)
    size = np.abs(values)
    rounded = np.zeros(len(tail))
    if not _sums_are_exact(x, count):
        largest = aggregate_spans(np.abs(x), tail, head, MAX)
        rounded = 2.0 * UNIT * size + 4.0 * UNIT**2 * count**2 * largest
        rounded = np.where(count > 1.0, rounded * GROWN, 0.0)
    if divisor is not None:
        small = (size < SMALL) & (divisor > 1.0) & x.any()
        rounded += np.where(np.frexp(divisor)[0] == 0.5, 0.0, UNIT * size) + np.where(small, TINY, 0.0)
    return rounded


_FINEST = 2.0**20


def _sums_are_exact(x: FloatArray, count: FloatArray) -> bool:
    """Test whether no sum of so many of these numbers is rounded: multiples of 2^-20 that stay below 2^33."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x * _FINEST
    most = float(np.abs(scaled).max(initial=0.0)) * float(count.max(initial=0.0))
    return most < 2.0**53 and bool((scaled == np.rint(scaled)).all())
