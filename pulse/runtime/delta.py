"""What a revision changes on an arc, and what has to be known around it: the words of revision processing.

Keys of an arc go by number (its **codes**). A **stretch** is a code and a range of time. What an arc holds around stretches,
before and after a revision, is its **content**; the rows that are no longer the same are its **delta**. Both are row ranges of one
relation, so that an operator works on old and new in one pass::

    relation   | rows of stretch 0 before | after | rows of stretch 1, the same before and after | …

Rows are whole wherever they can be: a row that a region cuts through would be bounded anew, and tell of changes that are none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import gaps, tolerances
from pulse.core.regions import EARLIEST, LATEST, Regions
from pulse.kernels.polynomial import taylor_shift
from pulse.kernels.regions import merge_ranges
from pulse.operators.difference import TOLERANCE
from pulse.operators.relation import Relation

GRACE = 2
"""Microseconds that are read around what is needed: ends of rows are real numbers, regions whole microseconds."""


@dataclass(frozen=True, eq=False)
class Changed:
    """A revision of an arc: all it holds in these regions, before and after. Rows lie within the regions."""

    regions: Regions
    old: Relation
    new: Relation


@dataclass(frozen=True, eq=False)
class Stretches:
    """Ranges ``[start, end)`` (microseconds) of keys, by their codes."""

    code: IntArray
    start: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: IntArray | BoolArray) -> Stretches:
        """These."""
        return Stretches(self.code[rows], self.start[rows], self.end[rows])

    def widened(self, before: int, after: int) -> Stretches:
        """Each longer at its ends."""
        if not (before or after):
            return self
        return Stretches(
            self.code,
            np.maximum(self.start, EARLIEST + before) - before,
            np.minimum(self.end, LATEST - after) + after,
        )

    def merged(self) -> Stretches:
        """By code and time, those that overlap or touch made one."""
        return Stretches(*merge_ranges(self.code, self.start, self.end))


@dataclass(frozen=True, eq=False)
class Content:
    """What an arc holds around stretches: of stretch ``s`` group ``before[s]`` of the relation, and after the revision ``after[s]``.

    Where both are one group nothing was revised. Every row that overlaps a stretch is there, whole; there may be more.
    """

    stretches: Stretches
    relation: Relation
    before: IntArray
    after: IntArray

    def within(self, relation: Relation) -> Content:
        """The same groups, of what an operator made of them."""
        return replace(self, relation=relation)


@dataclass(frozen=True, eq=False)
class Delta:
    """Rows that changed: in stretch ``s`` the rows ``old[s, 0]:old[s, 1]`` of the relation gave way to ``new[s, 0]:new[s, 1]``.

    Stretches ascend, do not overlap, and reach just over their rows. ``held`` are the places that the old rows have in
    the arc's connection point.
    """

    stretches: Stretches
    relation: Relation
    old: IntArray
    new: IntArray
    held: IntArray | None = None
    absorbed: int = 0  # stretches that were looked at and had not changed

    def __len__(self) -> int:
        return len(self.stretches)

    def content(self) -> Content:
        """The changed rows on their own, old and new groups by stretch: what an operator needs that knows no neighbours."""
        n = len(self)
        made = by_ranges(
            self.relation, np.concatenate([self.old, self.new]), np.concatenate([self._group] * 2)
        )
        return Content(self.stretches, made, np.arange(n), np.arange(n, 2 * n))

    @property
    def _group(self) -> IntArray:
        """The group in which a stretch's rows lie, for its key."""
        some = np.where(self.old[:, 1] > self.old[:, 0], self.old[:, 0], self.new[:, 0])
        return self.relation.group[some]

    @property
    def old_rows(self) -> Relation:
        """What was withdrawn, a group each stretch."""
        return by_ranges(self.relation, self.old, self._group)

    @property
    def new_rows(self) -> Relation:
        """What was put in its place, a group each stretch."""
        return by_ranges(self.relation, self.new, self._group)


def by_ranges(relation: Relation, ranges: IntArray, groups: IntArray) -> Relation:
    """The rows ``ranges[i, 0]:ranges[i, 1]`` as group ``i``, which has the key of ``groups[i]``."""
    rows, offsets = spelled(ranges)
    chosen = pa.array(groups)
    return relation._pick(rows, tuple(column.take(chosen) for column in relation.keys), offsets)


def spelled(ranges: IntArray) -> tuple[IntArray, IntArray]:
    """The numbers of all ranges one after the other, and where each begins among them.

    >>> [values.tolist() for values in spelled(np.array([[5, 7], [1, 1], [2, 4]]))]
    [[5, 6, 2, 3], [0, 2, 2, 4]]
    """
    counts = ranges[:, 1] - ranges[:, 0]
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return np.repeat(ranges[:, 0] - offsets[:-1], counts) + np.arange(offsets[-1]), offsets


def extents(relation: Relation) -> tuple[IntArray, IntArray]:
    """Where rows begin and end in whole microseconds, rounded outward; a point takes up one."""
    start = relation.ref + np.floor(relation.lo * 1e6).astype(np.int64)
    end = relation.ref + np.ceil(relation.hi * 1e6).astype(np.int64)
    return start, np.maximum(end, start + 1)


# -- which rows changed -----------------------------------------------------------------------------------------


def changed_rows(content: Content) -> Delta:
    """The rows of a content that are not the same before and after, in runs.

    Old and new rows of a stretch are matched by their place where they are as many, else from either end; rows that say the same of
    the same time, to :data:`~pulse.operators.difference.TOLERANCE`, have not changed.
    """
    relation = content.relation
    some = np.flatnonzero(content.before != content.after)
    offsets = relation.offsets
    b, a = content.before[some], content.after[some]
    old = np.stack([offsets[b], offsets[b + 1]], axis=1)
    new = np.stack([offsets[a], offsets[a + 1]], axis=1)
    same_count = (old[:, 1] - old[:, 0]) == (new[:, 1] - new[:, 0])
    if same_count.all():
        old, new, of = _unlike_runs(relation, old, new)
    else:
        even, odd = np.flatnonzero(same_count), np.flatnonzero(~same_count)
        runs = _unlike_runs(relation, old[even], new[even])
        trimmed = _trimmed(relation, old[odd], new[odd])
        old, new = np.concatenate([runs[0], trimmed[0]]), np.concatenate([runs[1], trimmed[1]])
        of = np.concatenate([even[runs[2]], odd])
    kept = (old[:, 1] > old[:, 0]) | (new[:, 1] > new[:, 0])
    old, new, of = old[kept], new[kept], of[kept]
    code = content.stretches.code[some[of]]
    start, end = hull(relation, old, new)
    absorbed = len(some) - len(np.unique(of))
    order = np.lexsort((start, code)) if len(code) > 1 else np.arange(len(code))
    found = Stretches(code[order], start[order], end[order])
    return Delta(found, relation, old[order], new[order], absorbed=absorbed)


def hull(relation: Relation, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray]:
    """Where the old and new rows of each stretch begin and end, in whole microseconds."""
    start, end = extents(relation)
    start, end = np.append(start, LATEST), np.append(end, EARLIEST)
    none = len(relation)

    def first(ranges: IntArray) -> IntArray:
        return np.where(ranges[:, 1] > ranges[:, 0], ranges[:, 0], none)

    def last(ranges: IntArray) -> IntArray:
        return np.where(ranges[:, 1] > ranges[:, 0], ranges[:, 1] - 1, none)

    return (
        np.minimum(start[first(old)], start[first(new)]),
        np.maximum(end[last(old)], end[last(new)]),
    )


def _unlike_runs(relation: Relation, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Runs of rows that differ from those at their place, and of which range each is."""
    a, offsets = spelled(old)
    b, _ = spelled(new)
    unlike = np.append(~same_rows(relation, a, b), False)
    # A run begins at an unlike row whose predecessor is alike or of another range.
    begins = unlike.copy()
    begins[1:] &= ~unlike[:-1]
    begins[offsets] = unlike[offsets]
    ends = unlike[:-1] & (begins[1:] | ~unlike[1:])
    first, last = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    of = np.searchsorted(offsets, first, "right") - 1
    shift_old, shift_new = old[of, 0] - offsets[of], new[of, 0] - offsets[of]
    return (
        np.stack([first + shift_old, last + shift_old], axis=1),
        np.stack([first + shift_new, last + shift_new], axis=1),
        of,
    )


def _trimmed(relation: Relation, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray]:
    """Each pair of ranges without the rows that are the same at either end."""
    old, new = old.copy(), new.copy()
    for i in range(len(old)):
        n = min(old[i, 1] - old[i, 0], new[i, 1] - new[i, 0])
        at = np.arange(n)
        alike = same_rows(relation, old[i, 0] + at, new[i, 0] + at)
        front = n if alike.all() else int(alike.argmin())
        old[i, 0] += front
        new[i, 0] += front
        at = np.arange(n - front)
        alike = same_rows(relation, old[i, 1] - 1 - at, new[i, 1] - 1 - at)
        back = len(at) if alike.all() else int(alike.argmin())
        old[i, 1] -= back
        new[i, 1] -= back
    return old, new


def same_rows(relation: Relation, a: IntArray, b: IntArray) -> BoolArray:
    """Whether rows ``a[i]`` and ``b[i]`` say the same of the same time: values, bounds, drift, certainty and unmodelled."""
    ref, lo, hi = relation.ref, relation.lo, relation.hi
    ref_a, ref_b, lo_a, hi_a = ref[a], ref[b], lo[a], hi[a]
    lo_b, hi_b = lo[b], hi[b]
    same: BoolArray = relation.certainty[a] == relation.certainty[b]
    moved = np.flatnonzero(ref_a != ref_b)
    if len(moved):
        same &= np.abs(gaps(ref_a, lo_a, ref_b, lo_b)) <= tolerances(ref_a, lo_a, ref_b, lo_b)
        same &= np.abs(gaps(ref_a, hi_a, ref_b, hi_b)) <= tolerances(ref_a, hi_a, ref_b, hi_b)
        same &= (lo_a == hi_a) == (lo_b == hi_b)
    else:
        slack = 1e-9 + 1e-15 * np.maximum(np.abs(lo_a), np.abs(hi_a))
        same &= (np.abs(lo_a - lo_b) <= slack) & (np.abs(hi_a - hi_b) <= slack)
        same &= (lo_a == hi_a) == (lo_b == hi_b)
    reach = np.maximum(np.abs(lo_a), np.abs(hi_a))
    for c in relation.models.values():
        same &= _same_polynomials(c[a], c[b], reach, (ref_a, ref_b, moved))
    for name in relation.err:
        same &= _close(relation.err[name][a], relation.err[name][b])
    for values in relation.drift.values():
        same &= _close(values[a], values[b])
    for column in relation.unmodelled.values():
        same &= _equal(column.take(pa.array(a)), column.take(pa.array(b)))
    return same


def _same_polynomials(
    c: FloatArray, d: FloatArray, reach: FloatArray, refs: tuple[IntArray, IntArray, IntArray]
) -> BoolArray:
    ref_a, ref_b, moved = refs
    if len(moved):
        d[moved] = taylor_shift(d[moved], (ref_a[moved] - ref_b[moved]) / 1e6)
    apart, size = np.abs(c[:, -1] - d[:, -1]), np.abs(c[:, -1]) + np.abs(d[:, -1])
    for j in range(c.shape[1] - 2, -1, -1):
        apart = apart * reach + np.abs(c[:, j] - d[:, j])
        size = size * reach + np.abs(c[:, j]) + np.abs(d[:, j])
    same: BoolArray = apart <= TOLERANCE * size
    return same


def _close(a: FloatArray, b: FloatArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        close: BoolArray = (a == b) | (np.abs(a - b) <= TOLERANCE * (np.abs(a) + np.abs(b)))
    return close & (np.isinf(a) == np.isinf(b))


def _equal(a: pa.Array, b: pa.Array) -> BoolArray:
    import pyarrow.compute as pc

    found: BoolArray = (
        pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
    ).to_numpy(zero_copy_only=False)
    return found
