"""Find the newest time among arriving tuples, which is the event time of all partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pulse.core.time import LIMIT

if TYPE_CHECKING:
    from pulse.runtime.predict.spec import Predictor

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def newest_time(column: pa.ChunkedArray | pa.Array) -> int | None:
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


def newest(
    tables: Mapping[str, pa.Table | pa.RecordBatch], predictor: Predictor, before: int | None
) -> int | None:
    """The newest event time, in microseconds, of these tuples and of those before.

    Times out of range do not count: their tuples are set aside, and must not move the watermark.
    """
    for stream, table in tables.items():
        at = newest_time(table.column(predictor.specs[stream].schema.time))
        if at is not None:
            before = at if before is None else max(before, at)
    return before
