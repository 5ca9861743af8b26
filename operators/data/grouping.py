"""Groups made anew, side by side, and rows written about their own start: what aggregates across keys share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.instants import split
from pulse.core.keys import key_ranks
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.operators.data.relation import Relation

FAR = 1000.0  # lengths from the reference: what a product loses there is a millionth of what floats can tell
_ULPS = 4 * float(np.finfo(np.float64).eps)


class Regrouped(NamedTuple):
    """``relation`` has the input's groups in another order: output group ``g`` is made of ``groups[g]:groups[g + 1]``."""

    relation: Relation
    keys: tuple[pa.Array, ...]
    groups: IntArray


def regroup(relation: Relation, by: Sequence[str]) -> Regrouped:
    """The groups that share ``by``, side by side, in the order of its values. Of no columns: all are one group."""
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
    """Key columns of ``by``, and what is made."""
    key = tuple((n, type_) for n, type_ in before.key if n in by)
    return Columns(key, modelled, (), before.time, before.points)


def placed(
    relation: Relation,
    rows: IntArray,
    span: tuple[FloatArray, FloatArray],
    keys: tuple[pa.Array, ...],
    offsets: IntArray,
) -> Relation:
    """Rows in any order, in groups of their own, on other ranges; the drift is lost."""
    lo, hi = span
    return replace(
        relation,
        keys=keys,
        offsets=offsets,
        ref=relation.ref[rows],
        lo=lo,
        hi=hi,
        models={name: c[rows] for name, c in relation.models.items()},
        err={name: values[rows] for name, values in relation.err.items()},
        drift={},
        certainty=relation.certainty[rows],
        unmodelled={name: column.take(pa.array(rows)) for name, column in relation.unmodelled.items()},
        lineage=None if relation.lineage is None else relation.lineage.take(rows),
    )


def about_own_start(ref: IntArray, lo: FloatArray, hi: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """The same ranges, those that lie far from their reference, for their length, about their own start.

    Sums and products about a far reference have terms that all but cancel. Ends that are whole microseconds but for the
    rounding of a far offset become just that: beside a neighbour that was not moved no hole must show.
    """
    reach = np.maximum(np.abs(lo), np.abs(hi))
    far = (reach > FAR * (hi - lo)) & (reach > GRAIN * FAR)
    if not far.any():
        return ref, lo, hi
    slack = 0.5 * GRAIN + _ULPS * reach  # the other half is left to whoever aligned them
    (start, first), (end, last) = split(ref, lo), split(ref, hi)
    first = np.where(np.abs(first) <= slack, 0.0, first)
    last = np.where(np.abs(last) <= slack, 0.0, last)
    last = np.where(lo == hi, first, (end - start) / MICROSECONDS + last)
    return np.where(far, start, ref), np.where(far, first, lo), np.where(far, last, hi)
