"""Batches of trades for the tests of segments."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch

SCHEMA = StreamSchema.of(
    key={"symbol": pa.string()}, time="t", modelled={"price": "step"}, unmodelled={"size": pa.int64()}
)


def batch_of(arrays, *, at_rest=True):
    """The batch of a :class:`tests.strategies.SegmentArrays`; a batch is itself."""
    if isinstance(arrays, SegmentBatch):
        return arrays
    offsets = np.cumsum([0, *map(len, arrays.models)])
    return SegmentBatch.from_arrays(
        SCHEMA,
        keys={"symbol": arrays.keys},
        ref=np.array(arrays.ref, dtype=np.int64),
        lo=np.array(arrays.lo, dtype=np.float64),
        hi=np.array(arrays.hi, dtype=np.float64),
        models={"price": (np.array([c for row in arrays.models for c in row], dtype=np.float64), offsets)},
        err={"price": arrays.err},
        drift={"price": arrays.drift},
        unmodelled={"size": arrays.size},
        at_rest=at_rest,
    )


def simple(rows, *, at_rest=True, **more):
    """A batch from (key, start s, end s, coefficients) rows, references at the epoch, or (…, ref us) rows."""
    return SegmentBatch.from_arrays(
        SCHEMA,
        keys={"symbol": [row[0] for row in rows]},
        ref=[row[4] if len(row) > 4 else 0 for row in rows],
        lo=[float(row[1]) for row in rows],
        hi=[float(row[2]) for row in rows],
        models={"price": pa.array([[float(c) for c in row[3]] for row in rows], pa.list_(pa.float64()))},
        err={"price": 0.0},
        unmodelled={"size": None},
        at_rest=at_rest,
        **more,
    )
