"""Convert batches of tuples to arrays: keys to integer codes, time to microseconds, attributes to floats."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.arrow_types import decoded, one_chunk
from pulse.core.decimals import as_doubles
from pulse.core.errors import ColumnTypeError, NullKeyError, TimestampError, check_once, unknown_column
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST, LATEST, split_timestamps


class KeyCodes(NamedTuple):
    """Keys as codes: ``codes[n]`` index ``keys``, one tuple of Python values per distinct key."""

    codes: IntArray
    keys: list[tuple[object, ...]]


def needed_columns(schema: StreamSchema) -> list[str]:
    """List the columns that a fit reads from a source."""
    return [*schema.key_names, schema.time, *schema.modelled_names, *schema.unmodelled_names]


def check_columns(columns: pa.Schema, schema: StreamSchema, where: str) -> None:
    """Check that a source has the columns that the stream needs, with suitable types; the error names the first that fails."""
    for name in needed_columns(schema):
        if name not in columns.names:
            raise unknown_column(name, columns.names, where)
        check_once(name, columns.names, where)
    time = columns.field(schema.time).type
    if not (pa.types.is_timestamp(time) or pa.types.is_date(time)):
        raise ColumnTypeError(
            f"{where}, time column '{schema.time}': expected timestamps, got {time}; "
            "name the column that holds them, or convert it (numbers need a unit, text a format)"
        )
    for name in schema.modelled_names:
        type_ = columns.field(name).type
        if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
            raise ColumnTypeError(f"{where}, modelled column '{name}': expected numbers, got {type_}")


def encode_keys(table: pa.Table, schema: StreamSchema) -> KeyCodes:
    """Encode the keys of the rows, in order of first appearance for a single column."""
    n = table.num_rows
    if not schema.key:
        return KeyCodes(np.zeros(n, dtype=np.int64), [()])
    codes, values = np.zeros(n, dtype=np.int64), [np.zeros(1, dtype=np.int64)]
    columns = [_dictionary(table.column(name), name) for name in schema.key_names]
    if len(columns) == 1:
        indices, distinct = columns[0]
        return KeyCodes(indices, [(value,) for value in distinct])
    for indices, distinct in columns:
        codes = codes * max(len(distinct), 1) + indices
        present, codes = np.unique(codes, return_inverse=True)
        values = [v[present // max(len(distinct), 1)] for v in values]
        values.append(present % max(len(distinct), 1))
    keys = zip(*([d[i] for i in v] for v, (_, d) in zip(values[1:], columns, strict=True)), strict=True)
    return KeyCodes(codes.astype(np.int64), list(keys))


def _dictionary(column: pa.ChunkedArray, name: str) -> tuple[IntArray, list[object]]:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise NullKeyError(
            f"key column '{name}': {column.null_count} nulls, the first in row {row} of the batch; "
            "every tuple needs a key: give these one, or drop them"
        )
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunks = column.unify_dictionaries().chunks
    if not chunks:
        return np.zeros(0, dtype=np.int64), []
    indices = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return indices.astype(np.int64), chunks[0].dictionary.to_pylist()


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of a column and decode its dictionary."""
    return decoded(column).combine_chunks()


def times(table: pa.Table, schema: StreamSchema, known: int = 0) -> tuple[IntArray, int]:
    """Return microseconds per row, rounded down, and how many rows after the first ``known`` had finer digits."""
    column = table.column(schema.time)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise TimestampError(
            f"time column '{schema.time}': {column.null_count} nulls, the first in row {row} of the batch; "
            "drop them or give them a time"
        )
    if column.type.id == pa.timestamp("us").id and column.type.unit == "us":
        return one_chunk(column).view(pa.int64()).to_numpy(), 0
    whole, rest = split_timestamps(column)
    return whole, int(np.count_nonzero(rest[known:]))


def instants(times: pa.ChunkedArray | pa.Array) -> IntArray:
    """Convert times of any unit to microseconds, clipped where out of range; nulls become 0."""
    if pa.types.is_timestamp(times.type) and times.type.unit == "us" and not times.null_count:
        return np.asarray(one_chunk(times).view(pa.int64()).to_numpy())
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
    count = one_chunk(times.cast(pa.int64()).fill_null(0)).to_numpy(zero_copy_only=False).astype(np.int64)
    unit = times.type.unit if pa.types.is_timestamp(times.type) else "us"
    if unit == "ns":
        return np.asarray(count // 1000)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    return np.asarray(np.clip(count, EARLIEST // scale, LATEST // scale) * scale)


def values(table: pa.Table, schema: StreamSchema) -> FloatArray:
    """Return the modelled attributes as ``[A, n]``; nulls become NaN."""
    out = np.empty((len(schema.modelled), table.num_rows))
    for a, name in enumerate(schema.modelled_names):
        column = table.column(name)
        if column.type != pa.float64():
            column = as_floats(column, name)
        out[a] = column.to_numpy()
    return out


def as_floats(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Convert a column of numbers to doubles; the error names it."""
    try:
        return as_doubles(column)
    except pa.ArrowInvalid:
        raise ColumnTypeError(
            f"modelled column '{name}': holds whole numbers beyond 2**53, which a double cannot distinguish; "
            "subtract an offset or scale the column first"
        ) from None


def changes(table: pa.Table, schema: StreamSchema) -> IntArray:
    """Return a code per row, equal for rows with equal unmodelled attributes; empty if the stream has none.

    Codes compare values, not neighbouring rows: the row before may be rejected.
    """
    if not schema.unmodelled or not table.num_rows:
        return np.zeros(table.num_rows if schema.unmodelled else 0, dtype=np.int64)
    code: IntArray = np.zeros(table.num_rows, dtype=np.int64)
    for name in schema.unmodelled_names:
        column = table.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        chunks = column.unify_dictionaries().chunks
        own = np.concatenate([chunk.indices.cast(pa.int64()).fill_null(-1).to_numpy() for chunk in chunks])
        # Renumber densely after every column, so that products of counts never overflow.
        code = own if not code.any() else np.unique(code * (own.max() + 2) + own, return_inverse=True)[1]
    return code


def segments_of(tuples: pa.Table, schema: StreamSchema, **arrays: Any) -> SegmentBatch:
    """Build segments, in any order, with the keys and unmodelled attributes of tuples and the other columns as arrays."""
    return SegmentBatch.from_arrays(
        schema,
        keys={name: tuples.column(name) for name in schema.key_names},
        unmodelled={name: tuples.column(name) for name in schema.unmodelled_names},
        at_rest=False,
        **arrays,
    )
