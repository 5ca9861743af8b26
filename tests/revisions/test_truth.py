"""Whatever was corrected, every result lies within its certificate of the corrected truth.

The streams and queries are those that unrevised models are held against the truth with: equal timestamps, jumps, holes, lone
tuples, all kinds of bounds. Here each is fitted as first recorded and revised twice; the oracle knows the corrected tuples only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import pulse
from pulse.benchmarks.workloads.revision_loads import generate_load
from tests import test_query_truth as asked
from tests.test_query_truth import Case
from tests.truth.pieces import tracks

SEEDS = range(int(os.environ.get("PULSE_SEEDS") or 4))
LOCAL = pulse.Session(engine="local")
QUERIES: dict[str, Callable[[int], None]] = {
    name: getattr(asked, name)
    for name in (
        "test_filters",
        "test_filters_of_several_predicates",
        "test_sampled_filters",
        "test_windows",
        "test_windows_as_segments",
        "test_windows_over_all_keys",
        "test_macd",
        "test_joins_by_inequality",
        "test_pairs_within_a_distance",
        "test_average_distances_of_pairs",
    )
}


@pytest.fixture
def revising(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The cases that queries are asked of are revised ones; counts what was done to them."""
    done = {"revisions": 0, "absorbed": 0, "patched": 0, "refitted": 0, "aside": 0}
    with tempfile.TemporaryDirectory() as folder:

        def case(seed: int, **more: Any) -> Case:
            one = asked.drawn(seed + 77, **more)
            table = one.table
            pq.write_table(table, Path(folder) / "tuples.parquet")
            model = LOCAL.fit(str(Path(folder) / "tuples.parquet"), out=Path(folder) / "model", **one.asked)
            for batch in range(2):
                # Some of the second revise what the first brought; some are small enough to be absorbed.
                load = generate_load(
                    table, model.schema, revisions=10, seed=seed + batch, size=(0.3, 0.02)[batch], bad=0.1
                )
                details = LOCAL.revise(model, load.revisions, keep=batch == 0)
                assert details.counts["aside"] == load.bad
                for name in done:
                    done[name] += details.counts[name]
                table, model = load.corrected, details.model
            names = more.get("names", ("x",))
            return Case(one.random, names, tracks(table, one.kinds, key="k", max_gap=one.gap), model)

        monkeypatch.setattr(asked, "case", case)
        yield done


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", QUERIES)
def test_results_lie_within_their_certificates_of_the_corrected_truth(
    name: str, seed: int, revising: dict[str, int]
) -> None:
    QUERIES[name](seed)
    assert revising["revisions"] == 20
