"""Prepare the columns of a running stream's tuples for conversion to base units, and restore them in rejects."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import decoded, one_chunk
from pulse.validation.online.rejects import ORIGIN_COLUMNS, PLACE


def encode_keys(table: pa.Table, keys: Collection[str]) -> pa.Table:
    """Dictionary-encode text keys: the conversion to base units and validation both use the codes."""
    for name in keys:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            found = pa.chunked_array([one_chunk(column).dictionary_encode()])
            table = table.set_column(table.column_names.index(name), name, found)
    return table


def decode_keys(table: pa.Table) -> pa.Table:
    """Decode dictionary-encoded keys."""
    for place, one in enumerate(table.schema):
        if pa.types.is_dictionary(one.type):
            table = table.set_column(place, one.name, decoded(table.column(place)))
    return table


def blank_unread(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Zero the values that the query does not read: they may be dropped at any time, and must not start a model."""
    for name in unread:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(np.zeros(table.num_rows)))
    return table


def null_unread(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Replace the zeros of :func:`blank_unread` by nulls."""
    for name in unread:
        if name in table.column_names:
            nothing = pa.nulls(table.num_rows, pa.float64())
            table = table.set_column(table.column_names.index(name), name, nothing)
    return table


def with_places(table: pa.Table) -> pa.Table:
    """Add tuples' places in the batch, by which rejects are restored to their recorded values."""
    return table.append_column(PLACE, pa.array(np.arange(table.num_rows)))


def restore_recorded(aside: pa.Table, recorded: pa.Table) -> pa.Table:
    """Restore rejects in base units to their recorded values; a reason with values is marked as in base units."""
    if PLACE not in aside.column_names:
        return aside
    own = recorded.take(aside.column(PLACE))
    rebased = np.zeros(aside.num_rows, bool)
    for place, name in enumerate(aside.column_names):
        if name in own.column_names and name not in ORIGIN_COLUMNS:
            came = own.column(name)
            rebased |= np.array(
                [a != b for a, b in zip(aside.column(name).to_pylist(), came.to_pylist(), strict=True)], bool
            )
            aside = aside.set_column(place, name, came)
    reasons = [
        f"{why} (values here are in the units of the stream's start)" if other and "expected" in why else why
        for why, other in zip(aside.column("reason").to_pylist(), rebased, strict=True)
    ]
    aside = aside.set_column(aside.column_names.index("reason"), "reason", pa.array(reasons, pa.string()))
    return aside.drop_columns([PLACE])
