"""Provide a refit with tuples and segments: from tables in memory, or from functions that read regions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks
from pulse.core.regions import Regions
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.data.tuple_columns import times, values
from pulse.operators.refit.apply_revisions import as_tuples, dense

TupleSource = Callable[[Regions], pa.Table]
SegmentSource = Callable[[Regions], SegmentBatch]


def tuple_source(tuples: pa.Table | TupleSource, schema: StreamSchema, *, nonfinite: str) -> TupleSource:
    """Return a function that reads the tuples of regions and one more on either side."""
    return tuples if callable(tuples) else _Tuples(tuples, schema, nonfinite).read


def segment_source(segments: SegmentBatch | SegmentSource) -> SegmentSource:
    """Return a function that reads the segments that meet regions; it may return more."""
    if isinstance(segments, SegmentBatch):
        whole = segments
        return lambda regions: whole
    return segments


class _Tuples:
    """A table of tuples, by key and time, that serves regions."""

    def __init__(self, tuples: pa.Table, schema: StreamSchema, nonfinite: str) -> None:
        self.schema = schema
        table = as_tuples(tuples, schema)
        if nonfinite == "reject":  # such tuples are not part of the truth
            finite = np.isfinite(values(table, schema)).all(axis=0)
            table = table if finite.all() else table.filter(pa.array(finite))
        self.table = table.combine_chunks()
        self.time, _ = times(self.table, schema)

    def read(self, regions: Regions) -> pa.Table:
        """Return the rows of the regions, with a neighbour on either side of each."""
        n, m = self.table.num_rows, len(regions)
        columns = []
        for i, name in enumerate(self.schema.key_names):
            mine = self.table.column(name).combine_chunks()
            mine = mine.combine_chunks() if isinstance(mine, pa.ChunkedArray) else mine
            columns.append(pa.concat_arrays([mine, regions.keys[i].cast(mine.type)]))
        key = key_ranks(columns, n + m)
        wanted = np.flatnonzero(np.isin(key[:n], key[n:]))
        order = wanted[np.lexsort((self.time[wanted], key[wanted]))]
        ids = dense(
            np.concatenate([key[order], key[n:], key[n:]]),
            np.concatenate([self.time[order], regions.start, regions.end]),
        )
        rows, start, end = np.split(ids, [len(order), len(order) + m])
        return self.table.take(pa.array(order[_near(rows, key[order], start, end, key[n:])]))


def _near(rows: IntArray, key: IntArray, start: IntArray, end: IntArray, of: IntArray) -> IntArray:
    """Return which sorted rows lie in or right beside one of the ranges."""
    first, stop = np.searchsorted(rows, start, side="left"), np.searchsorted(rows, end, side="left")
    n = len(rows)
    before, after = np.maximum(first - 1, 0), np.minimum(stop, max(n - 1, 0))
    if n:
        first = np.where((first > 0) & (key[before] == of), before, first)
        stop = np.where((stop < n) & (key[after] == of), stop + 1, stop)
    mark = np.zeros(n + 1, dtype=np.int64)
    np.add.at(mark, first, 1)
    np.add.at(mark, np.maximum(stop, first), -1)
    return np.flatnonzero(np.cumsum(mark)[:n] > 0)
