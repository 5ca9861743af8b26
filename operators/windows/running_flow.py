"""Add up a flow from the opening of a period up to each instant, per key: volume since the open (semantics 3.5).

1 Transforms: the running total of the flow less its value before the period opens, ``F(t) - F(opening⁻)``, ``t`` included, from
  the key's first tuple to its newest, through holes.
2 Bounds: those of the two values together, and their rounding.
3 Inverts, 4 revises, 5 accents: as sums of flows over windows (:mod:`pulse.operators.windows.flow`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse.core.calendar import Periods
from pulse.kernels.rounding import GROWN, sum_rounding
from pulse.operators.data.relation import Relation
from pulse.operators.windows.base import present
from pulse.operators.windows.flow import FlowSum
from pulse.operators.windows.flow_ratio import RATIO, FlowRatio
from pulse.operators.windows.key_totals import KeyTotals
from pulse.operators.windows.period_spans import spans_by


@dataclass(frozen=True)
class RunningFlow(FlowSum):
    """The sum of a flow from the opening of each period up to each of its instants."""

    periods: Periods | None = None

    def segments(self, relation: Relation) -> Relation:
        assert self.periods is not None
        totals = KeyTotals.of(present(relation), self.argument, 1)
        lead = np.zeros(len(totals.pieces), dtype=np.bool_)
        lead[totals.pieces.offsets[:-1]] = True
        rows = totals.pieces.take(np.flatnonzero(~lead))
        spans = spans_by(rows, self.periods)
        cut = rows.take(spans.row, lo=spans.lo, hi=spans.hi)
        first, last = totals.first, totals.last
        none = np.zeros((0, 2), dtype=np.int64)
        periods = self.periods.whole(int(first.min()), int(last.max()) + 1) if len(first) else none
        opens = periods[np.searchsorted(periods[:, 1], spans.close), 0]
        before, off, _ = totals.at(spans.group, np.maximum(opens, first[spans.group]) - 1)
        count = np.diff(np.append(spans.start, len(spans.row)))
        c = cut.models[self.argument]
        base = np.zeros_like(c)
        base[:, 0] = -np.repeat(before, count)
        made = c + base
        err = (cut.err[self.argument] + np.repeat(off, count)) * GROWN
        err += sum_rounding(made, c, base, cut.lo, cut.hi)
        pieces = (cut.offsets, cut.ref, cut.lo, cut.hi)
        return self.finite(self.pieces(cut, pieces, made, err, cut.certainty, cut.lineage), made)

    def equations(self, size: str) -> tuple[str, ...]:
        return (
            f"sum: {self.output}(t) = {self.argument}(t) - {self.argument}(opening⁻), of the running total {self.argument}",
        )


@dataclass(frozen=True)
class RunningRatio(FlowRatio):
    """The quotient of the sums of two flows from the opening of each period up to each of its instants."""

    periods: Periods | None = None

    known: ClassVar[tuple[str, ...]] = (RATIO,)

    def sums(self, *names: str) -> tuple[FlowSum, ...]:
        return tuple(
            RunningFlow("sum", argument, name, self.size, periods=self.periods)
            for argument, name in zip(self.names, names, strict=True)
        )

    def equations(self, size: str) -> tuple[str, ...]:
        return (f"{self.output}(t) = sum of {self.argument} / sum of {self.other}, since the opening",)
