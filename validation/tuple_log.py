"""The tuples of a stream that may still be revised: appended as they come, by columns (semantics 7.3).

A row knows its instant, its place among tuples of one instant (``order``) and when it came (``arrived``, a count of rows). Chunks
never change: a correction leaves rows of some out and appends others, so that a copy of the log costs nothing and a state store
writes only what is new. Small neighbours are put together, so there are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.operators.tuples import KeyCodes, encode_keys, times

Key = tuple[object, ...]
_LARGE = 1 << 16  # rows from which on a chunk is left as it is


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a log, with the columns that a stream needs."""

    schema: StreamSchema
    table: pa.Table
    t: IntArray
    order: IntArray
    arrived: IntArray

    @classmethod
    def of(cls, schema: StreamSchema, table: pa.Table, arrived: IntArray) -> Chunk:
        """Tuples as they came."""
        return cls(schema, table, times(table, schema)[0], arrived, arrived)

    def __len__(self) -> int:
        return len(self.t)

    def __getstate__(self) -> dict[str, Any]:
        names = ("schema", "table", "t", "order", "arrived")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _encoded(self) -> KeyCodes:
        return encode_keys(self.table, self.schema)

    @cached_property
    def _places(self) -> dict[Key, int]:
        return {key: code for code, key in enumerate(self._encoded.keys)}

    @cached_property
    def first(self) -> int:
        """The earliest instant."""
        return int(self.t.min())

    def rows_of(self, keys: Sequence[Key]) -> IntArray:
        """The rows of some keys."""
        codes = [self._places[key] for key in keys if key in self._places]
        if not codes:
            return np.zeros(0, np.int64)
        wanted = np.zeros(len(self._encoded.keys), bool)
        wanted[codes] = True
        found: IntArray = np.flatnonzero(wanted[self._encoded.codes])
        return found

    def take(self, rows: IntArray | BoolArray) -> Chunk:
        """Some rows."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        table = self.table.take(pa.array(at)).combine_chunks()
        return replace(self, table=table, t=self.t[at], order=self.order[at], arrived=self.arrived[at])

    @classmethod
    def concat(cls, parts: Sequence[Chunk]) -> Chunk:
        """One after the other."""
        return replace(
            parts[0],
            table=pa.concat_tables([part.table for part in parts]).combine_chunks(),
            t=np.concatenate([part.t for part in parts]),
            order=np.concatenate([part.order for part in parts]),
            arrived=np.concatenate([part.arrived for part in parts]),
        )

    def in_time(self) -> Chunk:
        """By time, and at one instant by place."""
        return self.take(np.lexsort((self.order, self.t)))


class Found(NamedTuple):
    """Rows of a log: all of them, and for each of its chunks which rows they are."""

    rows: Chunk
    places: tuple[IntArray, ...]


@dataclass
class TupleLog:
    """The log of one stream, or of one part of its keys."""

    schema: StreamSchema
    columns: pa.Schema  # of the tables
    chunks: list[Chunk] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def copied(self) -> TupleLog:
        """A log of its own with the same chunks."""
        return replace(self, chunks=list(self.chunks))

    def append(self, chunk: Chunk) -> None:
        """Take rows in; small chunks at the end are made one."""
        if not len(chunk):
            return
        self.chunks.append(chunk)
        while len(self.chunks) > 1 and len(self.chunks[-2]) <= 2 * len(self.chunks[-1]) < 2 * _LARGE:
            last = self.chunks.pop()
            self.chunks[-1] = Chunk.concat([self.chunks[-1], last])

    def of_keys(self, keys: Sequence[Key]) -> Found:
        """All rows of some keys."""
        places = tuple(chunk.rows_of(keys) for chunk in self.chunks)
        parts = [chunk.take(rows) for chunk, rows in zip(self.chunks, places, strict=True) if len(rows)]
        return Found(Chunk.concat(parts) if parts else self._nothing(), places)

    def correct(self, found: Found, stays: BoolArray, added: Chunk) -> None:
        """Of the rows found keep those that stay, and append others."""
        begin, kept = 0, []
        for chunk, rows in zip(self.chunks, found.places, strict=True):
            gone = rows[~stays[begin : begin + len(rows)]]
            begin += len(rows)
            if len(gone):
                mask = np.ones(len(chunk), bool)
                mask[gone] = False
                chunk = chunk.take(mask)
            if len(chunk):
                kept.append(chunk)
        self.chunks = kept
        self.append(added)

    def leave(self, before: int) -> Chunk:
        """Let go of the rows before an instant: these, in time."""
        gone, kept = [], []
        for chunk in self.chunks:
            if chunk.first >= before:
                kept.append(chunk)
                continue
            old = chunk.t < before
            gone.append(chunk.take(old))
            if not old.all():
                kept.append(chunk.take(~old))
        self.chunks = kept
        return Chunk.concat(gone).in_time() if gone else self._nothing()

    def _nothing(self) -> Chunk:
        none = np.zeros(0, np.int64)
        return Chunk(self.schema, self.columns.empty_table(), none, none, none)
