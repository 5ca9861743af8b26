"""A model that an earlier version of Pulse has published by renames opens, and its first change gives it a log.

``data/model_of_renames.tar.gz`` was written by that version: a fit that keeps its tuples, a revision with ``keep``, one that was
set aside, a merge, and another revision; ``truth.json`` has the rows of each version as that version read them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.session import Session
from pulse.store.commits import LEGACY, numbers
from pulse.store.errors import ModelNotFoundError, StoreError
from pulse.store.manifest import Manifest
from pulse.store.model import Model
from pulse.store.vacuum import vacuum, verify_all
from pulse.store.versions.compact import compact
from tests.store.revising import EPOCH, fitted, rows_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.unpack_archive(Path(__file__).parent / "data" / "model_of_renames.tar.gz", tmp_path)
    return tmp_path / "m"


def rows(folder: Path, version: int | None = None) -> list[list[Any]]:
    return sorted(list(row) for row in rows_of(Model(folder, version=version).read()))


def check(folder: Path) -> None:
    """Every version is read as the version of Pulse that wrote it did."""
    truth = json.loads((folder.parent / "truth.json").read_text())
    for version, wanted in truth["versions"].items():
        assert rows(folder, int(version)) == wanted
    aside = Model(folder).aside()
    assert aside is not None
    assert aside.num_rows == truth["aside"]


def test_it_is_read_as_it_is(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    check(folder)
    assert sorted(folder.rglob("*")) == before
    model = Model(folder)
    assert (model.version, model.versions(), model.manifest.commit) == (4, (1, 2, 3, 4), 0)
    assert rows_of(Model(model.stored.pinned()).read()) == rows_of(model.read())


def test_a_merge_makes_a_log_of_all_its_versions(folder: Path) -> None:
    model = compact(folder)
    check(folder)
    assert not (folder / LEGACY).exists()
    assert numbers(folder) == [1, 2, 3, 4, 5]
    assert (model.version, model.manifest.commits) == (5, {"1": 1, "2": 2, "3": 3, "4": 4})
    assert rows(folder) == rows(folder, 4)
    assert verify_all(folder) == len(model.manifest.data)
    done = vacuum(folder, retain=0)
    assert {"_pulse-001.json", "_pulse-002.json", "_pulse-003.json"} <= {*done.files}
    check(folder)


def test_it_is_revised_and_appended_to(folder: Path) -> None:
    before = rows(folder)
    change = pa.table(
        {
            "kind": ["-U", "+U"],
            "k": ["a", "a"],
            "t": pa.array([EPOCH] * 2, pa.timestamp("us")),
            "x": [77.0, 5.0],
        }
    )
    outcome = Session(engine="local").revise(folder, change, keep=True)
    assert (outcome.version, outcome.counts["aside"]) == (5, 0)
    check(folder)
    assert sum(a != b for a, b in zip(rows(folder), before, strict=True)) == 1
    model = fitted(folder, "bd", 3, start=3, append=True)
    assert (model.version, model.keys()["k"].to_pylist()) == (6, ["a", "b", "d"])
    check(folder)


def test_it_is_replaced(folder: Path) -> None:
    model = fitted(folder, "z", 3, overwrite=True)
    assert (model.version, model.keys()["k"].to_pylist(), model.manifest.commit) == (1, ["z"], 5)
    vacuum(folder, retain=0)
    assert {one.name.split("-")[0] for one in folder.iterdir() if one.suffix == ".parquet"} <= {
        "part",
        "closing",
        "_ends",
    }


def test_as_long_as_the_old_manifest_is_there_it_is_the_model(folder: Path) -> None:
    """A migration that was killed before its end is done again."""
    old = (folder / LEGACY).read_text()
    compact(folder)
    (folder / "_pulse" / "00000005.json").unlink()
    (folder / LEGACY).write_text(old)
    assert Manifest.read(folder).commit == 0
    check(folder)
    assert compact(folder).manifest.commit == 5
    check(folder)


def test_commits_of_something_else_are_not_taken_for_a_migration(folder: Path) -> None:
    old = (folder / LEGACY).read_text()
    compact(folder)
    (folder / LEGACY).write_text(old.replace('"error": {', '"error": {"y": "1", '))
    with pytest.raises(
        StoreError,
        match="expected a commit of version 4, which is to be migrated, got another",
    ):
        compact(folder)


def test_checksums_are_those_of_the_next_write(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="recorded no checksums"):
        verify_all(folder)
