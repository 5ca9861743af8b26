"""Tuples held in memory read as the history does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.regions import Regions
from pulse.runtime.revise.key_cache import TupleMemory
from pulse.store.tuples.tuple_history import TupleHistory
from tests.effort import examples
from tests.runtime.incremental.revising import START, fitted, stream


@examples(15)
@given(
    seed=st.integers(0, 10**6),
    ranges=st.lists(st.tuples(st.integers(-5, 80), st.integers(0, 20)), min_size=1),
)
def test_memory_reads_as_the_history_does(seed: int, ranges: list[tuple[int, int]]) -> None:
    tuples = stream(40, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder), tuples, error=0.1)
        load = generate_load(tuples, model.schema, revisions=10, seed=seed)
        history = TupleHistory(model)
        memory = TupleMemory(history, load.revisions)
        start = START + 1_000_000 * np.array([one[0] for one in ranges])
        keys = load.revisions.keys[0]
        named = keys.take(pa.array(np.arange(len(ranges)) % len(keys)))
        regions = Regions((named,), start, start + 1_000_000 * np.array([one[1] for one in ranges]))
        for more in (None, load.revisions):
            if more is not None:
                history = history.after(more.table)
                memory.apply(more)
            assert memory.read(regions).to_pylist() == history.read(regions.merged()).to_pylist()
