"""Convert a delta to changelog rows; unchanged times give none.

Equals :func:`pulse.operators.output.diff.difference` of all old and all new results, but reads only the changed stretches and
compares each on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.certainty import LIKELY
from pulse.core.columns import Columns
from pulse.kernels.pieces.align import align
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Delta, by_ranges
from pulse.operators.node import PlanError
from pulse.operators.output.diff import Changes, same_cells
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.output.tuple_diff import tuple_difference
from pulse.plan.query import Query

UnitConversion = Callable[[Relation], Relation]
_KINDS = pa.array(["-D", "-U", "+I", "+U"])


def to_changelog(
    delta: Delta, columns: Columns, *, possible: bool, to_output_units: UnitConversion | None = None
) -> tuple[Changes, Relation]:
    """Return the changes under the output's columns, and their rows: per stretch a group of old ones and one of new.

    ``to_output_units`` converts rows to the units in force at each instant; None if they already are.
    """
    rows = _answer(delta, columns, possible=possible, to_output_units=to_output_units)
    offsets = np.stack([rows.offsets[:-1:2], rows.offsets[1::2], rows.offsets[2::2]], axis=1)
    cells = align(rows.ref, rows.lo, rows.hi, offsets, outer=True)
    left, right = cells.index[:, 0], cells.index[:, 1]
    has_old, has_new = left >= 0, right >= 0
    both = np.flatnonzero(has_old & has_new)
    changed = np.ones(len(left), bool)
    changed[both] = ~same_cells(rows, rows, cells, left, right, both)
    # The old row of every cell, then the new.
    emitted = np.stack([has_old & changed, has_new & changed], axis=1).ravel()
    cell = np.repeat(np.arange(len(left)), 2)[emitted]
    source = cells.index[:, :2].ravel()[emitted]
    by = (cells.ref[cell] - rows.ref[source]) / 1e6
    lo = np.maximum(cells.lo[cell] + by, rows.lo[source])
    hi = np.maximum(np.minimum(cells.hi[cell] + by, rows.hi[source]), lo)
    group = rows.group[source]
    index = pa.array(group)
    keys = tuple(column.take(index) for column in rows.keys)
    each = replace(rows._pick(source, keys, np.arange(len(source) + 1)), lo=lo, hi=hi)
    other = (has_old & has_new)[cell]
    kinds = _KINDS.take(pa.array(2 * (group % 2) + other))
    table = pa.Table.from_batches([each.to_segments()])
    return Changes(table.append_column("kind", kinds)), rows


def _answer(
    delta: Delta, columns: Columns, *, possible: bool, to_output_units: UnitConversion | None
) -> Relation:
    """Return old and new rows alternately, restricted to the query's certainty and columns."""
    ranges = np.stack([delta.old, delta.new], axis=1).reshape(-1, 2)
    rows = by_ranges(delta.relation, ranges, np.repeat(delta.groups, 2))
    if not possible and (rows.certainty < LIKELY).any():
        rows = rows.take(np.flatnonzero(rows.certainty >= LIKELY))
    rows = rows if to_output_units is None else to_output_units(rows)
    names = rows.columns.key_names
    keys = tuple(rows.keys[names.index(name)] for name in columns.key_names)
    return replace(rows, columns=columns, keys=keys)


def tuple_changes(old: Relation, new: Relation, query: Query, rate: int | None = None) -> pa.Table:
    """Return changelog rows by key and time: time, selected columns, bounds, certainty, and ``kind``."""
    every = query.rate if rate is None else rate
    if every is None:
        instead = "give a rate" if query.plan.columns.points else "add SAMPLE EVERY, or give a rate"
        raise PlanError(f"revisions as tuples need a rate: no window advances; {instead}")
    was, now = (
        pa.Table.from_batches([to_tuples(sample(one.merged(), every), query.select, possible=query.possible)])
        for one in (old, new)
    )
    keys = [name for name in query.select if name in old.columns.key_names]
    return tuple_difference(was, now, keys, was.schema.field(0).name)
