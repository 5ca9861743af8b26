"""Split a batch into tuples and accents; long runs of tuples between accents are sliced, not filtered."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.operators.data.tuple_columns import instants
from pulse.runtime.accents.tuple_columns import encode_keys

_RUN = 1000  # rows per run from which slicing is faster than filtering


class SplitRows(NamedTuple):
    """A batch's tuples, with dictionary-encoded keys if it has accents; ``rows``, the place of the last accent before each tuple,
    None if the batch has no accents; and the accents with their places, times and texts."""

    data: pa.Table
    rows: IntArray | None
    accents: list[tuple[int, int | None, str]]


def split_controls(table: pa.Table, column: str, time: str, keys: Collection[str]) -> SplitRows:
    """Split the accents, which are in this ``column``, from the tuples of a batch."""
    data, places = table.drop_columns([column]), accent_rows(table, column)
    if not len(places):
        return SplitRows(data, None, [])
    marked = table.select([time, column]).take(pa.array(places))
    missing = marked.column(time).is_null().to_pylist()
    at, texts = instants(marked.column(time)), marked.column(column).to_pylist()
    accents = [
        (int(place), None if null else int(when), str(text))
        for place, null, when, text in zip(places, missing, at, texts, strict=True)
    ]
    lengths = np.diff(np.concatenate(([-1], places, [table.num_rows]))) - 1
    rows = np.repeat(np.concatenate(([0], places)), lengths)
    return SplitRows(_without(encode_keys(data, keys), places, lengths), rows, accents)


def accent_rows(table: pa.Table, column: str) -> IntArray:
    """The rows that hold accents; blank texts do not count."""
    found = table.column(column)
    if found.null_count == len(found):
        return np.zeros(0, np.int64)
    places = pc.indices_nonzero(found.is_valid())
    texts = found.take(places).cast(pa.string())
    filled: BoolArray = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))
    rows: IntArray = places.to_numpy()[filled].astype(np.int64)
    return rows


def _without(table: pa.Table, places: IntArray, lengths: IntArray) -> pa.Table:
    """Remove the rows at ``places``; ``lengths`` are those of the runs between them."""
    if len(places) * _RUN > table.num_rows:
        keep = np.ones(table.num_rows, bool)
        keep[places] = False
        return table.filter(pa.array(keep))
    begins = np.append(0, places + 1)
    parts = [table.slice(a, n) for a, n in zip(begins, lengths, strict=True) if n]
    return pa.concat_tables(parts).combine_chunks() if parts else table.slice(0, 0)
