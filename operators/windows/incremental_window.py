"""Propagate deltas through a window: replay its input or patch its stored results, whichever costs less.

Stretches whose results cannot be patched after all (a hole opens, a bound moves, the extremum itself is withdrawn) fall back to a
replay and are counted. Both modes give the same revisions: values to rounding, bounds valid and never smaller than a replay's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.incremental.base import ADAPTIVE, DOWNSTREAM, UPSTREAM, IncrementalOperator, overlapping
from pulse.operators.incremental.delta import END_MARGIN, BeforeAfter, Delta, KeyRanges, changed_rows
from pulse.operators.patch.base import Patch, PatchInput

if TYPE_CHECKING:
    from pulse.operators.windows.window import Window

_ROOM = 1_000_000  # microseconds beyond all affected windows


class IncrementalWindow(IncrementalOperator):
    """An aggregate over a window, per key: replayed from all rows that share a window with a change, or patched.

    The view's mode forces one of them; "adaptive" goes by the costs.
    """

    node: Window

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._costs = self.view.costs or self.node.operator.costs
        self._balance = 0.0  # microseconds that patches would have saved, less what they would have cost

    @property
    def patch(self) -> Patch:
        """Return the patch of its results."""
        return self.node.operator.patch()

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        return self.changed(below)

    def changed(self, below: Delta) -> Delta:
        """Return the delta of the results for the input's delta."""
        affected = self.affected(below.stretches)
        patch = np.zeros(len(affected), bool)
        if self.view.mode != UPSTREAM and self.node.why_not_patched is None:
            self.sync()
            if self.view.mode == ADAPTIVE:
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
        self.count_mode(DOWNSTREAM, int(patch.sum()))
        if not patch.all():
            self.count_mode(UPSTREAM, int((~patch).sum()))
            parts.append(self.upstream(affected.take(~patch)))
        return parts[0] if len(parts) == 1 else _concat(parts)

    # -- replaying ------------------------------------------------------------------------------------------

    @property
    def stays(self) -> int:
        """Return how far a result row may extend beyond a change."""
        return self.node.need.after

    @property
    def size(self) -> int:
        """Return the window's size in microseconds."""
        return self.node.looks_back

    def applied(self, relation: Relation) -> Relation:
        return self.node.operator.answer(relation, self.possible)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        wide = self.node.need
        below = self.inputs[0].content(stretches.widened(wide.before + END_MARGIN, wide.after + END_MARGIN))
        return self._complete(BeforeAfter(stretches, self.applied(below.relation), below.before, below.after))

    def affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return where results can change when the input does, widened by how far rows may extend."""
        before, after = self.node.reach
        return stretches.widened(before + self.stays, after + self.stays + END_MARGIN).merged()

    def upstream(self, affected: KeyRanges) -> Delta:
        """Replay old and new results, and return their delta."""
        if self.point is None:
            affected = affected.widened(*self.margin).merged()
        below = self.inputs[0].content(affected.widened(self.size + END_MARGIN, END_MARGIN))
        whole = affected.widened(-self.stays, -self.stays)  # where rows are known whole
        made = self._complete(BeforeAfter(whole, self.applied(below.relation), below.before, below.after))
        if self.point is None:
            self.cache = made
        return changed_rows(made)

    def _complete(self, made: BeforeAfter) -> BeforeAfter:
        """Drop rows outside the requested stretches, computed from a part of their window only.

        Over ranges an incomplete window gives no result; over tuples it gives a wrong one.
        """
        return overlapping(made) if self.node.input.columns.points else made

    # -- which mode -----------------------------------------------------------------------------------------

    def _cheaper_to_patch(self, affected: KeyRanges) -> BoolArray:
        """Return which stretches cost less to patch, and account for the gain of storing results."""
        replayed, stored = self.replayed(affected), self.stored(affected)
        self._balance += self._costs.gain(replayed, stored)
        return self._costs.choose(replayed, stored)

    def stored(self, affected: KeyRanges) -> IntArray:
        """Count the results that a patch processes in each stretch."""
        if self.point is not None:
            return self.point.count(affected)
        guess: IntArray = np.ceil(
            self.node.operator.results_per_row * self.inputs[0].estimate(affected)
        ).astype(np.int64)
        return guess

    @property
    def optional(self) -> bool:
        return self.view.mode == ADAPTIVE and self.inputs[0].node.is_stored

    @property
    def has_costs(self) -> bool:
        return self._balance != 0.0

    def pays_off(self) -> bool:
        """Decide whether to store results: at first by a change in the middle of the input's longest key, then by measured costs.

        The decision flips when the other mode would have saved as much as computing all results again.
        """
        point = self.inputs[0].point
        assert point is not None
        if self.node.why_not_patched is not None or not len(point):
            return False
        if not self.has_costs and self.point is None:
            code, at = point.middle()
            affected = self.affected(KeyRanges(np.array([code]), np.array([at]), np.array([at + 1])))
            return len(affected) > 0 and bool(
                self._costs.choose(self.replayed(affected), self.stored(affected))[0]
            )
        again = self._costs.upstream.of(len(point))
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

    def _patched(self, below: Delta, affected: KeyRanges, chosen: IntArray) -> tuple[Delta, BoolArray]:
        """Patch the chosen stretches; return the delta and which of them could be patched."""
        assert self.point is not None
        patch = self.patch
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
        good = patch.check(old, new, concerned) & (np.diff(results.offsets) > 0)
        some = np.flatnonzero(good)
        if len(some) < len(good):
            old, new, results = (one.select_groups(some) for one in (old, new, results))
        stretches = affected.take(chosen[some])
        around = self._around(stretches, results)

        def count(group: IntArray, closings: IntArray) -> IntArray:
            """Count the tuples in the windows that close at these instants."""
            windows = KeyRanges(stretches.code[group], closings - self.size, closings)
            return self.inputs[0].estimate(windows)

        made = patch.patched(PatchInput(old, new, results, around, count))
        n = len(some)
        both = BeforeAfter(stretches, Relation.concat([results, made]), np.arange(n), np.arange(n, 2 * n))
        # Changes below the tolerance count too: the next patch starts from the stored results.
        return changed_rows(both, least=0.0), good

    def first_affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return for each change a stretch of results that it affects."""
        return stretches

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
    stretches = KeyRanges.concat([one.stretches for one in parts])
    order = np.lexsort((stretches.start, stretches.code))
    return Delta(
        stretches.take(order),
        relation,
        old[order],
        new[order],
        absorbed=sum(one.absorbed for one in parts),
    )
