"""Propagate deltas through incremental operators.

Bottom up, an operator turns its inputs' deltas into its own (:meth:`IncrementalOperator.change`). Where it needs more than the
changed rows, it requests the content around them from its input: from the input's connection point, from what the input already
evaluated for this revision, or by replay from further upstream, in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.expression import Expression
from pulse.kernels.pieces.range_lookup import locate
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.incremental.arrangement import ConnectionPoint
from pulse.operators.incremental.arrangement_buffers import bare
from pulse.operators.incremental.costs import Costs
from pulse.operators.incremental.delta import (
    BeforeAfter,
    Delta,
    KeyRanges,
    by_ranges,
    changed_apart,
    changed_rows,
)
from pulse.operators.node import Node
from pulse.operators.reach import NONE, Reach

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


class Maintenance(Protocol):
    """The view, as the operators that maintain its results see it."""

    @property
    def mode(self) -> str:
        """Return the mode that operators with a choice use."""
        ...

    @property
    def costs(self) -> Costs | None:
        """Return the costs of modes in place of those of functions, if given."""
        ...

    @property
    def every(self) -> int | None:
        """Return the microseconds at whose multiples results are needed; None for all instants."""
        ...

    def arrangement(self, stream: str) -> ConnectionPoint:
        """Return the rows of a stream."""
        ...

    def of_keys(self, relation: Relation, keys: Expression) -> Relation:
        """Return the groups for which a predicate over keys holds."""
        ...


class IncrementalOperator:
    """The incremental operator of a plan node. ``possible``: whether its output includes possible rows."""

    at_instants = False
    """Whether its rows are points, at multiples of the view's ``every``."""

    def __init__(
        self,
        node: Node,
        view: Maintenance,
        possible: bool,
        inputs: tuple[IncrementalOperator, ...],
        margin: Reach,
    ) -> None:
        self.node, self.view, self.possible = node, view, possible
        self.inputs, self.margin = inputs, margin
        self.point: ConnectionPoint | None = None
        self.delta: Delta | None = None
        self.cache: BeforeAfter | None = None
        self.flow = Flow(node.label)

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

    def evaluated_again(
        self, affected: KeyRanges, evaluate: Callable[[KeyRanges], BeforeAfter] | None = None
    ) -> Delta:
        """Evaluate affected stretches again, by default by a replay, and return what changed in them.

        What a connection point does not store is kept for the operators above, with the margin that these read around a change.
        """
        wide = affected if self.point is not None else affected.widened(*self.margin).merged()
        made, delta = changed_apart(evaluate or self.replay, wide)
        if self.point is None:
            self.cache = made
        return delta

    def estimate(self, stretches: KeyRanges) -> IntArray:
        """Estimate the rows processed to get the content of each stretch, in one version; O(log n) each."""
        if self.point is not None:
            return self.point.count(stretches)
        return 2 * self.inputs[0].estimate(stretches.widened(*self.node.need))

    def change(self) -> Delta:
        """Compute the output's delta from the inputs' deltas, which are already set."""
        raise NotImplementedError

    def record(self, delta: Delta) -> None:
        """Record the delta, also in the connection point: it is corrected before the next operator sees the revision."""
        if self.point is not None:
            self.sync()
            delta = self.point.propose(delta)
        self.delta = delta

    def applied(self, relation: Relation) -> Relation:
        """Apply the node's operator; groups stay as they are."""
        raise NotImplementedError

    @property
    def revised(self) -> int:
        """Return the number of stretches that its inputs' deltas revise."""
        return sum(len(one.delta) for one in self.inputs if one.delta is not None)

    def count_mode(self, mode: str, stretches: int) -> None:
        """Count stretches by the mode used."""
        if stretches:
            self.flow.modes[mode] = self.flow.modes.get(mode, 0) + stretches

    # -- stored results -------------------------------------------------------------------------------------

    @property
    def optional(self) -> bool:
        """Return whether its results are stored only if that pays off."""
        return False

    @property
    def has_costs(self) -> bool:
        """Return whether revisions have measured what storing results saves."""
        return False

    def pays_off(self) -> bool:
        """Decide whether to store results."""
        return False


class IncrementalRowwise(IncrementalOperator):
    """An operator that works row by row, so that the delta is all it needs."""

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        below = self.inputs[0].content(stretches)
        return below.within(self.applied(below.relation))

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.count_mode(STATELESS, len(below))
        if self.margin == NONE or self.point is not None:
            content = below.content()
            return changed_rows(content.within(self.applied(content.relation)))
        return self.evaluated_again(below.stretches)


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
