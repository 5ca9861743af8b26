"""Questions about lineage (semantics 1.5): which inputs caused a result, which results an input caused.

Both ask a table of result segments with its ``lineage`` column.
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
    """A question about lineage that results cannot answer."""


def _lineage(results: pa.Table | pa.RecordBatch) -> pa.ListArray:
    if "lineage" not in results.schema.names:
        raise LineageError("these results carry no lineage; ask the query with lineage=True (--lineage)")
    column = results.column("lineage")
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def causes(
    results: pa.Table | pa.RecordBatch,
    row: int | None = None,
    *,
    streams: Mapping[str, Iterable[int]] | None = None,
) -> pa.Table:
    """The input segments that caused a row of the results, or all of them: each once, by id and time.

    Columns ``segment_id, key, ref, lo, hi``; and ``stream``, where ``streams`` names which segments (ids) each stream has.
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
    """The rows of the results that an input segment (of a key, where ids are not unique over keys) had a part in, ascending."""
    lineage = Lineage.of(_lineage(results)) if results.num_rows else None
    if lineage is None:
        return np.zeros(0, np.int64)
    ids = lineage.table.field("segment_id").to_numpy(zero_copy_only=False)
    chosen = ids == segment_id
    if key is not None:
        chosen &= pc.equal(lineage.table.field("key"), key).fill_null(False).to_numpy(zero_copy_only=False)
    of_row = np.repeat(np.arange(len(lineage)), np.diff(lineage.offsets))
    return np.unique(of_row[chosen[lineage.entries]])
