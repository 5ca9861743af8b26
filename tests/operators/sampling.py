"""Small relations and samples for the tests of what works on samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples

SECOND = 1_000_000


def relation(groups, *, prefix="", keys=None, unmodelled=None, drift=None):
    """Rows ``(begin, end, coefficients, err, certainty)`` per key, in seconds since the epoch, one attribute ``x``."""
    rows = [row for group in groups.values() for row in group]
    k = max([len(row[2]) for row in rows], default=1)
    c = np.array([[*row[2], *[0.0] * (k - len(row[2]))] for row in rows], float).reshape(-1, k)
    size = [("size", pa.int64())] if unmodelled is not None else []
    columns = Columns(
        () if keys is None and list(groups) == [None] else (("id", pa.string()),), ("x",), tuple(size)
    )
    if prefix:
        columns = columns.prefixed(prefix)
    name = columns.modelled[0]
    return Relation(
        columns=columns,
        keys=(pa.array(list(groups), pa.string()),) if columns.key else (),
        offsets=np.cumsum([0, *(len(group) for group in groups.values())]),
        ref=np.array([round(row[0] * SECOND) for row in rows], np.int64),
        lo=np.zeros(len(rows)),
        hi=np.array([row[1] - row[0] for row in rows], float),
        models={name: c},
        err={name: np.array([row[3] for row in rows], float)},
        drift={} if drift is None else {name: np.array(drift, float)},
        certainty=np.array([row[4] for row in rows], np.uint8),
        unmodelled={}
        if unmodelled is None
        else {columns.unmodelled_names[0]: pa.array(unmodelled, pa.int64())},
    )


def samples(columns, keys, stretches, values, err, certainty, *, every=SECOND, unmodelled=None):
    """``stretches`` are (group, first, count)."""
    return Samples(
        columns=columns,
        keys=keys,
        group=np.array([one[0] for one in stretches], np.int64),
        first=np.array([one[1] for one in stretches], np.int64),
        offsets=np.cumsum([0, *(one[2] for one in stretches)]),
        every=every,
        values={name: np.asarray(x, float) for name, x in values.items()},
        err={name: np.asarray(x, float) for name, x in err.items()},
        certainty=np.asarray(certainty, np.uint8),
        unmodelled=unmodelled or {},
    )


def line(values, err=0.0, certainty=3, **others):
    """Samples of one key ``"k"`` from the epoch on, one attribute ``x`` and others with no error unless given as pairs."""
    n = len(values)
    numbers = {"x": (values, err)} | {
        name: one if isinstance(one, tuple) else (one, 0.0) for name, one in others.items()
    }
    full = {
        name: (np.broadcast_to(v, n).astype(float), np.broadcast_to(e, n).astype(float))
        for name, (v, e) in numbers.items()
    }
    return samples(
        Columns((("id", pa.string()),), tuple(full)),
        (pa.array(["k"]),),
        [(0, 0, n)],
        {name: v for name, (v, _) in full.items()},
        {name: e for name, (_, e) in full.items()},
        np.broadcast_to(certainty, n),
    )
