"""The revision log of a stored model: the applied revisions of its tuples, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.schema import StreamSchema
from pulse.store.model import Model
from pulse.store.parquet_io import read_parquet, readable
from pulse.stream.revisions import KIND, KNOWN, Revisions, revision_schema


def tuple_schema(schema: StreamSchema) -> pa.Schema:
    """Return the columns of tuples in revisions."""
    return pa.schema([field for field in revision_schema(schema) if field.name not in (KIND, KNOWN)])


def log_rows(model: Model, more: tuple[pa.Table, ...] = (), keys: Any = None) -> pa.Table:
    """Return the log of this version, followed by ``more``; only rows that satisfy a condition on keys.

    A replacement that moves its tuple becomes a deletion and an insertion, so that each row, or pair of rows, concerns one
    instant of one key and any range of time can be replayed by itself.
    """
    tables = [_logged(model.file(name), model.schema) for name in model.manifest.log]
    tables += [split_moves(table, model.schema) for table in more]
    some = [table if keys is None else table.filter(keys) for table in tables]
    return pa.concat_tables([revision_schema(model.schema).empty_table(), *some])


def _logged(path: Path, schema: StreamSchema) -> pa.Table:
    with readable(path):
        return split_moves(read_parquet(path, columns=revision_schema(schema).names), schema)


def split_moves(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Split every replacement that moves a tuple to another key or instant into a deletion and an insertion."""
    revisions = Revisions(schema, table.cast(revision_schema(schema)))
    both = (revisions.old_rows >= 0) & (revisions.new_rows >= 0)
    old, new = revisions.old_rows[both], revisions.new_rows[both]
    if not len(old):
        return revisions.table
    moves = np.zeros(len(old), dtype=bool)
    for name in (*schema.key_names, schema.time):
        column = table.column(name)
        moves |= pc.not_equal(column.take(pa.array(old)), column.take(pa.array(new))).to_numpy().astype(bool)
    if not moves.any():
        return revisions.table
    kinds = np.array(revisions.table.column(KIND).to_pylist(), dtype=object)
    kinds[old[moves]], kinds[new[moves]] = "-D", "+I"
    at = revisions.table.column_names.index(KIND)
    return revisions.table.set_column(at, KIND, pa.array(kinds, pa.string()))
