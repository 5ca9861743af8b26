"""Run a refit: correct tuples, compare truths, withdraw and insert segments (:mod:`pulse.operators.refit.api`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.bounds import Absolute
from pulse.core.instants import ceil_microsecond, floor_microsecond
from pulse.core.regions import Regions
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST, LATEST
from pulse.kernels.fit.greedy_lines import AUTO
from pulse.operators.data.tuple_columns import segments_of, values
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import TupleFormatter, correct, dense
from pulse.operators.refit.exact_patch import patch
from pulse.operators.refit.key_boundaries import IntegralCarry, revised_ends
from pulse.operators.refit.plan import broken_runs, new_blocks, plan_refits, whole_runs
from pulse.operators.refit.ranges import RefitRanges, fit_ranges
from pulse.operators.refit.result import Refitted, RevisionCounts, patches, without_drift
from pulse.operators.refit.segment_index import Pairs, SegmentIndex, key_codes
from pulse.operators.refit.source import SegmentSource, TupleSource, segment_source, tuple_source
from pulse.operators.refit.truth_diff import TruthDiff, among, compare, pieces
from pulse.operators.units.key_ends import Drops
from pulse.stream.revisions import Revisions


class Refit:
    """The state of one refit."""

    def __init__(
        self,
        spec: FitSpec,
        tuples: pa.Table | TupleSource,
        segments: SegmentBatch | SegmentSource,
        revisions: Revisions,
        as_recorded: TupleFormatter | None = None,
        drops: Drops | None = None,
    ) -> None:
        self.spec, self.revisions, self._as_recorded, self._drops = spec, revisions, as_recorded, drops
        self._tuples = tuple_source(tuples, spec.schema, nonfinite=spec.nonfinite)
        self._segments = segment_source(segments)
        self.old: list[SegmentBatch] = []
        self.new: list[SegmentBatch] = []
        self.missed = 0
        self.fits = IntegralCarry.nowhere(len(spec.schema.modelled))
        self.refitted_key = self.refitted_begin = self.refitted_end = np.zeros(0, dtype=np.int64)

    def run(self) -> None:
        """Find what changed, and replace the affected segments."""
        self._read(self.revisions.regions())
        cells = self.found.cells
        further = patches(self.spec) or set(self._truths()) == {"linear"}
        if further and (cells.is_new.any() or cells.is_gone.any() or self._has_points()):
            # Whether a tuple begins or ends a run, or is a point, depends on its further neighbours: read one more.
            self._read(Regions.concat([self.revisions.regions(), self._zones()]).merged())
        self.moved = np.ones(len(self.found.cells.key), dtype=bool)
        self.held = SegmentIndex.of(self._segments(self._zones().merged()), self.corrected)
        if patches(self.spec):
            self._patch()
        else:
            self._refit()
        self._points()

    def _read(self, regions: Regions) -> None:
        self.corrected = correct(
            self._tuples(regions),
            self.revisions,
            nonfinite=self.spec.nonfinite,
            as_recorded=self._as_recorded,
            drops=self._drops,
        )
        self.found: TruthDiff = compare(self.corrected, self.spec)

    def _has_points(self) -> bool:
        return bool(len(self.found.points_old) or len(self.found.points_new))

    def _zones(self) -> Regions:
        """Return the changed regions, widened by a microsecond."""
        found, corrected = self.found, self.corrected
        points = np.concatenate([found.old.rows[found.points_old], found.new.rows[found.points_new]])
        time = corrected.time[points]
        return Regions.concat(
            [
                self._regions(found.cells.key, found.cells.begin - 1, found.cells.end + 1),
                self._regions(corrected.key[points], time - 1, time + 2),
            ]
        )

    def _regions(self, key: IntArray, start: IntArray, end: IntArray) -> Regions:
        """Build regions from key codes."""
        code, row = np.unique(self.corrected.key, return_index=True)
        rows = row[np.searchsorted(code, key)] if len(key) else key
        table = self.corrected.both.select(self.spec.schema.key_names).take(pa.array(rows, pa.int64()))
        return Regions(tuple(column.combine_chunks() for column in table.columns), start, end)

    # -- no bound on drift: absorb or refit ----------------------------------------------------------------

    def _refit(self) -> None:
        plan = plan_refits(self.found, self.held, self.spec)
        self.moved = plan.moved
        self.old.append(without_drift(self.held.ranges.take(plan.touched), self.spec))
        stretches = plan.stretches
        if not len(stretches.key):
            return
        begin = floor_microsecond(stretches.begin_ref, stretches.begin)
        end = ceil_microsecond(stretches.end_ref, stretches.end)
        regions = Regions.concat([self.revisions.regions(), self._regions(stretches.key, begin, end + 1)])
        tuples = self._tuples(regions.merged())
        corrected = correct(tuples, self.revisions, nonfinite=self.spec.nonfinite, drops=self._drops)
        truth = pieces(corrected.after, corrected, values(corrected.both, self.spec.schema), self.spec)
        keys = self._regions(stretches.key, begin, end).keys
        stretches = stretches._replace(key=key_codes(list(keys), len(begin), corrected))
        order = np.argsort(stretches.key, kind="stable")
        stretches = stretches.take(order)
        fitted = fit_ranges(truth, stretches, corrected, self.spec, certified=False)
        self.new.append(fitted.segments)
        self.missed += fitted.missed
        self.refitted_key, self.refitted_begin, self.refitted_end = plan.stretches.key, begin, end

    # -- bounded drift: patch ------------------------------------------------------------------------------

    def _patch(self) -> None:
        blocks = new_blocks(self.found, self.held)
        key, time, only_after = broken_runs(self.found, self.held, blocks, self.spec)
        runs = (key, time, time)
        if len(key):
            wanted = np.unique(key)
            never = np.full(len(wanted), LATEST)
            whole = self._regions(wanted, np.full(len(wanted), EARLIEST), never)
            everything = Regions.concat([self._zones(), whole]).merged()
            held = SegmentIndex.of(self._segments(everything), self.corrected)
            runs = whole_runs(key, time, only_after, held, self.found.cells)
            regions = Regions.concat([self.revisions.regions(), self._regions(runs[0], runs[1], runs[2] + 1)])
            runs_keys = self._regions(*runs)
            self._read(regions.merged())
            self.held = SegmentIndex.of(self._segments(everything), self.corrected)
            code = key_codes(list(runs_keys.keys), len(runs[0]), self.corrected)
            order = np.lexsort((runs[1], code))
            runs = (code[order], runs[1][order], runs[2][order])
        self.moved = np.ones(len(self.found.cells.key), dtype=bool)
        self._cut(runs)
        self.refitted_key, self.refitted_begin, self.refitted_end = runs

    def _cut(self, runs: tuple[IntArray, IntArray, IntArray]) -> None:
        """Withdraw the segments that runs and changed cells overlap; insert their remainders, the patches and the fits."""
        held, spec = self.held, self.spec
        cells = self.found.cells
        cells = cells.take(~_inside(cells.key, cells.begin, *runs))
        n = len(cells.key)
        key = np.concatenate([cells.key, runs[0]])
        begin, end = np.concatenate([cells.begin, runs[1]]), np.concatenate([cells.end, runs[2]])
        order = np.lexsort((begin, key))
        pairs = held.pairs(key[order], begin[order], end[order])
        stretch = order[pairs.stretch]
        touched = np.unique(pairs.segment)
        self.old.append(held.ranges.take(touched))
        kept = _left_over(held, pairs)
        stays = np.zeros(len(stretch), dtype=bool)
        inside = stretch < n
        stays[inside] = ~cells.is_gone[stretch[inside]] & ~cells.is_new[stretch[inside]]
        to_patch = Pairs(pairs.segment[stays], stretch[stays], pairs.lo[stays], pairs.hi[stays])
        patched, missed = patch(held, to_patch, cells, self.found.new, self.corrected, spec)
        self.missed += missed
        self.new += [kept, patched]
        untouched = np.ones(len(held.ranges), dtype=bool)
        untouched[touched] = False
        current = [held.ranges.filter(untouched), kept, patched]
        if len(runs[0]):
            fitted = fit_ranges(
                self.found.new, RefitRanges.whole(*runs), self.corrected, spec, certified=True
            )
            self.new.append(fitted.segments)
            self.missed += fitted.missed
            self.fits = self.fits.and_(IntegralCarry.of(fitted, runs[0]))
            current.append(fitted.segments)
        self._fill(runs, SegmentIndex.of(SegmentBatch.concat(current, at_rest=False), self.corrected))

    def _fill(self, runs: tuple[IntArray, IntArray, IntArray], current: SegmentIndex) -> None:
        """Model newly defined truth: within the bounds where it is isolated, else losslessly, so that integrals continue."""
        blocks = new_blocks(self.found, self.held)
        outside = ~_inside(blocks.key, blocks.begin, *runs)
        for exact in (False, True):
            which = np.flatnonzero(outside & (blocks.exact == exact))
            if not len(which):
                continue
            stretches = RefitRanges.whole(blocks.key[which], blocks.begin[which], blocks.end[which])
            spec = _lossless(self.spec) if exact else self.spec
            fitted = fit_ranges(self.found.new, stretches, self.corrected, spec, certified=True)
            before = current.ending_at(stretches.key, stretches.begin_ref)[fitted.stretch]
            self.new.append(_inheriting(fitted.segments, current.ranges, before))
            self.missed += fitted.missed
            if not exact:
                self.fits = self.fits.and_(IntegralCarry.of(fitted, stretches.key))

    # -- points ----------------------------------------------------------------------------------------------

    def _points(self) -> None:
        found, held, corrected = self.found, self.held, self.corrected
        gone = found.old.rows[found.points_old]
        withdrawn = held.points_at(corrected.key[gone], corrected.time[gone])
        if set(self._truths()) == {"linear"}:
            withdrawn |= self._redundant_points()
        self.old.append(without_drift(held.points.filter(withdrawn), self.spec))
        rows = found.new.rows[found.points_new]
        if not len(rows):
            return
        table, schema = corrected.both.take(pa.array(rows)), self.spec.schema
        batch = segments_of(
            table,
            schema,
            ref=corrected.time[rows],
            lo=0.0,
            hi=0.0,
            models={
                name: found.new.v[a, found.points_new].reshape(-1, 1)
                for a, name in enumerate(schema.modelled_names)
            },
            err=dict.fromkeys(schema.modelled_names, 0.0),
            drift={name: 0.0 for name, truth in schema.modelled if truth != "samples" and patches(self.spec)},
        )
        if patches(self.spec):
            now = self._current_model()
            batch = _inheriting(batch, now.ranges, now.ending_at(corrected.key[rows], corrected.time[rows]))
        self.new.append(batch)

    def _redundant_points(self) -> BoolArray:
        """Mark the stored points at changed instants that are not in the new truth.

        Where tuples repeat the value at which a line ends, a fit may also emit it as a point. The truth has no such point, so it
        is not withdrawn with the others.
        """
        found, held, corrected = self.found, self.held, self.corrected
        came, stay = found.new.rows[found.points_new], np.setdiff1d(found.new.point, found.points_new)
        kept, cells = found.new.rows[stay], found.cells
        changed = held.points_at(
            np.concatenate([corrected.key[came], cells.key, cells.key]),
            np.concatenate([corrected.time[came], cells.begin, cells.end]),
        )
        return changed & ~held.points_at(corrected.key[kept], corrected.time[kept])

    def _current_model(self) -> SegmentIndex:
        """Return the current model around the changes."""
        return SegmentIndex.of(
            SegmentBatch.concat([self._untouched(), *self.new], at_rest=False), self.corrected
        )

    def _untouched(self) -> SegmentBatch:
        """Return the ranges that stay."""
        ranges = self.held.ranges
        gone = SegmentBatch.concat([SegmentBatch.empty(self.spec.schema), *self.old], at_rest=False)
        key = key_codes([gone.column(name) for name in self.spec.schema.key_names], len(gone), self.corrected)
        ids = dense(np.concatenate([key, self.held.key]), np.concatenate([gone.ref, ranges.ref]))
        taken = set(zip(ids[: len(key)].tolist(), gone.lo.tolist(), gone.hi.tolist(), strict=True))
        mine = zip(ids[len(key) :].tolist(), ranges.lo.tolist(), ranges.hi.tolist(), strict=True)
        return ranges.filter(np.array([one not in taken for one in mine], dtype=bool))

    # -- results ---------------------------------------------------------------------------------------------

    def result(self, ends: pa.Table | None) -> Refitted:
        """Return the withdrawn and new segments, and the outcome of each element."""
        empty = SegmentBatch.empty(self.spec.schema)
        old = SegmentBatch.concat([empty, *self.old], at_rest=False)
        new = SegmentBatch.concat([empty, *self.new], at_rest=False).sort()
        applied, revisions = self.corrected.applied, self.revisions
        moved, refitted = self._outcomes()
        absorbed = applied & ~moved
        inserts, deletes = revisions.old_rows < 0, revisions.new_rows < 0
        counts = RevisionCounts(
            revisions=len(revisions),
            inserted=int(np.count_nonzero(applied & inserts)),
            deleted=int(np.count_nonzero(applied & deletes)),
            replaced=int(np.count_nonzero(applied & ~inserts & ~deletes)),
            absorbed=int(np.count_nonzero(absorbed)),
            patched=int(np.count_nonzero(applied & moved & ~refitted)),
            refitted=int(np.count_nonzero(applied & moved & refitted)),
            aside=int(np.count_nonzero(~applied)),
            segments_old=len(old),
            segments_new=len(new),
            missed=self.missed,
        )
        log = revisions if applied.all() else revisions.take(np.flatnonzero(applied))
        return Refitted(
            old,
            new,
            applied,
            absorbed,
            log,
            self.corrected.aside,
            counts,
            *self._ends(ends),
        )

    def _ends(self, ends: pa.Table | None) -> tuple[pa.Table | None, pa.Table | None]:
        if ends is None:
            return None, None
        bounded = patches(self.spec)
        now = self._current_model() if bounded else self.held
        return revised_ends(ends, self.corrected, now, self.fits, self.spec, patched=bounded)

    def _outcomes(self) -> tuple[BoolArray, BoolArray]:
        """Return per element whether the model moved at its instants, and whether it was refitted there."""
        found, corrected, n = self.found, self.corrected, self.revisions.table.num_rows
        rows = np.arange(corrected.both.num_rows - n, corrected.both.num_rows)
        key, time = corrected.key[rows], corrected.time[rows]
        cells = found.cells.take(self.moved)
        points = np.concatenate([found.old.rows[found.points_old], found.new.rows[found.points_new]])
        moved = _inside(
            key, time, cells.key, cells.begin, cells.end + (1 if "linear" in self._truths() else 0)
        )
        moved |= _inside(key, time - 1, cells.key, cells.begin, cells.end) & ("linear" in self._truths())
        moved |= among(key, time, corrected.key[points], corrected.time[points])
        refitted = np.isin(key, self.refitted_key)
        if not patches(self.spec):
            refitted = np.ones(n, dtype=bool)
        return tuple(self._of_elements(flags) for flags in (moved, refitted))  # type: ignore[return-value]

    def _truths(self) -> list[str]:
        return [truth.value for _, truth in self.spec.schema.modelled]

    def _of_elements(self, flags: BoolArray) -> BoolArray:
        """Map flags of rows to elements: set where any of the element's rows is."""
        old, new = self.revisions.old_rows, self.revisions.new_rows
        return (
            ((old >= 0) & flags[old]) | ((new >= 0) & flags[new]) if len(flags) else np.zeros(len(old), bool)
        )


def _inside(key: IntArray, time: IntArray, keys: IntArray, begin: IntArray, end: IntArray) -> BoolArray:
    """Return which instants lie in one of the ranges, given by key and time and overlapping by at most a microsecond."""
    n, m = len(key), len(keys)
    if not m:
        return np.zeros(n, dtype=bool)
    ids = dense(np.concatenate([key, keys, keys]), np.concatenate([time, begin, end]))
    at, first, last = np.split(ids, [n, n + m])
    row = np.searchsorted(first, at, side="right") - 1
    inside: BoolArray = (row >= 0) & (last[np.maximum(row, 0)] > at)
    return inside


def _left_over(held: SegmentIndex, pairs: Pairs) -> SegmentBatch:
    """Return the parts of the pairs' segments (by segment and time) outside the pairs' common ranges."""
    ranges, segment = held.ranges, pairs.segment
    first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    last = np.append(first[1:], True)[: len(segment)]
    before = np.where(first, ranges.lo[segment], np.append(0.0, pairs.hi[:-1])[: len(segment)])
    row = np.concatenate([segment, segment[last]])
    lo = np.concatenate([before, pairs.hi[last]])
    hi = np.concatenate([pairs.lo, ranges.hi[segment[last]]])
    keep = hi - lo > held.tolerance[row]
    return ranges.take(row[keep]).with_columns(lo=lo[keep], hi=hi[keep])


def _inheriting(batch: SegmentBatch, ranges: SegmentBatch, before: IntArray) -> SegmentBatch:
    """Add to each segment's drift that of the range ending where it begins; ``before``: rows of ranges, or -1."""
    out: dict[str, pa.Array] = {}
    for name, truth in batch.schema.modelled:
        if truth == "samples" or not len(ranges):
            continue
        drift, own = ranges.drift(name), batch.drift(name)
        handed = np.where(before >= 0, drift.filled(0.0)[before], 0.0)
        unknown = np.ma.getmaskarray(own) | ((before >= 0) & np.ma.getmaskarray(drift)[before])
        out[f"{name}_drift"] = pa.array(own.filled(0.0) + handed, mask=unknown)
    return batch.with_columns(**out)


def _lossless(spec: FitSpec) -> FitSpec:
    """Return a spec of the same stream without error: constants where they suffice, else lines."""
    nothing = tuple(None for _ in spec.drift)
    return replace(spec, error=tuple(Absolute(0.0) for _ in spec.error), drift=nothing, degree=AUTO)
