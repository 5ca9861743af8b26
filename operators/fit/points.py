"""Keep tuples as exact point segments, for streams defined only at their tuples (semantics 1.2, 2.2).

1 Transforms: a :class:`PointFitter` takes batches of tuples as a :class:`~pulse.operators.fit.fitter.Fitter` does and emits a
  point per tuple. It keeps all tuples of a key and instant, as each counts in a window: the ``k``-th to arrive lies ``k``
  femtoseconds after the instant, far below the timeline's resolution. A table at rest therefore has no two rows of a key at
  one place, and sampling takes the last of them (semantics 2.5).
2 Bounds: none: err is 0.
3 Inverts: nothing can be tightened.
4 Revises: a correction withdraws the points of its instant and inserts them again; nothing else changes.
5 Accents: applied to the tuples upstream; none arrive here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.counting_sort import group
from pulse.kernels.fit.truth_intervals import SUPERSEDED, USED, intervals
from pulse.operators.data.tuple_columns import encode_keys, segments_of, times, values
from pulse.operators.fit.fitter import Fitter
from pulse.operators.fit.spec import FitSpec
from pulse.operators.units.key_ends import Drops

APART = 1e-15
"""Seconds between consecutive tuples of an instant: a million of them fit into the timeline's grain of a nanosecond."""


def fitter_for(
    spec: FitSpec,
    *,
    watermarks: Mapping[tuple[object, ...], int] | None = None,
    record: bool = False,
    drops: Drops | None = None,
    rounded: Collection[str] = (),
) -> Fitter:
    """Create the fitter for a spec: of points, or of ranges within bounds; ``rounded``: attributes converted from other units."""
    kind = PointFitter if spec.schema.points else Fitter
    return kind(spec, watermarks=watermarks, record=record, drops=drops, rounded=rounded)


class PointFitter(Fitter):
    """The running state of keeping points: each key's newest instant and its number of tuples there."""

    def __init__(self, spec: FitSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        self._so_far = np.zeros(len(self._watermark), dtype=np.int64)

    def _work(self, *, final: bool) -> SegmentBatch:
        schema = self.spec.schema
        pending, self._pending, self._pending_rows = self._pending, [], 0
        if not pending:
            return SegmentBatch.empty(schema)
        table = pa.concat_tables(pending, promote_options="permissive").unify_dictionaries()
        encoded = encode_keys(table, schema)
        order, offsets = group(encoded.codes, len(encoded.keys))
        t, finer = times(table, schema, 0)
        v = values(table, schema)
        rows = np.arange(len(t)) if order is None else order
        t, v = t[rows], np.ascontiguousarray(v[:, rows])
        ids = np.array([self._id(key) for key in encoded.keys], dtype=np.int64)
        self._grow()
        self._so_far = np.append(self._so_far, np.zeros(len(self._watermark) - len(self._so_far), np.int64))
        before = self._watermark[ids]
        newest = before.copy()
        nothing = np.empty(0, dtype=np.int64)
        # A hole after every tuple: all that remains are the verdicts on late and non-finite tuples.
        found = intervals(
            t, v, offsets, self.spec.truth, nothing, newest, max_gap=0, holes=self.spec.nonfinite == "hole"
        )
        found.verdict[found.verdict == SUPERSEDED] = USED
        self._watermark[ids] = np.maximum(before, newest)
        self._note(table, rows, t, v, found.verdict, encoded, 0, finer)
        if self._recorded is not None:
            self._record(table, rows, t, found.verdict, offsets, before, 0)
        self.ends.observe(
            table, rows, t, v, found, offsets, ids, np.column_stack([before, self._watermark[ids]])
        )
        used = np.flatnonzero(found.verdict == USED)
        place = self._places(t[used], np.repeat(ids, np.diff(offsets))[used], ids, before)
        return self._points(table, rows[used], t[used], v[:, used], place)

    def _places(self, t: Any, key: Any, ids: Any, before: Any) -> Any:
        """Return each tuple's rank among the tuples of its key and instant, counted from 0 over all batches."""
        same = np.zeros(len(t), dtype=bool)
        same[1:] = (t[1:] == t[:-1]) & (key[1:] == key[:-1])
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(t))))
        old = np.empty(len(self._so_far), dtype=np.int64)
        old[ids] = before
        place = np.arange(len(t)) - first + np.where(t == old[key], self._so_far[key], 0)
        last = np.append(key[1:] != key[:-1], True)[: len(t)]
        self._so_far[key[last]] = place[last] + 1
        return place

    def _points(self, table: pa.Table, rows: Any, t: Any, v: Any, place: Any) -> SegmentBatch:
        schema = self.spec.schema
        return segments_of(
            table.select([*schema.key_names, *schema.unmodelled_names]).take(pa.array(rows)),
            schema,
            ref=t,
            lo=place * APART,
            hi=place * APART,
            models={
                name: np.ascontiguousarray(v[a])[:, None] for a, name in enumerate(schema.modelled_names)
            },
            err=dict.fromkeys(schema.modelled_names, 0.0),
        )


def renumbered(segments: SegmentBatch) -> SegmentBatch:
    """Sort points by key and time and offset those of one instant from each other, in their current order."""
    key, t = segments.key_ranks, segments.ref
    same = np.zeros(len(segments), dtype=bool)
    same[1:] = (key[1:] == key[:-1]) & (t[1:] == t[:-1])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(segments))))
    lo = (np.arange(len(segments)) - first) * APART
    return segments.with_columns(lo=lo, hi=lo)
