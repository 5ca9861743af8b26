"""Convert changes of results to tuples: the old and new value at each closing time (semantics 3.8, 7.4).

Old and new rows are sampled at the same instants, so that a changed result gives a ``-U`` and its ``+U``; one that crossed a
predicate a ``-D`` or a ``+I``; results equal to :data:`~pulse.operators.output.diff.TOLERANCE` give none.
"""

from __future__ import annotations

import pyarrow as pa

from pulse.operators.data.relation import Relation
from pulse.operators.output.sampling import sample, to_tuples
from pulse.operators.output.tuple_diff import tuple_difference
from pulse.plan.nodes import PlanError
from pulse.plan.query import Query


def tuple_changes(old: Relation, new: Relation, query: Query, rate: int | None = None) -> pa.Table:
    """Return changelog rows by key and time: time, selected columns, bounds, certainty, and ``kind``."""
    every = query.rate if rate is None else rate
    if every is None:
        instead = "give a rate" if query.plan.columns.points else "add SAMPLE EVERY, or give a rate"
        raise PlanError(f"revisions as tuples need a rate: no window advances; {instead}")
    was, now = (
        pa.Table.from_batches([to_tuples(sample(one.merged(), every), query.select, possible=query.possible)])
        for one in (old, new)
    )
    keys = [name for name in query.select if name in old.columns.key_names]
    return tuple_difference(was, now, keys, was.schema.field(0).name)
