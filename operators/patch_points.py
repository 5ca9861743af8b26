"""Aggregates over windows of tuples, patched: subtract the old value, add the new (semantics 7.5, 7.8).

Tuples replaced at their instants leave every window the tuples it had, so a sum changes by the difference of their values, a
count not at all, and an extremum only as far as a new value beats it, while the old one did not make it. Insertions and
deletions, bounds and certainty that change, and averages, whose count is not stored, are left to a replay. Bounds stay as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import CERTAIN
from pulse.core.instants import split
from pulse.kernels.align import Cells, coefficients_at
from pulse.kernels.point_window import MAX, SUM, aggregate_spans, window_pieces
from pulse.kernels.polynomial import evaluate
from pulse.operators.difference import TOLERANCE
from pulse.operators.patch import Function, common, filled, recut
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class PatchPoints:
    """As :class:`~pulse.operators.point_window.PointWindow`."""

    function: str
    argument: str
    output: str
    size: int

    def check(self, old: Relation, new: Relation, results: Relation) -> BoolArray:
        """Which groups can be patched."""
        n = old.groups
        good: BoolArray = (np.diff(old.offsets) == np.diff(new.offsets)) & (np.diff(results.offsets) > 0)
        good &= self.function != "avg"
        as_many = np.flatnonzero(good)
        one, other = old.select_groups(as_many), new.select_groups(as_many)
        same = split(one.ref, one.lo)[0] == split(other.ref, other.lo)[0]
        same &= one.err[self.argument] == other.err[self.argument]
        same &= (one.certainty == CERTAIN) & (other.certainty == CERTAIN)
        np.logical_and.at(good, as_many[one.group], same)
        if self.function in ("min", "max"):
            sign = 1.0 if self.function == "max" else -1.0
            worst, weakest = np.full(n, -np.inf), np.full(n, np.inf)
            np.maximum.at(worst, old.group, sign * evaluate(old.models[self.argument], old.lo))
            np.minimum.at(weakest, results.group, sign * results.models[self.output][:, 0])
            with np.errstate(invalid="ignore"):
                good &= weakest - worst > TOLERANCE * (np.abs(weakest) + np.abs(worst))
        return good

    def patched(
        self, old: Relation, new: Relation, results: Relation, around: tuple[IntArray, IntArray]
    ) -> Relation:
        """The results with ``new`` in place of ``old``; all can be patched. ``around`` holds all their windows."""
        x = evaluate(new.models[self.argument], new.lo)
        sums = self.function not in ("min", "max")
        sign = -1.0 if self.function == "min" else 1.0
        if self.function == "count":
            x = np.zeros(len(x))
        elif sums:
            x = x - evaluate(old.models[self.argument], old.lo)
        instants = split(new.ref, new.lo)[0]
        spans = window_pieces(instants, new.offsets, self.size)
        values = sign * aggregate_spans(sign * x, spans.tail, spans.head, SUM if sums else MAX)
        zero = np.zeros(len(values))
        windows = Cells(
            spans.offsets,
            spans.start,
            zero,
            (spans.end - spans.start) / 1e6,
            np.zeros((len(values), 2), np.int64),
        )
        fill = np.zeros(new.groups)
        if not sums:  # a value that beats nothing
            low = np.full(new.groups, np.inf)
            np.minimum.at(low, results.group, sign * results.models[self.output][:, 0])
            fill = sign * (low - np.maximum(np.abs(low), 1.0))
        change: Function = filled(windows, values[:, None], around, fill)
        both = common(results, change)
        was = coefficients_at(both, 0, results.ref, results.models[self.output])
        by = coefficients_at(both, 1, change.ref, change.c)
        value = was + by if sums else sign * np.maximum(sign * was, sign * by)
        err = results.err[self.output][both.index[:, 0]]
        return recut(results, both, {self.output: value}, {self.output: err})
