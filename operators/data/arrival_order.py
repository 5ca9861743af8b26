"""Sort the tuples of a table or frame, which has no arrival order, by key and time.

Rows of one key and instant keep the order of the table, since the last of them rules (semantics 2.5). A table whose times never
decrease, over all rows or within each key, stays as it is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import StreamSchema
from pulse.kernels.counting_sort import group
from pulse.operators.data.tuple_columns import check_columns, encode_keys, times


def sorted_by_key_and_time(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Sort tuples by key and time, stably; return a table as it is if no tuple is earlier than its predecessor of the same key.

    >>> schema = StreamSchema.of(time="t", modelled={"x": "step"})
    >>> table = pa.table({"t": pa.array([2, 1, 2], pa.timestamp("us")), "x": [1.0, 2.0, 3.0]})
    >>> sorted_by_key_and_time(table, schema).column("x").to_pylist()
    [2.0, 1.0, 3.0]
    """
    check_columns(table.schema, schema, "tuples")
    t = times(table, schema)[0]
    if _ascends(t):
        return table
    encoded = encode_keys(table, schema)
    order, offsets = group(encoded.codes, len(encoded.keys))
    grouped = t if order is None else t.take(order)
    if _ascends(grouped, offsets):
        return table
    code = np.repeat(np.arange(len(encoded.keys)), np.diff(offsets))
    within = np.lexsort((grouped, code))  # lexsort is stable
    return table.take(pa.array(within if order is None else order.take(within)))


def _ascends(t: IntArray, offsets: IntArray | None = None) -> bool:
    """Test whether times never decrease within a group."""
    falls = t[1:] < t[:-1]
    if offsets is not None:
        inner = offsets[1:-1]
        falls[inner[(inner > 0) & (inner < len(t))] - 1] = False
    return not bool(falls.any())
