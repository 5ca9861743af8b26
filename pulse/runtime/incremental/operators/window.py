"""Propagate deltas through a window: replay its input or patch its stored results, whichever costs less.

Stretches whose results cannot be patched after all (a hole opens, a bound moves, the extremum itself is withdrawn) fall back to a
replay and are counted. Both modes give the same revisions: values to rounding, bounds valid and never smaller than a replay's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.operators.patch.extremum import PatchExtremum
from pulse.operators.patch.integral import PatchIntegral
from pulse.operators.patch.tuple_window import PatchPoints
from pulse.plan.modes import Costs, kind_of, why_not_downstream
from pulse.runtime.incremental.delta import BeforeAfter, Delta, KeyRanges, changed_rows, extents
from pulse.runtime.incremental.operators.base import (
    ADAPTIVE,
    DOWNSTREAM,
    UPSTREAM,
    IncrementalScan,
    IncrementalWindow,
    overlapping,
)

Patch = PatchIntegral | PatchExtremum | PatchPoints
_PATCHES: dict[str, type[Patch]] = {
    "integral": PatchIntegral,
    "extremum": PatchExtremum,
    "points": PatchPoints,
}
_ROOM = 1_000_000  # microseconds beyond all affected windows
_STORED = {"integral": 2.0, "extremum": 0.5, "points": 2.0}
"""Estimated results per input row, where none are stored to count."""


class PatchedWindow(IncrementalWindow):
    """A window that replays or patches. ``mode`` forces one, "adaptive" goes by ``costs``."""

    def __init__(self, *arguments: Any) -> None:
        *base, mode, costs = arguments
        super().__init__(*base)
        self._mode: str = mode
        self._costs: Costs = costs
        self._balance = 0.0  # microseconds that patches would have saved, less what they would have cost
        self._kind = kind_of(self.node)
        self._patch = _PATCHES[self._kind](
            self.node.function, self.node.argument, self.node.output, self.size
        )

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        return self.changed(below)

    def changed(self, below: Delta) -> Delta:
        """Return the delta of the results for the input's delta."""
        affected = self.affected(below.stretches)
        patch = np.zeros(len(affected), bool)
        if self._mode != UPSTREAM and why_not_downstream(self.node) is None:
            self.sync()
            if self._mode == ADAPTIVE:
                wanted = self._cheaper_to_patch(affected)
                patch = wanted if self.point is not None else patch
            elif self.point is not None:
                patch = ~patch
        parts: list[Delta] = []
        if patch.any():
            chosen = np.flatnonzero(patch)
            made, good = self._patched(below, affected, chosen)
            patch[chosen[~good]] = False
            self.flow.fell_back += int((~good).sum())
            parts.append(made)
        self._count(DOWNSTREAM, int(patch.sum()))
        if not patch.all():
            self._count(UPSTREAM, int((~patch).sum()))
            parts.append(self.upstream(affected.take(~patch)))
        return parts[0] if len(parts) == 1 else _concat(parts)

    def _count(self, mode: str, stretches: int) -> None:
        if stretches:
            self.flow.modes[mode] = self.flow.modes.get(mode, 0) + stretches

    # -- which mode -----------------------------------------------------------------------------------------

    def _cheaper_to_patch(self, affected: KeyRanges) -> BoolArray:
        """Return which stretches cost less to patch, and account for the gain of storing results."""
        replayed, stored = self.replayed(affected), self.stored(affected)
        self._balance += self._costs.gain(self._kind, replayed, stored)
        return self._costs.choose(self._kind, replayed, stored)

    def stored(self, affected: KeyRanges) -> IntArray:
        """Count the results that a patch processes in each stretch."""
        if self.point is not None:
            return self.point.count(affected)
        guess: IntArray = np.ceil(_STORED[self._kind] * self.inputs[0].estimate(affected)).astype(np.int64)
        return guess

    @property
    def optional(self) -> bool:
        """Return whether storing results is optional: so for a window whose input is stored."""
        return self._mode == ADAPTIVE and isinstance(self.inputs[0], IncrementalScan)

    @property
    def has_costs(self) -> bool:
        """Return whether revisions have measured what storing results saves."""
        return self._balance != 0.0

    def pays_off(self) -> bool:
        """Decide whether to store results: at first by a change in the middle of the input's longest key, then by measured costs.

        The decision flips when the other mode would have saved as much as computing all results again.
        """
        point = self.inputs[0].point
        assert point is not None
        if why_not_downstream(self.node) is not None or not len(point):
            return False
        if not self.has_costs and self.point is None:
            code, at = point.middle()
            affected = self.affected(KeyRanges(np.array([code]), np.array([at]), np.array([at + 1])))
            return len(affected) > 0 and bool(
                self._costs.choose(self._kind, self.replayed(affected), self.stored(affected))[0]
            )
        again = self._costs.again(self._kind, len(point))
        self._balance = min(max(self._balance, -again), again)
        if abs(self._balance) < again:
            return self.point is not None
        return self._balance > 0.0

    def replayed(self, affected: KeyRanges) -> IntArray:
        """Count the rows that a replay processes in each stretch."""
        return 2 * self.inputs[0].estimate(affected.widened(self.size, 0))

    def _concerned(self, affected: KeyRanges, results: Relation) -> Relation:
        """Return the results of the windows that contain the change; rows may extend beyond them."""
        closings = affected.widened(-self.stays, -self.stays)
        every = np.arange(len(affected))
        return overlapping(BeforeAfter(closings, results, every, every)).relation

    @property
    def size(self) -> int:
        """Return the window's size in microseconds."""
        assert isinstance(self.node.size, int)
        return self.node.size

    def _patched(self, below: Delta, affected: KeyRanges, chosen: IntArray) -> tuple[Delta, BoolArray]:
        """Patch the chosen stretches; return the delta and which of them could be patched."""
        assert self.point is not None
        # Changes whose windows overlap are patched together.
        first = np.searchsorted(
            _holders(affected, self.first_affected(below.stretches)), np.arange(len(affected))
        )
        ends = np.append(first[1:], len(below))
        old, new = (_grouped(one, first, ends) for one in (below.old_rows, below.new_rows))
        results = self.point.content(affected.take(chosen)).relation
        if len(chosen) < len(affected):
            old, new = old.select_groups(chosen), new.select_groups(chosen)
        concerned = self._concerned(affected.take(chosen), results)
        good = self._patch.check(old, new, concerned) & (np.diff(results.offsets) > 0)
        some = np.flatnonzero(good)
        if len(some) < len(good):
            old, new, results = (one.select_groups(some) for one in (old, new, results))
        stretches = affected.take(chosen[some])
        inputs = old, new, results, self._around(stretches, results)
        if isinstance(self._patch, PatchPoints):
            made = self._patch.patched(*inputs, lambda group, times: self._held(stretches.code[group], times))
        else:
            made = self._patch.patched(*inputs)
        n = len(some)
        both = BeforeAfter(stretches, Relation.concat([results, made]), np.arange(n), np.arange(n, 2 * n))
        # Changes below the tolerance count too: the next patch starts from the stored results.
        return changed_rows(both, least=0.0), good

    def first_affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return for each change a stretch of results that it affects."""
        return stretches

    def _held(self, code: IntArray, closings: IntArray) -> IntArray:
        """Count the tuples in the windows that close at these instants."""
        return self.inputs[0].estimate(KeyRanges(code, closings - self.size, closings))

    def _around(self, stretches: KeyRanges, results: Relation) -> tuple[IntArray, IntArray]:
        """Return a time range that covers all windows of these results."""
        start, end = extents(results)
        first, last = results.offsets[:-1], results.offsets[1:] - 1
        begin = np.minimum(stretches.start, start[first]) - self.size - _ROOM
        return begin, np.maximum(stretches.end, end[last]) + _ROOM


def _holders(stretches: KeyRanges, others: KeyRanges) -> IntArray:
    """Return the stretch that contains each of the others; both ascend by code and time."""
    code = others.code
    spans = np.stack(
        [np.searchsorted(stretches.code, code), np.searchsorted(stretches.code, code, "right")], axis=1
    )
    ranges = np.stack([others.start, others.end], axis=1)
    return locate(stretches.start, stretches.end, spans, ranges)[:, 0]


def _grouped(relation: Relation, first: IntArray, ends: IntArray) -> Relation:
    """Merge consecutive groups ``first[i]:ends[i]`` into one each, under the key of the first."""
    index = pa.array(first)
    offsets = np.append(relation.offsets[first], relation.offsets[ends[-1:]])
    return replace(relation, keys=tuple(column.take(index) for column in relation.keys), offsets=offsets)


def _concat(parts: list[Delta]) -> Delta:
    """Concatenate deltas of different stretches."""
    relation = Relation.concat([one.relation for one in parts])
    shift = np.cumsum([0, *(len(one.relation) for one in parts)])
    old = np.concatenate([one.old + by for one, by in zip(parts, shift, strict=False)])
    new = np.concatenate([one.new + by for one, by in zip(parts, shift, strict=False)])
    code, start, end = (
        np.concatenate([getattr(one.stretches, name) for one in parts]) for name in ("code", "start", "end")
    )
    order = np.lexsort((start, code))
    return Delta(
        KeyRanges(code, start, end).take(order),
        relation,
        old[order],
        new[order],
        absorbed=sum(one.absorbed for one in parts),
    )
