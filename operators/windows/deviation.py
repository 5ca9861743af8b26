"""Compute the standard deviation or variance over a window, per key (semantics 3.5).

1 Transforms: time-weighted and of the whole population, ``variance = avg((x - avg(x))²)`` over ``[t - size, t)``, about the
  window's own mean, so that nothing cancels (:mod:`pulse.kernels.windows.moments`). The variance is a polynomial in ``t`` between
  any two instants at which an end of the window passes from one segment to the next; its root is approximated on pieces. Windows
  that touch a hole, or reach outside, have no result. A flat window has deviation 0.
2 Bounds: a deviation is a seminorm, so it errs by at most the root mean square ``r`` of model minus truth in the window, known
  from certified squared errors and at most ``err``; a variance by ``2 s r + r²``. With drifts a variance errs by at most
  ``2 k + r²``, ``k`` the coupling of the model with its error (:mod:`pulse.operators.windows.moments`). Rounding and the
  approximation of the root are added.
3 Inverts: a bound on the deviation to the bound itself; one on the variance, ``b``, to ``b / (2 s + √b)`` with the largest
  deviation (semantics 4.3).
4 Revises: upstream by replaying all rows that shared a window.
5 Accents: an alteration scales the deviation, and the variance by its square; a shift leaves both as they are (semantics 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.kernels.rounding import GROWN, UNIT, evaluation
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.windows.moment_cells import Cells
from pulse.operators.windows.moment_pieces import Pieces, fit_root, on_pieces
from pulse.operators.windows.moments import MomentFunction, Statistic, deviation_error, variance_error
from pulse.stream.units.affine import Affine


@dataclass(frozen=True)
class Deviation(MomentFunction):
    """The window aggregate ``stddev`` or ``variance``."""

    known: ClassVar[tuple[str, ...]] = ("stddev", "variance")

    def value(
        self, x: Statistic, y: Statistic, covariance: FloatArray, rounding: FloatArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        exists = np.ones(len(x.low), bool)
        if self.function == "stddev":
            return x.low, x.err, exists
        square = x.low * x.low
        rounding = (2.0 * x.low + x.rounding) * x.rounding + UNIT * square
        return square, variance_error(x, x.radius) + rounding * GROWN, exists

    def on_cells(self, cells: Cells) -> tuple[Pieces | None, FloatArray, FloatArray]:
        whole = self.statistic(cells.x, None, cells)
        if self.function == "variance":
            c, e = cells.x.variance, cells.x.error
            err = variance_error(whole, e) + cells.x.rounding
            return None, c, err + evaluation(c, cells.lo, cells.hi)
        caused = deviation_error(whole.high, cells.x.error, cells.x.coupling, np.zeros(len(cells.ref)))
        pieces = on_pieces(
            (cells.ref, cells.lo, cells.hi),
            (cells.x.variance,),
            fit_root,
            self.tolerance(caused, whole.high),
            (None,),
        )
        return pieces, pieces.c, self.statistic(cells.x, pieces, cells).err + pieces.err

    def equations(self, size: str) -> tuple[str, ...]:
        root = "√" if self.function == "stddev" else ""
        x = self.argument
        return (
            f"{self.function}: {self.output}(t) = {root}(1/({size}) ∫ ({x} - m)² dt from t - {size} to t)",
            f"m = 1/({size}) ∫ {x} dt, the mean of the same window",
        )

    # -- inversion and accents ------------------------------------------------------------------------------

    def needed(self, need: FloatArray, *worst: FloatArray) -> FloatArray:
        return need if self.function == "stddev" else need / (2.0 * worst[1] + np.sqrt(need))

    def gain(self, relation: Relation) -> float:
        return 1.0 if self.function == "stddev" else super().gain(relation)

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        return Fit(fit.error) if self.function == "stddev" else UNKNOWN

    def derived_output(self) -> DerivedOutput:
        power = 1 if self.function == "stddev" else 2
        return DerivedOutput.aggregated(self.output, self.argument, lambda map: Affine(map.a**power))
