"""Pack tuples and accents for Spark's stateful operators, by place and in reading order.

A parcel is one binary for many tuples (Arrow's stream format), with columns that give the order of arrival. Accents go to all
places, each at its position among the tuples, and so do new lines of accent logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from pulse.core.arrays import IntArray
from pulse.core.elements import ElementKind
from pulse.runtime.accents.row_splitter import accent_rows
from pulse.runtime.predict.event_time import newest_time
from pulse.validation.online.rejects import with_origin
from pulse.validation.revisions.element_matching import PAIR, replacements

PARCELS = "place int, stream string, modified long, origin string, block long, number long, rows long, payload binary"
LINES = "accents of "
"""Prefix of the pseudo-stream that carries the lines of a stream's accent log."""

EVENT_TIME = "event time"
"""Name of the pseudo-stream that carries a batch's newest time to all places, also those without tuples."""

_PARCEL_ROWS = 1 << 17


@dataclass(frozen=True)
class Packer:
    """Packs a stream's tuples, by bucket and in reading order; for ``mapInArrow``.

    Parameters
    ----------
    stream : its name
    kind : column of element kinds; the halves of replacements are paired before rows are partitioned. Default: no revisions
    keys : key columns
    accents : column of accents, which go to all places; one between the halves of a replacement does not separate them
    places : number of places
    time : column of times, the newest of which goes to all places, also those without tuples
    """

    stream: str
    kind: str | None = None
    keys: tuple[str, ...] = ()
    accents: str | None = None
    places: int = 1
    time: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        number, waiting, rows = 0, [], 0
        now: int | None = None
        for batch in batches:
            if self.time is not None:
                at = newest_time(pa.chunked_array([batch.column(self.time)]))
                now = max((one for one in (now, at) if one is not None), default=None)
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _PARCEL_ROWS and not self._opens(batch):
                yield from self._packed(waiting, partition, number)
                number, waiting, rows = number + rows, [], 0
        if rows:
            yield from self._packed(waiting, partition, number)
        if now is not None:
            yield _to_every_place(self.places, EVENT_TIME, pa.table({"now": [now]}))

    def _opens(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch ends between the halves of a replacement."""
        if self.kind is None:
            return False
        rows = self._tuples(pa.Table.from_batches([batch]))
        return bool(len(rows) and batch.column(self.kind)[int(rows[-1])].as_py() == ElementKind.OLD.value)

    def _tuples(self, table: pa.Table) -> IntArray:
        """The rows that are tuples, not accents."""
        every = np.arange(table.num_rows)
        return every if self.accents is None else np.delete(every, accent_rows(table, self.accents))

    def _packed(self, batches: list[pa.RecordBatch], partition: int, number: int) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        if self.kind is not None:
            rows, pair = self._tuples(table), np.zeros(table.num_rows, bool)
            pair[rows] = replacements(table.take(pa.array(rows)), self.keys, self.kind)
            table = table.append_column(PAIR, pa.array(pair))
        table, came = self._to_all(table)
        tuples = table.drop_columns(["_place", "_modified", "_origin", "_block"])
        place = table.column("_place").to_numpy()
        modified, block = table.column("_modified").to_numpy(), table.column("_block").to_numpy()
        origin = table.column("_origin").combine_chunks().dictionary_encode()
        origin = origin.combine_chunks() if isinstance(origin, pa.ChunkedArray) else origin
        code = origin.indices.to_numpy()
        new = np.flatnonzero(
            (np.diff(modified) != 0) | (np.diff(code) != 0) | (np.diff(block) != 0)
        ) + 1  # fmt: skip
        if block[0] < 0 or not origin[0].as_py().startswith(("file:", "/")):
            new = new[:0]  # not from a file: keep the partition's order
        for begin, end in zip([0, *new], [*new, len(place)], strict=True):
            order = begin + np.argsort(place[begin:end], kind="stable")
            sorted_, places = tuples.take(pa.array(order)), place[order]
            cuts = np.flatnonzero(np.diff(places)) + 1
            for a, b in zip([0, *cuts], [*cuts, len(places)], strict=True):
                yield pa.record_batch(
                    {
                        "place": pa.array([places[a]], pa.int32()),
                        "stream": pa.array([self.stream], pa.string()),
                        "modified": pa.array([modified[begin]], pa.int64()),
                        "origin": pa.array([origin[int(begin)].as_py()], pa.string()),
                        "block": pa.array([block[begin] if block[begin] >= 0 else partition], pa.int64()),
                        "number": pa.array([number + came[begin]], pa.int64()),
                        "rows": pa.array([b - a], pa.int64()),
                        "payload": pa.array([packed_table(sorted_.slice(a, b - a))], pa.binary()),
                    }
                )

    def _to_all(self, table: pa.Table) -> tuple[pa.Table, IntArray]:
        """Repeat every accent once per place; also return the original row of each row."""
        every = np.arange(table.num_rows)
        if self.accents is None:
            return table, every
        accents = accent_rows(table, self.accents)
        if not len(accents):
            return table, every
        is_accent = np.zeros(table.num_rows, bool)
        is_accent[accents] = True
        rows = np.repeat(every, np.where(is_accent, self.places, 1))
        place = table.column("_place").to_numpy()[rows].copy()
        place[is_accent[rows]] = np.tile(np.arange(self.places, dtype=place.dtype), int(is_accent.sum()))
        repeated = table.take(pa.array(rows))
        return repeated.set_column(table.column_names.index("_place"), "_place", pa.array(place)), rows


@dataclass(frozen=True)
class LinePacker:
    """Packs new lines of an accent log, for every place; for ``mapInArrow``."""

    stream: str
    places: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.to_pylist():
                lines = pa.table({"line": pa.array(one["value"].splitlines(), pa.string())})
                yield _to_every_place(
                    self.places, LINES + self.stream, lines, modified=one["modified"], origin=one["origin"]
                )


def _to_every_place(
    places: int, stream: str, table: pa.Table, *, modified: int = 0, origin: str = ""
) -> pa.RecordBatch:
    """Pack a table as one parcel for every place."""
    payload = packed_table(table)
    columns: dict[str, tuple[Any, pa.DataType]] = {
        "stream": (stream, pa.string()),
        "modified": (modified, pa.int64()),
        "origin": (origin, pa.string()),
        "block": (0, pa.int64()),
        "number": (0, pa.int64()),
        "rows": (table.num_rows, pa.int64()),
        "payload": (payload, pa.binary()),
    }
    return pa.record_batch(
        {
            "place": pa.array(range(places), pa.int32()),
            **{name: pa.array([value] * places, type_) for name, (value, type_) in columns.items()},
        }
    )


def packed_table(table: pa.Table) -> bytes:
    """Encode a table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked_table(payload: bytes) -> pa.Table:
    """Decode a table from :func:`packed_table`."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()


def arrived(frames: Iterable[pd.DataFrame], times: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Unpack the tuples of parcels, by stream, in the order of their arrival; ``times`` are the streams' time attributes.

    Only files define that order. Rows from other sources, partitioned arbitrarily, are sorted by time; with revisions (no time
    is given) they keep the order of their partitions.
    """
    rows = [row for frame in frames for row in frame.itertuples(index=False)]
    rows.sort(key=lambda row: (row.modified, row.origin, row.block, row.number))
    parts: dict[str, list[pa.Table]] = {}
    of_files: dict[str, bool] = {}
    for row in rows:
        table, of_files[row.stream] = unpacked_table(bytes(row.payload)), row.modified != 0
        if of_files[row.stream] and not row.stream.startswith(LINES):
            table = with_origin(table, row.origin, rows=False)
        parts.setdefault(row.stream, []).append(table)
    found = {}
    for name, time in times.items():
        if name in parts:
            table = pa.concat_tables(parts[name]).combine_chunks()
            found[name] = table if of_files[name] or time is None else table.sort_by(time)
    return found
