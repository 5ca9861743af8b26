"""Accents among the rows of a stream, and its tuples without them: stretches between accents are copied whole."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.runtime.accents.output_units import instants
from pulse.runtime.accents.to_base_units import encoded, whole

_STRETCH = 1000  # rows that are copied as fast as one stretch of them is found


class SplitRows(NamedTuple):
    """A batch's tuples, with keys told by codes where accents are among them; the place of the last accent before each, None
    where there is none in the batch; and the accents with their places, times and texts."""

    data: pa.Table
    rows: IntArray | None
    said: list[tuple[int, int | None, str]]


def apart(table: pa.Table, column: str, time: str, keys: Collection[str]) -> SplitRows:
    """The tuples of a batch and its accents, which are in this ``column``."""
    data, places = table.drop_columns([column]), accent_rows(table, column)
    if not len(places):
        return SplitRows(data, None, [])
    told = table.select([time, column]).take(pa.array(places))
    missing = told.column(time).is_null().to_pylist()
    at, texts = instants(told.column(time)), told.column(column).to_pylist()
    said = [
        (int(place), None if null else int(when), str(text))
        for place, null, when, text in zip(places, missing, at, texts, strict=True)
    ]
    lengths = np.diff(np.concatenate(([-1], places, [table.num_rows]))) - 1
    rows = np.repeat(np.concatenate(([0], places)), lengths)
    return SplitRows(_without(encoded(data, keys), places, lengths), rows, said)


def accent_rows(table: pa.Table, column: str) -> IntArray:
    """The rows that are accents: a blank text is none."""
    found = table.column(column)
    if found.null_count == len(found):
        return np.zeros(0, np.int64)
    places = _valid(whole(found))
    texts = whole(found).take(pa.array(places)).cast(pa.string())
    said: BoolArray = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))
    return places[said]


def _valid(column: pa.Array) -> IntArray:
    """The rows that are not null. Few are, so that of their bits whole bytes are passed over."""
    bitmap = column.buffers()[0]
    if bitmap is None:
        return np.arange(len(column))
    first, end = column.offset // 8, (column.offset + len(column) + 7) // 8
    octets = np.frombuffer(bitmap, np.uint8)[first:end]
    some = np.flatnonzero(octets)
    byte, bit = np.nonzero(np.unpackbits(octets[some], bitorder="little").reshape(-1, 8))
    rows: IntArray = 8 * (first + some[byte]) + bit - column.offset
    return rows[(rows >= 0) & (rows < len(column))]


def _without(table: pa.Table, places: IntArray, lengths: IntArray) -> pa.Table:
    """All rows but these, between which stretches of such ``lengths`` lie. Long ones are copied whole."""
    if len(places) * _STRETCH > table.num_rows:
        kept = np.ones(table.num_rows, bool)
        kept[places] = False
        return table.filter(pa.array(kept))
    begins = np.append(0, places + 1)
    parts = [table.slice(a, n) for a, n in zip(begins, lengths, strict=True) if n]
    return pa.concat_tables(parts).combine_chunks() if parts else table.slice(0, 0)
