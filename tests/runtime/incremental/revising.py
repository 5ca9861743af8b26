"""Streams to fit and revise: what the tests of revised models share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pulse
from pulse.core.segment.batch import SegmentBatch
from pulse.runtime.revise.driver import spec_of
from pulse.store.model import Model
from tests.certificates import problems

START = 1_600_000_000_000_000


def stream(n: int, *, keys: int = 3, seed: int = 0, every: float = 1.0, start: int = START) -> pa.Table:
    """Prices that wander, some at equal instants, in order of time."""
    random = np.random.default_rng(seed)
    steps = (random.integers(0, 5, n) * every * 1e6).astype(np.int64)
    prices = 100 + np.round(np.cumsum(random.normal(0, 0.1, n)), 2)
    return pa.table(
        {
            "symbol": pa.array([f"k{i}" for i in random.integers(0, keys, n)], pa.string()),
            "t": pa.array(start + np.cumsum(steps)).cast(pa.timestamp("us")),
            "price": prices,
        }
    )


def fitted(
    folder: Path, tuples: pa.Table, *, truth: str = "step", session: Any = None, **asked: Any
) -> Model:
    """A model of tuples that lie in a file beside it, so that they are its history."""
    file = folder / "tuples.parquet"
    if not file.exists():
        pq.write_table(tuples, file, row_group_size=max(tuples.num_rows // 3, 1))
    session = session or pulse.Session(engine="local")
    key = "symbol" if "symbol" in tuples.column_names else None
    return session.fit(str(file), model={"price": truth}, key=key, time="t", out=folder / "model", **asked)


def wrong(corrected: pa.Table, model: Model) -> list[str]:
    """What is wrong with a model of these tuples.

    That it certifies no drift where none was asked is not, nor that a relative bound is missed where the truth shrank, if that
    was reported: what is certified is true all the same.
    """
    found = problems(corrected, model.read(), spec_of(model))
    asked = any(bound is not None for bound in spec_of(model).drift)
    missed = sum(change.get("counts", {}).get("missed", 0) for change in model.manifest.changes)
    return [
        one
        for one in found
        if (asked or "unknown drift" not in one)
        and not (missed and ("than asked" in one or "than was asked" in one))
    ]


def rows(batch: SegmentBatch) -> list[tuple[Any, ...]]:
    """Segments as plain rows."""
    table = pa.Table.from_batches([batch.sort().to_arrow()])
    names: Sequence[str] = batch.schema.arrow_schema().names
    return list(zip(*(_plain(table.column(name)) for name in names), strict=True))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in column.to_pylist()]
