"""Generated loads: played back row by row they give what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.schema import StreamSchema
from pulse.datasets.errors import DatasetError

SCHEMA = StreamSchema.of(
    key={"symbol": "string"}, time="t", modelled={"price": "step"}, unmodelled={"venue": "string"}
)


def tuples(n: int, seed: int, keys: int = 3) -> pa.Table:
    """Few instants and few values, so that there are equal ones."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "symbol": pa.array([f"k{i}" for i in random.integers(0, keys, n)]),
            "t": pa.array(np.sort(random.integers(0, n, n))).cast(pa.timestamp("s")),
            "price": random.integers(0, 3, n).astype(float),
            "venue": pa.array([f"v{i}" for i in random.integers(0, 2, n)]),
        }
    )


def played(start: pa.Table, load: Any) -> tuple[list[tuple[Any, ...]], int]:
    """The tuples after the load, applied to a plain list; and how many revisions fitted nothing."""
    rows = [tuple(row[name] for name in SCHEMA.names) for row in start.to_pylist()]
    nothing = 0
    revisions = load.revisions
    changed = [tuple(row[name] for name in SCHEMA.names) for row in revisions.table.to_pylist()]
    for places in zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True):
        old, new = (None if at < 0 else changed[at] for at in places)
        if old is not None:
            places = [i for i, row in enumerate(rows) if row == old]
            if not places:
                nothing += 1
                continue
            if new is not None and new[:2] == old[:2]:
                rows[places[-1]] = new
                continue
            rows.pop(places[-1])
        if new is not None:
            rows.append(new)
    return sorted(rows, key=lambda row: (row[0], row[1])), nothing


@given(
    n=st.integers(1, 30),
    many=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    bad=st.sampled_from([0.0, 0.3]),
    shuffled=st.booleans(),
)
def test_a_load_played_back_gives_the_corrected_tuples(
    n: int, many: int, seed: int, bad: float, shuffled: bool
) -> None:
    start = tuples(n, seed)
    load = generate_load(start, SCHEMA, revisions=many, seed=seed, bad=bad, again=0.4, shuffled=shuffled)
    assert len(load.revisions) == many
    rows, nothing = played(start, load)
    assert nothing == load.bad
    got = [tuple(row[name] for name in SCHEMA.names) for row in load.corrected.to_pylist()]
    if shuffled:
        assert got == rows
    else:
        assert sorted(got) == sorted(rows)


def test_a_load_is_the_same_for_the_same_seed_and_holds_every_kind() -> None:
    start = tuples(200, 1)
    one, other = (generate_load(start, SCHEMA, revisions=0.5, seed=7) for _ in range(2))
    assert one.revisions.table.equals(other.revisions.table)
    assert len(one.revisions) == 100
    assert {"+I", "-D", "-U", "+U"} == set(one.revisions.table.column("kind").to_pylist())
    assert not generate_load(start, SCHEMA, revisions=0.5, seed=8).revisions.table.equals(one.revisions.table)


def test_nothing_to_revise_is_an_error() -> None:
    with pytest.raises(DatasetError, match="expected tuples"):
        generate_load(tuples(1, 0).slice(0, 0), SCHEMA, revisions=3)
