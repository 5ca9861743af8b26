"""Whatever revisions come in whatever order, the final state is that of a run from scratch over the corrected input (7.7).

Models here say all there is to say of their tuples (no bound to choose within), so results must be equal: after one batch or
many, of the stored model and by the revisions of results, in every mode.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.stream.revisions import Revisions
from tests.revisions.histories import KINDS, LOCAL, QUERIES, fitted, keys_of, load_of, rows_of, stream
from tests.runtime.results.test_answer_diff import check_segments, check_tuples, without_bounds

MODES = ("upstream", "downstream", "adaptive")
few = settings(max_examples=int(os.environ.get("PULSE_SEEDS") or 3))
"""Every query is a test of its own, and an example two fits, revisions and several evaluations."""


def same(one: dict[Any, Any], other: dict[Any, Any]) -> None:
    assert one.keys() == other.keys()
    for at, row in one.items():
        for name, value in row.items():
            assert value == pytest.approx(other[at][name], rel=1e-9, abs=1e-9), (at, name)


@pytest.mark.parametrize("name", QUERIES)
@few
@given(
    seed=st.integers(0, 2**20),
    revisions=st.integers(1, 25),
    batches=st.integers(1, 3),
    mode=st.sampled_from(MODES),
)
def test_results_are_those_of_a_run_from_scratch(
    name: str, seed: int, revisions: int, batches: int, mode: str
) -> None:
    kind, text, parameters = QUERIES[name]
    tuples = stream(kind, seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = fitted(folder, kind, tuples)
        load = load_of(model, tuples, revisions, seed, again=0.3, bad=0.1)
        aside = 0
        for part in np.array_split(np.arange(len(load.revisions)), batches):
            if len(part):
                aside += LOCAL.revise(model.path, load.revisions.take(part), keep=True).counts["aside"]
        assert aside == load.bad
        scratch = fitted(folder, kind, load.corrected, "scratch")
        asked: dict[str, Any] = {"parameters": parameters}
        now = LOCAL.sql(text, streams={"S": model.path}, **asked)
        wanted = LOCAL.sql(text, streams={"S": scratch}, **asked)
        same(rows_of(now.tuples(), keys_of(now)), rows_of(wanted.tuples(), keys_of(now)))

        old = LOCAL.sql(text, streams={"S": model.path}, version=1, **asked)
        details = LOCAL.revised(text, 1, streams={"S": model.path}, **asked)
        before, changes, after = (without_bounds(one.tuples()) for one in (old, details, now))
        check_tuples(before, changes, after, list(keys_of(now)))
        reported = LOCAL.revised(text, 1, streams={"S": model.path}, mode=mode, **asked)
        before, changes, after = (without_bounds(one.segments()) for one in (old, reported, now))
        check_segments(before, changes, after, old)


@pytest.mark.parametrize("kind", KINDS)
@few
@given(seed=st.integers(0, 2**20), data=st.data())
def test_revisions_of_different_tuples_may_come_in_any_order(
    kind: str, seed: int, data: st.DataObject
) -> None:
    """One by one, shuffled: as long as none revises what another brought, and none shares an instant with another."""
    tuples = stream(kind, seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = fitted(folder, kind, tuples)
        load = load_of(model, tuples, 14, seed, again=0.0)
        apart = load.revisions.take(np.array(_apart(load.revisions)))
        order = np.array(data.draw(st.permutations(range(len(apart)))))
        LOCAL.revise(model.path, apart, keep=True)
        other = fitted(folder, kind, tuples, "other")
        for one in np.array_split(order, 3):
            if len(one):
                assert LOCAL.revise(other.path, apart.take(one)).counts["aside"] == 0
        key, names, _ = KINDS[kind]
        listed = ", ".join((key, *names))
        text = f"select {listed} from S" + ("" if kind == "points" else " sample every 1 s")
        if kind == "points":
            text = "select symbol, sum(price) as s, count(*) as n from S[size 1 advance 1]"
        answers = [LOCAL.sql(text, streams={"S": path}) for path in (model.path, other.path)]
        same(*(rows_of(one.tuples(), keys_of(one)) for one in answers))


def _apart(revisions: Revisions) -> list[int]:
    """Elements whose rows share no key and instant with those of another."""
    keys, times = revisions.keys[0].to_pylist(), revisions.times.tolist()
    seen: dict[tuple[Any, int], int] = {}
    rows = [
        [row for row in (old, new) if row >= 0]
        for old, new in zip(revisions.old_rows.tolist(), revisions.new_rows.tolist(), strict=True)
    ]
    for element, own in enumerate(rows):
        for at in {(keys[row], times[row]) for row in own}:
            seen[at] = -1 if at in seen else element
    return [e for e, own in enumerate(rows) if all(seen[keys[row], times[row]] == e for row in own)]


def test_a_revision_and_its_reverse_leave_everything_as_it_was(tmp_path: Path) -> None:
    """Also what is emitted: the second takes back what the first put in."""
    tuples = stream("steps", 3)
    model = fitted(tmp_path, "steps", tuples)
    load = load_of(model, tuples, 8, 5, again=0.0)
    rows = load.revisions.table.to_pylist()
    opposite = {"+I": "-D", "-D": "+I", "-U": "+U", "+U": "-U"}
    back = [{**row, "kind": opposite[row["kind"]], "known": None} for row in reversed(rows)]
    LOCAL.revise(model.path, load.revisions, keep=True)
    details = LOCAL.revise(
        model.path, pa.Table.from_pylist(back, schema=load.revisions.table.schema), keep=True
    )
    assert details.counts["aside"] == 0
    text, asked = QUERIES["macd"][1], {"parameters": QUERIES["macd"][2]}
    assert LOCAL.revised(text, 1, streams={"S": model.path}, **asked).tuples().num_rows == 0
    there = LOCAL.revised(text, 1, streams={"S": model.path}, version=2, **asked).tuples()
    again = LOCAL.revised(text, 2, streams={"S": model.path}, **asked).tuples()
    assert there.num_rows == again.num_rows > 0

    def bag(table: pa.Table, *, turned: bool) -> list[Any]:
        return sorted(
            (row["t"], row["symbol"], opposite[row["kind"]] if turned else row["kind"], round(row["diff"], 7))
            for row in table.to_pylist()
        )

    assert bag(there, turned=False) == bag(again, turned=True)
