"""Changes of results as tuples: what each closing time said and says now (semantics 3.8, 7.4).

Old and new rows are sampled at the same instants, so that a result that changed is a ``-U`` and its ``+U``; one that crossed a
predicate is a ``-D`` or a ``+I``; what is the same, to :data:`~pulse.operators.difference.TOLERANCE`, is not said.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.keys import key_ranks
from pulse.core.schema import BOOKKEEPING
from pulse.operators.difference import TOLERANCE
from pulse.operators.relation import Relation
from pulse.operators.sample import sample, to_tuples
from pulse.plan.nodes import PlanError
from pulse.plan.query import Query


def tuple_changes(old: Relation, new: Relation, query: Query, rate: int | None = None) -> pa.Table:
    """The rows of a changelog: time, selected columns, bounds, certainty, and ``kind``; by key and time."""
    every = query.rate if rate is None else rate
    if every is None:
        raise PlanError(
            "revisions as tuples need a rate: no window advances; add SAMPLE EVERY, or give a rate"
        )
    was, now = (
        pa.Table.from_batches([to_tuples(sample(one.merged(), every), query.select, possible=query.possible)])
        for one in (old, new)
    )
    both = pa.concat_tables([was, now]).combine_chunks()
    n = both.num_rows
    names = [both.schema.field(0).name, *(name for name in query.select if name in old.columns.key_names)]
    columns = [both.column(name).combine_chunks() for name in (*names[1:], names[0])]
    ranks = key_ranks(columns, n)
    side = np.repeat([0, 1], [was.num_rows, now.num_rows])
    order = np.lexsort((side, ranks))
    ranks, side = ranks[order], side[order]
    both = both.take(pa.array(order))
    pairs = np.flatnonzero((ranks[1:] == ranks[:-1]) & (side[1:] > side[:-1]))
    kinds = np.where(side == 0, "-D", "+I").astype(object)
    kinds[pairs], kinds[pairs + 1] = "-U", "+U"
    kept = np.ones(n, bool)
    same = pairs[_same(both, pairs)]
    kept[same] = kept[same + 1] = False
    told = both.append_column("kind", pa.array(kinds, BOOKKEEPING["kind"]))
    return told.filter(pa.array(kept))


def _same(table: pa.Table, rows: np.ndarray) -> BoolArray:
    """Which of these rows say what the row after them says."""
    same: BoolArray = np.ones(len(rows), bool)
    first, second = table.take(pa.array(rows)), table.take(pa.array(rows + 1))
    for name in table.column_names:
        a, b = first.column(name), second.column(name)
        if pa.types.is_floating(a.type):
            x, y = (one.to_numpy(zero_copy_only=False) for one in (a, b))
            same &= np.abs(x - y) <= TOLERANCE * (np.abs(x) + np.abs(y))
        else:
            equal = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
            same &= equal.to_numpy(zero_copy_only=False)
    return same
