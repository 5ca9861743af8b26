"""Log the tuples of a stream that may still be revised, in columns and order of arrival (semantics 7.3).

A row has its instant, its rank among the tuples of that instant (``order``) and its arrival (``arrived``, a count of rows).
Chunks are immutable: a correction omits rows of some and appends others, so that a copy of the log is free and a state store
writes only new chunks. Small neighbours are merged, so there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import KeyCodes, encode_keys, times

Key = tuple[object, ...]
NEW = -1
_LARGE = 1 << 16  # rows from which on a chunk is not merged


class ChunkSnapshot(NamedTuple):
    """A chunk as data, without its stream's schema."""

    table: pa.Table
    t: IntArray
    order: IntArray
    arrived: IntArray
    number: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a log, with the columns that a stream needs."""

    schema: StreamSchema
    table: pa.Table
    t: IntArray
    order: IntArray
    arrived: IntArray
    number: int = NEW  # its number in external storage

    @classmethod
    def of(cls, schema: StreamSchema, table: pa.Table, arrived: IntArray) -> Chunk:
        """Build a chunk of tuples in order of arrival."""
        return cls(schema, table, times(table, schema)[0], arrived, arrived)

    @classmethod
    def restored(cls, schema: StreamSchema, columns: pa.Schema, snapshot: ChunkSnapshot) -> Chunk:
        """Restore the chunk from :attr:`snapshot`; raise ``ValueError`` if its columns are not those of the stream."""
        rows = snapshot.table.num_rows
        if snapshot.table.schema != columns or any(one.shape != (rows,) for one in snapshot[1:4]):
            raise ValueError(
                f"stored tuples of a stream: expected {rows} rows of the columns {', '.join(columns.names)}, got "
                f"{', '.join(snapshot.table.column_names)} and instants of {len(snapshot.t)}"
            )
        return cls(schema, *snapshot)

    @property
    def snapshot(self) -> ChunkSnapshot:
        """Return the chunk as data, without the stream's schema."""
        return ChunkSnapshot(self.table, self.t, self.order, self.arrived, self.number)

    def __len__(self) -> int:
        return len(self.t)

    def __getstate__(self) -> dict[str, Any]:
        names = ("schema", "table", "t", "order", "arrived", "number")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _encoded(self) -> KeyCodes:
        return encode_keys(self.table, self.schema)

    @cached_property
    def _places(self) -> dict[Key, int]:
        return {key: code for code, key in enumerate(self._encoded.keys)}

    @cached_property
    def first(self) -> int:
        """Return the earliest instant."""
        return int(self.t.min())

    def rows_of(self, keys: Sequence[Key]) -> IntArray:
        """Return the rows of some keys."""
        codes = [self._places[key] for key in keys if key in self._places]
        if not codes:
            return np.zeros(0, np.int64)
        wanted = np.zeros(len(self._encoded.keys), bool)
        wanted[codes] = True
        found: IntArray = np.flatnonzero(wanted[self._encoded.codes])
        return found

    @cached_property
    def rising(self) -> bool:
        """Return whether the rows are already sorted by time and, at one instant, by rank."""
        dt = np.diff(self.t)
        return bool((dt > 0).all() or ((dt >= 0) & ((dt > 0) | (np.diff(self.order) > 0))).all())

    def slice(self, begin: int, end: int) -> Chunk:
        """Return a range of rows; copy it if it is less than half of the chunk, so as not to keep the chunk alive."""
        if end - begin < len(self) // 2:
            return self.take(np.arange(begin, end))
        some = slice(begin, end)
        table = self.table.slice(begin, end - begin)
        return Chunk(self.schema, table, self.t[some], self.order[some], self.arrived[some])

    def take(self, rows: IntArray | BoolArray) -> Chunk:
        """Return some rows."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        table = self.table.take(pa.array(at)).combine_chunks()
        t, order, arrived = self.t[at], self.order[at], self.arrived[at]
        return Chunk(self.schema, table, t, order, arrived)

    @classmethod
    def concat(cls, parts: Sequence[Chunk]) -> Chunk:
        """Concatenate chunks."""
        return cls(
            parts[0].schema,
            pa.concat_tables([part.table for part in parts]).combine_chunks(),
            np.concatenate([part.t for part in parts]),
            np.concatenate([part.order for part in parts]),
            np.concatenate([part.arrived for part in parts]),
        )

    def in_time(self) -> Chunk:
        """Sort by time and, at one instant, by rank."""
        return self if self.rising else self.take(np.lexsort((self.order, self.t)))


class StoredChunk(NamedTuple):
    """A chunk in external storage: its number of rows and its earliest instant."""

    number: int
    rows: int
    first: int

    def __len__(self) -> int:
        return self.rows


class LogSnapshot(NamedTuple):
    """A log as data, without its stream's schema."""

    chunks: list[ChunkSnapshot | StoredChunk]
    away: set[int]
    numbered: int


Shelf = Callable[[int], Chunk]
"""A function that loads the chunk with a number from external storage."""


class Found(NamedTuple):
    """Rows of a log, and their positions in each of its chunks."""

    rows: Chunk
    places: tuple[IntArray, ...]


@dataclass
class TupleLog:
    """The log of one stream, or of one part of its keys; chunks may be stored externally until needed (``shelf``)."""

    schema: StreamSchema
    columns: pa.Schema  # of the tables
    chunks: list[Chunk | StoredChunk] = field(default_factory=list)
    shelf: Shelf | None = None
    away: set[int] = field(default_factory=set)  # the numbers of all chunks in external storage
    numbered: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "shelf": None}

    @property
    def snapshot(self) -> LogSnapshot:
        """Return the state as data."""
        chunks = [one if isinstance(one, StoredChunk) else one.snapshot for one in self.chunks]
        return LogSnapshot(chunks, self.away, self.numbered)

    def restore(self, snapshot: LogSnapshot) -> None:
        """Restore a state."""
        self.chunks = [
            one if isinstance(one, StoredChunk) else Chunk.restored(self.schema, self.columns, one)
            for one in snapshot.chunks
        ]
        self.away, self.numbered = set(snapshot.away), snapshot.numbered

    def copied(self) -> TupleLog:
        """Return an independent log with the same chunks."""
        return replace(self, chunks=list(self.chunks), away=set(self.away))

    def append(self, chunk: Chunk) -> None:
        """Append rows; merge small chunks at the end."""
        if not len(chunk):
            return
        self.chunks.append(chunk)
        while len(self.chunks) > 1 and len(self.chunks[-2]) <= 2 * len(self.chunks[-1]) < 2 * _LARGE:
            last = self._loaded(self.chunks.pop())
            self.chunks[-1] = Chunk.concat([self._loaded(self.chunks[-1]), last])

    def of_keys(self, keys: Sequence[Key]) -> Found:
        """Return all rows of some keys."""
        self.chunks = [self._loaded(chunk) for chunk in self.chunks]
        there = list(self._here())
        places = tuple(chunk.rows_of(keys) for chunk in there)
        parts = [chunk.take(rows) for chunk, rows in zip(there, places, strict=True) if len(rows)]
        return Found(Chunk.concat(parts) if parts else self._nothing(), places)

    def correct(self, found: Found, stays: BoolArray, added: Chunk) -> None:
        """Remove the found rows that do not stay, and append others."""
        begin = 0
        kept: list[Chunk | StoredChunk] = []
        for chunk, rows in zip(self._here(), found.places, strict=True):
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
        """Remove and return the rows before an instant, in time order."""
        gone = []
        kept: list[Chunk | StoredChunk] = []
        for one in self.chunks:
            if one.first >= before:
                kept.append(one)
                continue
            chunk = self._loaded(one)
            if chunk.rising:
                cut = int(np.searchsorted(chunk.t, before))
                parts = chunk.slice(0, cut), chunk.slice(cut, len(chunk))
            else:
                old = chunk.t < before
                parts = chunk.take(old), chunk.take(~old)
            gone.append(parts[0])
            if len(parts[1]):
                kept.append(parts[1])
        self.chunks = kept
        if not gone:
            return self._nothing()
        return gone[0].in_time() if len(gone) == 1 else Chunk.concat(gone).in_time()

    # -- external storage ---------------------------------------------------------------------------------

    def put_away(self) -> tuple[dict[int, Chunk], set[int]]:
        """Return the chunks to store externally from now on, by number, and the numbers no longer needed there."""
        new: dict[int, Chunk] = {}
        for i, chunk in enumerate(self.chunks):
            if isinstance(chunk, StoredChunk):
                continue
            number = chunk.number
            if number == NEW:
                number, self.numbered = self.numbered, self.numbered + 1
                new[number] = replace(chunk, number=number)
            self.chunks[i] = StoredChunk(number, len(chunk), chunk.first)
        needed = {chunk.number for chunk in self.chunks}
        gone, self.away = self.away - needed, needed
        return new, gone

    def _loaded(self, chunk: Chunk | StoredChunk) -> Chunk:
        if isinstance(chunk, Chunk):
            return chunk
        assert self.shelf is not None
        return self.shelf(chunk.number)

    def _here(self) -> Iterator[Chunk]:
        for chunk in self.chunks:
            assert isinstance(chunk, Chunk)
            yield chunk

    def _nothing(self) -> Chunk:
        none = np.zeros(0, np.int64)
        return Chunk(self.schema, self.columns.empty_table(), none, none, none)
