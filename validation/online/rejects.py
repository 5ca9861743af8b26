"""Reject tuples without a usable key or time: keep them with a reason, so that none stops the stream or is lost silently."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.time import LIMIT

FILE, ROW, PLACE = "_pulse_file", "_pulse_row", "_pulse_place"
ORIGIN_COLUMNS = (FILE, ROW, PLACE)
"""Optional columns with a tuple's origin; they are passed along, so that a dead letter has it."""


def admit(table: pa.Table, keys: tuple[str, ...], time: str) -> tuple[pa.Table, list[pa.Table]]:
    """Return the tuples with a key and a valid time, and the others with a reason."""
    aside: list[pa.Table] = []
    for name in keys:
        if table.column(name).null_count:
            table = _without(table, _nulls(table.column(name)), "no key", aside)
    if table.column(time).null_count:
        table = _without(table, _nulls(table.column(time)), "no time", aside)
    beyond = _out_of_range(table.column(time))
    return (_without(table, beyond, "time out of range", aside) if beyond.any() else table), aside


def _without(table: pa.Table, bad: BoolArray, reason: str, aside: list[pa.Table]) -> pa.Table:
    aside.append(add_reason(table.filter(pa.array(bad)), reason))
    return table.filter(pa.array(~bad))


def _nulls(column: pa.ChunkedArray) -> BoolArray:
    nulls: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _out_of_range(column: pa.ChunkedArray) -> BoolArray:
    """Return which times exceed the supported range; only units of a microsecond and more can."""
    type_ = column.type
    unit = "day" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else type_.unit
    micro = {"us": 1, "ms": 10**3, "s": 10**6, "day": 86_400 * 10**6}.get(unit)
    if micro is None:
        return np.zeros(len(column), bool)
    whole = column.cast(pa.int32() if unit == "day" else pa.int64()).to_numpy()
    beyond: BoolArray = (whole > LIMIT // micro) | (whole < -(LIMIT // micro))
    return beyond


def with_origin(table: pa.Table, file: str, *, rows: bool) -> pa.Table:
    """Append the file's name to its tuples as a dictionary code, and with ``rows`` also each tuple's row number."""
    n = table.num_rows
    code = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([file], pa.string()))
    table = table.append_column(FILE, code)
    return table.append_column(ROW, pa.array(np.arange(n))) if rows else table


def origin_columns(table: pa.Table) -> list[str]:
    """Return the origin columns of a table."""
    return [name for name in ORIGIN_COLUMNS if name in table.column_names]


def add_reason(table: pa.Table, reason: str) -> pa.Table:
    """Append the reason for rejecting tuples."""
    return table.append_column("reason", pa.array([reason] * table.num_rows, pa.string()))


def concat_rejects(aside: list[pa.Table]) -> pa.Table | None:
    """Concatenate all rejected tuples, None without any."""
    return pa.concat_tables(aside, promote_options="permissive") if aside else None
