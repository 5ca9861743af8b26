"""Stitching work units: what lies between one unit's newest tuple of a key and the next unit's first.

Every unit fits its own tuples, so between two units of a key one interval of the truth is missing. It is fitted
like any other (a cut may add segment boundaries, and nothing else)::

    unit 0   |--------|---|--o            o  a key's newest tuple in its unit
    joint                    |-----|      x  its first tuple in the next one
    unit 1                         x---|--------|--o

Integrals go on from unit to unit: the drift of a unit's segments counts from the unit's own start, to which the
difference that was there before is added. A fit ends with that difference as small as it can, and the joint takes
up what is left, so it does not pile up.

A part is a table with the columns of a segment batch and ``_unit`` (order of arrival) and ``_part``: SEGMENTS, or a
key's FIRST or LAST tuple (:mod:`pulse.operators.fit_ends`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core import SegmentBatch, Truth
from pulse.core.keys import key_ranks
from pulse.kernels.fit import SEGMENT
from pulse.kernels.knots import NO_TIME, intervals
from pulse.kernels.timeline import GRAIN
from pulse.operators.fit import fit_rows, models_of
from pulse.operators.fit_spec import FitSpec

SEGMENTS, FIRST, LAST = 0, 1, 2
UNIT, PART = "_unit", "_part"
_NONE = -1


def part_table(batch: SegmentBatch, unit: int, part: int) -> pa.Table:
    """A batch as a part."""
    table = pa.Table.from_batches([batch.to_arrow()])
    table = table.append_column(UNIT, pa.repeat(pa.scalar(unit, pa.int64()), len(batch)))
    return table.append_column(PART, pa.repeat(pa.scalar(part, pa.int8()), len(batch)))


class Stitched(NamedTuple):
    """``segments`` at rest, sorted by key and time; ``ends``: each key's newest tuple, as LAST parts have them."""

    segments: SegmentBatch
    ends: SegmentBatch


class LateUnits(NamedTuple):
    """Visits that begin before an earlier unit of their key ended: tuples before the ``watermark`` are late."""

    keys: pa.Table
    unit: Any
    watermark: Any


def stitch(parts: pa.Table, spec: FitSpec) -> Stitched | LateUnits:
    """All parts of some keys, made one; or which units must be fitted again with a watermark first."""
    columns = [parts.column(name).combine_chunks() for name in spec.schema.key_names]
    ranks = key_ranks(columns, parts.num_rows)
    unit, part = parts.column(UNIT).to_numpy(), parts.column(PART).to_numpy()
    ref, lo = parts.column("ref").cast(pa.int64()).to_numpy(), parts.column("lo").to_numpy()
    order = np.lexsort((lo, ref, part, unit, ranks))
    table = parts.drop_columns([UNIT, PART]).take(pa.array(order))
    batch = SegmentBatch.from_arrow(table, spec.schema, check=False)
    visits = _Visits(batch, ranks[order], unit[order], part[order], spec)
    late = visits.late()
    if late is not None:
        return late
    visits.join()
    segments = SegmentBatch.concat([visits.segments(), *visits.joints], at_rest=False).sort()
    return Stitched(segments, visits.ends())


class _Visits:
    """A visit is one key's stay in one unit; visits of a key stand in the units' order."""

    def __init__(self, batch: SegmentBatch, ranks: Any, unit: Any, part: Any, spec: FitSpec) -> None:
        self.batch, self.spec = batch, spec
        fresh = (
            np.append(True, (np.diff(ranks) != 0) | (np.diff(unit) != 0)) if len(batch) else np.zeros(0, bool)
        )
        self.visit = np.cumsum(fresh) - 1  # of each row
        self.count = int(fresh.sum())
        self.key = ranks[fresh]
        self.rows = np.flatnonzero(part == SEGMENTS)
        self.first, self.last = np.full(self.count, _NONE), np.full(self.count, _NONE)
        self.first[self.visit[part == FIRST]] = np.flatnonzero(part == FIRST)
        self.last[self.visit[part == LAST]] = np.flatnonzero(part == LAST)
        self.in_first_run = self._first_runs()
        self.unbroken = np.ones(self.count, dtype=bool)
        np.logical_and.at(self.unbroken, self.visit[self.rows], self.in_first_run)
        self.unit = unit[fresh]
        self._find_joints()

    def _first_runs(self) -> Any:
        """Which segments belong to the hole-free run that their visit begins with."""
        batch, rows = self.batch, self.rows
        if not len(rows):
            return np.zeros(0, dtype=bool)
        a, b = rows[:-1], rows[1:]
        gap = (batch.ref[b] - batch.ref[a]) / 1e6 + (batch.lo[b] - batch.hi[a])
        hole = np.append(False, gap > GRAIN + 8 * np.finfo(float).eps * np.abs(batch.hi[a]))
        begins = np.append(True, self.visit[a] != self.visit[b])
        holes = np.cumsum(hole & ~begins)
        at_begin = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        return holes == holes[at_begin]

    def _find_joints(self) -> None:
        """Which visits go on into the next one of their key, and how long after."""
        self.goes_on = np.zeros(self.count, dtype=bool)
        self.gap = np.zeros(self.count, dtype=np.int64)
        here = np.flatnonzero(
            (self.key[:-1] == self.key[1:]) & (self.last[:-1] != _NONE) & (self.first[1:] != _NONE)
        )
        gap = self.batch.ref[self.first[here + 1]] - self.batch.ref[self.last[here]]
        joined = gap >= 0 if self.spec.max_gap is None else (gap >= 0) & (gap <= self.spec.max_gap)
        self.goes_on[here[joined]] = True
        self.gap[here] = gap

    def join(self) -> None:
        """Fit the joints, wave by wave: every key's first joint, then every second one, as each hands its drift on."""
        batch, names = self.batch, self.spec.schema.modelled_names
        self.begin = np.zeros(
            (self.count, len(names))
        )  # difference of the integrals that a visit begins with
        self.joints: list[SegmentBatch] = []
        self.own = own = np.column_stack([np.asarray(batch.drift(name).filled(0.0)) for name in names])
        nth = np.arange(self.count) - np.maximum.accumulate(
            np.where(np.append(True, np.diff(self.key) != 0)[: self.count], np.arange(self.count), 0)
        )
        for wave in range(int(nth.max(initial=0)) + 1):
            here = np.flatnonzero(self.goes_on & (nth == wave))
            delta = own[self.last[here]] + np.where(self.unbroken[here, None], self.begin[here], 0.0)
            apart = self.gap[here] > 0
            if apart.any():
                joint, delta[apart] = self._fit_joints(here[apart], delta[apart])
                self.joints.append(joint)
            self.begin[here + 1] = delta

    def _fit_joints(self, visits: Any, delta: Any) -> tuple[SegmentBatch, Any]:
        """Segments of the truth between two tuples per visit, and the differences of the integrals after them."""
        batch, spec, n = self.batch, self.spec, len(visits)
        ends = np.column_stack([self.last[visits], self.first[visits + 1]]).ravel()
        t = batch.ref[ends]
        v = np.ascontiguousarray([batch.coefficients(name)[ends, 0] for name in spec.schema.modelled_names])
        offsets = np.arange(0, 2 * n + 1, 2)
        nothing, watermark = np.zeros(0, dtype=np.int64), np.full(n, NO_TIME, dtype=np.int64)
        # The tuple at the end counts as another even when it repeats the value, so that the truth between them is an interval.
        found = intervals(t, v, offsets, spec.truth, nothing, watermark, resumed=np.ones(n, dtype=bool))
        resume = np.zeros((n, 1 + 2 * len(spec.schema.modelled)))
        resume[:, 1::2] = delta
        resume[:, 2::2] = np.abs(v[:, ::2].T)  # some weight, so that rounding is allowed for
        fitted = fit_rows(t, v, found, spec, resume, [("between work units",)] * n)
        chosen = np.flatnonzero(fitted.kind == SEGMENT)
        after = fitted.delta[chosen[np.append(np.diff(fitted.key[chosen]) != 0, True)]]
        old = batch.take(self.last[visits[fitted.key[chosen]]]).to_arrow()
        names = spec.schema.modelled_names
        joint = SegmentBatch.from_arrays(
            spec.schema,
            keys={name: old.column(name) for name in spec.schema.key_names},
            ref=t[fitted.tuple[chosen]],
            lo=fitted.lo[chosen],
            hi=fitted.hi[chosen],
            models={name: models_of(fitted, chosen, a, spec) for a, name in enumerate(names)},
            err={name: fitted.err[chosen, a] for a, name in enumerate(names)},
            drift={
                name: fitted.drift[chosen, a]
                for a, (name, truth) in enumerate(spec.schema.modelled)
                if truth is not Truth.SAMPLES
            },
            unmodelled={name: old.column(name) for name in spec.schema.unmodelled_names},
            at_rest=False,
        )
        return joint, after

    def late(self) -> LateUnits | None:
        """Visits that begin before the newest tuple of the visits before them."""
        seen = np.where(
            self.last == _NONE, NO_TIME, self.batch.ref[self.last] if len(self.batch) else NO_TIME
        )
        newest = _running_max_before(seen, self.key)
        begins = np.where(
            self.first == _NONE, np.iinfo(np.int64).max, self.batch.ref[self.first] if len(self.batch) else 0
        )
        late = np.flatnonzero(begins < newest)
        if not len(late):
            return None
        keys = pa.Table.from_batches([self.batch.take(self.first[late]).to_arrow()]).select(
            list(self.spec.schema.key_names)
        )
        return LateUnits(keys, self.unit[late], newest[late])

    def ends(self) -> SegmentBatch:
        """Each key's newest tuple over all its visits, with the difference of the integrals that stands there."""
        final = np.flatnonzero(np.append(np.diff(self.key) != 0, True)[: self.count] & (self.last != _NONE))
        table = self.batch.take(self.last[final]).to_arrow()
        own, begun = self.own[self.last[final]], np.where(self.unbroken[final, None], self.begin[final], 0.0)
        for a, name in enumerate(self.spec.schema.modelled_names):
            at = table.schema.get_field_index(f"{name}_drift")
            table = table.set_column(at, f"{name}_drift", pa.array(own[:, a] + begun[:, a]))
        return SegmentBatch(table, self.batch.schema)

    def segments(self) -> SegmentBatch:
        """The units' own segments: drifts that count from the key's start, without points that the next stretch replaces."""
        kept = ~self._replaced()
        rows = self.rows[kept]
        table = self.batch.take(rows).to_arrow()
        begun = np.where(self.in_first_run[kept, None], np.abs(self.begin[self.visit[rows]]), 0.0)
        if begun.any():
            for a, name in enumerate(self.spec.schema.modelled_names):
                at = table.schema.get_field_index(f"{name}_drift")
                table = table.set_column(at, f"{name}_drift", pc.add(table.column(at), pa.array(begun[:, a])))
        return SegmentBatch(table, self.batch.schema)

    def _replaced(self) -> Any:
        """Points that end a visit which goes on; and, of straight truths, a lone first tuple at which a joint arrives."""
        batch, rows = self.batch, self.rows
        visit, point = self.visit[rows], batch.is_point[rows]
        replaced = point & self.goes_on[visit] & (batch.ref[rows] == batch.ref[self.last[visit]])
        if all(truth is Truth.LINEAR for _, truth in self.spec.schema.modelled):
            arrives = np.append(False, self.goes_on & (self.gap > 0))[:-1][visit]
            same = point & arrives & (batch.ref[rows] == batch.ref[self.first[visit]])
            for name in self.spec.schema.modelled_names:
                value = batch.coefficients(name)[:, 0]
                same &= value[rows] == value[self.first[visit]]
            replaced |= same
        return replaced


def _running_max_before(values: Any, key: Any) -> Any:
    """Per row the largest value of the rows before it with the same key; NO_TIME where there is none."""
    out = np.full(len(values), NO_TIME, dtype=np.int64)
    for i in range(1, len(values)):
        if key[i] == key[i - 1]:
            out[i] = max(out[i - 1], values[i - 1])
    return out
