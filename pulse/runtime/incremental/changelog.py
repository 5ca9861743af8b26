"""What is said of a delta: the rows of a changelog, and nothing where nothing changed.

As :func:`pulse.operators.output.diff.difference` of all old and all new results would say it, but only the changed stretches are
looked at, and each of them is compared on its own.
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
from pulse.operators.output.diff import Changes, same_cells
from pulse.runtime.incremental.delta import Delta, by_ranges

Restated = Callable[[Relation], Relation]
_KINDS = pa.array(["-D", "-U", "+I", "+U"])


def to_changelog(
    delta: Delta, columns: Columns, *, possible: bool, restated: Restated | None = None
) -> tuple[Changes, Relation]:
    """The changes under the output's columns, and the rows they are of: of every stretch a group of old ones and one of new.

    ``restated`` gives rows in the units in force at each instant, if they are not in them.
    """
    rows = _answer(delta, columns, possible=possible, restated=restated)
    offsets = np.stack([rows.offsets[:-1:2], rows.offsets[1::2], rows.offsets[2::2]], axis=1)
    cells = align(rows.ref, rows.lo, rows.hi, offsets, outer=True)
    left, right = cells.index[:, 0], cells.index[:, 1]
    has_old, has_new = left >= 0, right >= 0
    both = np.flatnonzero(has_old & has_new)
    changed = np.ones(len(left), bool)
    changed[both] = ~same_cells(rows, rows, cells, left, right, both)
    # Of every cell the old row, then the new.
    said = np.stack([has_old & changed, has_new & changed], axis=1).ravel()
    cell = np.repeat(np.arange(len(left)), 2)[said]
    source = cells.index[:, :2].ravel()[said]
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


def _answer(delta: Delta, columns: Columns, *, possible: bool, restated: Restated | None) -> Relation:
    """Old and new rows by turns, of what is asked for."""
    ranges = np.stack([delta.old, delta.new], axis=1).reshape(-1, 2)
    rows = by_ranges(delta.relation, ranges, np.repeat(delta.groups, 2))
    if not possible and (rows.certainty < LIKELY).any():
        rows = rows.take(np.flatnonzero(rows.certainty >= LIKELY))
    rows = rows if restated is None else restated(rows)
    names = rows.columns.key_names
    keys = tuple(rows.keys[names.index(name)] for name in columns.key_names)
    return replace(rows, columns=columns, keys=keys)
