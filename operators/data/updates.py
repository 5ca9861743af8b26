"""Apply arriving segments to a relation at rest: later ones truncate earlier ones (semantics 1.4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.certainty import ABSENT
from pulse.core.instants import ceil_microsecond, floor_microsecond
from pulse.core.keys import key_ranks
from pulse.core.segment.order import Ranges
from pulse.core.segment.updates import truncate_overlaps
from pulse.operators.data.relation import Relation

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


def in_other(relation: Relation, other: Relation) -> BoolArray:
    """Tell which groups of a relation have a key that also occurs in the other."""
    if not relation.keys:
        return np.full(relation.groups, other.groups > 0)
    return keys_in(relation.keys, other.keys)


def keys_in(keys: tuple[pa.Array, ...], among: tuple[pa.Array, ...]) -> BoolArray:
    """Tell which keys occur among others; a stream without key columns has one key."""
    if not keys:
        return np.ones(1, bool)
    n, m = len(keys[0]), len(among[0])
    joined = [pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(keys, among, strict=True)]
    ranks = key_ranks(joined, n + m)
    found: BoolArray = np.isin(ranks[:n], ranks[n:])
    return found


def ending_after(relation: Relation, instant: int) -> Relation:
    """Select the rows that end at an instant or later."""
    return relation.take(np.flatnonzero(ends(relation) >= instant))


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
