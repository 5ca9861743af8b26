"""Regroup relations by fewer key columns and move rows to references of their own, for aggregates across keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.instants import split
from pulse.core.keys import key_ranks
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.operators.data.relation import Relation

FAR = 1000.0  # in lengths of a row: a product about a reference that far away loses six digits
_ULPS = 4 * float(np.finfo(np.float64).eps)


class Regrouped(NamedTuple):
    """A relation with its groups reordered: output group ``g`` consists of the input groups ``groups[g]:groups[g + 1]``."""

    relation: Relation
    keys: tuple[pa.Array, ...]
    groups: IntArray


def regroup(relation: Relation, by: Sequence[str]) -> Regrouped:
    """Bring groups with equal values of ``by`` together, in the order of those values; without columns all form one group."""
    names = relation.columns.key_names
    shared = [relation.keys[names.index(name)] for name in names if name in by]
    if not shared:
        return Regrouped(relation, (), np.array([0, relation.groups], np.int64))
    ranks = key_ranks(shared, relation.groups)
    order = np.argsort(ranks, kind="stable")
    _, first, counts = np.unique(ranks, return_index=True, return_counts=True)
    ordered = relation if (np.diff(order) == 1).all() else relation.select_groups(order)
    groups = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Regrouped(ordered, tuple(column.take(pa.array(first)) for column in shared), groups)


def columns_by(before: Columns, by: Sequence[str], modelled: tuple[str, ...]) -> Columns:
    """Return the columns of an aggregate: the key columns in ``by`` and the modelled attributes."""
    key = tuple((n, type_) for n, type_ in before.key if n in by)
    return Columns(key, modelled, (), before.time, before.points)


def about_own_start(
    ref: IntArray, lo: FloatArray, hi: FloatArray, *, all_rows: bool = False
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Move ranges that lie far from their reference, relative to their length, or all, to a reference at their own start.

    Sums and products about a far reference have terms that nearly cancel. Ends that are whole microseconds except for the
    rounding of a far offset become exact, so that no hole opens beside a neighbour that was not moved.
    """
    reach = np.maximum(np.abs(lo), np.abs(hi))
    far = np.abs(lo) > GRAIN if all_rows else (reach > FAR * (hi - lo)) & (reach > GRAIN * FAR)
    if not far.any():
        return ref, lo, hi
    slack = 0.5 * GRAIN + _ULPS * reach  # aligning may have used the other half of a grain
    (start, first), (end, last) = split(ref, lo), split(ref, hi)
    first = np.where(np.abs(first) <= slack, 0.0, first)
    last = np.where(np.abs(last) <= slack, 0.0, last)
    last = np.where(lo == hi, first, (end - start) / MICROSECONDS + last)
    return np.where(far, start, ref), np.where(far, first, lo), np.where(far, last, hi)
