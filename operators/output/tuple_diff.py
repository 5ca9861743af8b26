"""Compute the changes that turn old result tuples into corrected ones (semantics 7.4).

1. Tuples are identified by their keys and time. A tuple that is equal on both sides is left out; one that differs
   is replaced, ``-U`` directly followed by ``+U``; one that exists only in the old or only in the new results
   becomes ``-D`` or ``+I``.
2. Error. A bound that changed by more than the rounding of its value, or a certainty that changed, is a change.
3. Inversion. Not applicable: it compares results.
4. Revision. This operator emits revisions, window by window.
5. Accents pass earlier: both sides have the same attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.arrow_types import one_chunk
from pulse.core.keys import key_ranks
from pulse.core.schema import BOOKKEEPING
from pulse.operators.output.diff import TOLERANCE, same_bounds, same_values


def tuple_difference(old: pa.Table, new: pa.Table, keys: Sequence[str], time: str) -> pa.Table:
    """Return the changes from ``old`` to ``new`` with ``kind``, by key and time; neither table repeats a key and time."""
    whole = pa.concat_tables([old, new.cast(old.schema)]).combine_chunks()
    n = old.num_rows
    ranks = key_ranks([one_chunk(whole.column(name)) for name in (*keys, time)], whole.num_rows)
    order = np.argsort(ranks, kind="stable")  # stable: an old tuple precedes the new one of its key and time
    ranked = ranks[order]
    pair = np.flatnonzero(ranked[1:] == ranked[:-1])
    first, second = order[pair], order[pair + 1]
    same = _same(whole, [name for name in old.column_names if name not in (*keys, time)], first, second)
    kind = np.where(np.arange(whole.num_rows) < n, "-D", "+I").astype(object)
    kind[first], kind[second] = "-U", "+U"
    changed = np.ones(whole.num_rows, bool)
    changed[first[same]] = changed[second[same]] = False
    rows = order[changed[order]]
    column = pa.array(kind[rows], BOOKKEEPING["kind"])
    return whole.take(pa.array(rows)).append_column("kind", column)


def _same(table: pa.Table, names: Sequence[str], first: IntArray, second: IntArray) -> BoolArray:
    """Find pairs of rows that are equal, numbers up to rounding."""
    same = np.ones(len(first), bool)
    for name in names:
        column = one_chunk(table.column(name))
        one, other = column.take(pa.array(first)), column.take(pa.array(second))
        if pa.types.is_floating(column.type):
            a, b = (x.to_numpy(zero_copy_only=False) for x in (one, other))
            of = name.removesuffix("_err")
            if of != name and of in names and pa.types.is_floating(table.schema.field(of).type):
                values = one_chunk(table.column(of)).to_numpy(zero_copy_only=False)
                same &= same_bounds(a, b, np.abs(values[first]) + np.abs(values[second]))
            else:
                same &= (a == b) | (np.abs(a - b) <= TOLERANCE * (np.abs(a) + np.abs(b)))
        else:
            same &= same_values(one, other)
    return same
