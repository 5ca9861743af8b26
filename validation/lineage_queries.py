"""Query lineage (semantics 1.5): the inputs that caused a result, and the results an input caused.

Both functions take a table of result segments with its ``lineage`` column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import IntArray
from pulse.core.errors import PulseError
from pulse.core.schema import LINEAGE
from pulse.operators.data.lineage import Lineage


class LineageError(PulseError, ValueError):
    """An error for a lineage query that the results cannot answer."""


def _lineage(results: pa.Table | pa.RecordBatch) -> pa.ListArray:
    if "lineage" not in results.schema.names:
        raise LineageError("these results carry no lineage; run the query with lineage=True (--lineage)")
    column = results.column("lineage")
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def causes(
    results: pa.Table | pa.RecordBatch,
    row: int | None = None,
    *,
    streams: Mapping[str, Iterable[int]] | None = None,
) -> pa.Table:
    """Return the input segments that caused one row of the results, or all rows: each once, by id and time.

    Columns ``segment_id, key, ref, lo, hi``; and ``stream``, where ``streams`` gives the segment ids of each stream.
    """
    lists = _lineage(results)
    if row is not None:
        if not -len(lists) <= row < len(lists):
            raise LineageError(f"expected a row of the {len(lists)} results, got {row}")
        lists = lists.slice(row % len(lists), 1)
    lineage = Lineage.of(lists) if len(lists) else None
    entries = np.zeros(0, np.int64) if lineage is None else np.unique(lineage.entries)
    table = pa.array([], LINEAGE.value_type) if lineage is None else lineage.table
    made = pa.Table.from_struct_array(table.take(pa.array(entries)))
    made = made.sort_by([("segment_id", "ascending"), ("ref", "ascending"), ("lo", "ascending")])
    if streams is None:
        return made
    ids = made.column("segment_id")
    stream = pa.nulls(len(made), pa.string())
    for name, own in streams.items():
        stream = pc.if_else(pc.is_in(ids, pa.array(list(own), pa.int64())), name, stream)
    return made.append_column("stream", stream)


def effects(results: pa.Table | pa.RecordBatch, segment_id: int, *, key: str | None = None) -> IntArray:
    """Return the result rows that an input segment (of a key, if ids are not unique over keys) contributed to, ascending."""
    lineage = Lineage.of(_lineage(results)) if results.num_rows else None
    if lineage is None:
        return np.zeros(0, np.int64)
    ids = lineage.table.field("segment_id").to_numpy(zero_copy_only=False)
    chosen = ids == segment_id
    if key is not None:
        chosen &= pc.equal(lineage.table.field("key"), key).fill_null(False).to_numpy(zero_copy_only=False)
    of_row = np.repeat(np.arange(len(lineage)), np.diff(lineage.offsets))
    return np.unique(of_row[chosen[lineage.entries]])
