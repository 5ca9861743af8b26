"""Layers: files that correct a stored model without rewriting it (semantics 7).

A layer has the columns of a segment and three more, and is by key and time as every file is::

    kind  _known_from          _known_to            symbol  ref       lo   hi  …
    -D    2018-01-03 09:00:00  null                 IBM     14:00:00  0    60  …    withdrawn: it was there before this layer
    +I    2018-01-03 09:00:00  null                 IBM     14:00:00  0    20  …    put in, and still there after it
    +I    2018-01-03 09:00:00  2018-01-03 11:00:00  IBM     14:00:00  20   60  …    put in and gone again within the layer

``_known_from`` is when the correction came to be known. A segment is told by its key, ``ref``, ``lo`` and whether it is a
point. Reading is base minus what is withdrawn plus what was put in, the layers in order: a segment that one layer puts in,
a later one may withdraw. *As of* an instant only corrections known by then count, and nothing is said about times from it on.
Known instants of a key never fall from layer to layer (the writer sees to that), so the state as of an instant is one that
the model, corrected as things came to be known, has had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core import SegmentBatch, StreamSchema
from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import REF
from pulse.core.keys import key_ranks
from pulse.core.segment.order import Ranges, narrow, time_order
from pulse.store.errors import StoreError

KIND, KNOWN_FROM, KNOWN_TO = "kind", "_known_from", "_known_to"
OWN = (KIND, KNOWN_FROM, KNOWN_TO)
OPEN = -(1 << 63)
"""As a known instant: of a segment that was put in, that it is still there."""


def layer_schema(schema: StreamSchema) -> pa.Schema:
    """The columns of a layer of this stream."""
    for name in (KNOWN_FROM, KNOWN_TO):
        if name in schema.names:
            raise StoreError(
                f"revisions: the stream has an attribute '{name}', a layer's own column; rename it"
            )
    return pa.schema([(KIND, pa.string()), (KNOWN_FROM, REF), (KNOWN_TO, REF), *schema.arrow_schema()])


def layer_rows(
    withdrawn: SegmentBatch, put: SegmentBatch, *, withdrawn_known: Any, put_known: Any, put_gone: Any = OPEN
) -> pa.Table:
    """A layer from segments withdrawn and put in, with instants in microseconds, one for all or one each; by key and time."""
    schema = withdrawn.schema
    own = layer_schema(schema)
    columns: dict[str, Any] = {KIND: ["-D"] * len(withdrawn) + ["+I"] * len(put)}
    known = np.concatenate([_each(withdrawn_known, len(withdrawn)), _each(put_known, len(put))])
    gone = np.concatenate([_each(OPEN, len(withdrawn)), _each(put_gone, len(put))])
    columns[KNOWN_FROM] = pa.array(known).view(REF)
    columns[KNOWN_TO] = pa.array(gone, mask=gone == OPEN).view(REF)
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
    """Rows of segments, or of a layer, by key and time."""
    order = time_order(ranges_of(table, schema))
    return table if order is None else table.take(pa.array(order))


def ranges_of(table: pa.Table, schema: StreamSchema) -> Ranges:
    """Where the rows of a table of segments lie; its keys ranked among themselves."""
    ranks = key_ranks([table.column(name).combine_chunks() for name in schema.key_names], table.num_rows)
    return Ranges(
        ranks, _microseconds(table, "ref"), table.column("lo").to_numpy(), table.column("hi").to_numpy()
    )


def without_drift(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Segments that certify no drift."""
    for name in schema.modelled_names:
        if f"{name}_drift" in table.column_names:
            at = table.column_names.index(f"{name}_drift")
            table = table.set_column(at, f"{name}_drift", pa.nulls(table.num_rows, pa.float64()))
    return table


def cut(table: pa.Table, schema: StreamSchema, as_of: int | None) -> pa.Table:
    """What segments say about the time before an instant."""
    if as_of is None or not table.num_rows:
        return table
    keep, _, hi = narrow(ranges_of(table, schema), None, as_of)
    return table.set_column(table.column_names.index("hi"), "hi", pa.array(hi)).filter(pa.array(keep))


class Overlay:
    """Layers with their versions over some files, as they stand at the end or as of an instant.

    Tables need not have all columns; keys, ``ref``, ``lo`` and ``hi`` they do.
    """

    def __init__(
        self, layers: Sequence[tuple[int, pa.Table]], schema: StreamSchema, as_of: int | None = None
    ) -> None:
        rows = pa.concat_tables([table for _, table in layers])
        version = np.repeat([number for number, _ in layers], [table.num_rows for _, table in layers])
        if as_of is not None:
            known = _microseconds(rows, KNOWN_FROM) <= as_of
            rows, version = rows.filter(pa.array(known)), version[known]
        withdraws = _mask(pc.equal(rows.column(KIND), "-D"))
        self._schema, self._withdrawn = schema, rows.filter(pa.array(withdraws))
        self._refs = np.unique(_microseconds(self._withdrawn, "ref"))
        there = ~withdraws & _is_there(rows, as_of)
        code = _identities(rows, schema)
        last = np.full(int(code.max(initial=-1)) + 1, np.iinfo(np.int64).min)
        np.maximum.at(last, code[withdraws], version[withdraws])
        there &= version >= last[code]  # a layer withdraws what was there before it, not what it puts in
        self.put = rows.filter(pa.array(there)).drop_columns([n for n in OWN if n in rows.column_names])
        """What the layers put in and is there."""

    def over(self, table: pa.Table) -> pa.Table:
        """Rows of the files below that no layer withdraws."""
        keep = self._keeps(table)
        return table if keep is None else table.filter(pa.array(keep))

    def _keeps(self, table: pa.Table) -> BoolArray | None:
        # Few are withdrawn: a look at the references leaves only those to compare by key.
        ref = _microseconds(table, "ref")
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
    """Which rows are not gone again within their layer."""
    gone = _microseconds(rows, KNOWN_TO, OPEN)
    there: BoolArray = gone == OPEN if as_of is None else (gone == OPEN) | (gone > as_of)
    return there


def _identities(rows: pa.Table, schema: StreamSchema) -> IntArray:
    """Per row a number that is the same for the same segment: key, ``ref``, ``lo``, and whether it is a point."""
    ranks, ref, lo, hi = ranges_of(rows, schema)
    columns = np.column_stack([ranks, ref, (lo + 0.0).view(np.int64), (lo == hi).astype(np.int64)])
    order = np.lexsort(columns.T)
    fresh = np.append(True, (np.diff(columns[order], axis=0) != 0).any(axis=1))[: len(order)]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(fresh) - 1
    return codes


def _microseconds(table: pa.Table, name: str, null: int = 0) -> IntArray:
    column = table.column(name).combine_chunks()
    whole: IntArray = column.view(pa.int64()).fill_null(null).to_numpy()
    return whole


def _mask(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = column.to_numpy().astype(bool)
    return mask


class Round(NamedTuple):
    """One step of several that make a layer: what it withdraws of the state before it, puts in, and when each was known."""

    withdrawn: SegmentBatch
    put: SegmentBatch
    withdrawn_known: Any
    put_known: Any


def fold(rounds: Sequence[Round]) -> pa.Table:
    """The rounds as one layer: what one puts in and a later one withdraws has its end there.

    What came and went at one instant has never been known, and is left out.
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
    ends = np.zeros(len(order), dtype=bool)  # withdraws what an earlier round put in: the row before it
    ends[1:] = withdraws[order[1:]] & ~withdraws[order[:-1]] & (code[order[1:]] == code[order[:-1]])
    known, gone = _microseconds(rows, KNOWN_FROM).copy(), np.full(len(order), OPEN)
    at = np.flatnonzero(ends)
    gone[order[at - 1]] = known[order[at]]
    keep = np.ones(len(order), dtype=bool)
    keep[order[at]] = False
    keep &= (gone == OPEN) | (gone > known)
    told = pa.array(gone, mask=gone == OPEN).view(REF)
    rows = rows.set_column(rows.column_names.index(KNOWN_TO), KNOWN_TO, told)
    return in_order(rows.filter(pa.array(keep)), schema)


def not_before(rows: pa.Table, schema: StreamSchema, layers: Sequence[pa.Table]) -> pa.Table:
    """A layer whose known instants are no earlier than those its keys have in earlier layers."""
    if not layers or not rows.num_rows:
        return rows
    names = [*schema.key_names, KNOWN_FROM, KNOWN_TO]
    every = pa.concat_tables([rows.select(names), *(table.select(names) for table in layers)])
    ranks = key_ranks([every.column(name).combine_chunks() for name in schema.key_names], every.num_rows)
    n = rows.num_rows
    known = np.maximum(_microseconds(every, KNOWN_FROM), _microseconds(every, KNOWN_TO, OPEN))
    least = np.full(int(ranks.max()) + 1, OPEN)
    np.maximum.at(least, ranks[n:], known[n:])
    for name in (KNOWN_FROM, KNOWN_TO):
        own = _microseconds(rows, name, OPEN)
        there = own != OPEN
        told = np.where(there, np.maximum(own, least[ranks[:n]]), OPEN)
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(told, mask=~there).view(REF))
    return rows
