"""Plan a refit: which segments move, which ranges to fit again, which runs start their integrals elsewhere.

Without any drift bound, segments whose certified bound still holds *absorb* the new truth, and the others are refitted from end
to end. Where integrals are bounded, segments are cut at the changed cells and patched there
(:mod:`pulse.operators.refit.exact_patch`); a run is refitted only where it begins or joins elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.instants import gaps, split, tolerances
from pulse.kernels.fit.truth_intervals import LINEAR
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import dense
from pulse.operators.refit.exact_patch import absorbs
from pulse.operators.refit.ranges import RefitRanges
from pulse.operators.refit.segment_index import Pairs, SegmentIndex
from pulse.operators.refit.truth_diff import TruthCells, TruthDiff

MOST_EXACT = 64  # pieces of truth appended losslessly; with more, refit the run


@dataclass(frozen=True, eq=False)
class Refits:
    """The segments to withdraw and the ranges to fit in their place; ``moved``: the cells whose model must change."""

    touched: IntArray
    stretches: RefitRanges
    moved: BoolArray


def plan_refits(found: TruthDiff, held: SegmentIndex, spec: FitSpec) -> Refits:
    """Plan the refit without drift bounds: merge adjoining segments and new ranges that are not absorbed."""
    cells = found.cells
    pairs = held.pairs(cells.key, cells.begin, cells.end)
    both = ~cells.is_new & ~cells.is_gone
    moved = cells.moves | ~both
    absorbable = both[pairs.stretch] & ~moved[pairs.stretch]
    some = Pairs(
        pairs.segment[absorbable], pairs.stretch[absorbable], pairs.lo[absorbable], pairs.hi[absorbable]
    )
    moved[some.stretch[~absorbs(held, some, cells, spec)]] = True
    touched = np.unique(pairs.segment[moved[pairs.stretch]])
    fresh = np.flatnonzero(cells.is_new)
    ranges = held.ranges
    parts = RefitRanges(
        np.concatenate([held.key[touched], cells.key[fresh]]),
        np.concatenate([ranges.ref[touched], cells.begin[fresh]]),
        np.concatenate([ranges.lo[touched], np.zeros(len(fresh))]),
        np.concatenate([ranges.ref[touched], cells.end[fresh]]),
        np.concatenate([ranges.hi[touched], np.zeros(len(fresh))]),
    )
    return Refits(touched, _joined(parts), moved)


def _joined(parts: RefitRanges) -> RefitRanges:
    """Sort the ranges by key and time and merge those that meet."""
    whole, rest = split(parts.begin_ref, parts.begin)
    order = np.lexsort((rest, whole, parts.key))
    s = parts.take(order)
    apart = np.ones(len(order), dtype=bool)
    apart[1:] = (s.key[1:] != s.key[:-1]) | (
        gaps(s.end_ref[:-1], s.end[:-1], s.begin_ref[1:], s.begin[1:])
        > tolerances(s.end_ref[:-1], s.end[:-1], s.begin_ref[1:], s.begin[1:])
    )
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    return RefitRanges(s.key[first], s.begin_ref[first], s.begin[first], s.end_ref[last], s.end[last])


@dataclass(frozen=True, eq=False)
class Blocks:
    """Ranges of new truth, neighbouring cells merged; ``before``: the range that ends there, or -1."""

    key: IntArray
    begin: IntArray
    end: IntArray
    cells: IntArray
    before: IntArray
    exact: BoolArray  # to model losslessly, so that integrals continue unchanged


def new_blocks(found: TruthDiff, held: SegmentIndex) -> Blocks:
    """Return the ranges of new truth for bounded integrals."""
    cells = found.cells.take(found.cells.is_new)
    starts = found.new.starts[cells.after] & (found.new.begin[cells.after] == cells.begin)
    apart = np.ones(len(cells.key), dtype=bool)
    apart[1:] = (cells.key[1:] != cells.key[:-1]) | (cells.begin[1:] != cells.end[:-1]) | starts[1:]
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(apart))[: len(first)] - 1
    key, begin, end = cells.key[first], cells.begin[first], cells.end[last]
    before = held.ending_at(key, begin)
    followed = held.beginning_at(key, end) >= 0
    return Blocks(key, begin, end, last - first + 1, before, (before >= 0) | followed)


def broken_runs(
    found: TruthDiff, held: SegmentIndex, blocks: Blocks, spec: FitSpec
) -> tuple[IntArray, IntArray, BoolArray]:
    """Return keys and instants of runs whose integrals start elsewhere, and whether only later time is affected.

    Where no integral differs nothing has to be done. But patching a sloping truth rounds, and an exact model that follows has no
    room for rounding.
    """
    key, time, opened = found.break_key, found.break_time, found.opened
    drifts, exact = _drifts(held, spec)
    covering = held.covering(key, time)
    # A run that begins here must not inherit a difference; the drift of the range that covers the instant bounds it.
    opens = opened & (covering >= 0) & drifts[covering] if len(drifts) else np.zeros(len(key), dtype=bool)
    # A run now continues an earlier one; a block that begins a run itself is exact and carries no difference.
    ids = dense(np.concatenate([key, blocks.key]), np.concatenate([time, blocks.end]))
    block = np.full(int(ids.max(initial=-1)) + 1, -1)
    block[ids[len(key) :]] = np.arange(len(blocks.key))
    block = block[ids[: len(key)]]
    before = held.ending_at(key, time)
    if len(blocks.key):
        before = np.where(block >= 0, blocks.before[block], before)
    joins = ~opened & (before >= 0)
    joins &= drifts[before] if len(drifts) else False
    if len(exact):
        joins |= ~opened & exact[covering] & (covering >= 0) & (block >= 0)
    long = (blocks.before >= 0) & (blocks.cells > MOST_EXACT)
    cells = found.cells.take((found.cells.differs & (spec.truth == LINEAR)[:, None]).any(axis=0))
    pairs = held.pairs(cells.key, cells.begin, cells.end)
    rounded = np.unique(pairs.stretch[exact[pairs.segment]])
    return (
        np.concatenate([key[opens], key[joins], blocks.key[long], cells.key[rounded]]),
        np.concatenate([time[opens], time[joins], blocks.begin[long], cells.begin[rounded]]),
        np.concatenate([np.ones(opens.sum(), bool), np.zeros(joins.sum() + long.sum() + len(rounded), bool)]),
    )


def _drifts(held: SegmentIndex, spec: FitSpec) -> tuple[BoolArray, BoolArray]:
    """Return per range whether an integral may differ from the truth's, and whether that of a sloping truth is exact."""
    some, exact = np.zeros(len(held.ranges), dtype=bool), np.zeros(len(held.ranges), dtype=bool)
    for a, (name, truth) in enumerate(spec.schema.modelled):
        if truth != "samples":
            drift = held.ranges.drift(name)
            here = np.ma.getmaskarray(drift) | (drift.filled(1.0) > 0.0)
            some |= here
            exact |= ~here & (spec.truth[a] == LINEAR)
    return some, exact


def whole_runs(
    key: IntArray, time: IntArray, only_after: BoolArray, held: SegmentIndex, cells: TruthCells
) -> tuple[IntArray, IntArray, IntArray]:
    """Return ranges ``(key, begin, end)``: the runs of model and new truth around these instants, or their parts after them.

    ``held`` has all segments of the keys.
    """
    fresh = cells.take(cells.is_new)
    keys = np.concatenate([held.key, fresh.key])
    begin, end = np.concatenate([held.begin, fresh.begin]), np.concatenate([held.end, fresh.end])
    order = np.lexsort((begin, keys))
    keys, begin, end = keys[order], begin[order], end[order]
    # Ranges overlap only by the microsecond to which two neighbours were rounded.
    apart = np.ones(len(keys), dtype=bool)
    apart[1:] = (keys[1:] != keys[:-1]) | (begin[1:] > end[:-1])
    chain = np.cumsum(apart) - 1
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(keys))[: len(first)] - 1
    ids = dense(np.concatenate([key, keys]), np.concatenate([time, begin]))
    at = chain[np.maximum(np.searchsorted(ids[len(key) :], ids[: len(key)], side="right") - 1, 0)]
    from_ = np.where(only_after, time, begin[first[at]])
    # One range per run: the earliest of those that reach its end.
    order = np.lexsort((from_, at))
    at, from_ = at[order], from_[order]
    one = np.append(True, at[1:] != at[:-1])[: len(at)]
    return keys[first[at[one]]], from_[one], end[last[at[one]]]
