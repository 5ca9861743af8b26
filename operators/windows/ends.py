"""Compute the first or last value of a window, per key (semantics 3.5).

1 Transforms: ``first`` is the model at the window's opening, ``x(t - size)``: its segments, moved by the size. ``last`` is the
  model as the window closes, the limit of ``x`` from the left at ``t``. Windows that touch a hole, or reach outside, have no
  result, as with every function of a window, so that first, last, min and max of one window exist together. Points have no
  part in it. Over tuples it is the first or last tuple in the window; of one instant, the first or last that arrived.
2 Bounds: those of the row that the value is on, and the rounding of its evaluation. The certainty is the smallest of all rows
  in the window: each of them decides whether the window is covered.
3 Inverts: passes the bound itself to each contributing row (semantics 4.3).
4 Revises: upstream by replaying all rows that shared a window.
5 Accents: an alteration acts on results as on segments (semantics 8.2, 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.kernels.rounding import evaluation
from pulse.kernels.windows.ends_on_grid import window_ends_every
from pulse.kernels.windows.integral import window_integral
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.windows.base import WindowFunction, least_certain, present
from pulse.operators.windows.tuple_window import PointWindow


@dataclass(frozen=True)
class End(WindowFunction):
    """The window aggregate ``first`` or ``last``."""

    known: ClassVar[tuple[str, ...]] = ("first", "last")

    def segments(self, relation: Relation) -> Relation:
        rows = self._rows(relation)
        # The cells of the integral of 1: on each, the window opens in row `tail` and closes in row `head`.
        offsets, ref, lo, hi, _, head, tail = window_integral(
            rows.ref, rows.lo, rows.hi, np.ones((len(rows), 1)), rows.offsets, self.size
        )
        if self.function == "first":
            rows = replace(rows, ref=rows.ref + self.size)
        made = rows.take(tail if self.function == "first" else head, lo=lo, hi=hi, ref=ref)
        return self.pieces(
            relation,
            (offsets, ref, lo, hi),
            made.models[self.argument],
            made.err[self.argument],
            least_certain(rows.certainty, tail, head),
            None if rows.lineage is None else rows.lineage.spans(tail, head),
        )

    def samples(self, relation: Relation, every: int) -> Samples:
        rows = self._rows(present(relation))
        found = window_ends_every(
            (rows.ref, rows.lo, rows.hi, rows.models[self.argument]),
            rows.offsets,
            err=rows.err[self.argument],
            size_us=self.size,
            advance_us=every,
            closing=self.function == "last",
        )
        certainty = least_certain(rows.certainty, found.tail, found.head)
        return self.closings(rows, every, found[:3], found.values, found.err, certainty)

    def equations(self, size: str) -> tuple[str, ...]:
        at = f"t - {size}" if self.function == "first" else "t⁻"
        limit = "" if self.function == "first" else ", the limit from the left"
        return (f"{self.function}: {self.output}(t) = {self.argument}({at}){limit}",)

    def _rows(self, relation: Relation) -> Relation:
        """Return the rows that have a length, with the rounding of their evaluation added to their bound."""
        rows = relation.ranges_only()
        c = rows.models[self.argument]
        if c.shape[1] == 1:
            return rows
        err = rows.err[self.argument] + 4.0 * evaluation(c, rows.lo, rows.hi)
        return replace(rows, err={**rows.err, self.argument: err})


@dataclass(frozen=True)
class TupleEnd(PointWindow):
    """The window aggregate ``first`` or ``last`` over tuples."""

    known: ClassVar[tuple[str, ...]] = End.known
    patches: ClassVar = None

    def reduce(
        self, x: FloatArray, e: FloatArray, tail: IntArray, head: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        at = tail if self.function == "first" else head - 1
        return x[at], e[at]
