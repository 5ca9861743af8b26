"""Patch aggregates over windows of tuples: subtract the old value, add the new (semantics 7.5, 7.8).

Replacing tuples at their instants keeps every window's tuples, so a sum changes by the difference of their values, a
count not at all, and an extremum only if a new value beats it, provided that the old one did not attain it. An average changes by
the difference divided by the number of tuples, which the caller supplies, as it is not stored. Insertions, deletions and changes
of bounds or certainty are left to a replay. Bounds stay unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.core.instants import nearest_microsecond, split
from pulse.kernels.pieces.align import Cells, coefficients_at
from pulse.kernels.pieces.range_lookup import locate
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.windows.tuple_window import MAX, SUM, aggregate_spans, window_pieces
from pulse.operators.data.relation import Relation
from pulse.operators.output.diff import TOLERANCE
from pulse.operators.patch.base import (
    Count,
    Patch,
    PatchFunction,
    PatchInput,
    closings,
    common,
    filled,
    recut,
    revalued,
)


@dataclass(frozen=True)
class PatchPoints(Patch):
    """The patch of :class:`~pulse.operators.windows.tuple_window.PointWindow`."""

    def check(self, old: Relation, new: Relation, results: Relation) -> BoolArray:
        good: BoolArray = (np.diff(old.offsets) == np.diff(new.offsets)) & (np.diff(results.offsets) > 0)
        if self.function not in ("sum", "count"):
            # The number of tuples must be certain; and the bound of an uncertain extremum, the width of the window's values,
            # changes with any of the values.
            np.logical_and.at(good, results.group, results.certainty == CERTAIN)
        as_many = np.flatnonzero(good)
        one, other = old.select_groups(as_many), new.select_groups(as_many)
        same = split(one.ref, one.lo)[0] == split(other.ref, other.lo)[0]
        same &= one.err[self.argument] == other.err[self.argument]
        same &= (one.certainty == CERTAIN) & (other.certainty == CERTAIN)
        np.logical_and.at(good, as_many[one.group], same)
        if not self._sums:
            worst, weakest = np.full(old.groups, -np.inf), self._weakest(results)
            np.maximum.at(worst, old.group, self._sign * evaluate(old.models[self.argument], old.lo))
            with np.errstate(invalid="ignore"):
                good &= weakest - worst > TOLERANCE * (np.abs(weakest) + np.abs(worst))
        return good

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, around, count = given
        spans = window_pieces(split(new.ref, new.lo)[0], new.offsets, self.size)
        values = self._changes(old, new, spans.tail, spans.head)
        zero = np.zeros(len(values))
        windows = Cells(
            spans.offsets,
            spans.start,
            zero,
            (spans.end - spans.start) / 1e6,
            np.zeros((len(values), 2), np.int64),
        )
        fill = np.zeros(new.groups)
        if not self._sums:  # a value that never wins
            low = self._weakest(results)
            fill = self._sign * (low - np.maximum(np.abs(low), 1.0))
        change: PatchFunction = filled(windows, values[:, None], around, fill)
        both = common(results, change)
        was = coefficients_at(both, 0, results.ref, results.models[self.output])
        by = coefficients_at(both, 1, change.ref, change.c)
        group = np.repeat(np.arange(new.groups), np.diff(both.offsets))
        at = nearest_microsecond(both.ref, both.lo)
        value = self._combined(was[:, 0], by[:, 0], group, at, count)
        err = results.err[self.output][both.index[:, 0]]
        return recut(results, both, {self.output: value[:, None]}, {self.output: err})

    @property
    def _sums(self) -> bool:
        return self.function not in ("min", "max")

    @property
    def _sign(self) -> float:
        return -1.0 if self.function == "min" else 1.0

    def _weakest(self, results: Relation) -> FloatArray:
        """Return per group the least result in the order of ``max``."""
        found = np.full(results.groups, np.inf)
        np.minimum.at(found, results.group, self._sign * results.models[self.output][:, 0])
        return found

    def _changes(self, old: Relation, new: Relation, tail: IntArray, head: IntArray) -> FloatArray:
        """Return the effect of the changed tuples ``tail[i]:head[i]`` on a window: their sum, or the best of them."""
        x = evaluate(new.models[self.argument], new.lo)
        if self.function == "count":
            x = np.zeros(len(x))
        elif self._sums:
            x = x - evaluate(old.models[self.argument], old.lo)
        found: FloatArray = self._sign * aggregate_spans(
            self._sign * x, tail, head, SUM if self._sums else MAX
        )
        return found

    def _combined(
        self, was: FloatArray, by: FloatArray, group: IntArray, at: IntArray, count: Count | None
    ) -> FloatArray:
        """Combine stored results of windows that close ``at`` these times with the changes in them."""
        sign = self._sign
        if not self._sums:
            best: FloatArray = sign * np.maximum(sign * was, sign * by)
            return best
        if self.function == "avg":
            if count is None:
                raise ValueError("patch of an average over tuples: expected a count of the tuples, got None")
            by = by / np.maximum(count(group, at), 1)
        return was + by


@dataclass(frozen=True)
class PointClosings(PatchPoints):
    """The patch of windows over tuples at closing times."""

    def patched(self, given: PatchInput) -> Relation:
        old, new, results, _, count = given
        instants, group = split(new.ref, new.lo)[0], results.group
        spans = np.stack([new.offsets[group], new.offsets[group + 1]], axis=1)
        at = closings(results)
        held = locate(instants, instants + 1, spans, np.stack([at - self.size, at], axis=1))
        by = self._changes(old, new, held[:, 0], held[:, 1])
        value = self._combined(results.models[self.output][:, 0], by, group, at, count)
        return revalued(results, self.output, value, results.err[self.output])
