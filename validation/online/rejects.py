"""Tuples that have no place in a stream: kept with a reason, so that none of them stops it or is lost unseen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.time import LIMIT

FILE, ROW, PLACE = "_pulse_file", "_pulse_row", "_pulse_place"
WHENCE = (FILE, ROW, PLACE)
"""Columns beside a tuple's own that say where it is from, if they are there: they go along, so that a row set aside tells."""


def placed(table: pa.Table, keys: tuple[str, ...], time: str) -> tuple[pa.Table, list[pa.Table]]:
    """The tuples that have a key and a time that can be told, and the others with a reason."""
    aside: list[pa.Table] = []
    for name in keys:
        if table.column(name).null_count:
            table = _without(table, _nulls(table.column(name)), "no key", aside)
    if table.column(time).null_count:
        table = _without(table, _nulls(table.column(time)), "no time", aside)
    beyond = _out_of_range(table.column(time))
    return (_without(table, beyond, "time out of range", aside) if beyond.any() else table), aside


def _without(table: pa.Table, bad: BoolArray, reason: str, aside: list[pa.Table]) -> pa.Table:
    aside.append(reasoned(table.filter(pa.array(bad)), reason))
    return table.filter(pa.array(~bad))


def _nulls(column: pa.ChunkedArray) -> BoolArray:
    nulls: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _out_of_range(column: pa.ChunkedArray) -> BoolArray:
    """Which times lie beyond what can be computed with; only units of a microsecond and more reach so far."""
    type_ = column.type
    unit = "day" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else type_.unit
    micro = {"us": 1, "ms": 10**3, "s": 10**6, "day": 86_400 * 10**6}.get(unit)
    if micro is None:
        return np.zeros(len(column), bool)
    whole = column.cast(pa.int32() if unit == "day" else pa.int64()).to_numpy()
    beyond: BoolArray = (whole > LIMIT // micro) | (whole < -(LIMIT // micro))
    return beyond


def whence(table: pa.Table, file: str, *, rows: bool) -> pa.Table:
    """A file's tuples with a code of its name, and with ``rows`` also the place of each in it."""
    n = table.num_rows
    code = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([file], pa.string()))
    table = table.append_column(FILE, code)
    return table.append_column(ROW, pa.array(np.arange(n))) if rows else table


def whence_names(table: pa.Table) -> list[str]:
    """The columns among these that only say where tuples are from."""
    return [name for name in WHENCE if name in table.column_names]


def reasoned(table: pa.Table, reason: str) -> pa.Table:
    """Tuples with the reason why they have no place."""
    return table.append_column("reason", pa.array([reason] * table.num_rows, pa.string()))


def together(aside: list[pa.Table]) -> pa.Table | None:
    """All that was set aside, if anything was."""
    return pa.concat_tables(aside, promote_options="permissive") if aside else None
