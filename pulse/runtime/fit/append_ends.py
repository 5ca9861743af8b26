"""Store where each key of a model ends, also after revisions: ``--append`` continues from there
(:mod:`pulse.operators.fit.key_boundaries`).

A fit writes ``_ends-FFF-NNNNN.parquet``. A revision that changes a key's end writes the replacing rows to
``_revised-ends-VVV-NNNNN.parquet``, which the manifest's entry of that version names; a key without any tuple left
has one row there, of the part :data:`GONE`. The next fit writes all ends anew, so only revisions since the last one count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray
from pulse.core.arrow_types import one_chunk
from pulse.core.keys import keys_filter, ranks_of_rows
from pulse.core.schema import StreamSchema
from pulse.operators.fit.stitch import PART
from pulse.store.errors import StoreError
from pulse.store.model import ENDS, Model
from pulse.store.parquet_io import read_parquet
from pulse.store.writers import write_table

GONE = -1
REVISED, MERGED = "revised", "merged"
FILES = "ends_files"


def read_ends(model: Model, condition: Any = None) -> pa.Table | None:
    """Read the ends of all keys, or of those that meet a condition; None if the model has none."""
    parts = [read_parquet(file, filters=condition) for file in sorted(model.path.glob(f"{ENDS}-*.parquet"))]
    rows = pa.concat_tables(parts) if parts else None
    for name in _revised(model):
        rows = _overlay(rows, read_parquet(model.path / name, filters=condition), model.schema)
    return rows


def check_append(model: Model) -> None:
    """Raise if a fit cannot continue from the model's ends: every file of ends that revisions changed must exist."""
    for name in _revised(model):
        if not (model.path / name).is_file():
            raise StoreError(
                f"{model.path}: --append: {name} is missing, which holds the ends of revised keys; fit the model anew"
            )


def ends_of_keys(model: Model, keys: pa.Table) -> pa.Table:
    """Return the ends of these keys; an empty table if they have none."""
    found = read_ends(model, keys_filter(keys.column_names, [one_chunk(one) for one in keys.columns]))
    if found is None:
        return model.schema.arrow_schema().empty_table().append_column(PART, pa.array([], pa.int8()))
    if not keys.num_columns:
        return found
    return found.filter(pa.array(_of_keys(found, keys, model.schema)))


def over_ends(ends: pa.Table, new: pa.Table, ended: pa.Table, schema: StreamSchema) -> pa.Table:
    """Replace the ends of some keys and remove those of ended keys; without key columns replace all, if there are new ends."""
    new = new.select(ends.column_names).cast(ends.schema)
    names = list(schema.key_names)
    if not names:
        return new if new.num_rows else ends
    keys = pa.concat_tables([new.select(names), ended.select(names)])
    kept = ends.filter(pa.array(~_of_keys(ends, keys, schema)))
    return pa.concat_tables([kept, new])


def write_ends(model: Model, ends: pa.Table, keys: pa.Table, version: int, number: int) -> str:
    """Write the current ends of these keys; return the name of the file."""
    rows = ends
    if model.schema.key:
        gone = keys.filter(pa.array(~_of_keys(keys, rows, model.schema)))
    else:
        gone = pa.table({PART: pa.nulls(0 if rows.num_rows else 1, pa.int8())})
    if gone.num_rows:
        columns = [
            gone.column(field.name).cast(field.type)
            if field.name in model.schema.key_names
            else pa.repeat(pa.scalar(GONE, field.type), gone.num_rows)
            if field.name == PART
            else pa.nulls(gone.num_rows, field.type)
            for field in rows.schema
        ]
        rows = pa.concat_tables([rows, pa.table(columns, schema=rows.schema)])
    name = f"_revised-ends-{version:03d}-{number:05d}.parquet"
    write_table(Path(model.path) / name, rows)
    return name


def _since_fit(model: Model) -> list[dict[str, Any]]:
    """Return the revisions since the last fit or append."""
    found: list[dict[str, Any]] = []
    for change in model.manifest.changes:
        if change.get("what") == REVISED:
            found.append(change)
        elif change.get("what") != MERGED:
            found.clear()
    return found


def _revised(model: Model) -> Iterator[str]:
    for change in _since_fit(model):
        yield from change["counts"].get(FILES, ())


def _overlay(rows: pa.Table | None, new: pa.Table, schema: StreamSchema) -> pa.Table:
    there = new.filter(pa.array(new.column(PART).to_numpy() != GONE))
    if rows is None:
        return there
    if not schema.key:
        return there if new.num_rows else rows
    kept = rows.filter(pa.array(~_of_keys(rows, new, schema)))
    return pa.concat_tables([kept, there.select(rows.column_names).cast(rows.schema)])


def _of_keys(rows: pa.Table, keys: pa.Table, schema: StreamSchema) -> BoolArray:
    """Return which rows have one of the keys."""
    own = keys.select(list(schema.key_names))
    both = pa.concat_tables([rows.select(own.column_names).cast(own.schema), own])
    ranks = ranks_of_rows(both, own.column_names)
    found: BoolArray = np.isin(ranks[: rows.num_rows], ranks[rows.num_rows :])
    return found
