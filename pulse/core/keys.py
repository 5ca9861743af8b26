"""Rank the keys of a batch as integers, and format keys for people.

A batch's key may be several columns or none. Ranks order as the columns' values do, first column first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import one_chunk
from pulse.core.errors import unknown_column
from pulse.core.schema import StreamSchema


def key_ranks(columns: list[pa.Array], n: int) -> IntArray:
    """Return per row the rank of its key: equal for equal keys, in the order of the values. No columns: all 0.

    Nulls rank last, so that an error about one can still be formatted.
    """
    ranks = np.zeros(n, dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary).to_numpy()
        distinct = len(order)
        rank_of = np.empty(distinct + 1, dtype=np.int64)
        rank_of[order] = np.arange(distinct)
        rank_of[distinct] = distinct
        codes = rank_of[encoded.indices.fill_null(distinct).to_numpy()]
        # Make ranks dense after every column, so that products of counts never overflow.
        ranks = np.unique(ranks * (distinct + 1) + codes, return_inverse=True)[1] if ranks.any() else codes
    return ranks


def ranks_of_rows(table: pa.Table, names: Iterable[str]) -> IntArray:
    """Return :func:`key_ranks` of a table's rows."""
    return key_ranks([one_chunk(table.column(name)) for name in names], table.num_rows)


def texts_of_rows(table: pa.Table, names: Iterable[str]) -> list[str]:
    """Return :func:`key_texts` of a table's rows."""
    texts: list[str] = key_texts(
        [one_chunk(table.column(name)) for name in names], table.num_rows
    ).to_pylist()
    return texts


def keys_filter(names: Sequence[str], keys: Sequence[pa.Array]) -> pc.Expression | None:
    """Return a filter for rows that may have one of these keys, given by column; None if there are no key columns."""
    condition = None
    for name, column in zip(names, keys, strict=True):
        own = pc.field(name).isin(pc.unique(column))
        condition = own if condition is None else condition & own
    return condition


def key_mask(batch: pa.RecordBatch, schema: StreamSchema, key: Any) -> BoolArray:
    """Return the mask of the rows of one key.

    ``key`` is a mapping of all key columns to values, or the value itself for a key of one column.
    """
    values = key if isinstance(key, Mapping) else dict.fromkeys(schema.key_names[:1], key)
    for name in values:
        if name not in schema.key_names:
            raise unknown_column(name, schema.key_names, "key")
    for name in schema.key_names:
        if name not in values:
            raise unknown_column(name, values, "key given")
    mask: BoolArray = np.ones(batch.num_rows, dtype=bool)
    for name, type_ in schema.key:
        equal = pc.equal(batch.column(name), pa.scalar(values[name], type=type_))
        mask &= equal.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def key_texts(columns: list[pa.Array], n: int) -> pa.Array:
    """Return each row's key as one text: the value itself for one column, a JSON list for several, empty for none."""
    if not columns:
        return pa.repeat(pa.scalar(""), n)
    if len(columns) == 1:
        return pa.array(plain_values(columns[0]), type=pa.string())
    rows = zip(*(plain_values(column) for column in columns), strict=True)
    return pa.array([json.dumps(row, ensure_ascii=False) for row in rows], type=pa.string())


def plain_values(column: pa.Array) -> list[str | None]:
    """Format values as texts that depend only on the value: times as counts since the epoch, bytes as hex."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def describe_key(batch: pa.RecordBatch, schema: StreamSchema, row: int) -> str:
    """Format one row's key for a message.

    >>> describe_key(pa.record_batch({"id": [7]}), StreamSchema.of(key={"id": "int64"}, time="t",
    ...              modelled={"x": "linear"}), 0)
    'id=7'
    """
    return (
        ", ".join(f"{name}={batch.column(name)[row].as_py()!r}" for name in schema.key_names)
        or "the only key"
    )
