"""Sum and average over a window, per key (semantics 3.5).

1 Transforms: the integral over ``[t - size, t)`` as a function of the closing time ``t`` is a polynomial, one degree
  higher, between any two instants at which an end of the window passes from one segment to the next: ``tail +
  constant + head``. The average is that over the size. Windows that touch a hole, or reach outside, have no result.
  Points have no measure.
2 Bounds: of an average ``min(mean of err over the window, (drift at head + drift at tail) / size)``, of a sum that
  times the size. The mean of err is linear in ``t`` on a piece, so that it is largest at an end.
3 Inverts: a bound on the average to ``err <= bound``, or ``drift <= bound * size / 2`` (semantics 4.3).
4 Revises: upstream by replaying what shared a window; downstream by adding what the integral changed by (semantics 7.5),
  where bounds stay and no hole opens or closes (:mod:`pulse.operators.patch_integral`).
5 Accents: foundation is what the window is on; an alteration of the argument acts on results as on segments
  (semantics 8.2, 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.kernels.integral import window_integral
from pulse.kernels.polynomial import evaluate
from pulse.operators.errors import DomainError
from pulse.operators.relation import Relation
from pulse.operators.window import WindowFunction, least_certain


@dataclass(frozen=True)
class Integral(WindowFunction):
    """``sum`` or ``avg``, by the integral."""

    def segments(self, relation: Relation) -> Relation:
        """The results as segments in the closing time."""
        rows = relation.ranges_only()
        offsets, ref, lo, hi, c, head, tail = window_integral(
            rows.ref, rows.lo, rows.hi, rows.models[self.argument], rows.offsets, self.size
        )
        err = self._errors(rows, lo, head, tail)
        if self.function == "avg":
            c, err = c / (self.size / 1e6), err / (self.size / 1e6)
        made = replace(
            rows,
            columns=self.columns(relation.columns),
            offsets=offsets,
            ref=ref,
            lo=lo,
            hi=hi,
            models={self.output: c},
            err={self.output: err},
            drift={},
            certainty=least_certain(rows.certainty, tail, head),
            unmodelled={},
            lineage=None if rows.lineage is None else rows.lineage.spans(tail, head),
        )
        finite = np.isfinite(c).all(axis=1)
        if not finite.all():
            raise DomainError(
                f"window {self.function}({self.argument}): the result for {made.where(int(finite.argmin()))} is beyond "
                "the range of floating-point numbers; scale the attribute down first"
            )
        return made

    def _errors(self, rows: Relation, lo: FloatArray, head: IntArray, tail: IntArray) -> FloatArray:
        """Bounds of the integral, one per piece."""
        err = rows.err[self.argument]
        if not err.any():
            return np.zeros(len(lo))
        # Cells depend on ranges alone, so these are the very pieces of the integral itself.
        _, _, e_lo, e_hi, e, _, _ = window_integral(
            rows.ref, rows.lo, rows.hi, err[:, None], rows.offsets, self.size
        )
        assert len(e) == len(lo)
        largest: FloatArray = np.maximum(np.maximum(evaluate(e, e_lo), evaluate(e, e_hi)), 0.0)
        drift = rows.drift.get(self.argument)
        return largest if drift is None else np.minimum(largest, drift[head] + drift[tail])
