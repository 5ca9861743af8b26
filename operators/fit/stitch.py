"""Stitch work units: fit the truth between a unit's newest tuple of a key and the next unit's first.

Every unit fits its own tuples, so between two units of a key one interval of the truth is missing. It is fitted
like any other (a cut may add segment boundaries, and nothing else)::

    unit 0   |--------|---|--o            o  a key's newest tuple in its unit
    joint                    |-----|      x  its first tuple in the next one
    unit 1                         x---|--------|--o

Running totals of flows count from each unit's own start, and stitching adds the totals before (:mod:`~.key_totals`).

Integrals continue from unit to unit: the drift of a unit's segments counts from the unit's own start, and stitching adds
the difference accumulated before. A fit ends with that difference as small as it can, and the joint compensates the rest, so it
does not grow.

A part is a table with the columns of a segment batch and ``_unit`` (order of arrival) and ``_part``: SEGMENTS, or a code
for a key's ends (:mod:`pulse.operators.fit.key_boundaries`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import REF
from pulse.core.bounds import Absolute
from pulse.core.instants import floor_microsecond
from pulse.core.keys import key_ranks
from pulse.core.schema import Truth
from pulse.core.segment.batch import SegmentBatch
from pulse.core.segment.order import Ranges
from pulse.kernels.fit.constraints import LEAST, ROUNDING, SPARE
from pulse.kernels.fit.greedy_lines import SEGMENT
from pulse.kernels.fit.truth_intervals import NO_TIME, intervals
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import magnitudes
from pulse.operators.fit.fitter import fit_rows, fitted_segments
from pulse.operators.fit.key_boundaries import FIRST, HOLE, LAST, LAST_APART, SECOND, SEGMENTS, TOUCHING
from pulse.operators.fit.key_totals import with_key_totals
from pulse.operators.fit.points import renumbered
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.stitch_order import at_rest, part_order
from pulse.operators.units.key_ends import Drops

UNIT, PART = "_unit", "_part"
_NONE = -1


def part_table(batch: SegmentBatch, unit: int, part: int) -> pa.Table:
    """Convert a batch to a part."""
    table = pa.Table.from_batches([batch.to_arrow()])
    table = table.append_column(UNIT, pa.repeat(pa.scalar(unit, pa.int64()), len(batch)))
    return table.append_column(PART, pa.repeat(pa.scalar(part, pa.int8()), len(batch)))


class Stitched(NamedTuple):
    """The result of stitching: ``segments`` at rest, sorted by key and time.

    ``closing`` marks the points that end a key; they are removed when the key continues. ``ends`` holds each key's newest tuple
    as a part. ``missed`` counts segments that exceed a requested bound only after stitching, ``superseded`` the newest tuples of
    units at whose instant a later unit has another tuple of their key.
    """

    segments: SegmentBatch
    closing: Any
    ends: pa.Table
    missed: int = 0
    superseded: int = 0


class LateUnits(NamedTuple):
    """The visits that begin before an earlier unit of their key ended: tuples before the ``watermark`` are late."""

    keys: pa.Table
    unit: Any
    watermark: Any


def stitch(parts: pa.Table, spec: FitSpec, drops: Drops | None = None) -> Stitched | LateUnits:
    """Stitch all parts of some keys, or return which units must first be fitted again with a watermark.

    ``drops`` holds the instants at which attributes are dropped, as given to the units' fitters.
    """
    columns = [parts.column(name).combine_chunks() for name in spec.schema.key_names]
    ranks = key_ranks(columns, parts.num_rows)
    unit, part = parts.column(UNIT).to_numpy(), parts.column(PART).to_numpy()
    ref, lo = parts.column("ref").cast(pa.int64()).to_numpy(), parts.column("lo").to_numpy()
    order = part_order(ranks, unit, part, ref, lo)
    table = parts.drop_columns([UNIT, PART]).take(pa.array(order))
    batch = SegmentBatch.from_arrow(table, spec.schema, check=False)
    visits = _Visits(batch, ranks[order], unit[order], part[order], spec)
    late = visits.late()
    if late is not None:
        return late
    visits.merge_hole_visits()
    if spec.schema.flow_names:
        visits.batch = with_key_totals(
            visits.batch, spec, visits.key, visits.visit, visits.last, part[order] == SEGMENTS
        )
    visits.find_joints(drops)
    if spec.schema.points:
        return _stitched_points(visits, ranks[order])
    visits.join()
    segments, closing = visits.segments()
    return Stitched(segments, closing, visits.ends(), visits.missed, visits.superseded())


def _stitched_points(visits: _Visits, ranks: Any) -> Stitched:
    """Stitch points: nothing lies between them, and those of one instant are numbered over all units.

    All points of a key's newest instant are closing ones: a fit that continues numbers on from them.
    """
    batch, rows = visits.batch, visits.rows
    segments = renumbered(batch.take(rows[np.lexsort((visits.unit_of(rows), batch.ref[rows], ranks[rows]))]))
    key, t = segments.key_ranks, segments.ref
    last = np.flatnonzero(np.append(np.diff(key) != 0, True)[: len(segments)])
    newest = t[last][np.searchsorted(last, np.arange(len(segments)))]
    visits.reset_integrals()
    return Stitched(segments, t == newest, visits.ends())


class _Visits:
    """The visits of some parts: a visit is one key's rows in one unit; a key's visits follow the units' order."""

    def __init__(self, batch: SegmentBatch, ranks: Any, unit: Any, part: Any, spec: FitSpec) -> None:
        self.batch, self.spec = batch, spec
        fresh = (
            np.append(True, (np.diff(ranks) != 0) | (np.diff(unit) != 0)) if len(batch) else np.zeros(0, bool)
        )
        self.visit = np.cumsum(fresh) - 1  # of each row
        self.count = int(fresh.sum())
        self.key = ranks[fresh]
        self.rows = np.flatnonzero(part == SEGMENTS)
        self.first, self.hole, second = (self._row_of(part == code) for code in (FIRST, HOLE, SECOND))
        self.last = self._row_of((part == LAST) | (part == LAST_APART) | (part == TOUCHING))
        seen = self.last != _NONE
        self.is_open = seen & (part[self.last] == LAST) if len(part) else seen
        self.touches = seen & (part[self.last] == TOUCHING) if len(part) else seen
        self.unbroken = second == _NONE
        over = np.where(self.unbroken, np.iinfo(np.int64).max, batch.ref[second] if len(batch) else 0)
        begin = floor_microsecond(batch.ref[self.rows], batch.lo[self.rows])
        over = over[self.visit[self.rows]]
        self.in_first_run = (begin < over) | ((begin == over) & batch.is_point[self.rows])
        self.unit = unit[fresh]
        self.lines = any(truth is Truth.LINEAR for _, truth in spec.schema.modelled)

    def _row_of(self, mask: Any) -> Any:
        rows = np.full(self.count, _NONE)
        rows[self.visit[mask]] = np.flatnonzero(mask)
        return rows

    def merge_hole_visits(self) -> None:
        """Merge visits that hold only holes into the key's next visit, whose tuples may supersede a hole."""
        next_is = np.append(self.key[1:] == self.key[:-1], False)[: self.count]
        gone = (self.first == _NONE) & (self.hole != _NONE) & next_is
        if not gone.any():
            return
        for one in np.flatnonzero(gone):  # in time order, so the earliest of several holes counts
            self.hole[one + 1] = self.hole[one]
        kept = ~gone
        self.visit = (np.cumsum(kept) - kept)[self.visit]
        for name in ("key", "first", "hole", "last", "is_open", "touches", "unbroken", "unit"):
            setattr(self, name, getattr(self, name)[kept])
        self.count = int(kept.sum())

    def find_joints(self, drops: Drops | None) -> None:
        """Find the visits that continue into the next one of their key, and the gap between them.

        Where a hole opens the next visit, steps hold until then and nothing continues. A number at the instant of a hole cancels
        the hole, except for lines, which would have to arrive there.
        """
        self.goes_on, self.holds = np.zeros(self.count, dtype=bool), np.zeros(self.count, dtype=bool)
        self.gap = np.zeros(self.count, dtype=np.int64)
        known = self.is_open | self.touches
        here = np.flatnonzero((self.key[:-1] == self.key[1:]) & known[:-1])
        begin, hole = self._refs(self.first[here + 1]), self._refs(self.hole[here + 1])
        newest = self.batch.ref[self.last[here]]
        gap = np.minimum(begin, hole) - newest
        within = gap >= 0 if self.spec.max_gap is None else (gap >= 0) & (gap <= self.spec.max_gap)
        whole = (self.hole[here + 1] == _NONE) | ((hole == begin) & ((not self.lines) | (hole == newest)))
        goes_on = within & whole & (self.is_open[here] | (gap == 0))
        if self.lines and drops is not None:
            goes_on &= begin < self._dropped(here, drops)
        self.goes_on[here] = goes_on
        self.holds[here] = within & ~whole & (gap > 0) & (not self.lines) & self.is_open[here]
        self.gap[here] = gap

    def _dropped(self, visits: Any, drops: Drops) -> Any:
        """Return when an attribute of each visit's newest tuple is dropped."""
        rows = self.last[visits]
        table = pa.Table.from_batches([self.batch.to_arrow()])
        return drops.after(table, rows, self.batch.ref[rows])

    def _refs(self, rows: Any) -> Any:
        """Return the instants of rows, the end of time for no row."""
        never = np.iinfo(np.int64).max
        return (
            np.where(rows == _NONE, never, self.batch.ref[rows])
            if len(self.batch)
            else np.full(len(rows), never)
        )

    def unit_of(self, rows: Any) -> Any:
        """Return the unit of each row."""
        return self.unit[self.visit[rows]]

    def reset_integrals(self) -> None:
        """Reset the carried integrals and rounding weights to zero, without joints."""
        batch, names = self.batch, self.spec.schema.modelled_names
        self.begin = np.zeros((self.count, len(names)))
        self.weight = np.zeros_like(self.begin)
        self.handed, self.handed_weight = (
            np.zeros_like(self.begin),
            np.zeros_like(self.begin),
        )  # after a joint
        self.joints: list[SegmentBatch] = []
        self.joint_keys: list[Any] = []
        self.missed = 0
        self.own = np.column_stack([np.asarray(batch.drift(name).filled(0.0)) for name in names])

    def join(self) -> None:
        """Fit the joints in waves: every key's first joint, then every second, as each passes its drift on."""
        self.reset_integrals()
        own, own_weight = self.own, self.own_weights
        nth = np.arange(self.count) - np.maximum.accumulate(
            np.where(np.append(True, np.diff(self.key) != 0)[: self.count], np.arange(self.count), 0)
        )
        for wave in range(int(nth.max(initial=0)) + 1):
            here = np.flatnonzero((self.goes_on | self.holds) & (nth == wave))
            same_run = self.unbroken[here, None]
            delta = own[self.last[here]] + np.where(same_run, self.begin[here], 0.0)
            weight = own_weight[here] + np.where(same_run, self.weight[here], 0.0)
            apart = self.gap[here] > 0
            if apart.any():
                joint, delta[apart], weight[apart] = self._fit_joints(
                    here[apart], delta[apart], weight[apart]
                )
                self.joints.append(joint)
            on = self.goes_on[here]
            self.handed[here], self.handed_weight[here] = delta, weight
            self.begin[here[on] + 1], self.weight[here[on] + 1] = delta[on], weight[on]

    @cached_property
    def own_weights(self) -> Any:
        """Return per visit and attribute the integral of the magnitudes that rounding counts; zero where all is exact."""
        batch, rows = self.batch, self.rows
        visit = self.visit[rows]
        weight = np.zeros_like(self.begin)
        for a, (name, truth) in enumerate(self.spec.schema.modelled):
            length = batch.hi[rows] - batch.lo[rows]
            with np.errstate(over="ignore"):  # overflow means unknown
                magnitude = np.where(length > 0, _magnitudes(batch, name)[rows], 0.0)  # not 0 times infinite
                weight_of_row = magnitude * length + LEAST
            inexact = (batch.err(name)[rows] > 0) | (self.own[rows, a] > 0)
            inexact_rows = np.bincount(visit[inexact], minlength=self.count)
            weight[:, a] = np.bincount(visit, weight_of_row, minlength=self.count)
            weight[inexact_rows == 0, a] = 0.0
            if truth not in (Truth.SAMPLES, Truth.FLOW):
                unknown = np.ma.getmaskarray(batch.drift(name))[rows]
                weight[visit[unknown], a] = np.inf  # everything that continues from it is unknown, too
            handing = self.is_open | self.touches
            weight[handing, a] += batch.err(name)[self.last[handing]]  # inherited from a stored model
        return weight

    def _fit_joints(self, visits: Any, delta: Any, weight: Any) -> tuple[SegmentBatch, Any, Any]:
        """Fit the truth between the two tuples of each visit; return the segments, integral differences and weights."""
        batch, spec, n = self.batch, self.spec, len(visits)
        after = np.where(self.holds[visits], self.hole[visits + 1], self.first[visits + 1])
        ends = np.column_stack([self.last[visits], after]).ravel()
        t = batch.ref[ends]
        t[1::2] = t[::2] + self.gap[visits]
        v = np.ascontiguousarray([batch.coefficients(name)[ends, 0] for name in spec.schema.modelled_names])
        offsets = np.arange(0, 2 * n + 1, 2)
        nothing, watermark = np.zeros(0, dtype=np.int64), np.full(n, NO_TIME, dtype=np.int64)
        # The last tuple counts as another even when it repeats the value, so that the truth between them is an interval.
        found = intervals(t, v, offsets, spec.truth, nothing, watermark, resumed=np.ones(n, dtype=bool))
        resume = np.zeros((n, 1 + 2 * len(spec.schema.modelled)))
        resume[:, 1::2], resume[:, 2::2] = delta, weight

        def key_of(i: int) -> tuple[object, ...]:
            row = batch.to_arrow().slice(int(self.last[visits[i]]), 1)
            return tuple(row.column(name)[0].as_py() for name in spec.schema.key_names)

        fitted = fit_rows(t, v, found, spec, resume, key_of)
        chosen = np.flatnonzero(fitted.kind == SEGMENT)
        self.missed += int(np.count_nonzero(fitted.missed[chosen]))
        final = chosen[np.append(np.diff(fitted.key[chosen]) != 0, True)]
        newest = pa.Table.from_batches([batch.take(self.last[visits[fitted.key[chosen]]]).to_arrow()])
        self.joint_keys.append(self.key[visits[fitted.key[chosen]]])
        rounded = np.zeros((len(chosen), len(spec.schema.modelled)))
        for a in (a for a, adds in enumerate(spec.adds) if adds):
            rounded[:, a] = batch.err(spec.schema.modelled_names[a])[self.last[visits[fitted.key[chosen]]]]
        joint = fitted_segments(fitted, chosen, newest, t[fitted.tuple[chosen]], spec, slack=rounded)
        weight = weight.copy()
        for a, name in enumerate(spec.schema.modelled_names):
            inexact = (fitted.err[chosen, a] > 0) | (fitted.drift[chosen, a] > 0)
            with np.errstate(over="ignore"):
                size = np.where(inexact, _magnitudes(joint, name) * (joint.hi - joint.lo), 0.0)
            np.add.at(weight[:, a], fitted.key[chosen], size)
        return joint, fitted.delta[final], weight

    def late(self) -> LateUnits | None:
        """Return the visits that begin before the newest tuple of earlier visits, or None."""
        never = np.iinfo(np.int64).max
        begins, hole = self._refs(self.first), self._refs(self.hole)
        seen = np.where(self.last == _NONE, NO_TIME, self._refs(self.last))
        seen = np.where((self.last == _NONE) & (hole != never), hole + self._apart(self.hole), seen)
        newest = _running_max_before(seen, self.key)
        late = np.flatnonzero(np.minimum(begins, hole) < newest)
        if not len(late):
            return None
        row = np.where(self.first[late] == _NONE, self.hole[late], self.first[late])
        keys = pa.Table.from_batches([self.batch.take(row).to_arrow()]).select(
            list(self.spec.schema.key_names)
        )
        return LateUnits(keys, self.unit[late], newest[late])

    def superseded(self) -> int:
        """Count the visits that begin at the instant of the newest tuple before them; fitters count within visits."""
        newest = np.where(self.last == _NONE, NO_TIME, self._refs(self.last) + self._apart(self.last))
        begin = self._refs(self.first)
        return int(np.count_nonzero((self.first != _NONE) & (begin == _running_max_before(newest, self.key))))

    def _apart(self, rows: Any) -> Any:
        """Return the microseconds from these rows' instants to their tuples: negative where holes came after."""
        return np.round(self.batch.lo[rows] * 1e6).astype(np.int64) if len(self.batch) else 0

    def ends(self) -> pa.Table:
        """Return each key's newest tuple over all its visits with the difference of the integrals there, as a part."""
        last = np.maximum.accumulate(np.where(self.last == _NONE, _NONE, np.arange(self.count)))
        final = np.flatnonzero(np.append(np.diff(self.key) != 0, True)[: self.count])
        # A last visit of only holes ends the visit before it.
        known = last[final] != _NONE
        known &= self.key[last[final]] == self.key[final] if self.count else False
        final, visit = final[known], last[final[known]]
        ended = final != visit
        is_open = self.is_open[visit] & ~ended
        newest = self.batch.ref[self.last[visit]]
        hole = np.where(ended, self._refs(self.hole[final]), newest)
        length = np.where(ended, self._apart(self.hole[final]), 0)
        held = self.holds[visit]
        touches = np.where(ended, (held | (hole == newest)) & (length == 0), self.touches[visit])
        own, begun = self.own[self.last[visit]], np.where(self.unbroken[visit, None], self.begin[visit], 0.0)
        weight = self.own_weights[visit] + np.where(self.unbroken[visit, None], self.weight[visit], 0.0)
        delta = np.where(held[:, None], self.handed[visit], own + begun)
        weight = np.where(held[:, None], self.handed_weight[visit], weight)
        later = np.maximum(hole + length, newest) - newest
        apart = (self._apart(self.last[visit]) - later) / 1e6
        columns = {"ref": pa.array(newest + later).cast(REF), "lo": apart, "hi": apart}
        for a, name in enumerate(self.spec.schema.modelled_names):
            if self.spec.adds[a]:
                continue  # what its total errs by stays with it
            for column, values in ((f"{name}_drift", delta), (f"{name}_err", weight)):
                columns[column] = np.where(is_open | touches, values[:, a], 0.0)
        ends = self.batch.take(self.last[visit]).with_columns(**columns)
        part = np.where(is_open, LAST, np.where(touches, TOUCHING, LAST_APART))
        return pa.Table.from_batches([ends.to_arrow()]).append_column(PART, pa.array(part, pa.int8()))

    def segments(self) -> tuple[SegmentBatch, Any]:
        """Return the units' segments and the joints by key and time, and a mask of the points that end a key.

        Drifts count from the key's start; points that the next visit replaces are omitted.
        """
        kept = ~self._replaced()
        rows = self.rows[kept]
        visit = self.visit[rows]
        whole = SegmentBatch.concat([self.batch, *self.joints], at_rest=False) if self.joints else self.batch
        rows = np.append(rows, np.arange(len(self.batch), len(whole)))
        keys = np.concatenate([self.key[visit], *self.joint_keys])
        order, closing = at_rest(Ranges(keys, whole.ref[rows], whole.lo[rows], whole.hi[rows]))
        batch = whole.take(rows[order])
        inherited = np.abs(self.begin) + ROUNDING * self.weight
        begun = np.zeros((len(rows), self.begin.shape[1]))
        begun[: len(visit)] = np.where(self.in_first_run[kept, None], inherited[visit], 0.0)
        if begun.any():
            begun = begun[order]
            for a, name in enumerate(self.spec.schema.modelled_names):
                drift = np.ma.filled(batch.drift(name), np.nan) + begun[:, a]
                batch = batch.with_columns(**{f"{name}_drift": pa.array(drift, mask=~np.isfinite(drift))})
                self.missed += _exceeding(batch, self.spec, a, begun[:, a])
        return batch, closing

    def _replaced(self) -> Any:
        """Mark points that end a visit that continues and, for linear truths, a lone first tuple at which a joint arrives."""
        batch, rows = self.batch, self.rows
        visit, point = self.visit[rows], batch.is_point[rows]
        follows = self.goes_on | self.holds
        replaced = point & follows[visit] & (batch.ref[rows] == batch.ref[self.last[visit]])
        if all(truth is Truth.LINEAR for _, truth in self.spec.schema.modelled):
            arrives = np.append(False, self.goes_on & (self.gap > 0))[:-1][visit]
            same = point & arrives & (batch.ref[rows] == batch.ref[self.first[visit]])
            for name in self.spec.schema.modelled_names:
                value = batch.coefficients(name)[:, 0]
                same &= value[rows] == value[self.first[visit]]
            replaced |= same
        return replaced


def _exceeding(segments: SegmentBatch, spec: FitSpec, a: int, begun: Any) -> int:
    """Count the segments that exceed the requested drift bound only because of the drift they inherit."""
    requested, name = spec.drift[a], spec.schema.modelled_names[a]
    if requested is None:
        return 0
    c = segments.coefficients(name)
    ends = evaluate(c, segments.lo), evaluate(c, segments.hi)
    least = np.where((ends[0] < 0) != (ends[1] < 0), 0.0, np.minimum(*np.abs(ends))) - segments.err(name)
    bound = requested.at(np.maximum(least, 0.0))
    drift = np.ma.filled(segments.drift(name), np.inf)
    # The position of the largest drift is unknown, and a relative bound varies with the truth: fits leave a share of it unused.
    over = drift > bound if isinstance(requested, Absolute) else ~(begun <= SPARE * bound)
    return int(np.count_nonzero((begun != 0.0) & over & ~(drift - begun > bound)))


def _running_max_before(values: Any, key: Any) -> Any:
    """Return per row the largest earlier value of the same key, or NO_TIME; keys are non-decreasing."""
    out = np.full(len(values), NO_TIME, dtype=np.int64)
    if len(values) < 2:
        return out
    distinct, rank = np.unique(values, return_inverse=True)
    group = np.cumsum(np.append(True, np.diff(key) != 0))
    newest = np.maximum.accumulate(group * len(distinct) + rank) - group * len(distinct)
    same = key[1:] == key[:-1]
    out[1:][same] = distinct[newest[:-1][same]]
    return out


def _magnitudes(batch: SegmentBatch, name: str) -> Any:
    """Return per segment an upper bound on the magnitudes of truth and model summed in it."""
    return 2.0 * magnitudes(batch.coefficients(name), batch.lo, batch.hi) + batch.err(name) + LEAST
