"""Differences of versions in pieces: of keys, or of times where keys meet; together they are the difference of both answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.language import parse
from pulse.runtime.incremental import version_diff
from pulse.runtime.incremental.version_diff import prepare_revised
from pulse.store.model import Model
from tests.runtime.execution.asking import local
from tests.runtime.incremental.revising import fitted, stream
from tests.runtime.results.test_answer_diff import check_segments, check_tuples

ACROSS = {
    "envelope": "select max(price) as m from S sample every 1 s",
    "mean of windows": "select avg(price) as m from S[size 5 advance 1]",
    "pairs": "select A.symbol as one, B.symbol as other, A.price - B.price as d from S as A join S as B "
    "on (A.symbol < B.symbol) sample every 1 s",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Prices of three keys over twenty minutes, of which a few are corrected, far apart."""
    folder: Path = tmp_path_factory.mktemp("far")
    tuples = stream(600, seed=3)
    model = fitted(folder, tuples, error=0.05)
    load = generate_load(tuples, model.schema, revisions=5, seed=3, size=1.0)
    local().revise(model.path, load.revisions, keep=True)
    return Model(model.path)


@pytest.mark.parametrize("name", ACROSS)
def test_times_of_all_keys_are_pieces_of_their_own(
    name: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_diff, "PIECE", 1)
    query = parse(ACROSS[name], {"S": model.schema}).bind({})
    job = prepare_revised(query, {"S": str(model.path)}, 1, tuples=True)
    pieces = job.pieces()
    assert not job.by_key
    assert len(pieces) > 2
    assert sum(len(one.regions["S"]) for one in pieces) == len(job.regions["S"])
    old, new = (local().sql(ACROSS[name], streams={"S": model}, version=one) for one in (1, 2))
    changes = local().revised(ACROSS[name], 1, streams={"S": model})
    keys = ["one", "other"] if name == "pairs" else []
    assert changes.tuples().num_rows > 0
    check_tuples(old.tuples(), changes.tuples(), new.tuples(), [*keys, old.tuples().column_names[0]])
    check_segments(old.segments(), changes.segments(), new.segments(), old)
