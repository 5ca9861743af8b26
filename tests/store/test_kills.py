"""A command that is killed before any of its file operations leaves the old model or the new; run again, it gives the new.

Every operation of a fit, an append, an overwrite, a revision and a merge is tried, each in a process of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.core.time import format_instant
from pulse.session import Session
from pulse.store import atomic_publish
from pulse.store.errors import ModelNotFoundError
from pulse.store.lock import LOCK
from pulse.store.model import Model
from pulse.store.versions import compact as compact_module
from pulse.store.versions.compact import compact
from tests.store.killing import run
from tests.store.revising import EPOCH, SLOT, rows_of, ticks

ACCENT = f"{format_instant(EPOCH + 3 * SLOT)} [[k = 'b', alter(x, y / 2)]]"
ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0}


def fit(folder: Path, name: str, **options: Any) -> Model:
    return Session(engine="local").fit(folder / name, **ASKED, out=folder / "m", **options)


def inputs(folder: Path) -> None:
    pq.write_table(ticks("ab", 3), folder / "first.parquet")
    pq.write_table(ticks("bc", 3, start=3), folder / "more.parquet")
    old, new = ([float(v) for v in values] for values in (ticks("ab", 3)["x"].to_pylist()[:1], [77.0]))
    changed = {
        "kind": ["-U", "+U"],
        "k": ["a", "a"],
        "t": pa.array([EPOCH, EPOCH], pa.timestamp("us")),
        "x": old + new,
    }
    pq.write_table(pa.table(changed), folder / "revisions.parquet")


def revise(folder: Path, **options: Any) -> None:
    Session(engine="local").revise(folder / "m", folder / "revisions.parquet", **options)


def revised(folder: Path) -> None:
    fit(folder, "first.parquet", keep_tuples=True)
    revise(folder, keep=True)


@dataclass(frozen=True)
class Case:
    """What is there before, and the command."""

    before: Callable[[Path], object]
    command: Callable[[Path], object]


CASES = {
    "fit": Case(lambda folder: None, lambda folder: fit(folder, "first.parquet", append=True)),
    "append": Case(
        lambda folder: fit(folder, "first.parquet", keep_tuples=True),
        lambda folder: fit(folder, "more.parquet", append=True),
    ),
    "append with accents": Case(
        lambda folder: fit(folder, "first.parquet"),
        lambda folder: fit(folder, "more.parquet", append=True, accents=[ACCENT]),
    ),
    "append to a revised one": Case(revised, lambda folder: fit(folder, "more.parquet", append=True)),
    "overwrite": Case(
        lambda folder: fit(folder, "first.parquet"),
        lambda folder: fit(folder, "more.parquet", overwrite=True),
    ),
    "revise": Case(
        lambda folder: fit(folder, "first.parquet", keep_tuples=True),
        lambda folder: revise(folder, keep=True),
    ),
    "merge": Case(revised, lambda folder: compact(folder / "m")),
}


def content(folder: Path) -> Any:
    """What a reader finds: version, segments, sources and what was set aside; None where there is no model."""
    try:
        model = Model(folder / "m")
    except ModelNotFoundError:
        return None
    kept = [rows_of(Model(folder / "m", version=one).read()) for one in model.versions()]
    accents = None if model.accents is None else model.accents.lines
    return model.version, kept, len(model.manifest.sources), model.manifest.tuples, accents


def names(folder: Path) -> set[str]:
    """Everything that lies in the folder, but the lock, and what a second revision finds done and sets aside."""
    found = {str(one.relative_to(folder)) for one in folder.rglob("*")}
    return {one for one in found if Path(one).name != LOCK and "_aside" not in one}


def survives(case: Case, tmp_path: Path) -> int:
    """Kill the command before each operation; how many there were."""
    before, warm, whole = (tmp_path / name for name in ("before", "warm", "whole"))
    before.mkdir()
    inputs(before)
    case.before(before)
    shutil.copytree(before, warm)
    case.command(warm)  # once here, so that no process compiles or loads what others need too
    shutil.copytree(before, whole)
    old = content(whole)
    count = run(lambda: case.command(whole), whole)
    assert count is not None
    new, wanted = content(whole), names(whole)
    assert new != old
    for last in range(count):
        folder = tmp_path / str(last)
        shutil.copytree(tmp_path / "before", folder)
        if run(lambda: case.command(folder), folder, last) is not None:  # noqa: B023  # it is run at once
            continue  # threads made fewer operations this time
        found = content(folder)
        assert found in (old, new), f"killed before operation {last}"
        run(lambda: case.command(folder), folder)  # noqa: B023
        assert content(folder) == new, f"run again after it was killed before operation {last}"
        assert names(folder) == wanted, f"left behind when killed before operation {last}"
    return count


@pytest.mark.parametrize("name", CASES)
def test_a_kill_before_any_file_operation_leaves_the_old_model_or_the_new(name: str, tmp_path: Path) -> None:
    assert survives(CASES[name], tmp_path) > 10


def test_the_same_where_the_system_cannot_exchange_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_publish, "exchange", lambda one, other: False)
    assert survives(CASES["append"], tmp_path) > 10


def test_the_same_where_a_revision_merges_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "MOST", 0)
    assert survives(Case(CASES["revise"].before, revise), tmp_path) > 10
