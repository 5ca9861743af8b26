"""Patch window extrema: take the better of the stored result and the new values if the old ones never attained it (7.5).

For ``max``: where every withdrawn value lies strictly below every result of a window that held it, those results came from other
values, and ``M_new(t) = max(M_old(t), max of the new values in [t - size, t))``. ``min`` alike. Points, holes that open or close
and changed certainty are left to a replay. So

* values equal those of a replay: the same polynomials, chosen by the same comparison;
* the bound of a result is the larger of the stored one and the new rows' bounds: no smaller than a replay's, which takes the
  largest bound of the current rows, and valid, as the extremum's truth belongs to one of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.kernels.pieces.align import Pieces, align_pair, coefficients_at
from pulse.kernels.pieces.envelope import envelope
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.windows.extremum import sliding_extremum
from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from pulse.operators.data.relation import Relation
from pulse.operators.output.diff import TOLERANCE
from pulse.operators.patch.base import (
    Patch,
    PatchFunction,
    PatchInput,
    compared,
    filled,
    places,
    recut,
    revalued,
)


@dataclass(frozen=True)
class PatchExtremum(Patch):
    """The patch of :class:`~pulse.operators.windows.extremum.Extremum`."""

    def check(self, old: Relation, new: Relation, results: Relation) -> BoolArray:
        found = compared(old, new, self.argument, bounds=False)
        points = _any(old.is_point, old.offsets) | _any(new.is_point, new.offsets)
        some = (np.diff(old.offsets) > 0) & (np.diff(results.offsets) > 0)
        # The withdrawn value closest to being the extremum.
        worst = self._best(old, self.argument, least=False)
        weakest = self._best(results, self.output, least=True)
        clear = TOLERANCE * (np.abs(worst) + np.abs(weakest))
        with np.errstate(invalid="ignore"):
            beaten = weakest - worst > clear
        good: BoolArray = found.alike & ~points & some & beaten
        return good

    def _best(self, relation: Relation, name: str, *, least: bool) -> FloatArray:
        """Return per group the best value (or the least of its values) in the order of ``max``."""
        sign = 1.0 if self.function == "max" else -1.0
        low, high, _ = bounds(relation.models[name], relation.lo, relation.hi)
        values = np.minimum(sign * low, sign * high) if least else np.maximum(sign * low, sign * high)
        out = np.full(relation.groups, np.inf if least else -np.inf)
        (np.minimum if least else np.maximum).at(out, relation.group, values)
        return out

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, around, _ = given
        upper = self.function == "max"
        whole = self._news(old, new, results, around)
        top = sliding_extremum(whole.ref, whole.lo, whole.hi, whole.c, whole.offsets, self.size, upper=upper)
        width = max(top.c.shape[1], results.models[self.output].shape[1])
        ref = np.concatenate([results.ref, top.ref])
        lo, hi = np.concatenate([results.lo, top.lo]), np.concatenate([results.hi, top.hi])
        c = np.concatenate([_wide(results.models[self.output], width), _wide(top.c, width)])
        # In every group the results are one function and the new values' windows the other.
        n = results.groups
        starts = np.stack([results.offsets[:-1], top.offsets[:-1] + len(results)], axis=1).ravel()
        ends = np.stack([results.offsets[1:], top.offsets[1:] + len(results)], axis=1).ravel()
        counts = ends - starts
        offsets = np.concatenate(([0], np.cumsum(counts)))
        rows = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        best = envelope(ref[rows], lo[rows], hi[rows], c[rows], offsets, 2 * np.arange(n + 1), upper=upper)
        source = rows[best.source]
        cells = align_pair(
            Pieces(results.ref, results.lo, results.hi),
            Pieces(ref[source], best.lo, best.hi),
            results.offsets,
            best.offsets,
        )
        value = coefficients_at(cells, 1, ref[source], c[source])
        group = np.repeat(np.arange(n), np.diff(cells.offsets))
        err = np.maximum(results.err[self.output][cells.index[:, 0]], self._largest(new)[group])
        return recut(results, cells, {self.output: value}, {self.output: err})

    def _news(
        self, old: Relation, new: Relation, results: Relation, around: tuple[IntArray, IntArray]
    ) -> PatchFunction:
        """Return the new values, filled around with a value that never wins."""
        cells = compared(old, new, self.argument, bounds=False).cells
        lowest = np.minimum(
            self._best(results, self.output, least=True), self._best(new, self.argument, least=True)
        )
        lowest -= np.maximum(np.abs(lowest), 1.0)
        c = coefficients_at(cells, 1, new.ref, new.models[self.argument])
        return filled(cells, c, around, lowest if self.function == "max" else -lowest)

    def _largest(self, new: Relation) -> FloatArray:
        """Return per group the largest bound of the new values."""
        found = np.zeros(new.groups)
        np.maximum.at(found, new.group, new.err[self.argument])
        return found


@dataclass(frozen=True)
class ExtremumClosings(PatchExtremum):
    """The patch of extrema over ranges at closing times."""

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, around, _ = given
        whole, upper = self._news(old, new, results, around), self.function == "max"
        n = len(whole.ref)
        found = window_extremum_every(
            (whole.ref, whole.lo, whole.hi, whole.c),
            whole.offsets,
            err=np.zeros(n),
            certainty=np.full(n, CERTAIN, np.uint8),
            size_us=self.size,
            advance_us=self.every,
            upper=upper,
        )
        by = found.values[places(found, results, self.every)]
        value = (np.maximum if upper else np.minimum)(results.models[self.output][:, 0], by)
        err = np.maximum(results.err[self.output], self._largest(new)[results.group])
        return revalued(results, self.output, value, err)


def _any(marks: BoolArray, offsets: IntArray) -> BoolArray:
    count = np.concatenate(([0], np.cumsum(marks)))
    found: BoolArray = count[offsets[1:]] > count[offsets[:-1]]
    return found


def _wide(c: FloatArray, width: int) -> FloatArray:
    return c if c.shape[1] == width else np.pad(c, ((0, 0), (0, width - c.shape[1])))
