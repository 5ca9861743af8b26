"""Propagate deltas through incremental operators: scans, row-wise operators and windows.

Bottom up, an operator turns its inputs' deltas into its own (:meth:`IncrementalOperator.change`). Where it needs more than the
changed rows, it requests the content around them from its input: from the input's connection point, from what the input already
evaluated for this revision, or by replay from further upstream, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.columns import Columns
from pulse.core.expression import TRUE, Column, Constant
from pulse.core.segment.order import Ranges, narrow
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.model_clause import ModelClause
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.window import Window
from pulse.plan.radius import NONE, Reach, need, reach
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import of_keys
from pulse.runtime.incremental.arrangement import ConnectionPoint
from pulse.runtime.incremental.arrangement_buffers import bare
from pulse.runtime.incremental.delta import (
    GRACE,
    BeforeAfter,
    Delta,
    KeyRanges,
    by_ranges,
    changed_apart,
    changed_rows,
    diff_rows,
    extents,
)

UPSTREAM, DOWNSTREAM, STATELESS = "upstream", "downstream", "stateless"
ADAPTIVE = "adaptive"


@dataclass
class Flow:
    """Counts of one operator: revised stretches and rows in and out, stretches absorbed, and the modes used."""

    operator: str
    revised: int = 0  # stretches in
    rows_in: int = 0
    rows_out: int = 0
    out: int = 0  # stretches out
    absorbed: int = 0  # stretches in that changed nothing
    modes: dict[str, int] = field(default_factory=dict)  # stretches by mode
    fell_back: int = 0  # stretches that could not be patched as chosen


class IncrementalOperator:
    """The incremental operator of a plan node. ``possible``: whether its output includes possible rows."""

    def __init__(
        self, node: Node, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach = NONE
    ) -> None:
        self.node, self.possible, self.inputs, self.margin = node, possible, inputs, margin
        self.point: ConnectionPoint | None = None
        self.delta: Delta | None = None
        self.cache: BeforeAfter | None = None
        self.flow = Flow("")

    # -- keys -----------------------------------------------------------------------------------------------

    def keys(self) -> tuple[pa.Array, ...]:
        """Return the keys of all codes, as columns."""
        return self.inputs[0].keys()

    def count(self) -> int:
        """Return the number of codes."""
        return self.inputs[0].count()

    def codes(self) -> IntArray:
        """Return all codes that can have rows."""
        return self.inputs[0].codes()

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        """Return the codes of keys given as columns."""
        return self.inputs[0].codes_of(keys, n)

    def bare(self) -> Relation:
        """Return all keys, in the order of their codes, without rows."""
        return bare(self.node.columns, self.keys(), self.count())

    # -- rows -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Reset for a new revision."""
        self.delta = self.cache = None
        if self.point is not None:
            self.point.drop()

    def content(self, stretches: KeyRanges) -> BeforeAfter:
        """Return the output around stretches, before and after."""
        if self.point is not None:
            self.sync()
            return self.point.content(stretches)
        found = None if self.cache is None else _part(self.cache, stretches)
        if found is not None:
            return found
        made = self.replay(stretches)
        if made.stretches is stretches:
            return made
        found = _part(made, stretches)  # the replay covers more than requested
        assert found is not None
        return found

    def assign_codes(self) -> None:
        """Give codes to all existing keys: pairs of a join otherwise get theirs on first use."""
        for arc in self.inputs:
            arc.assign_codes()

    def sync(self) -> None:
        """Add new keys to the connection point."""
        if self.point is not None and self.point.groups < self.count():
            self.point.codes(self.keys(), self.count(), add=True)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        """Compute the content from that of the inputs."""
        raise NotImplementedError

    def estimate(self, stretches: KeyRanges) -> IntArray:
        """Estimate the rows processed to get the content of each stretch, in one version; O(log n) each."""
        if self.point is not None:
            return self.point.count(stretches)
        return 2 * self.inputs[0].estimate(stretches.widened(*need(self.node)))

    def change(self) -> Delta:
        """Compute the output's delta from the inputs' deltas, which are already set."""
        raise NotImplementedError

    def record(self, delta: Delta) -> None:
        """Record the delta, also in the connection point: it is corrected before the next operator sees the revision."""
        if self.point is not None and not isinstance(self, IncrementalScan):
            self.sync()
            delta = self.point.propose(delta)
        self.delta = delta

    def _apply(self, relation: Relation) -> Relation:
        """Apply the node's operator; groups stay as they are."""
        made = FragmentEvaluation({self.node.inputs[0]: relation}, possible=self.possible).segments(self.node)
        if isinstance(self.node, Filter) and made.drift:
            # Whether a filter opens a hole depends on all rows of a key.
            made = replace(made, drift={})
        return made


class IncrementalScan(IncrementalOperator):
    """A scan of a stream; the connection point is the stream's, shared by all its scans."""

    node: Scan

    def __init__(self, node: Scan, point: ConnectionPoint) -> None:
        super().__init__(node, False, ())
        self.point = point
        self._wanted: BoolArray = np.zeros(0, bool)

    def keys(self) -> tuple[pa.Array, ...]:
        assert self.point is not None
        return self.point.keys

    def count(self) -> int:
        assert self.point is not None
        return self.point.groups

    def codes(self) -> IntArray:
        wanted = self.wanted()
        return np.arange(self.count()) if wanted is None else np.flatnonzero(wanted)

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        assert self.point is not None
        return self.point.codes(keys, n)

    def wanted(self) -> BoolArray | None:
        """Return which codes the scan reads; None for all."""
        if self.node.keys == TRUE:
            return None
        if len(self._wanted) < self.count():
            columns = replace(self.node.stored, modelled=(), unmodelled=())
            numbered = replace(
                columns, key=(*((name, type_) for name, type_ in columns.key), ("#code", pa.int64()))
            )
            every = bare(numbered, (*self.keys(), pa.array(np.arange(self.count()))), self.count())
            chosen = of_keys(every, self.node.keys).keys[-1].to_numpy()
            self._wanted = np.zeros(self.count(), bool)
            self._wanted[chosen] = True
        return self._wanted

    def begin(self) -> None:
        self.delta = self.cache = None

    def content(self, stretches: KeyRanges) -> BeforeAfter:
        assert self.point is not None
        found = self.point.content(stretches, self.wanted())
        return found.within(self._scanned(found.relation))

    def change(self) -> Delta:
        assert self.point is not None
        raw = self.point.pending
        wanted = self.wanted()
        if wanted is not None:
            chosen = np.flatnonzero(wanted[raw.stretches.code])
            raw = Delta(raw.stretches.take(chosen), raw.relation, raw.old[chosen], raw.new[chosen])
        if self._is_plain:
            return diff_rows(self._scanned(raw.relation), raw.stretches.code, raw.old, raw.new)
        content = raw.content()
        return changed_rows(content.within(self._scanned(content.relation)))

    @property
    def _is_plain(self) -> bool:
        """Return whether rows stay as stored, apart from their names."""
        return self.node.start is None and self.node.end is None and not self.node.models

    def _scanned(self, relation: Relation) -> Relation:
        scan = self.node
        if scan.start is not None or scan.end is not None:
            ranges = Ranges(relation.group, relation.ref, relation.lo, relation.hi)
            keep, lo, hi = narrow(ranges, scan.start, scan.end)
            rows = keep.nonzero()[0]
            relation = relation.take(rows, lo=lo[rows], hi=hi[rows])
        relation = relation.prefixed(scan.alias)
        if scan.models:
            made = tuple((f"{scan.alias}.{name}", expression) for name, expression in scan.models)
            return ModelClause(made, scan.columns).segments(relation)
        return relation if relation.columns == scan.columns else relation.only(scan.columns)


class IncrementalRowwise(IncrementalOperator):
    """A filter or projection: it works row by row, so the delta is all it needs."""

    def keys(self) -> tuple[pa.Array, ...]:
        below = self.inputs[0].keys()
        if not isinstance(self.node, Project):
            return below
        outputs, names = dict(self.node.outputs), self.node.input.columns.key_names
        made = []
        for name in self.node.columns.key_names:
            expression = outputs.get(name, Column(name))
            if isinstance(expression, Constant):
                made.append(pa.repeat(pa.scalar(str(expression.value), pa.string()), self.count()))
            else:
                assert isinstance(expression, Column)
                made.append(below[names.index(expression.name)])
        return tuple(made)

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        if isinstance(self.node, Project):
            outputs, names = dict(self.node.outputs), self.node.columns.key_names
            source = {
                e.name: name for name in names if isinstance(e := outputs.get(name, Column(name)), Column)
            }
            source |= {name: source[equal] for name, equal in self.node.hidden}
            keys = tuple(keys[names.index(source[name])] for name in self.node.input.columns.key_names)
        return self.inputs[0].codes_of(keys, n)

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        below = self.inputs[0].content(stretches)
        return below.within(self._apply(below.relation))

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.flow.modes[STATELESS] = self.flow.modes.get(STATELESS, 0) + len(below)
        if isinstance(self.node, Project):
            made = self._renamed(below)
            if made is not None:
                return made
        if self.margin == NONE or self.point is not None:
            content = below.content()
            return changed_rows(content.within(self._apply(content.relation)))
        self.cache, delta = changed_apart(self.replay, below.stretches.widened(*self.margin).merged())
        return delta

    def _renamed(self, below: Delta) -> Delta | None:
        """Rename the delta and the cached content around it; None unless the projection gives one row per row."""
        made = self._apply(below.relation)
        if len(made) != len(below.relation):
            return None
        known = self.inputs[0].cache
        if known is not None and known.relation is below.relation:
            self.cache = known.within(made)
        return diff_rows(made, below.stretches.code, below.old, below.new)


class IncrementalWindow(IncrementalOperator):
    """An aggregate over a window, per key: replayed from all rows that share a window with a change."""

    node: Window

    @property
    def stays(self) -> int:
        """Return how far a result row may extend beyond a change."""
        return need(self.node).after

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        wide = need(self.node)
        below = self.inputs[0].content(stretches.widened(wide.before + GRACE, wide.after + GRACE))
        return self._complete(BeforeAfter(stretches, self._apply(below.relation), below.before, below.after))

    def affected(self, stretches: KeyRanges) -> KeyRanges:
        """Return where results can change when the input does, widened by how far rows may extend."""
        before, after = reach(self.node)
        return stretches.widened(before + self.stays, after + self.stays + GRACE).merged()

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.flow.modes[UPSTREAM] = self.flow.modes.get(UPSTREAM, 0) + len(below)
        return self.upstream(self.affected(below.stretches))

    def upstream(self, affected: KeyRanges) -> Delta:
        """Replay old and new results, and return their delta."""
        assert isinstance(self.node.size, int)
        if self.point is None:
            affected = affected.widened(*self.margin).merged()
        below = self.inputs[0].content(affected.widened(self.node.size + GRACE, GRACE))
        whole = affected.widened(-self.stays, -self.stays)  # where rows are known whole
        made = self._complete(BeforeAfter(whole, self._apply(below.relation), below.before, below.after))
        if self.point is None:
            self.cache = made
        return changed_rows(made)

    def _complete(self, made: BeforeAfter) -> BeforeAfter:
        """Drop rows outside the requested stretches, computed from a part of their window only.

        Over ranges an incomplete window gives no result; over tuples it gives a wrong one.
        """
        return overlapping(made) if self.node.input.columns.points else made


def nothing(columns: Columns, absorbed: int = 0) -> Delta:
    """Return an empty delta."""
    none, ranges = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    return Delta(
        KeyRanges(none, none, none), Relation.empty(columns), ranges, ranges, ranges, absorbed=absorbed
    )


def _part(cache: BeforeAfter, stretches: KeyRanges) -> BeforeAfter | None:
    """Cut the content of stretches from a cached one; None where it does not cover them."""
    held = cache.stretches
    spans = np.stack(
        [np.searchsorted(held.code, stretches.code), np.searchsorted(held.code, stretches.code, "right")],
        axis=1,
    )
    found = locate(held.start, held.end, spans, np.stack([stretches.start, stretches.end], axis=1))
    at = found[:, 0]
    if (found[:, 1] - at != 1).any():
        return None
    if (held.start[at] > stretches.start).any() or (held.end[at] < stretches.end).any():
        return None
    if len(at) == 1 or (np.diff(at) > 0).all():
        return BeforeAfter(stretches, cache.relation, cache.before[at], cache.after[at])
    return overlapping(BeforeAfter(stretches, cache.relation, cache.before[at], cache.after[at]))


def overlapping(content: BeforeAfter) -> BeforeAfter:
    """Restrict each group to the rows that overlap its stretch; groups shared by several stretches are split."""
    relation, stretches = content.relation, content.stretches
    start, end = extents(relation)
    ranges = np.stack([stretches.start, stretches.end], axis=1)
    offsets = relation.offsets
    n = len(stretches)
    revised = np.flatnonzero(content.before != content.after)
    groups = np.concatenate([content.before, content.after[revised]])
    spans = np.stack([offsets[groups], offsets[groups + 1]], axis=1)
    places = locate(start, end, spans, np.concatenate([ranges, ranges[revised]]))
    after = np.arange(n)
    after[revised] = n + np.arange(len(revised))
    return BeforeAfter(stretches, by_ranges(relation, places, groups), np.arange(n), after)
