"""Layers: files that correct a stored model without rewriting it (semantics 7).

A layer has the columns of a segment and three more, and is sorted by key and time like every file::

    kind  _known_from          _known_to            symbol  ref       lo   hi  …
    -D    2018-01-03 09:00:00  null                 IBM     14:00:00  0    60  …    withdrawn: it existed before this layer
    +I    2018-01-03 09:00:00  null                 IBM     14:00:00  0    20  …    inserted, and still there after it
    +I    2018-01-03 09:00:00  2018-01-03 11:00:00  IBM     14:00:00  20   60  …    inserted and withdrawn within the layer

``_known_from`` is when the correction became known. A segment is identified by its key, ``ref``, ``lo`` and whether it is a
point. Reading yields the base minus withdrawn plus inserted segments, the layers in order: a later layer may withdraw a segment
that an earlier one inserted. *As of* an instant only corrections known by then count, and segments are cut there. Known
instants of a key never decrease from layer to layer (the writer ensures that), so the state as of an instant is one that the
model, corrected as things became known, has had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import REF, one_chunk
from pulse.core.keys import ranks_of_rows
from pulse.core.schema import StreamSchema, certificates
from pulse.core.segment.batch import SegmentBatch
from pulse.core.segment.order import Ranges, narrow, time_order
from pulse.store.errors import StoreError

KIND, KNOWN_FROM, KNOWN_TO = "kind", "_known_from", "_known_to"
OWN = (KIND, KNOWN_FROM, KNOWN_TO)
OPEN = -(1 << 63)
"""As the end of a known time: the inserted segment still exists."""


def layer_schema(schema: StreamSchema) -> pa.Schema:
    """Return the columns of a layer of this stream."""
    for name in (KNOWN_FROM, KNOWN_TO):
        if name in schema.names:
            raise StoreError(
                f"revisions: the stream has an attribute '{name}', a layer's own column; rename it"
            )
    return pa.schema([(KIND, pa.string()), (KNOWN_FROM, REF), (KNOWN_TO, REF), *schema.arrow_schema()])


def layer_rows(
    withdrawn: SegmentBatch, put: SegmentBatch, *, withdrawn_known: Any, put_known: Any
) -> pa.Table:
    """Build a layer from withdrawn and inserted segments, with instants in microseconds, one for all or one each; by key and
    time.
    """
    schema = withdrawn.schema
    own = layer_schema(schema)
    columns: dict[str, Any] = {KIND: ["-D"] * len(withdrawn) + ["+I"] * len(put)}
    known = np.concatenate([_each(withdrawn_known, len(withdrawn)), _each(put_known, len(put))])
    columns[KNOWN_FROM] = pa.array(known).view(REF)
    columns[KNOWN_TO] = pa.nulls(len(known), REF)
    rows = [
        pa.Table.from_batches([one.to_arrow()]).select(schema.arrow_schema().names)
        for one in (withdrawn, put)
    ]
    segments = pa.concat_tables(rows)
    table = pa.table({**columns, **{name: segments.column(name) for name in segments.column_names}}).cast(own)
    return in_order(table, schema)


def _each(given: Any, n: int) -> IntArray:
    return np.broadcast_to(np.asarray(given, dtype=np.int64), (n,))


def in_order(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Sort rows of segments, or of a layer, by key and time."""
    order = time_order(ranges_of(table, schema))
    return table if order is None else table.take(pa.array(order))


def ranges_of(table: pa.Table, schema: StreamSchema) -> Ranges:
    """Return the key ranks and ranges of a table of segments."""
    lo, hi = (table.column(name).to_numpy() for name in ("lo", "hi"))
    return Ranges(ranks_of_rows(table, schema.key_names), microseconds_of(table, "ref"), lo, hi)


def without_drift(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Remove the certificates of integrals from segments: of drifts and of squared errors."""
    for name in schema.modelled_names:
        for column in certificates(name)[1:]:
            if column in table.column_names:
                at = table.column_names.index(column)
                table = table.set_column(at, column, pa.nulls(table.num_rows, pa.float64()))
    return table


def cut(table: pa.Table, schema: StreamSchema, as_of: int | None) -> pa.Table:
    """Cut segments at an instant, keeping the time before it."""
    if as_of is None or not table.num_rows:
        return table
    keep, _, hi = narrow(ranges_of(table, schema), None, as_of)
    return table.set_column(table.column_names.index("hi"), "hi", pa.array(hi)).filter(pa.array(keep))


class Overlay:
    """Layers with their versions over some files, at the end or as of an instant.

    Tables may lack columns other than keys, ``ref``, ``lo`` and ``hi``.
    """

    def __init__(
        self, layers: Sequence[tuple[int, pa.Table]], schema: StreamSchema, as_of: int | None = None
    ) -> None:
        rows = pa.concat_tables([table for _, table in layers])
        version = np.repeat([number for number, _ in layers], [table.num_rows for _, table in layers])
        if as_of is not None:
            known = microseconds_of(rows, KNOWN_FROM) <= as_of
            rows, version = rows.filter(pa.array(known)), version[known]
        withdraws = _mask(pc.equal(rows.column(KIND), "-D"))
        self._schema, self._withdrawn = schema, rows.filter(pa.array(withdraws))
        self._refs = np.unique(microseconds_of(self._withdrawn, "ref"))
        there = ~withdraws & _is_there(rows, as_of)
        code = _identities(rows, schema)
        last = np.full(int(code.max(initial=-1)) + 1, np.iinfo(np.int64).min)
        np.maximum.at(last, code[withdraws], version[withdraws])
        there &= version >= last[code]  # a layer withdraws earlier segments, not those it inserts
        self.put = rows.filter(pa.array(there)).drop_columns([n for n in OWN if n in rows.column_names])
        """The inserted segments that still exist."""

    def over(self, table: pa.Table) -> pa.Table:
        """Return rows of the files below that no layer withdraws."""
        keep = self._keeps(table)
        return table if keep is None else table.filter(pa.array(keep))

    def _keeps(self, table: pa.Table) -> BoolArray | None:
        # Few are withdrawn: comparing the references first leaves few rows to compare by key.
        ref = microseconds_of(table, "ref")
        at = np.searchsorted(self._refs, ref)
        alike = (
            np.flatnonzero(self._refs[np.minimum(at, len(self._refs) - 1)] == ref)
            if len(self._refs)
            else at[:0]
        )
        if not len(alike):
            return None
        names = [*self._schema.key_names, "ref", "lo", "hi"]
        some = table.select(names).take(pa.array(alike))
        code = _identities(pa.concat_tables([some, self._withdrawn.select(names)]), self._schema)
        keep: BoolArray = np.ones(table.num_rows, dtype=bool)
        keep[alike] = ~np.isin(code[: len(alike)], code[len(alike) :])
        return keep


def _is_there(rows: pa.Table, as_of: int | None) -> BoolArray:
    """Return which rows are not withdrawn again within their layer."""
    gone = microseconds_of(rows, KNOWN_TO, OPEN)
    there: BoolArray = gone == OPEN if as_of is None else (gone == OPEN) | (gone > as_of)
    return there


def _identities(rows: pa.Table, schema: StreamSchema) -> IntArray:
    """Return a number per row that identifies its segment: key, ``ref``, ``lo``, and whether it is a point."""
    ranks, ref, lo, hi = ranges_of(rows, schema)
    columns = np.column_stack([ranks, ref, (lo + 0.0).view(np.int64), (lo == hi).astype(np.int64)])
    order = np.lexsort(columns.T)
    fresh = np.append(True, (np.diff(columns[order], axis=0) != 0).any(axis=1))[: len(order)]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(fresh) - 1
    return codes


def microseconds_of(table: pa.Table, name: str, null: int = 0) -> IntArray:
    """Return the instants of a column in microseconds, with ``null`` where there is none."""
    whole: IntArray = one_chunk(table.column(name)).view(pa.int64()).fill_null(null).to_numpy()
    return whole


def _mask(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = column.to_numpy().astype(bool)
    return mask


class Round(NamedTuple):
    """One of several steps that make a layer: the segments it withdraws and inserts, with known times."""

    withdrawn: SegmentBatch
    put: SegmentBatch
    withdrawn_known: Any
    put_known: Any


def fold(rounds: Sequence[Round]) -> pa.Table:
    """Combine rounds into one layer: an insertion that a later round withdraws ends there.

    Segments inserted and withdrawn at one instant were never known, and are omitted.
    """
    schema = rounds[0].withdrawn.schema
    tables = [
        layer_rows(one.withdrawn, one.put, withdrawn_known=one.withdrawn_known, put_known=one.put_known)
        for one in rounds
    ]
    rows = pa.concat_tables(tables)
    step = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    withdraws, code = _mask(pc.equal(rows.column(KIND), "-D")), _identities(rows, schema)
    order = np.lexsort((~withdraws, step, code))
    ends = np.zeros(len(order), dtype=bool)  # withdraws an earlier round's insertion: the row before it
    ends[1:] = withdraws[order[1:]] & ~withdraws[order[:-1]] & (code[order[1:]] == code[order[:-1]])
    known, gone = microseconds_of(rows, KNOWN_FROM).copy(), np.full(len(order), OPEN)
    at = np.flatnonzero(ends)
    gone[order[at - 1]] = known[order[at]]
    keep = np.ones(len(order), dtype=bool)
    keep[order[at]] = False
    keep &= (gone == OPEN) | (gone > known)
    known_to = pa.array(gone, mask=gone == OPEN).view(REF)
    rows = rows.set_column(rows.column_names.index(KNOWN_TO), KNOWN_TO, known_to)
    return in_order(rows.filter(pa.array(keep)), schema)


def not_before(rows: pa.Table, schema: StreamSchema, layers: Sequence[pa.Table]) -> pa.Table:
    """Raise the known instants of a layer to at least those of its keys in earlier layers."""
    if not layers or not rows.num_rows:
        return rows
    names = [*schema.key_names, KNOWN_FROM, KNOWN_TO]
    every = pa.concat_tables([rows.select(names), *(table.select(names) for table in layers)])
    ranks = ranks_of_rows(every, schema.key_names)
    n = rows.num_rows
    known = np.maximum(microseconds_of(every, KNOWN_FROM), microseconds_of(every, KNOWN_TO, OPEN))
    least = np.full(int(ranks.max()) + 1, OPEN)
    np.maximum.at(least, ranks[n:], known[n:])
    for name in (KNOWN_FROM, KNOWN_TO):
        own = microseconds_of(rows, name, OPEN)
        there = own != OPEN
        raised = np.where(there, np.maximum(own, least[ranks[:n]]), OPEN)
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(raised, mask=~there).view(REF))
    return rows
