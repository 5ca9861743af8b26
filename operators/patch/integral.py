"""Patch window sums and averages: add the integral of the change to the stored result (semantics 7.5).

With ``d = new - old``, zero where nothing changed, ``W_new(t) = W_old(t) + ∫ d over [t - size, t)``: linear, so exact up to
rounding. The stored bound stays valid if the bounds of the input are unchanged at every instant: err, drift and certainty of old
and new rows must be equal, and no hole may open or close. A corrected model includes its rounding in err and drift
(:data:`~pulse.operators.patch.base.SLIGHT`): increases by ``e`` and ``f`` add at most ``max(e, 2 f / size)`` to the bound of an
average, ``size`` times that to the bound of a sum. So

* values equal those of a replay up to rounding (well below 1e-9 of the terms added);
* bounds are those of the stored rows. A replay also cuts rows at the new knots and bounds each part on its own, so a
  patched bound is never smaller than the replayed one at any instant, and both are valid.

Everything else falls back to a replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.pieces.align import coefficients_at
from pulse.kernels.polynomial.arithmetic import add, subtract
from pulse.kernels.windows.average_on_grid import window_averages_every
from pulse.kernels.windows.integral import window_integral
from pulse.operators.data.relation import Relation
from pulse.operators.patch.base import (
    Patch,
    PatchFunction,
    PatchInput,
    common,
    compared,
    filled,
    places,
    recut,
    revalued,
)


@dataclass(frozen=True)
class PatchIntegral(Patch):
    """The patch of :class:`~pulse.operators.windows.integral.Integral`."""

    def check(self, old: Relation, new: Relation, results: Relation) -> BoolArray:
        found = compared(old.ranges_only(), new.ranges_only(), self.argument, bounds=True)
        some: BoolArray = found.alike & (np.diff(found.cells.offsets) > 0)
        return some

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, around, _ = given
        whole, more = self._changed(old, new, around)
        offsets, ref, lo, hi, c, _, _ = window_integral(
            whole.ref, whole.lo, whole.hi, whole.c, whole.offsets, self.size
        )
        if self.function == "avg":
            c = c / (self.size / 1e6)
        change = PatchFunction(offsets, ref, lo, hi, c)
        both = common(results, change)
        value = add(
            coefficients_at(both, 0, results.ref, results.models[self.output]),
            coefficients_at(both, 1, change.ref, change.c),
        )
        err = results.err[self.output][both.index[:, 0]] + np.repeat(more, np.diff(both.offsets))
        return recut(results, both, {self.output: value}, {self.output: err})

    def _changed(
        self, old: Relation, new: Relation, around: tuple[IntArray, IntArray]
    ) -> tuple[PatchFunction, FloatArray]:
        """Return ``new - old``, filled around with zero, and per group the increase of a result's bound."""
        old, new = old.ranges_only(), new.ranges_only()
        found = compared(old, new, self.argument, bounds=True)
        cells = found.cells
        d = subtract(
            coefficients_at(cells, 1, new.ref, new.models[self.argument]),
            coefficients_at(cells, 0, old.ref, old.models[self.argument]),
        )
        size = self.size / 1e6
        more = np.maximum(found.more_err * size, 2.0 * found.more_drift)
        if self.function == "avg":
            more = more / size
        return filled(cells, d, around, np.zeros(len(cells.offsets) - 1)), more


@dataclass(frozen=True)
class IntegralClosings(PatchIntegral):
    """The patch of sums and averages over ranges at closing times."""

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, around, _ = given
        whole, more = self._changed(old, new, around)
        (found,) = window_averages_every(
            (whole.ref, whole.lo, whole.hi, whole.c),
            whole.offsets,
            (np.zeros(len(whole.ref)), None, None),
            sizes_us=[self.size],
            advance_us=self.every,
            total=self.function == "sum",
        )
        at = places(found, results, self.every)
        value = results.models[self.output][:, 0] + found.values[at]
        return revalued(
            results, self.output, value, results.err[self.output] + more[results.group] + found.err[at]
        )
