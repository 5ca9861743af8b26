"""Exchange relations between fragments: each group goes to the place that merges it with its like.

A place is a number: a hash of key values, or a cell of a space-time grid. A parcel is everything of one worker for one place on
one arc, so that what Spark shuffles is a few large binaries, not millions of rows::

    place: long    arc: int    payload: binary (Arrow's stream format)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.keys import key_ranks, key_texts
from pulse.operators.data.relation import Relation, Squares
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.spatial_grid import ResolvedGrid, scatter

PARCELS = pa.schema([("place", pa.int64()), ("arc", pa.int32()), ("payload", pa.binary())])
_HOME = b"pulse.cells"
_POINTS = b"pulse.points"


@dataclass(frozen=True, eq=False)
class ExchangeBatch:
    """Segments for one place on one arc (a parcel); ``cells`` (G, 4) are the grid cells that each group touches there."""

    place: int
    arc: int
    relation: Relation
    cells: IntArray | None = None

    def pack(self) -> bytes:
        """Serialize the segments and cells."""
        batch = self.relation.to_segments()
        for name, squares in self.relation.squares.items():
            for part, values in zip(squares._fields, squares, strict=True):
                batch = batch.append_column(_square_column(name, part), pa.array(values))
        metadata = {_POINTS: b"1"} if self.relation.columns.points else {}
        if self.cells is not None:
            metadata[_HOME] = np.ascontiguousarray(self.cells, np.int64).tobytes()
        batch = batch.replace_schema_metadata(metadata or None)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def unpack(cls, place: int, arc: int, payload: bytes, columns: Columns) -> ExchangeBatch:
        """Deserialize the bytes of :meth:`pack`."""
        with pa.ipc.open_stream(payload) as reader:
            table = reader.read_all()
        metadata = table.schema.metadata or {}
        cells = metadata.get(_HOME)
        columns = replace(columns, points=_POINTS in metadata)
        squares = {
            name: Squares(*(table.column(_square_column(name, part)).to_numpy() for part in Squares._fields))
            for name in columns.modelled
            if _square_column(name, "total") in table.column_names
        }
        return cls(
            place,
            arc,
            Relation.from_table(table, columns).with_squares(squares),
            None if cells is None else np.frombuffer(cells, np.int64).reshape(-1, 4),
        )


def _square_column(name: str, part: str) -> str:
    return f"{name} squares.{part}"


def parcels(
    relation: Relation, exchange: Exchange, arc: int, places: int, grid: ResolvedGrid | None
) -> Iterator[ExchangeBatch]:
    """Split the relation into parcels, each group for the place that the exchange sends it to."""
    relation = relation.without_empty_groups()
    if not len(relation):
        return
    if grid is not None:
        for place, part, cells in scatter(relation, grid):
            yield ExchangeBatch(place, arc, part, cells)
        return
    assert not isinstance(exchange.by, Grid)
    if not exchange.by:
        yield ExchangeBatch(0, arc, relation)
        return
    of_group = _hashed(relation, exchange.by) % places
    for place in np.unique(of_group):
        yield ExchangeBatch(int(place), arc, relation.select_groups(np.flatnonzero(of_group == place)))


def gathered(received: Sequence[ExchangeBatch], exchange: Exchange) -> tuple[Relation, IntArray | None]:
    """Concatenate all segments of one arc at one place, with the cells of its groups.

    Equal keys become one group, unless they are partial results, which the merge above needs separate.
    """
    whole = Relation.concat([parcel.relation for parcel in received])
    if received[0].cells is not None:
        return whole, np.concatenate([parcel.cells for parcel in received if parcel.cells is not None])
    return (whole if exchange.input.is_partial else whole.merged()), None


def _hashed(relation: Relation, names: tuple[str, ...]) -> IntArray:
    """Hash each group's values of these key columns, alike in every process; a null as the empty text."""
    columns = [relation.keys[relation.columns.key_names.index(name)] for name in names]
    ranks = key_ranks(columns, relation.groups)
    distinct, first = np.unique(ranks, return_index=True)
    chosen = pa.array(first)
    texts = key_texts([column.take(chosen) for column in columns], len(first)).to_pylist()
    hashes = np.array([zlib.crc32((text or "").encode()) for text in texts], np.int64)
    of_group: IntArray = hashes[np.searchsorted(distinct, ranks)]
    return of_group
