"""Read Debezium's change events: ``op`` and the row ``before`` and ``after`` it, with or without the enclosing ``payload``.

``c`` (create) and ``r`` (snapshot read) are insertions, ``u`` is a replacement, ``d`` a deletion; ``ts_ms`` (or ``ts_us``,
``ts_ns``) is the known time of the change. Tombstones, events without an ``op``, are empty and set aside, as are an update or a
deletion without ``before``: the connector must be configured to send whole old rows (``REPLICA IDENTITY FULL``). Times inside
rows are numbers in most connectors: ``time_unit`` gives their unit.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.schema import StreamSchema
from pulse.datasets.changelog import converted, read_each, sifted
from pulse.datasets.errors import DatasetError
from pulse.datasets.recorded import Recorded
from pulse.datasets.time_columns import check_time_unit, to_time
from pulse.datasets.units import Paths
from pulse.stream.revisions import KIND, KNOWN

_STAMPS = (("ts_us", "us"), ("ts_ms", "ms"), ("ts_ns", "ns"))


def read_debezium(
    paths: Paths, schema: StreamSchema, *, known: str | None = None, time_unit: str | None = None
) -> Recorded:
    """Read the revisions of files of change events: JSON lines, or Parquet.

    ``known`` names a column of the event to use instead of ``ts_ms`` for the known times.
    """
    check_time_unit(time_unit)
    return read_each(
        paths,
        schema,
        lambda rows, path: from_events(rows.table, schema, known=known, time_unit=time_unit, where=path),
    )


def from_events(
    events: pa.Table,
    schema: StreamSchema,
    *,
    known: str | None = None,
    time_unit: str | None = None,
    where: str = "change events",
) -> Recorded:
    """Build revisions from a table of change events; old and new rows become rows of a changelog, in the events' order."""
    events = _unwrapped(events)
    _check(events, where)
    op = events.column("op").cast(pa.string()).to_pylist()
    old, new = (_is_there(events, side) for side in ("before", "after"))
    takes_old = np.array([code in ("u", "d") for code in op], dtype=bool)
    takes_new = np.array([code in ("c", "r", "u") for code in op], dtype=bool)
    good = (takes_old | takes_new) & (old | ~takes_old) & (new | ~takes_new)
    rows = np.repeat(np.arange(len(op)), 2)
    is_old = np.tile([True, False], len(op))
    wanted = np.where(is_old, takes_old[rows], takes_new[rows])
    # Of a rejected event, keep the row that it has.
    wanted = np.where(good[rows], wanted, is_old == old[rows])
    kinds = np.where(is_old, np.where(takes_new[rows], "-U", "-D"), np.where(takes_old[rows], "+U", "+I"))
    some = np.flatnonzero(wanted)
    table = _interleaved(events, schema, rows[some], is_old[some])
    table = table.append_column(KIND, pa.array(kinds[some].tolist(), pa.string()))
    stamps = _stamps(events, known, where).take(pa.array(rows[some]))
    table = table.append_column(KNOWN, stamps)
    typed, reasons = converted(table, schema, known=None, time_unit=time_unit, where=where)
    for i in np.flatnonzero(~good[rows[some]]).tolist():
        row = rows[some[i]]
        reasons[i] = _reason(op[row], bool(old[row]), bool(new[row]))
    return sifted(typed, reasons, schema)


def _unwrapped(events: pa.Table) -> pa.Table:
    """Return the payload's fields, where events include their schema."""
    if "payload" not in events.column_names or "op" in events.column_names:
        return events
    payload = events.column("payload").combine_chunks()
    names = [field.name for field in payload.type]
    return pa.table([pc.struct_field(payload, name) for name in names], names=names)


def _check(events: pa.Table, where: str) -> None:
    for name in ("op", "after"):
        if name not in events.column_names:
            raise DatasetError(
                f"{where}: expected change events with 'op', 'before' and 'after', got the columns "
                f"{', '.join(events.column_names)}; a flat changelog is read by the reader 'changelog'"
            )


def _is_there(events: pa.Table, side: str) -> np.ndarray:
    if side not in events.column_names:
        return np.zeros(events.num_rows, dtype=bool)
    there: np.ndarray = events.column(side).is_valid().to_numpy()
    return there


def _interleaved(events: pa.Table, schema: StreamSchema, rows: np.ndarray, is_old: np.ndarray) -> pa.Table:
    """Return the stream's columns of old and new rows, in this order."""
    sides = {side: _fields(events, side) for side in ("before", "after")}
    some = sides["after"] or sides["before"]
    index = pa.array(np.where(is_old, rows, rows + events.num_rows))
    columns = []
    for name in schema.names:
        if name not in some:
            raise DatasetError(
                f"change events: there is no '{name}' in 'after'; there are: {', '.join(some)}"
            )
        type_ = some[name].type
        parts = [
            (sides[side][name] if name in sides[side] else pa.nulls(events.num_rows, type_))
            for side in ("before", "after")
        ]
        columns.append(pa.concat_arrays(_of_one_type(parts, type_, name)).take(index))
    return pa.table(columns, names=list(schema.names))


def _of_one_type(parts: list[pa.Array], type_: pa.DataType, name: str) -> list[pa.Array]:
    """Convert both sides to a type, or to text where a value does not convert: that row is found malformed then."""
    for wanted in (type_, pa.string()):
        try:
            return [part if part.type == wanted else part.cast(wanted) for part in parts]
        except pa.ArrowException:
            continue
    before, after = (part.type for part in parts)
    raise DatasetError(
        f"change events, '{name}': expected values of one type in 'before' and 'after', got {before} and {after}"
    )


def _fields(events: pa.Table, side: str) -> dict[str, pa.Array]:
    if side not in events.column_names or not pa.types.is_struct(events.schema.field(side).type):
        return {}
    column = events.column(side).combine_chunks()
    return {field.name: pc.struct_field(column, field.name) for field in column.type}


def _stamps(events: pa.Table, known: str | None, where: str) -> pa.Array:
    """Return the known time of each event."""
    units = dict(_STAMPS)
    names = [known] if known is not None else [name for name, _ in _STAMPS if name in events.column_names]
    if not names:
        return pa.nulls(events.num_rows, pa.timestamp("us"))
    if names[0] not in events.column_names:
        raise DatasetError(
            f"{where}: there is no '{names[0]}'; the events have: {', '.join(events.column_names)}"
        )
    column = events.column(names[0]).combine_chunks()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if missing.all():
        return pa.nulls(events.num_rows, pa.timestamp("us"))
    times = to_time(column.drop_null(), lambda row: f"{where}, event {row}", units.get(names[0], "ms"))
    index = np.cumsum(~missing) - 1
    return times.take(pa.array(index, mask=missing))


def _reason(op: str | None, old: bool, new: bool) -> str:
    if op is None:
        return "malformed: an event without an op is empty (a tombstone)"
    if op in ("u", "d") and not old:
        return f"malformed: op {op!r} without 'before', so the value it corrects is unknown; have the source send old rows"
    if op in ("c", "r", "u") and not new:
        return f"malformed: op {op!r} without 'after'"
    return f"malformed: expected an op of c, r, u, d, got {op!r}"
