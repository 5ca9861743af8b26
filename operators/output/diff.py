"""Compute the changes that turn old results into recomputed ones (semantics 6.3, 7.4).

1. Segments. Old and new results of each key are aligned in time. Where both exist and agree nothing is emitted; where they
   differ the new replaces the old; parts that exist on one side only are deleted or inserted. Every change carries its range,
   so that retracting the old rows and adding the new ones yields the new results.
2. Error. Rows keep their bounds; a bound that changed by more than the rounding of its value, or a certainty that
   changed, is a change.
3. Inversion. Not applicable: it compares results.
4. Revision. This operator emits revisions.
5. Accents pass earlier: both sides have the same attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.keys import key_ranks
from pulse.core.schema import BOOKKEEPING
from pulse.kernels.pieces.align import Cells, align, coefficients_at
from pulse.operators.data.relation import Relation

TOLERANCE = 1e-9
"""Values that differ by less, relative to their size, are equal: one polynomial cut in two ways rounds differently."""

_ROUNDING = 1e-12
_KINDS = ("-D", "-U", "+I", "+U")


@dataclass(frozen=True, eq=False)
class Changes:
    """Rows of a changelog: ``kind`` and segments; a replacement's old row directly precedes its new one."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)


def change_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of changes: those of the segments, then ``kind``."""
    return columns.append(pa.field("kind", BOOKKEEPING["kind"]))


def difference(old: Relation, new: Relation) -> Changes:
    """Compute the changes that turn ``old`` into ``new``; both have the same columns."""
    sides = [one.without_empty_groups().merged() for one in (old, new)]
    known = {name for one in sides for name in one.drift}
    whole = Relation.concat(
        [
            replace(
                one,
                drift={name: one.drift.get(name, np.full(len(one), np.inf)) for name in known},
                lineage=None,
            )
            for one in sides
        ]
    )
    side = np.repeat([0, 1], [one.groups for one in sides])
    _, first, place = np.unique(
        key_ranks(list(whole.keys), whole.groups), return_index=True, return_inverse=True
    )
    counts = np.zeros((len(first), 2), np.int64)
    counts[place, side] = np.diff(whole.offsets)
    key = pa.array(np.repeat(first, 2))
    rows = replace(
        whole.select_groups(np.lexsort((side, place))),
        keys=tuple(column.take(key) for column in whole.keys),
        offsets=np.concatenate([[0], np.cumsum(counts)]),
    )
    return changes_of(rows)


def changes_of(rows: Relation) -> Changes:
    """Compute the changes between old and new rows; groups hold the old and the new ones of a key, or of a part, alternately."""
    offsets = np.stack([rows.offsets[:-1:2], rows.offsets[1::2], rows.offsets[2::2]], axis=1)
    cells = align(rows.ref, rows.lo, rows.hi, offsets, outer=True)
    left, right = cells.index[:, 0], cells.index[:, 1]
    has_old, has_new = left >= 0, right >= 0
    both = np.flatnonzero(has_old & has_new)
    # Only a point replaces a point: where one meets a range, the cells around it have what becomes of the range.
    point = rows.lo == rows.hi
    mixed = np.zeros(len(left), bool)
    mixed[both] = point[left[both]] != point[right[both]]
    changed = np.ones(len(left), bool)
    changed[both] = mixed[both] | ~_same_cells(rows, cells, left[both], right[both], both)
    has_old &= ~mixed | point[left]
    has_new &= ~mixed | point[right]
    # The old row of every cell, then the new; rows keep their own references, so that old ones can be recognised.
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
    table = pa.Table.from_batches([each.to_segments()])
    return Changes(table.append_column("kind", pa.array(_KINDS).take(pa.array(2 * (group % 2) + other))))


def _same_cells(rows: Relation, cells: Cells, a: IntArray, b: IntArray, both: IntArray) -> BoolArray:
    """Test whether rows ``a`` and ``b`` agree in the cells ``both``."""
    same = rows.certainty[a] == rows.certainty[b]
    reach = np.maximum(np.abs(cells.lo[both]), np.abs(cells.hi[both]))
    at = Cells(
        np.array([0, len(both)]), cells.ref[both], cells.lo[both], cells.hi[both], np.stack([a, b], axis=1)
    )
    for name in rows.columns.modelled:
        c, d = (coefficients_at(at, side, rows.ref, rows.models[name]) for side in (0, 1))
        powers = reach[:, None] ** np.arange(c.shape[1])
        size = (np.abs(c) * powers).sum(axis=1) + (np.abs(d) * powers).sum(axis=1)
        same &= np.asarray((np.abs(c - d) * powers).sum(axis=1) <= TOLERANCE * size)
        same &= same_bounds(rows.err[name][a], rows.err[name][b], size)
    for name in rows.columns.unmodelled_names:
        column = rows.unmodelled[name]
        same &= same_values(column.take(pa.array(a)), column.take(pa.array(b)))
    return np.asarray(same, dtype=bool)


def same_bounds(a: FloatArray, b: FloatArray, size: FloatArray) -> BoolArray:
    """Test whether bounds of values of this size are equal.

    Part of a bound allows for rounding, which depends on where a computation began. So bounds count as equal if they differ by
    no more than equal values may, or by no more than the rounding of the largest value (a small one may be a difference of
    large ones).
    """
    largest = float(size.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)  # NaN for two infinite ones
    close: BoolArray = gap <= TOLERANCE * (np.abs(a) + np.abs(b) + size) + _ROUNDING * largest
    return np.where(np.isfinite(a) & np.isfinite(b), close, a == b)


def same_values(a: pa.Array, b: pa.Array) -> BoolArray:
    """Test which values are equal; two nulls are."""
    equal = pc.fill_null(pc.equal(a, b), False)
    neither = pc.and_(pc.is_null(a), pc.is_null(b))
    found: BoolArray = pc.or_(equal, neither).to_numpy(zero_copy_only=False)
    return found
