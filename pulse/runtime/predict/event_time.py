"""Find the newest time among arriving tuples, which is the event time of all partitions."""

from __future__ import annotations

import pyarrow as pa

from pulse.core.time import LIMIT

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def newest_time(column: pa.ChunkedArray) -> int | None:
    """The newest of these times in microseconds, without nulls and times out of range; None if none is left."""
    times = column.drop_null()
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
    whole = times.cast(pa.int64()).to_numpy()
    per = _PER_SECOND[times.type.unit]
    if per <= 10**6:
        limit = LIMIT // 1_000_000 * per
        whole = whole[(whole <= limit) & (whole >= -limit)]
    return int(whole.max()) * 1_000_000 // per if len(whole) else None
