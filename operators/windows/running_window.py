"""Aggregate each key from the opening of a period up to each instant: since a session's opening, midnight, or the model's start.

1 Transforms: with ``x`` cut by the periods, the result at ``t`` is of all rows of its period up to ``t``, ``t`` included:
  ``last`` is ``x(t)`` itself, ``first`` the value as the rows begin, ``max`` and ``min`` the monotone envelope of ``x``, ``sum``
  the integral (:mod:`pulse.operators.windows.running_integral`), ``avg`` that by the time that rows cover. There is a result
  wherever ``x`` has a value; a hole within a period is passed over, as the time from its opening to the first row is.
  Of tuples it is a tuple at each of their instants, of all tuples of the period until then.
2 Bounds: an extremum errs by the distance to which the bounds of any row so far can move it, an integral by the bounds or the
  drift of the rows so far, the others by the bound of their row. Earlier rows that take part only possibly add what they could
  change; whether there is a result is as certain as the row itself.
3 Inverts: passes the bound to each row; that of a sum is divided by the length of the longest period.
4 Revises: upstream, by replaying the rows of the periods that a change touches.
5 Accents: as windows (semantics 8.2, 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.calendar import Since
from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.columns import Columns
from pulse.core.instants import split
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, UNIT, evaluation
from pulse.kernels.windows.monotone_parts import best_before, monotone_parts, where_reached
from pulse.kernels.windows.tuple_window import MAX, aggregate_spans
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import NoProgramError, Program, ProgramArc
from pulse.operators.node import Node, plan_node
from pulse.operators.windows.calendar_window import CalendarWindow, PeriodAggregate
from pulse.operators.windows.extremum_instant import running_instants
from pulse.operators.windows.functions import OVER_TUPLES
from pulse.operators.windows.running_flow import RunningFlow, RunningRatio
from pulse.operators.windows.running_integral import Running, running_average, running_integral
from pulse.operators.windows.tuple_window import PointWindow


@dataclass(frozen=True)
class RunningAggregate(PeriodAggregate):
    """An aggregate from the opening of each period up to each of its instants."""

    def columns(self, before: Columns) -> Columns:
        return Columns(before.key, (self.output,), (), before.time, before.points, instants=self.instants)

    def segments(self, relation: Relation) -> Relation:
        rows, spans = self.cut(relation)
        if rows.columns.points:
            return self._at_tuples(rows, spans.row, rows.group[spans.row], spans.row[spans.first_of_row])
        cut = rows.take(spans.row, lo=spans.lo, hi=spans.hi)
        first = spans.first_of_row
        if self.function in ("min", "max"):
            made = self._envelope(cut, first)
        elif self.gives_instants:
            made = running_instants(cut, self.function, self.argument, first)
        elif self.function == "last":
            c = cut.models[self.argument]
            made = Running(np.arange(len(cut)), cut.ref, cut.lo, cut.hi, c, cut.err[self.argument])
        elif self.function == "first":
            made = self._first(cut, first)
        else:
            of = running_integral if self.function == "sum" else running_average
            made = of(cut, self.argument, first)
        return self._made(cut, first, made)

    def _made(self, cut: Relation, first: IntArray, made: Running) -> Relation:
        offsets = np.searchsorted(made.row, cut.offsets).astype(np.int64)
        lineage = None
        if cut.lineage is not None:
            own = self.function == "last"
            lineage = cut.lineage.spans(made.row if own else first[made.row], made.row)
        pieces = offsets, made.ref, made.lo, made.hi
        result = self.pieces(cut, pieces, made.c, made.err, cut.certainty[made.row], lineage)
        return self.finite(result, made.c)

    def _at_tuples(self, rows: Relation, row: IntArray, group: IntArray, first: IntArray) -> Relation:
        """Aggregate tuples: at each instant all of the period until then, those of the instant included."""
        operator = OVER_TUPLES[self.function](self.function, self.argument, self.output, self.size)
        assert isinstance(operator, PointWindow)
        at = split(rows.ref[row], rows.lo[row])[0]
        last = np.ones(len(row), bool)
        last[:-1] = (at[1:] != at[:-1]) | (first[1:] != first[:-1])
        row, group, at, first = row[last], group[last], at[last], first[last]
        values, err, certainty = operator.results(rows, first, row + 1, at)
        offsets = np.searchsorted(group, np.arange(rows.groups + 1)).astype(np.int64)
        lineage = None if rows.lineage is None else rows.lineage.spans(first, row)
        zero = np.zeros(len(row))
        made = self.pieces(rows, (offsets, at, zero, zero), values[:, None], err, certainty, lineage)
        return self.finite(made, values)

    def _first(self, cut: Relation, first: IntArray) -> Running:
        """Return the value as the rows of each period begin; where these take part only possibly, any so far may be it."""
        c = cut.models[self.argument]
        e = cut.err[self.argument] + evaluation(c, cut.lo, cut.hi)
        n = np.arange(len(cut))
        held = np.where(cut.certainty >= LIKELY, -n.astype(np.float64), -np.inf)
        earliest = -aggregate_spans(held, first, n + 1, MAX) if len(n) else held
        at = np.where(np.isfinite(earliest), earliest, n).astype(np.int64)
        values, err = evaluate(c[at], cut.lo[at]), e[at] * GROWN
        doubted = cut.certainty[first] < CERTAIN
        if doubted.any():
            low, high, _ = bounds(c, cut.lo, cut.hi)
            most, least = (
                aggregate_spans(high + e, first, n + 1, MAX),
                -aggregate_spans(e - low, first, n + 1, MAX),
            )
            err = np.where(doubted, np.maximum(most - values, values - least) * GROWN, err)
        return Running(n, cut.ref, cut.lo, cut.hi, values[:, None], err)

    def _envelope(self, cut: Relation, first: IntArray) -> Running:
        """Return the monotone envelope: on stretches where ``x`` is monotone it is ``x``, or the best of all before.

        Three values are carried through a period, of the rows so far: the best of the model, and how good the truth's may be
        and is at least: ``most`` counts all rows, ``least`` only those that certainly take part.
        """
        sign = 1.0 if self.function == "max" else -1.0
        c = sign * cut.models[self.argument]
        e = cut.err[self.argument] + evaluation(c, cut.lo, cut.hi)
        row, lo, hi = monotone_parts(c, cut.lo, cut.hi)
        c, e, certainty = c[row], e[row], cut.certainty[row]
        begin, end = evaluate(c, lo), evaluate(c, hi)
        top, sure = np.maximum(begin, end), certainty == CERTAIN
        start = np.searchsorted(row, first[row])
        best = best_before(np.where(certainty >= LIKELY, top, -np.inf), start)
        most = best_before(top + e, start)
        least = best_before(np.where(sure, top - e, -np.inf), start)
        floor = np.maximum(best, begin)  # the envelope as the stretch begins
        rises = end > floor
        # Where x crosses the best so far it takes over; before, and where it falls, the best so far stays.
        cross = np.where(rises & (begin < best), where_reached(c, lo, hi, best, rises & (begin < best)), lo)
        above = np.maximum(most, np.minimum(top, floor) + e) - floor
        below = floor - np.maximum(least, np.where(sure, begin, np.minimum(begin, end)) - e)
        level = np.maximum(above, below) * GROWN + 2.0 * UNIT * np.abs(floor) * (np.maximum(above, below) > 0)
        moving = np.maximum(np.maximum(most - floor, e), 0.0) * GROWN
        flat, moves = ~rises | (lo < cross), rises & (cross < hi)
        n = np.arange(len(row))
        part = np.concatenate((n[flat], n[moves]))
        is_flat = np.repeat([True, False], [int(flat.sum()), int(moves.sum())])
        order = np.lexsort((~is_flat, part))
        part, is_flat = part[order], is_flat[order]
        made = c[part]
        made[is_flat] = 0.0
        made[is_flat, 0] = floor[part][is_flat]
        return Running(
            row[part],
            cut.ref[row][part],
            np.where(is_flat, lo[part], cross[part]),
            np.where(is_flat & rises[part], cross[part], hi[part]),
            sign * made + 0.0,  # no negative zeros
            np.where(is_flat, level[part], moving[part]),
        )

    # -- inversion ------------------------------------------------------------------------------------------

    def gain(self, relation: Relation) -> float:
        if self.function != "sum":
            return super().gain(relation)
        if not len(relation):
            return 1.0
        whole = (relation.ref / 1e6 + relation.hi).max() - (relation.ref / 1e6 + relation.lo).min()
        return float(min(self.size / 1e6, max(whole, 1.0)))

    # -- explain --------------------------------------------------------------------------------------------

    def equations(self, size: str) -> tuple[str, ...]:
        assert self.periods is not None
        return (
            f"{self.function}: {self.output}(t) = {self.function} of {self.argument} {Since(self.periods)} up to t",
        )


@plan_node
class RunningWindow(CalendarWindow):
    """``function`` of ``argument`` per key from the opening of each period up to each instant."""

    # -- evaluation -----------------------------------------------------------------------------------------

    is_window = False  # a result belongs to its own instant, not to the closing of a window

    kinds = (RunningAggregate, RunningFlow, RunningRatio)

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        return Node.samples(self, run, every)

    def compile(self, program: Program, rows: object) -> ProgramArc:
        raise NoProgramError(type(self).__name__)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Window {self.output} = {self.function}({self.argument}) {Since(self.periods)}"
