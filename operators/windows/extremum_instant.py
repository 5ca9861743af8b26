"""Find when a window reaches its smallest or largest value, per key (semantics 3.6).

The value is a number: the seconds from the closing time ``t`` to that instant, at most 0, so that ``t + min_at(x)`` is the
instant and what is later is larger. Tuples show the instant itself.

1 Transforms: where the extremum is the model at the window's tail it is ``-size``, at its head 0, and in between, at an instant
  ``s``, ``s - t`` (:mod:`pulse.kernels.windows.extremum`). Of several instants with one value it is the earliest. Points take
  part. Windows that touch a hole, or reach outside, have no result.
2 Bounds: every instant at which a truth within the bounds may reach its extremum: those of ``m - e <= min (m + e)`` over the
  window (:mod:`pulse.kernels.windows.extremum_instants`), and a nanosecond for the instants themselves. So a window that is flat
  within its bound errs by up to its size, and two valleys of one depth by their distance. On pieces of the closing time this
  holds for all their windows; pieces are cut, down to a sixteenth of the size, where it would be wider than for each of them.
3 Inverts: to a bound of 0. A time has no share of a bound on values: in a flat window none but 0 will do, if any.
4 Revises: upstream by replaying all rows that shared a window.
5 Accents: an alteration is increasing, so the extremum stays where it is (semantics 8.1, 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, CertaintyArray
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.kernels.pieces.window_cover import touched
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import GROWN, UNIT
from pulse.kernels.windows.ends_on_grid import window_ends_every
from pulse.kernels.windows.extremum import HEAD, STEP, SlidingPieces, sliding_extremum
from pulse.kernels.windows.extremum_instants import Model, Reached, first_at_most, highest_of, reached
from pulse.kernels.windows.monotone_parts import best_before, monotone_parts, where_reached
from pulse.kernels.windows.window_spans import Spans, spans_of
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.windows.base import INSTANTS, WindowFunction, least_certain, present
from pulse.operators.windows.extremum import cut_at_changes
from pulse.operators.windows.instant_pieces import Pieces, Windows, bound_instants, cut_evenly, cut_on_grid
from pulse.operators.windows.running_integral import Running
from pulse.operators.windows.tuple_window import PointWindow, standing


@dataclass(frozen=True)
class _Instants(WindowFunction):
    """What ``min_at`` and ``max_at`` share, whatever the window."""

    known: ClassVar[tuple[str, ...]] = INSTANTS

    def model(self, relation: Relation) -> Model:
        """Return the argument's model, negated for maxima."""
        return model_of(relation, self.argument, self.function)

    def gain(self, relation: Relation) -> float:
        return np.inf

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return UNKNOWN


def model_of(relation: Relation, argument: str, function: str) -> Model:
    """Return an attribute's model, negated for maxima."""
    model = Model(relation.lo, relation.hi, relation.models[argument], relation.err[argument])
    return model if function == "min_at" else model.negated()


def instants_in(
    model: Model, relation: Relation, spans: Spans, closing: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds from closing times to the minima of spans of rows, and their bounds.

    Of rows that take part only possibly any may be there: they are candidates, but promise no minimum. The model's is that of the
    rows on the model; in a span without any, of the possible ones.
    """
    sure, held = relation.certainty == CERTAIN, relation.certainty >= LIKELY
    if sure.all():
        return _seconds(relation, reached(model, spans, highest_of(model, spans)), closing)
    highest = highest_of(model, spans, sure)
    some, _, _ = standing(relation.certainty, spans.first, spans.stop)
    values, err = np.zeros(len(closing)), np.zeros(len(closing))
    for mine, of in ((np.flatnonzero(some), held), (np.flatnonzero(~some), None)):
        found = reached(model, spans.take(mine), highest[mine], of)
        values[mine], err[mine] = _seconds(relation, found, closing[mine])
    return values, err


def _seconds(
    relation: Relation, found: Reached, closing: IntArray, size: float = np.inf
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds from closing times to instants, and how far candidates are from these."""

    def since(row: IntArray, at: FloatArray) -> FloatArray:
        return np.clip((relation.ref[row] - closing) / MICROSECONDS + at, -size, 0.0)

    values, first, last = (
        since(found.row, found.at),
        since(found.first, found.begin),
        since(found.last, found.end),
    )
    scale = np.abs(found.at) + np.abs(found.begin) + np.abs(found.end) + np.abs(values) + np.abs(first)
    far = np.maximum(np.maximum(values - first, last - values), 0.0)
    return values, far * GROWN + GRAIN + 8.0 * UNIT * scale


@dataclass(frozen=True)
class ExtremumInstant(_Instants):
    """The window aggregate ``min_at`` or ``max_at``."""

    may_stay: ClassVar[bool] = True
    results_per_row: ClassVar[float] = 1.0

    def segments(self, relation: Relation) -> Relation:
        model = self.model(relation)
        found = sliding_extremum(relation.ref, model.lo, model.hi, model.c, relation.offsets, self.size)
        made, pieces = self._cut(relation, found)
        ranges = (relation.ref, relation.lo, relation.hi)

        def spans(pieces: Pieces, opens: FloatArray, closes: FloatArray, *, outward: bool) -> Spans:
            instants = (pieces.ref - self.size, opens), (pieces.ref, closes)
            group = relation.group[pieces.own]
            return spans_of(ranges, relation.offsets, group, *instants, outward=outward)

        windows = Windows(
            lambda pieces: spans(pieces, pieces.lo, pieces.hi, outward=True),
            lambda pieces: spans(pieces, pieces.hi, pieces.lo, outward=False),
            self.size / MICROSECONDS,
        )
        steps = dict.fromkeys(max(self.size >> by, 1) for by in range(5))
        cuts = tuple(partial(cut_on_grid, step=step) for step in steps)
        bounded = bound_instants(pieces, model, relation.ref, windows, cuts)
        parts = bounded.pieces
        offsets = np.searchsorted(bounded.source, made.offsets).astype(np.int64)
        first, last, _ = touched(
            (*ranges, relation.offsets), model.err, (parts.ref, parts.lo, parts.hi, offsets), self.size
        )
        lineage = None if relation.lineage is None else relation.lineage.spans(first, last)
        certainty = least_certain(relation.certainty, first, last)
        table = (offsets, parts.ref, parts.lo, parts.hi)
        return self.pieces(relation, table, bounded.c, bounded.err, certainty, lineage)

    def _cut(self, relation: Relation, found: SlidingPieces) -> tuple[Relation, Pieces]:
        """Return the pieces of the extremum, cut where the certainty of their windows changes."""
        none = np.zeros(len(found.ref))
        table = (found.offsets, found.ref, found.lo, found.hi)
        made = self.pieces(relation, table, found.c, none, none.astype(np.uint8), None)
        rows, lo, hi = cut_at_changes(made, relation, self.size)
        pieces = Pieces(found.ref, found.lo, found.hi, found.kind, found.source, found.at, found.source)
        return made.take(rows, lo=lo, hi=hi), pieces.take(rows)._replace(lo=lo, hi=hi)

    def samples(self, relation: Relation, every: int) -> Samples:
        rows = present(relation)
        none = np.zeros(len(rows))
        found = window_ends_every(
            (rows.ref, rows.lo, rows.hi, none[:, None]),
            rows.offsets,
            err=none,
            size_us=self.size,
            advance_us=every,
            closing=True,
        )
        places = (found.group, found.first, found.offsets)
        counts = np.diff(found.offsets)
        closing = np.repeat(found.first - every * found.offsets[:-1], counts)
        closing += every * np.arange(len(closing))
        if not len(closing):
            return self.closings(rows, every, places, none[:0], none[:0], rows.certainty[:0])
        model, zero = self.model(rows), np.zeros(len(closing))
        outer, inner = (
            spans_of(
                (rows.ref, rows.lo, rows.hi),
                rows.offsets,
                np.repeat(found.group, counts),
                (closing - self.size, zero),
                (closing, zero),
                outward=outward,
            )
            for outward in (True, False)
        )
        instants = reached(model, outer, highest_of(model, inner))
        values, err = _seconds(rows, instants, closing, self.size / MICROSECONDS)
        certainty = least_certain(rows.certainty, outer.first, outer.last)
        return self.closings(rows, every, places, values, err, certainty)

    def equations(self, size: str) -> tuple[str, ...]:
        least = "smallest" if self.function == "min_at" else "largest"
        return (
            f"{self.function}: t + {self.output}(t) = the first instant of [t - {size}, t) at which {self.argument} is {least}",
        )


def running_instants(cut: Relation, function: str, argument: str, first: IntArray) -> Running:
    """Return the seconds to the instant of the extremum so far: of the rows from ``first`` of each row up to each instant.

    While the argument is the extremum so far, the instant is that of the result; else it stays where that was reached first.
    """
    model = model_of(cut, argument, function)
    row, lo, hi = monotone_parts(model.c, cut.lo, cut.hi)
    c, held = model.c[row], cut.certainty[row] >= LIKELY
    begin, end = evaluate(c, lo), evaluate(c, hi)
    least = np.where(held, np.minimum(begin, end), np.inf)
    start, n = np.searchsorted(row, first[row]), np.arange(len(row))
    before = -best_before(-least, start)
    falls = end < np.minimum(before, begin)
    crosses = falls & (begin > before)
    cross = np.where(crosses, where_reached(-c, lo, hi, -before, crosses), lo)
    there = np.where(before <= begin, first_at_most(least, before, start, n), n)
    at = np.where((there == n) | (begin[there] <= end[there]), lo[there], hi[there])
    flat, moves = np.flatnonzero(~falls | (lo < cross)), np.flatnonzero(falls & (cross < hi))
    part = np.concatenate((flat, moves))
    kind = np.repeat([STEP, HEAD], [len(flat), len(moves)])
    order = np.lexsort((kind, part))
    part, kind = part[order], kind[order]
    own, stays = row[part], kind == STEP
    pieces = Pieces(
        cut.ref[own],
        np.where(stays, lo[part], cross[part]),
        np.where(stays & falls[part], cross[part], hi[part]),
        kind,
        np.where(stays, row[there[part]], own),
        np.where(stays, at[part], 0.0),
        own,
    )

    def spans(pieces: Pieces, end: FloatArray) -> Spans:
        begins = first[pieces.own]
        return Spans(begins, pieces.own + 1, cut.lo[begins], end)

    sure = cut.certainty == CERTAIN
    windows = Windows(
        lambda pieces: spans(pieces, pieces.hi),
        lambda pieces: spans(pieces, pieces.lo),
        np.inf,
        None if sure.all() else sure,
    )
    bounded = bound_instants(pieces, model, cut.ref, windows, (partial(cut_evenly, parts=8),) * 2)
    made = bounded.pieces
    return Running(made.own, made.ref, made.lo, made.hi, bounded.c, bounded.err)


@dataclass(frozen=True)
class TupleExtremumInstant(_Instants, PointWindow):
    """The window aggregate ``min_at`` or ``max_at`` over tuples."""

    patches: ClassVar = None
    slope: ClassVar[float] = -1.0

    def results(
        self, relation: Relation, tail: IntArray, head: IntArray, closing: IntArray
    ) -> tuple[FloatArray, FloatArray, CertaintyArray]:
        spans = Spans(tail, head, relation.lo[tail], relation.lo[head - 1])
        values, err = instants_in(self.model(relation), relation, spans, closing)
        return values, err, standing(relation.certainty, tail, head)[2]

    def equations(self, size: str) -> tuple[str, ...]:
        least = "smallest" if self.function == "min_at" else "largest"
        return (
            f"{self.function}: t + {self.output}(t) = the instant of the first tuple in [t - {size}, t) with the {least} "
            f"{self.argument}",
        )
