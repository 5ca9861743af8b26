"""Assemble the columns of a batch of segments from arrays or from any Arrow table that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import REF, conform
from pulse.core.errors import ColumnTypeError, SegmentError, unknown_column
from pulse.core.instants import nearest_microsecond
from pulse.core.schema import BOOKKEEPING, StreamSchema
from pulse.core.segment.coefficients import from_padded, from_ragged
from pulse.core.time import to_microseconds


def from_table(table: pa.Table | pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
    """Return the table's columns in the schema's order and types, as one contiguous batch.

    Shares memory with the table where its types and chunks allow it.
    """
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise ColumnTypeError(
            f"segments: expected an Arrow table or record batch, got {type(table).__name__}"
        )
    schema.check_names(table.schema.names)
    wanted = schema.arrow_schema(name for name in BOOKKEEPING if name in table.schema.names)
    have = set(table.schema.names)
    columns = [
        conform(table.column(field.name), field.type, column=field.name)
        if field.name in have
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def from_columns(
    schema: StreamSchema,
    *,
    keys: Mapping[str, Any],
    ref: Any,
    lo: Any,
    hi: Any,
    models: Mapping[str, Any],
    err: Mapping[str, Any],
    drift: Mapping[str, Any],
    err2: Mapping[str, Any],
    unmodelled: Mapping[str, Any],
    bookkeeping: Mapping[str, Any],
) -> pa.RecordBatch:
    """Build one batch from numpy arrays, sequences and scalars (repeated for every row)."""
    for given, known, what in (
        (keys, schema.key_names, "keys"),
        (models, schema.modelled_names, "models"),
        (err, schema.modelled_names, "err"),
        (unmodelled, schema.unmodelled_names, "unmodelled"),
    ):
        _check_complete(given, known, what)
    for what, some in (("drift", drift), ("err2", err2)):
        for name in some:
            if name not in schema.modelled_names:
                raise unknown_column(name, schema.modelled_names, what)
    reference = pa.array(to_microseconds(ref)).view(REF)
    n = len(reference)
    given = {**keys, "ref": reference, "lo": lo, "hi": hi, **unmodelled, **bookkeeping}
    for name in schema.modelled_names:
        given[name] = _lists(models[name], name)
        given[f"{name}_err"] = err[name]
        given[f"{name}_drift"] = drift.get(name)
        given[f"{name}_err2"] = err2.get(name)
    wanted = schema.arrow_schema(bookkeeping)
    return pa.RecordBatch.from_arrays([column(given[f.name], f, n) for f in wanted], schema=wanted)


def row_ranges(table: pa.Table) -> tuple[IntArray, IntArray]:
    """Return where the segments of a table begin and end, to the nearest microsecond."""
    ref = to_microseconds(table.column("ref"))
    begin, end = (nearest_microsecond(ref, table.column(name).to_numpy()) for name in ("lo", "hi"))
    return begin, end


def _check_complete(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            raise unknown_column(name, known, what)
    for name in known:
        if name not in given:
            raise unknown_column(name, given, what)


def _lists(model: Any, name: str) -> pa.ListArray:
    """Convert coefficients given as ``(n, k)`` array, ``(flat, offsets)`` or an Arrow list column."""
    if isinstance(model, (pa.Array, pa.ChunkedArray)):
        return model
    try:
        if isinstance(model, tuple) and len(model) == 2:
            return from_ragged(*model)
        return from_padded(model)
    except SegmentError as e:
        raise SegmentError(f"models, '{name}': {e}") from None


def column(values: Any, field: pa.Field, n: int) -> pa.Array:
    """Build a column of ``n`` rows; a scalar is repeated, None is null everywhere."""
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        if np.ndim(values) == 0:
            one = values.item() if isinstance(values, np.generic) else values
            return pa.repeat(conform(_array([one], field), field.type, column=field.name)[0], n)
        values = _array(values, field)
    array = conform(values, field.type, column=field.name)
    if len(array) != n:
        raise SegmentError(f"column '{field.name}': expected one value per segment ({n}), got {len(array)}")
    return array


def _array(values: Any, field: pa.Field) -> pa.Array:
    """Convert values to Arrow. Numpy's numbers are wrapped, not copied, and NaN stays NaN, for the checks to find.

    For integer columns Arrow first infers the type: given the type, it would truncate 1.5 to 1.
    """
    wrapped = isinstance(values, np.ndarray) and values.dtype.kind in "fiub"
    type_ = None if wrapped or pa.types.is_integer(field.type) else field.type
    try:
        return pa.array(values, type=type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as e:
        raise ColumnTypeError(f"column '{field.name}': expected {field.type}: {e}") from None
