"""Difference of tuples: what has to be said when results that were given as tuples are corrected (semantics 7.4).

1. Tuples are told by their keys and their time. One that is in both and says the same is not mentioned; one that says
   something else is replaced, ``-U`` and right behind it ``+U``; one that only the old, or only the new results have, is
   ``-D`` or ``+I``.
2. Error. A bound that changed by more than rounding of its value, or a certainty that changed, is a change.
3. Inversion. Does not take part: it compares results.
4. Revision. This is how revisions are emitted, window by window.
5. Accents pass before: both sides have the same attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.keys import key_ranks
from pulse.core.schema import BOOKKEEPING
from pulse.operators.output.diff import TOLERANCE, same_bounds


def tuple_difference(old: pa.Table, new: pa.Table, keys: Sequence[str], time: str) -> pa.Table:
    """What turns ``old`` into ``new``: their columns and ``kind``, by key and time; no table has two of one key and time."""
    whole = pa.concat_tables([old, new.cast(old.schema)]).combine_chunks()
    n = old.num_rows
    ranks = key_ranks([_one(whole, name) for name in (*keys, time)], whole.num_rows)
    order = np.argsort(ranks, kind="stable")  # an old one comes before the new one of its place
    ranked = ranks[order]
    pair = np.flatnonzero(ranked[1:] == ranked[:-1])
    first, second = order[pair], order[pair + 1]
    same = _same(whole, [name for name in old.column_names if name not in (*keys, time)], first, second)
    kind = np.where(np.arange(whole.num_rows) < n, "-D", "+I").astype(object)
    kind[first], kind[second] = "-U", "+U"
    said = np.ones(whole.num_rows, bool)
    said[first[same]] = said[second[same]] = False
    rows = order[said[order]]
    column = pa.array(kind[rows], BOOKKEEPING["kind"])
    return whole.take(pa.array(rows)).append_column("kind", column)


def _same(table: pa.Table, names: Sequence[str], first: IntArray, second: IntArray) -> BoolArray:
    """Which pairs of rows say the same: numbers but for rounding."""
    same = np.ones(len(first), bool)
    for name in names:
        column = _one(table, name)
        one, other = column.take(pa.array(first)), column.take(pa.array(second))
        if pa.types.is_floating(column.type):
            a, b = (x.to_numpy(zero_copy_only=False) for x in (one, other))
            of = name.removesuffix("_err")
            if of != name and of in names:
                values = _one(table, of).to_numpy(zero_copy_only=False)
                same &= same_bounds(a, b, np.abs(values[first]) + np.abs(values[second]))
            else:
                same &= (a == b) | (np.abs(a - b) <= TOLERANCE * (np.abs(a) + np.abs(b)))
        else:
            equal = pc.fill_null(pc.equal(one, other), False)
            neither = pc.and_(pc.is_null(one), pc.is_null(other))
            same &= pc.or_(equal, neither).to_numpy(zero_copy_only=False)
    return same


def _one(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )
