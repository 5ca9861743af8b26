"""A vacuum removes what no recent commit names, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pulse.core.time import parse_duration
from pulse.store.commits import numbers
from pulse.store.errors import DamagedModelError, ModelNotFoundError, VersionGoneError
from pulse.store.manifest import Manifest
from pulse.store.model import Model
from pulse.store.vacuum import vacuum, verify_all
from tests.store.revising import fitted, rows_of

DAY = parse_duration("1 d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that was appended to and replaced, and files of others beside it."""
    out = tmp_path / "m"
    fitted(out, "ab", 5)
    fitted(out, "ab", 3, start=5, append=True)
    fitted(out, "bc", 4, overwrite=True)
    (out / "README").write_text("mine")
    (out / "part-of-something.parquet").write_text("mine")
    return out


def test_superseded_files_stay_for_the_retention(folder: Path) -> None:
    reader = Model(Model(folder).stored.pinned())
    first = Manifest.read(folder, commit=1)
    assert vacuum(folder, retain=DAY).files == ()
    assert numbers(folder) == [1, 2, 3]
    assert all((folder / name).is_file() for name in first.data)
    dry = vacuum(folder, retain=0, dry=True)
    assert {*first.data} < {*dry.files}
    assert dry.commits == (1, 2)
    assert all((folder / name).is_file() for name in dry.files)
    wanted = rows_of(reader.read())
    done = vacuum(folder, retain=0)
    assert (done.files, done.commits) == (dry.files, dry.commits)
    assert done.bytes == dry.bytes > 0
    assert not any((folder / name).exists() for name in done.files)
    assert rows_of(reader.read()) == rows_of(Model(folder).read()) == wanted
    assert Manifest.read(folder).reason == "vacuumed"
    with pytest.raises(VersionGoneError, match="commit 1 is gone; `pulse vacuum` removes"):
        Manifest.read(folder, commit=1)


def test_what_is_not_of_the_model_stays_and_a_second_one_finds_nothing(folder: Path) -> None:
    vacuum(folder, retain=0)
    assert (folder / "README").read_text() == (folder / "part-of-something.parquet").read_text() == "mine"
    newest = Manifest.read(folder).commit
    assert vacuum(folder, retain=0).files == ()
    assert Manifest.read(folder).commit == newest


def test_the_folder_is_one_table_again(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "ab", 5)
    assert ds.dataset(model.path, format="parquet").to_table().num_rows == len(model)
    model = fitted(tmp_path / "m", "ab", 3, start=5, append=True)
    vacuum(model.path, retain=0)
    assert ds.dataset(model.path, format="parquet").to_table().num_rows == len(model)


def test_young_files_without_a_commit_stay(folder: Path) -> None:
    draft = folder / "part-000-00000-0badcafe.parquet"
    draft.write_bytes(b"PAR1")
    vacuum(folder, retain=DAY)
    assert draft.exists()
    past = time.time() - 2 * 86_400
    os.utime(draft, (past, past))
    assert vacuum(folder, retain=DAY).files == (draft.name,)
    assert not draft.exists()


def test_all_bytes_are_verified(folder: Path) -> None:
    assert verify_all(folder) == len(Manifest.read(folder).data)
    name = Manifest.read(folder).files[0].name
    content = bytearray((folder / name).read_bytes())
    content[10] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(DamagedModelError, match=f"{name}: its checksum is crc32:"):
        verify_all(folder)


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="the folder has no commit"):
        vacuum(tmp_path)
