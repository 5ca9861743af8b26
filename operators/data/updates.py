"""Keep the segments of a stream at rest, by key and time: apply updates and corrections, clip, and drop what is over.

A stream at rest is a relation without overlaps per key (semantics 1.4). All functions return a new one, so that an earlier state
stays valid. Predictive jobs hold their streams, results, cells and histories in this form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import ABSENT
from pulse.core.instants import ceil_microsecond, floor_microsecond
from pulse.core.keys import key_ranks
from pulse.core.segment.order import Ranges
from pulse.core.segment.updates import truncate_overlaps
from pulse.core.time import EARLIEST, LATEST
from pulse.kernels.instants import GRAIN
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import positions

ENDLESS = 1e10
"""Seconds: a segment at least as long as this has no end."""


def apply_updates(held: Relation, updates: Relation, *, voids: bool = False) -> tuple[Relation, BoolArray]:
    """Apply updates to a stream at rest; return the result and which of its keys the updates concern.

    An update that is :data:`ABSENT` ends the segment before it. Only with ``voids`` does it stay itself: it marks from when on
    a key has no model or, if it has no end (:data:`ENDLESS`), that the key is over.
    """
    whole = Relation.concat([held, updates])
    names = list(whole.keys)
    ranks = key_ranks(names, whole.groups)
    of_row = ranks[whole.group] if names else np.zeros(len(whole), np.int64)
    keep, hi = truncate_overlaps(Ranges(of_row, whole.ref, whole.lo, whole.hi))
    keep &= (hi > whole.lo) | (whole.lo == whole.hi)
    rows = np.flatnonzero(keep if voids else keep & (whole.certainty != ABSENT))
    rest = whole.take(rows, hi=hi[rows]).merged().without_empty_groups()
    return rest, in_other(rest, updates)


def is_over(relation: Relation) -> BoolArray:
    """Tell which rows mark their key as over."""
    found: BoolArray = (relation.certainty == ABSENT) & (relation.hi - relation.lo >= ENDLESS)
    return found


def replaced(
    held: Relation, keys: tuple[pa.Array, ...], start: IntArray, new: Relation, *, voids: bool = False
) -> Relation:
    """Replace the segments of some keys from ``start`` on; ``voids`` also keeps absent ones."""
    place = positions(held.keys, keys, held.groups, len(start))
    until = np.append(start, LATEST)[place]
    rest = clip_groups(held, np.full(held.groups, EARLIEST), until)
    return apply_updates(rest, new, voids=voids)[0]


def clip(relation: Relation, begin: int, end: int) -> Relation:
    """Cut a relation to ``[begin, end)`` microseconds; groups without rows are left out."""
    rows = np.arange(len(relation))
    lo, hi, keep = cut_rows(relation, rows, np.full(len(rows), begin), np.full(len(rows), end))
    return relation.take(rows[keep], lo=lo[keep], hi=hi[keep]).without_empty_groups()


def clip_groups(relation: Relation, begin: IntArray, end: IntArray) -> Relation:
    """Cut each group to its own range, as :func:`clip`."""
    rows, group = np.arange(len(relation)), relation.group
    lo, hi, keep = cut_rows(relation, rows, begin[group], end[group])
    return relation.take(rows[keep], lo=lo[keep], hi=hi[keep]).without_empty_groups()


def cut_rows(
    relation: Relation, rows: IntArray, begin: IntArray, end: IntArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Cut rows to ``[begin, end)`` microseconds; return ``lo``, ``hi``, and whether anything is left.

    A sliver shorter than the time resolution that a cut leaves is dropped; a row that short before stays.
    """
    start, stop = (begin - relation.ref[rows]) / 1e6, (end - relation.ref[rows]) / 1e6
    lo, hi = relation.lo[rows], relation.hi[rows]
    whole = (start <= lo) & (hi <= stop) & (lo < stop)
    new_lo, new_hi = np.maximum(lo, start), np.minimum(hi, stop)
    keep: BoolArray = whole | (new_hi - new_lo > GRAIN)
    return new_lo, new_hi, keep


def ending_after(relation: Relation, instants: int | IntArray, *, newest: bool = False) -> Relation:
    """Drop the rows that end before an instant, or before that of their group.

    A mark that a key is over has no end: its begin counts. With ``newest`` the last row of each group stays, which marks from
    when on its key is unknown, unless the key is over.
    """
    over = is_over(relation)
    least = np.broadcast_to(instants, relation.groups)[relation.group]
    stays = np.where(over, begins(relation), ends(relation)) >= least
    if newest and len(relation):
        last = relation.without_empty_groups().offsets[1:] - 1
        stays[last[~over[last]]] = True
    return relation.take(np.flatnonzero(stays)).without_empty_groups()


def present(relation: Relation) -> Relation:
    """Drop rows of times in which a key is unknown or over."""
    absent = relation.certainty == ABSENT
    return relation.take(np.flatnonzero(~absent)).without_empty_groups() if absent.any() else relation


def in_other(relation: Relation, other: Relation) -> BoolArray:
    """Tell which groups of a relation have a key that also occurs in the other."""
    if not relation.keys:
        return np.full(relation.groups, other.groups > 0)
    return keys_in(relation.keys, other.keys)


def keys_in(keys: tuple[pa.Array, ...], among: tuple[pa.Array, ...]) -> BoolArray:
    """Tell which keys occur among others; a stream without key columns has one key."""
    if not keys:
        return np.ones(1, bool)
    return positions(keys, among, len(keys[0]), len(among[0])) >= 0


def group_keys(relation: Relation) -> list[tuple[Any, ...]]:
    """Return the key of each group as Python values."""
    if not relation.keys:
        return [()] * relation.groups
    return list(zip(*(column.to_pylist() for column in relation.keys), strict=True))


def first_begins(relation: Relation) -> tuple[tuple[pa.Array, ...], IntArray]:
    """Return the keys that have rows, and when the first row of each begins."""
    some = relation.without_empty_groups()
    return some.keys, np.minimum.reduceat(begins(some), some.offsets[:-1])


def begins(relation: Relation) -> IntArray:
    """Return when each row begins, in microseconds, rounded down."""
    return floor_microsecond(relation.ref, relation.lo)


def ends(relation: Relation) -> IntArray:
    """Return when each row ends, in microseconds, rounded up."""
    return ceil_microsecond(relation.ref, relation.hi)


def extents(relation: Relation) -> tuple[IntArray, IntArray]:
    """Return the whole microseconds that enclose each row; a point lasts one."""
    start = begins(relation)
    return start, np.maximum(ends(relation), start + 1)
