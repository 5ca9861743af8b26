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
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.delta import Delta, by_ranges
from pulse.operators.node import PlanError
from pulse.operators.output.diff import Changes, changes_of
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.output.tuple_diff import tuple_difference
from pulse.plan.query import Query

UnitConversion = Callable[[Relation], Relation]


def to_changelog(
    delta: Delta, columns: Columns, *, possible: bool, to_output_units: UnitConversion | None = None
) -> tuple[Changes, Relation]:
    """Return the changes under the output's columns, and their rows: per stretch a group of old ones and one of new.

    ``to_output_units`` converts rows to the units in force at each instant; None if they already are.
    """
    rows = _answer(delta, columns, possible=possible, to_output_units=to_output_units)
    return changes_of(rows), rows


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
