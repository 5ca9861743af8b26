"""Read plain changelogs: a column of kinds and the stream's columns, as Flink and other engines write them.

Kinds are ``+I -U +U -D``, their names (``INSERT``, ``UPDATE_BEFORE``, ``UPDATE_AFTER``, ``DELETE``), or the codes ``c r d`` of
a flattened Debezium topic; the column is named ``kind``, ``row_kind``, ``op`` or ``__op``. Files are Parquet, CSV, or JSON
lines. A row that forms no element is set aside with the reason; the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import REF, decoded
from pulse.core.errors import ColumnTypeError, ElementError, check_once
from pulse.core.schema import StreamSchema
from pulse.datasets.casting import FAILURES, cast_what_fits
from pulse.datasets.errors import DatasetError
from pulse.datasets.json_lines import Unread
from pulse.datasets.recorded import Recorded
from pulse.datasets.row_files import SUFFIXES, Rows, read_rows
from pulse.datasets.time_columns import check_time_unit, to_time
from pulse.datasets.units import Paths, expand
from pulse.stream.revisions import KIND, KNOWN, Revisions, revision_schema, with_reason

KIND_COLUMNS = ("kind", "row_kind", "rowkind", "op", "__op")
KINDS: Mapping[str, str] = {
    "+i": "+I", "insert": "+I", "c": "+I", "r": "+I",
    "-u": "-U", "update_before": "-U",
    "+u": "+U", "update_after": "+U",
    "-d": "-D", "delete": "-D", "d": "-D",
}  # fmt: skip


def read_changelog_files(
    paths: Paths, schema: StreamSchema, *, known: str | None = None, time_unit: str | None = None
) -> Recorded:
    """Read the revisions of these files, in order. ``known`` names the column of known times.

    ``time_unit`` (s, ms, us, ns) is needed where times are numbers since 1970.
    """
    check_time_unit(time_unit)
    return read_each(
        paths,
        schema,
        lambda rows, path: from_table(
            rows.table, schema, known=known, time_unit=time_unit, where=path, unread=rows.unread
        ),
    )


def read_each(paths: Paths, schema: StreamSchema, of_rows: Callable[[Rows, str], Recorded]) -> Recorded:
    """Apply ``of_rows`` to the rows of each file, in order; input that is no row is set aside."""
    found, aside = [Revisions.empty(schema)], []
    for path in expand(paths, SUFFIXES):
        rows = read_rows(path)
        one = of_rows(rows, path)
        found.append(one.revisions)
        aside += [one.aside, _unread_aside(schema, rows.unread)]
    return Recorded(Revisions.concat(found), pa.concat_tables(aside))


def _unread_aside(schema: StreamSchema, unread: Sequence[Unread]) -> pa.Table:
    """Return unreadable input as rows that are set aside."""
    empty = revision_schema(schema)
    nothing = pa.table([pa.nulls(len(unread), field.type) for field in empty], schema=empty)
    return with_reason(nothing, [one.reason for one in unread])


def from_table(
    table: pa.Table,
    schema: StreamSchema,
    *,
    known: str | None = None,
    time_unit: str | None = None,
    where: str = "revisions",
    unread: Sequence[Unread] = (),
) -> Recorded:
    """Build revisions from a table whose values may still be text; unreadable rows are set aside.

    ``unread``: the parts of a file that are no rows; rows on two sides of one are no pair.
    """
    kind = kind_column(table.column_names, where)
    table = table.set_column(table.column_names.index(kind), KIND, kinds_of(table.column(kind)))
    typed, reasons = converted(table, schema, known=known, time_unit=time_unit, where=where)
    return sifted(typed, reasons, schema, unread)


def converted(
    table: pa.Table, schema: StreamSchema, *, known: str | None, time_unit: str | None, where: str
) -> tuple[pa.Table, list[str]]:
    """Convert the columns to the types of revisions; return also, per row, the error, or an empty text."""
    columns: dict[str, pa.Array] = {}
    reasons = [""] * table.num_rows
    since = KNOWN if known is None and KNOWN in table.column_names else known
    for field in revision_schema(schema):
        source = since if field.name == KNOWN else field.name
        if source is None:
            continue
        if source not in table.column_names:
            raise DatasetError(
                f"{where}: there is no column '{source}', which revisions of this stream need "
                f"({', '.join([KIND, *schema.names])}); "
                f"there are: {', '.join(table.column_names)}"
            )
        check_once(source, table.column_names, where)
        unit = time_unit if field.type == REF else None
        columns[field.name], wrong = _converted(
            table.column(source).combine_chunks(), field.type, unit, f"{where}, column '{source}'"
        )
        for row, got in wrong:
            reasons[row] = reasons[row] or f"malformed: '{source}': expected {field.type}, got {got!r}"
    return pa.table(columns), reasons


def sifted(
    table: pa.Table, reasons: Sequence[str], schema: StreamSchema, unread: Sequence[Unread] = ()
) -> Recorded:
    """Set aside rows with a reason, and those that form no element."""
    try:
        return Recorded(*Revisions.sift(table, schema, wrong=reasons, unread=unread))
    except ElementError as e:
        raise DatasetError(str(e)) from None


def kind_column(names: list[str], where: str) -> str:
    """Return the column of kinds; an exact name takes precedence."""
    found = [
        own for fold in (str, str.casefold) for name in KIND_COLUMNS for own in names if fold(own) == name
    ]
    if not found:
        raise DatasetError(
            f"{where}: expected a column 'kind' of +I, -U, +U, -D; there are: {', '.join(names)}"
        )
    return found[0]


def kinds_of(column: pa.ChunkedArray) -> pa.Array:
    """Convert the codes of a changelog in any notation; unknown ones stay unchanged.

    >>> kinds_of(pa.chunked_array([["INSERT", "-u", "?"]])).to_pylist()
    ['+I', '-U', '?']
    """
    encoded = column.combine_chunks().cast(pa.string()).dictionary_encode()
    texts = [
        None if text is None else KINDS.get(text.strip().casefold(), text)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _converted(
    column: pa.Array, type_: pa.DataType, unit: str | None, where: str
) -> tuple[pa.Array, list[tuple[int, Any]]]:
    """Convert a column to a type; return also row and value of those that do not convert, which become null."""
    column = decoded(column)
    if column.type == type_ or pa.types.is_null(column.type):
        return column.cast(type_), []
    missing = column.is_null().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~missing)
    some = column.drop_null()
    if type_ == REF and unit is None and len(some) and _is_number(some.type):
        raise ColumnTypeError(
            f"{where}, row {rows[0] + 1}: expected a time, got the number {some[0].as_py()}; say with --time-unit (time_unit=) "
            "whether it counts s, ms, us or ns since 1970"
        )
    try:
        return _spread(_cast(some, type_, unit, where), rows, len(column), type_), []
    except FAILURES as whole:
        values = cast_what_fits(some, type_, lambda part: _cast(part, type_, unit, where))
        bad = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist()
        if len(bad) == len(some):
            raise DatasetError(f"{where}: no value reads as {type_}: {whole}") from None
        return _spread(values, rows, len(column), type_), [(int(rows[i]), some[i].as_py()) for i in bad]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _cast(values: pa.Array, type_: pa.DataType, unit: str | None, where: str) -> pa.Array:
    if type_ == REF:
        return to_time(values, lambda row: f"{where}, row {row + 1}", unit)
    return values.cast(type_)


def _spread(values: pa.Array, rows: Any, length: int, type_: pa.DataType) -> pa.Array:
    """Place values at these rows, with nulls between."""
    index = np.full(length, -1, dtype=np.int64)
    index[rows] = np.arange(len(values))
    return values.take(pa.array(index, mask=index < 0)) if len(values) else pa.nulls(length, type_)
