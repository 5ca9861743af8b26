"""A command that is killed before any of its file operations leaves the old model or the new; run again, it gives the new.

Operations of a fit, an append, an overwrite, a revision, a merge, a migration and a vacuum are tried, each in a process of its
own: some of them, spread evenly, and with PULSE_FULL=1 all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pulse.core.time import format_instant
from pulse.session import Session
from pulse.store.errors import ModelNotFoundError
from pulse.store.model import Model
from pulse.store.plain_reading import put_guard
from pulse.store.vacuum import vacuum
from pulse.store.versions import compact as compact_module
from pulse.store.versions.compact import compact
from tests.store.killing import run
from tests.store.revising import EPOCH, SLOT, rows_of, ticks

SAMPLE = 6
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


def legacy(folder: Path) -> None:
    """A model that an earlier version of Pulse has published by renames."""
    shutil.unpack_archive(Path(__file__).parent / "data" / "model_of_renames.tar.gz", folder)


def superseded(folder: Path) -> None:
    """A model with files that only older commits name, and with what a killed writer left."""
    fit(folder, "first.parquet")
    fit(folder, "more.parquet", append=True)
    put_guard(folder / "m", "0badcafe")
    pq.write_table(ticks("a", 3), folder / "m" / "part-009-00000-0badcafe.parquet")


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
    "migrate": Case(legacy, lambda folder: compact(folder / "m")),
    "vacuum": Case(superseded, lambda folder: vacuum(folder / "m", retain=0)),
}


def content(folder: Path) -> Any:
    """What a reader finds: version, segments, sources and accents; None where there is no model."""
    try:
        model = Model(folder / "m")
    except ModelNotFoundError:
        return None
    kept = [rows_of(Model(folder / "m", version=one).read()) for one in model.versions()]
    accents = None if model.accents is None else model.accents.lines
    return model.version, kept, len(model.manifest.sources), model.manifest.tuples, accents


def check_plain_reading(folder: Path) -> None:
    """Readers of plain Parquet fail, or find the rows of the model."""
    try:
        rows = ds.dataset(folder / "m", format="parquet").to_table().num_rows
    except (pa.ArrowException, FileNotFoundError):
        return
    assert rows == (0 if content(folder) is None else len(Model(folder / "m")))


def names(folder: Path) -> set[str]:
    """What lies in the folder after a vacuum, without the tags of writers, the log, and what a second revision sets aside."""
    vacuum(folder / "m", retain=0)
    found = {str(one.relative_to(folder)) for one in folder.rglob("*") if "_pulse" not in one.parts}
    return {re.sub(r"-[0-9a-f]{8}(?=[.-])", "", one) for one in found if "_aside" not in one}


def sampled(count: int) -> list[int]:
    """The operations to be killed at."""
    every = 1 if os.environ.get("PULSE_FULL") else max(1, count // SAMPLE)
    return list(range(0, count, every))


def survives(case: Case, tmp_path: Path) -> int:
    """Kill the command before its operations; how many there are."""
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
    check_plain_reading(whole)
    new, wanted = content(whole), names(whole)
    for last in sampled(count):
        folder = tmp_path / str(last)
        shutil.copytree(tmp_path / "before", folder)
        if run(lambda: case.command(folder), folder, last) is not None:  # noqa: B023  # it is run at once
            continue  # threads made fewer operations this time
        assert content(folder) in (old, new), f"killed before operation {last}"
        check_plain_reading(folder)
        run(lambda: case.command(folder), folder)  # noqa: B023
        assert content(folder) == new, f"run again after it was killed before operation {last}"
        check_plain_reading(folder)
        assert names(folder) == wanted, f"left behind when killed before operation {last}"
    return count


@pytest.mark.parametrize("name", CASES)
def test_a_kill_before_any_file_operation_leaves_the_old_model_or_the_new(name: str, tmp_path: Path) -> None:
    assert survives(CASES[name], tmp_path) > 10


def test_the_same_where_a_revision_merges_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "MOST", 0)
    assert survives(Case(CASES["revise"].before, revise), tmp_path) > 10
