"""Apply the filter of a model (``fit --where``, ``--session``) to revisions of its tuples.

A model's tuples are those that pass its filter, so a corrected tuple enters or leaves the model as it begins or ceases to pass::

    the old tuple   the new tuple    the revision becomes
    passes          passes           what it is
    passes          does not         a deletion
    does not        passes           an insertion
    does not        does not         set aside

A deletion passes as it is, since one of a tuple that is not recorded is set aside with that reason. Revisions have the columns
of the model alone; conditions on others cannot be decided, and count as true.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.elements import ElementKind
from pulse.core.schema import StreamSchema
from pulse.datasets.filters.row_filter import INSTANT, SESSION, TRUTH, RowFilter
from pulse.store.model import Model
from pulse.stream.revisions import KIND, Revisions, with_reason


def as_filtered(model: Model, revisions: Revisions) -> tuple[Revisions, pa.Table | None]:
    """Return the revisions of tuples that pass the model's filter, and the rows of the others with their reason."""
    where = model.manifest.where
    if where is None or not len(revisions):
        return revisions, None
    given = RowFilter.from_json(where)
    known = given.conditions(lambda part: _is_decided(part, revisions.schema))
    if known is None:
        return revisions, None
    passes = known.keeps(revisions.table)
    old, new = revisions.old_rows, revisions.new_rows
    had, has = _at(passes, old), _at(passes, new)
    refused = (new >= 0) & ~has & ~had
    rejected = revisions.take(np.flatnonzero(refused)).table
    aside = with_reason(rejected, [f"outside of the model's filter: {given.text}"] * rejected.num_rows)
    replaced = (old >= 0) & (new >= 0) & ~refused
    leaves, enters = replaced & ~has, replaced & ~had
    if not (refused | leaves | enters).any():
        return revisions, None
    kinds = np.array(revisions.table.column(KIND).to_pylist(), dtype=object)
    kinds[old[leaves]] = ElementKind.DELETION.value
    kinds[new[enters]] = ElementKind.INSERTION.value
    keep = np.ones(len(kinds), dtype=np.bool_)
    keep[np.concatenate([new[leaves], old[enters], old[refused & (old >= 0)], new[refused]])] = False
    at = revisions.table.column_names.index(KIND)
    table = revisions.table.set_column(at, KIND, pa.array(kinds, pa.string())).filter(pa.array(keep))
    return type(revisions)(revisions.schema, table), aside


def _at(passes: BoolArray, rows: IntArray) -> BoolArray:
    """Return whether each row passes; false for none (-1)."""
    found: BoolArray = (rows >= 0) & passes[np.maximum(rows, 0)]
    return found


def _is_decided(part: RowFilter, schema: StreamSchema) -> bool:
    """Check whether the columns of revisions decide a condition: they have its columns, in types that it compares."""
    if not set(part.columns) <= set(schema.names) or (
        part.mentions(TRUTH) and set(part.columns) & set(schema.modelled_names)
    ):
        return False
    return schema.time not in part.columns or part.mentions(INSTANT) or part.mentions(SESSION)
