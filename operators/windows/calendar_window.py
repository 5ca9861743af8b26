"""Aggregate each key over each period of a calendar, a session of an exchange or a day: one result a period, as it closes.

1 Transforms: the rows of a period are cut at its opening and closing; ``sum`` is their integral, ``avg`` that by the time they
  cover, ``min`` and ``max`` their extremum, ``first`` and ``last`` the value as they begin and end; a point, such as the tuple
  before a silence, has no length, but a value. Unlike a sliding window a
  period needs not be covered: a session's first trade comes after its opening. A period without any row has no result. The
  result is a point at the closing time, so that it is a tuple. Tuples of a period are aggregated as those of a window.
2 Bounds: an integral errs by the integral of the bounds, or by the drift at both ends of each stretch without a hole; an
  extremum by the largest distance that any row's bound can move it; the others by the bound of their row. Rows that take part
  only possibly add what they could change.
3 Inverts: passes the bound to each row of the period; that of a sum is divided by the period's length.
4 Revises: upstream, by replaying the rows of the periods that a change touches.
5 Accents: as windows (semantics 8.2, 8.4), on closing times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.calendar import Periods
from pulse.core.certainty import CERTAIN, LIKELY, CertaintyArray
from pulse.core.columns import Columns
from pulse.kernels.polynomial.arithmetic import evaluate, integrate
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, TERM, UNIT, evaluation, magnitudes
from pulse.kernels.windows.window_spans import Spans as RowSpans
from pulse.operators.data.relation import Relation
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.incremental.base import IncrementalOperator, Maintenance, overlapping
from pulse.operators.incremental.delta import BeforeAfter
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.node import Node, plan_node
from pulse.operators.reach import Reach
from pulse.operators.windows.base import INSTANTS, WindowFunction, present
from pulse.operators.windows.extremum_instant import instants_in, model_of
from pulse.operators.windows.flow import FlowOfPeriods
from pulse.operators.windows.flow_ratio import RatioOfPeriods
from pulse.operators.windows.functions import OVER_TUPLES
from pulse.operators.windows.incremental_window import IncrementalWindow
from pulse.operators.windows.period_spans import Spans, spans_by
from pulse.operators.windows.tuple_window import PointWindow
from pulse.operators.windows.window import Window

OVER_PERIODS = ("min", "max", "sum", "avg", "first", "last", *INSTANTS)
"""The functions of a period; over tuples also count."""


@dataclass(frozen=True)
class PeriodAggregate(WindowFunction):
    """An aggregate over periods; ``size`` is the length that none exceeds."""

    periods: Periods | None = None

    known: ClassVar[tuple[str, ...]] = (*OVER_PERIODS, "count")

    def columns(self, before: Columns) -> Columns:
        return Columns(before.key, (self.output,), (), before.time, True, instants=self.instants)

    def answer(self, relation: Relation, possible: bool) -> Relation:
        made = self.segments(relation)
        return made if possible else made.without_possible()

    def cut(self, relation: Relation) -> tuple[Relation, Spans]:
        """Return the rows that count, and their parts in the periods."""
        rows = present(relation)
        if self.function in ("sum", "avg") and not rows.columns.points:
            rows = rows.ranges_only()
        assert self.periods is not None
        return rows, spans_by(rows, self.periods)

    def segments(self, relation: Relation) -> Relation:
        rows, spans = self.cut(relation)
        if rows.columns.points:
            values, err, certainty = self._of_tuples(rows, spans)
        else:
            values, err, certainty = self._of_ranges(rows, spans)
        stop = spans.last
        offsets = np.searchsorted(spans.group, np.arange(rows.groups + 1)).astype(np.int64)
        zero = np.zeros(len(values))
        lineage = None
        if rows.lineage is not None:
            lineage = rows.lineage.spans(spans.row[spans.start], spans.row[stop])
        made = self.pieces(rows, (offsets, spans.close, zero, zero), values[:, None], err, certainty, lineage)
        return self.finite(made, values)

    def _of_tuples(self, rows: Relation, spans: Spans) -> tuple[FloatArray, FloatArray, CertaintyArray]:
        operator = OVER_TUPLES[self.function](self.function, self.argument, self.output, self.size)
        assert isinstance(operator, PointWindow)
        return operator.results(rows, spans.row[spans.start], spans.row[spans.last] + 1, spans.close)

    def _of_ranges(self, rows: Relation, spans: Spans) -> tuple[FloatArray, FloatArray, CertaintyArray]:
        certain = rows.certainty[spans.row]
        if not len(certain):
            return np.zeros(0), np.zeros(0), certain
        if self.gives_instants:
            cut = rows.take(spans.row, lo=spans.lo, hi=spans.hi)
            whole = RowSpans(spans.start, spans.last + 1, spans.lo[spans.start], spans.hi[spans.last])
            values, err = instants_in(model_of(cut, self.argument, self.function), cut, whole, spans.close)
            return values, err, np.maximum.reduceat(certain, spans.start)
        if certain.min() == CERTAIN:
            return *self._values(rows, spans), np.full(len(spans.start), CERTAIN, np.uint8)
        # Use the rows on the model; in a period without any, the possible ones.
        best = np.maximum.reduceat(certain, spans.start)
        count = np.diff(np.append(spans.start, len(certain)))
        kept = (certain >= LIKELY) | np.repeat(best < LIKELY, count)
        values, err = self._values(rows, spans.only(kept))
        doubted = np.minimum.reduceat(certain, spans.start) < CERTAIN
        return values, err + np.where(doubted, self._doubt(rows, spans), 0.0), best

    def _values(self, rows: Relation, spans: Spans) -> tuple[FloatArray, FloatArray]:
        """Return values and bounds over rows that all take part."""
        row, lo, hi, start = spans.row, spans.lo, spans.hi, spans.start
        c, e = rows.models[self.argument][row], rows.err[self.argument][row]
        if self.function in ("sum", "avg"):
            return self._integral(rows, spans, c, e)
        of = self._end if self.function in ("first", "last") else self._extremum
        return of(c, e + evaluation(c, lo, hi), lo, hi, start)

    def _end(
        self, c: FloatArray, e: FloatArray, lo: FloatArray, hi: FloatArray, start: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        at = start if self.function == "first" else np.append(start[1:], len(lo)) - 1
        return evaluate(c[at], (lo if self.function == "first" else hi)[at]), e[at] * GROWN

    def _extremum(
        self, c: FloatArray, e: FloatArray, lo: FloatArray, hi: FloatArray, start: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """The truth's maximum lies between the largest ``x - e`` and the largest ``x + e``; a minimum is mirrored."""
        sign = 1.0 if self.function == "max" else -1.0
        low, high, _ = bounds(c, lo, hi)
        x = high if self.function == "max" else -low
        values = np.maximum.reduceat(x, start)
        above = np.maximum.reduceat(x + e, start) - values
        below = values - np.maximum.reduceat(x - e, start)
        return sign * values, np.maximum(above, below) * GROWN + 2.0 * UNIT * np.abs(values) * (above > 0.0)

    def _integral(
        self, rows: Relation, spans: Spans, c: FloatArray, e: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        lo, hi, start = spans.lo, spans.hi, spans.start
        length = hi - lo
        parts = integrate(c, lo, hi)
        count = np.diff(np.append(start, len(lo)))
        # Ends are rounded to a unit of the time's own size; each part and each sum adds its own roundings.
        scale = magnitudes(c, lo, hi) * (length + np.maximum(np.abs(lo), np.abs(hi)))
        rounding = np.add.reduceat(TERM * (c.shape[1] + 2) * scale, start)
        rounding += UNIT * count * np.add.reduceat(np.abs(parts), start)
        by_bound = self._stretches(rows, spans, e * length)
        values, err = np.add.reduceat(parts, start), (np.add.reduceat(by_bound, start) + rounding) * GROWN
        if self.function == "sum":
            return values, err
        covered = np.add.reduceat(length, start)
        off = np.add.reduceat(UNIT * 4 * (np.abs(lo) + np.abs(hi)), start) + UNIT * count * covered
        values = values / covered
        return values, (err / covered + np.abs(values) * (off / covered + 2 * UNIT)) * GROWN

    def _stretches(self, rows: Relation, spans: Spans, integrals: FloatArray) -> FloatArray:
        """Return the error of each part's integral: by its bound, or by the drift where that is less for its stretch."""
        drift = rows.drift.get(self.argument)
        if drift is None:
            return integrals
        row, lo, hi = spans.row, spans.lo, spans.hi
        ends, begins = rows.ref[row] + hi * 1e6, rows.ref[row] + lo * 1e6
        fresh = np.ones(len(row), bool)
        fresh[1:] = np.abs(begins[1:] - ends[:-1]) > 0.5
        fresh[spans.start] = True
        at = np.flatnonzero(fresh)
        last = np.append(at[1:], len(row)) - 1
        whole = np.minimum(np.add.reduceat(integrals, at) * GROWN, drift[row[at]] + drift[row[last]])
        made = np.zeros(len(row))
        made[at] = whole
        return made

    def _doubt(self, rows: Relation, spans: Spans) -> FloatArray:
        """Bound how much rows that take part only possibly may change the results."""
        row, lo, hi, start = spans.row, spans.lo, spans.hi, spans.start
        c = rows.models[self.argument][row]
        e = rows.err[self.argument][row] + evaluation(c, lo, hi)
        low, high, _ = bounds(c, lo, hi)
        if self.function == "sum":
            most = np.where(rows.certainty[row] < CERTAIN, np.maximum(np.abs(low), np.abs(high)) + e, 0.0)
            doubt = np.add.reduceat(most * (hi - lo), start)
        else:
            doubt = np.maximum.reduceat(high + e, start) - np.minimum.reduceat(low - e, start)
        grown: FloatArray = doubt * GROWN
        return grown

    # -- inversion ------------------------------------------------------------------------------------------

    def gain(self, relation: Relation) -> float:
        if self.gives_instants:
            return np.inf
        return self.size / 1e6 if self.function == "sum" else 1.0

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return UNKNOWN if self.function in ("sum", "count", *INSTANTS) else Fit(fit.error)

    # -- explain --------------------------------------------------------------------------------------------

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"{self.function}: {self.output} at each closing time = {self.function} of {self.argument} in the period",
        )


class IncrementalCalendarWindow(IncrementalWindow):
    """Propagate deltas through periods: results within the requested stretches are complete, others are dropped."""

    def _complete(self, made: BeforeAfter) -> BeforeAfter:
        return overlapping(made)


@plan_node
class CalendarWindow(Window):
    """``function`` of ``argument`` per key over each period of a calendar, a point at its closing time."""

    periods: Periods = field(kw_only=True)

    @classmethod
    def of(
        cls,
        input: Node,
        function: str,
        argument: str,
        output: str,
        periods: Periods,
        other: str | None = None,
    ) -> Self:
        """Return the aggregate over each of the periods."""
        return cls(input, function, argument, output, periods.longest, None, other, periods=periods)

    @cached_property
    def columns(self) -> Columns:
        return self.operator.columns(self.input.columns)

    # -- evaluation -----------------------------------------------------------------------------------------

    keeps_samples = False
    closes = False

    kinds: ClassVar[tuple[Callable[..., WindowFunction], ...]] = (
        PeriodAggregate,
        FlowOfPeriods,
        RatioOfPeriods,
    )
    """The functions of values, of flows, and of quotients of two flows."""

    @property
    def operator(self) -> WindowFunction:
        of_values, of_flows, of_ratios = self.kinds
        kind = of_values
        if self.is_of_flow:
            kind = of_flows if self.other is None else of_ratios
        of = self.function, self.argument, self.output, self.periods.longest, None, self.other
        return kind(*of, periods=self.periods)

    def content(self, run: PlanEvaluation, possible: bool) -> Relation:
        return run.segments(self.input, True)

    # -- revisions ------------------------------------------------------------------------------------------

    takes_possible = True

    @property
    def need(self) -> Reach:
        return Reach(self.periods.longest, 0)

    def incremental(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        return IncrementalCalendarWindow(self, view, possible, inputs, margin)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Window {self.output} = {self.function}({self.argument}) over {self.periods}"
