"""Add up a flow over a window, per key: the tuples in ``[t - size, t)``, without having them (semantics 3.5).

1 Transforms: the model of a flow is its running total ``F`` (semantics 2.2), so ``sum = F(t⁻) - F((t - size)⁻)``: the
  difference of two values of it, a polynomial between any two instants at which one of them passes to another piece. ``F``
  is zero before the key's first tuple, and constant in its silences and after its newest
  (:mod:`pulse.operators.windows.key_totals`), so windows that touch a hole have results, and those that close up to a window's
  size after the newest tuple. Instants are whole microseconds: ``t⁻`` is the microsecond before ``t``.
2 Bounds: those of the two values together, and their rounding; the same for a window of any size.
3 Inverts: half the bound to either value.
4 Revises: not by propagation, as a corrected tuple moves all totals after it; both versions can be asked.
5 Accents: a sum follows a scale of its flow, but no shift, as the number of tuples is unknown (semantics 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray
from pulse.core.calendar import Periods
from pulse.core.columns import Columns
from pulse.kernels.rounding import GROWN, sum_rounding
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.inversion.fit import Fit
from pulse.operators.relational.equi_join import common_cells, joined
from pulse.operators.windows.base import WindowFunction, present
from pulse.operators.windows.key_totals import KeyTotals


class _OfFlow:
    """What sums of flows share, over windows and periods."""

    output: str
    argument: str

    def gain(self, relation: Relation) -> float:
        return 2.0

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return Fit(None if fit.error is None else 0.5 * fit.error)

    def derived_output(self) -> DerivedOutput:
        return DerivedOutput.summed(self.output, self.argument)


@dataclass(frozen=True)
class FlowSum(_OfFlow, WindowFunction):
    """The window aggregate ``sum`` of a flow."""

    known: ClassVar[tuple[str, ...]] = ("sum",)
    may_stay: ClassVar[bool] = True

    def segments(self, relation: Relation) -> Relation:
        totals = KeyTotals.of(present(relation), self.argument, self.size)
        groups = np.arange(totals.pieces.groups)
        # The value as the window closes, from just after the first tuple on; and the value as it opens.
        inside = np.flatnonzero(~_is_lead(totals.pieces))
        head = _named(_later(totals.pieces.take(inside), 1), "head")
        tail = _named(_later(totals.pieces, self.size + 1), "tail")
        pairs = np.stack((groups, groups), axis=1)
        both = Columns((*head.columns.key, *tail.columns.key), ("head", "tail"), (), head.columns.time)
        made = joined(head, tail, pairs, common_cells(head, tail, pairs), both)
        first, second = made.models["head"], -made.models["tail"]
        c = first + second
        err = (made.err["head"] + made.err["tail"]) * GROWN
        err += sum_rounding(c, first, second, made.lo, made.hi)
        made = replace(made, keys=made.keys[: len(relation.keys)], columns=head.columns)
        pieces = (made.offsets, made.ref, made.lo, made.hi)
        return self.finite(self.pieces(made, pieces, c, err, made.certainty, made.lineage), c)

    def samples(self, relation: Relation, every: int) -> Samples:
        totals = KeyTotals.of(present(relation), self.argument, self.size)
        begin, end = -(-(totals.first + 1) // every), (totals.last + self.size) // every
        some = np.flatnonzero(begin <= end)
        count = (end - begin + 1)[some]
        offsets = np.concatenate(([0], np.cumsum(count)))
        group = np.repeat(some, count)
        closes = (np.repeat(begin[some] - offsets[:-1], count) + np.arange(offsets[-1])) * every
        values, err, (tail, head) = totals.between(group, closes - self.size, closes)
        certainty = np.minimum(totals.pieces.certainty[tail], totals.pieces.certainty[head])
        places = some, begin[some] * every, offsets
        made = self.closings(totals.pieces, every, places, values, err, certainty)
        return self.finite(made, values)

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"sum: {self.output}(t) = {self.argument}(t⁻) - {self.argument}((t - {size})⁻), of the running total {self.argument}",
        )


@dataclass(frozen=True)
class FlowOfPeriods(_OfFlow, WindowFunction):
    """The sum of a flow over each period of a calendar that the key's tuples reach, a point at its closing time."""

    periods: Periods | None = None

    known: ClassVar[tuple[str, ...]] = ("sum",)

    def columns(self, before: Columns) -> Columns:
        return Columns(before.key, (self.output,), (), before.time, True)

    def answer(self, relation: Relation, possible: bool) -> Relation:
        made = self.segments(relation)
        return made if possible else made.without_possible()

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"sum: {self.output} at each closing time = {self.argument}(closing⁻) - {self.argument}(opening⁻), of the running "
            f"total {self.argument}",
        )

    def segments(self, relation: Relation) -> Relation:
        assert self.periods is not None
        totals = KeyTotals.of(present(relation), self.argument, 2 * self.size)
        pieces, first, last = totals.pieces, totals.first, totals.last
        none = np.zeros((0, 2), dtype=np.int64)
        periods = self.periods.whole(int(first.min()), int(last.max())) if len(first) else none
        begin = np.searchsorted(periods[:, 1], first, side="right")
        count = np.maximum(np.searchsorted(periods[:, 0], last, side="right") - begin, 0)
        offsets = np.concatenate(([0], np.cumsum(count)))
        group = np.repeat(np.arange(pieces.groups), count)
        chosen = np.repeat(begin - offsets[:-1], count) + np.arange(offsets[-1])
        opens, closes = periods[chosen, 0], periods[chosen, 1]
        values, err, (tail, head) = totals.between(group, opens, closes)
        certainty = np.minimum(pieces.certainty[tail], pieces.certainty[head])
        zero = np.zeros(len(values))
        lineage = None
        if pieces.lineage is not None:
            lineage = Lineage.merge(pieces.lineage.take(tail), pieces.lineage.take(head))
        where = (offsets, closes, zero, zero)
        made = self.pieces(pieces, where, values[:, None], err, certainty, lineage)
        return self.finite(made, values)


def _is_lead(pieces: Relation) -> BoolArray:
    """Return which pieces are the zero before a group's first tuple."""
    lead = np.zeros(len(pieces), dtype=np.bool_)
    lead[pieces.offsets[:-1]] = True
    return lead


def _later(pieces: Relation, by: int) -> Relation:
    return replace(pieces, ref=pieces.ref + by)


def _named(pieces: Relation, name: str) -> Relation:
    (argument,) = pieces.columns.modelled
    columns = replace(pieces.columns, modelled=(name,))
    return pieces.only(columns, {name: argument})
