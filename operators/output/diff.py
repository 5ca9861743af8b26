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

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.keys import key_ranks
from pulse.core.schema import BOOKKEEPING
from pulse.kernels.pieces.align import Cells, align, coefficients_at
from pulse.operators.data.relation import Relation

TOLERANCE = 1e-9
"""Values that differ by less, relative to their size, are equal: one polynomial cut in two ways rounds differently."""

_ROUNDING = 1e-12


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
    old, new = old.without_empty_groups().merged(), new.without_empty_groups().merged()
    cells, left, right = _aligned(old, new)
    has_old, has_new = left >= 0, right >= 0
    both = np.flatnonzero(has_old & has_new)
    same = np.zeros(len(left), bool)
    same[both] = same_cells(old, new, cells, left, right, both)
    gone, come = np.flatnonzero(has_old & ~same), np.flatnonzero(has_new & ~same)
    taken = _rows(old, left[gone], cells, gone)
    put = _rows(new, right[come], cells, come)
    kinds = np.concatenate([np.where(has_new[gone], "-U", "-D"), np.where(has_old[come], "+U", "+I")]).astype(
        object
    )
    order = np.lexsort((np.repeat([0, 1], [len(gone), len(come)]), np.concatenate([gone, come])))
    table = pa.concat_tables([taken, put]).take(pa.array(order))
    return Changes(table.append_column("kind", pa.array(kinds[order], pa.string())))


def _aligned(old: Relation, new: Relation) -> tuple[Cells, IntArray, IntArray]:
    """Align all keys; return the cells and in each the row of either side, or -1."""
    sides = (old, new)
    joined = [pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(old.keys, new.keys, strict=True)]
    ranks = key_ranks(joined, old.groups + new.groups)
    distinct = np.unique(ranks)
    place = np.searchsorted(distinct, ranks)
    counts = np.zeros((len(distinct), 2), np.int64)
    counts[place[: old.groups], 0] = np.diff(old.offsets)
    counts[place[old.groups :], 1] = np.diff(new.offsets)
    bounds = np.concatenate(([0], np.cumsum(counts.ravel())))
    offsets = np.stack([bounds[0:-1:2], bounds[1::2], bounds[2::2]], axis=1)
    # For every key first the old rows, then the new.
    key_of_row = np.concatenate([place[: old.groups][old.group], place[old.groups :][new.group]])
    order = np.lexsort((np.repeat([0, 1], [len(old), len(new)]), key_of_row))
    ref, lo, hi = (
        np.concatenate([getattr(side, name) for side in sides])[order] for name in ("ref", "lo", "hi")
    )
    cells = align(ref, lo, hi, offsets, outer=True)
    source = np.append(order, -1)[cells.index]  # -1 picks the appended -1
    left, right = source[:, 0], source[:, 1]
    return cells, left, np.where(right >= 0, right - len(old), -1)


def same_cells(
    old: Relation, new: Relation, cells: Cells, left: IntArray, right: IntArray, both: IntArray
) -> BoolArray:
    """Test whether rows ``left`` of the old and ``right`` of the new agree in the cells ``both``."""
    a, b = left[both], right[both]
    same = old.certainty[a] == new.certainty[b]
    reach = np.maximum(np.abs(cells.lo[both]), np.abs(cells.hi[both]))
    at = Cells(
        np.array([0, len(both)]), cells.ref[both], cells.lo[both], cells.hi[both], np.stack([a, b], axis=1)
    )
    for name in old.columns.modelled:
        c, d = (
            coefficients_at(at, 0, old.ref, old.models[name]),
            coefficients_at(at, 1, new.ref, new.models[name]),
        )
        width = max(c.shape[1], d.shape[1])
        c, d = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (c, d))
        powers = reach[:, None] ** np.arange(width)
        size = (np.abs(c) * powers).sum(axis=1) + (np.abs(d) * powers).sum(axis=1)
        same &= np.asarray((np.abs(c - d) * powers).sum(axis=1) <= TOLERANCE * size)
        same &= same_bounds(old.err[name][a], new.err[name][b], size)
    for name in old.columns.unmodelled_names:
        one, other = old.unmodelled[name].take(pa.array(a)), new.unmodelled[name].take(pa.array(b))
        same &= _equal(one, other)
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


def _equal(a: pa.Array, b: pa.Array) -> BoolArray:
    import pyarrow.compute as pc

    equal = pc.fill_null(pc.equal(a, b), False)
    neither = pc.and_(pc.is_null(a), pc.is_null(b))
    found: BoolArray = pc.or_(equal, neither).to_numpy(zero_copy_only=False)
    return found


def _rows(relation: Relation, rows: IntArray, cells: Cells, chosen: IntArray) -> pa.Table:
    """Cut rows to their cells, keeping their own references, so that old rows can be recognised."""
    by = (cells.ref[chosen] - relation.ref[rows]) / 1e6
    lo, hi = cells.lo[chosen] + by, cells.hi[chosen] + by
    lo, hi = np.maximum(lo, relation.lo[rows]), np.minimum(hi, relation.hi[rows])
    order = np.argsort(rows, kind="stable")
    taken = relation.take(rows[order], lo=lo[order], hi=np.maximum(hi, lo)[order])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches([taken.to_segments()]).take(pa.array(back))
