"""Patch results that exist at closing times only (semantics 3.8, 7.5).

A window that closes at ``t`` covers ``[t - size, t)``: it excludes a step that begins at ``t`` and one that ended at
``t - size``, so the result at ``t`` may differ from that at every instant nearby. The effect of changes on a window is therefore
evaluated directly at its closing time, as :mod:`pulse.operators.windows.on_grid` evaluates the window itself. The conditions for
a patch and the resulting bounds are those of results at all instants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.core.instants import nearest_microsecond, split
from pulse.kernels.pieces.range_lookup import locate
from pulse.kernels.windows.average_on_grid import GridWindows, window_averages_every
from pulse.kernels.windows.extremum_on_grid import window_extremum_every
from pulse.operators.data.relation import Relation
from pulse.operators.patch.base import PatchInput
from pulse.operators.patch.extremum import PatchExtremum
from pulse.operators.patch.integral import PatchIntegral
from pulse.operators.patch.tuple_window import PatchPoints


@dataclass(frozen=True)
class PointClosings(PatchPoints):
    """The patch of windows over tuples."""

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, _, count = given
        instants, group = split(new.ref, new.lo)[0], results.group
        spans = np.stack([new.offsets[group], new.offsets[group + 1]], axis=1)
        closings = _closings(results)
        held = locate(instants, instants + 1, spans, np.stack([closings - self.size, closings], axis=1))
        by = self._changes(old, new, held[:, 0], held[:, 1])
        value = self._combined(results.models[self.output][:, 0], by, group, closings, count)
        return _with(results, self.output, value, results.err[self.output])


@dataclass(frozen=True)
class IntegralClosings(PatchIntegral):
    """The patch of sums and averages over ranges."""

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
        at = _places(found, results, self.every)
        value = results.models[self.output][:, 0] + found.values[at]
        return _with(
            results, self.output, value, results.err[self.output] + more[results.group] + found.err[at]
        )


@dataclass(frozen=True)
class ExtremumClosings(PatchExtremum):
    """The patch of extrema over ranges."""

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
        by = found.values[_places(found, results, self.every)]
        value = (np.maximum if upper else np.minimum)(results.models[self.output][:, 0], by)
        err = np.maximum(results.err[self.output], self._largest(new)[results.group])
        return _with(results, self.output, value, err)


def _closings(results: Relation) -> IntArray:
    return nearest_microsecond(results.ref, results.lo)


def _places(found: GridWindows, results: Relation, every: int) -> IntArray:
    """Locate the results' windows among all that close around them; the time around a group has no hole."""
    stretch = np.searchsorted(found.group, results.group)
    places: IntArray = found.offsets[stretch] + (_closings(results) - found.first[stretch]) // every
    return places


def _with(results: Relation, output: str, value: FloatArray, err: FloatArray) -> Relation:
    """Replace values and bounds of results."""
    return replace(
        results, models={output: value[:, None]}, err={output: err}, drift={}, unmodelled={}, lineage=None
    )
