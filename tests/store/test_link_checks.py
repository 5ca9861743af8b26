"""A model may come from somebody else: links in it are not followed, whatever they point to, and a dry run writes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulse.session import Session
from pulse.store.errors import LinkedFileError
from pulse.store.model import Model
from pulse.store.versions.compact import compact
from tests.store.test_kills import fit, inputs, revise, revised


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model ``m`` that was revised once, and beside it a folder ``mine`` with files of the names that models have."""
    inputs(tmp_path)
    revised(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in (
        "letter",
        "part-000-00000.parquet",
        "revisions-999-00000.parquet",
        "_x.1.tmp",
        "_layer-009-x.parquet",
    ):
        (mine / name).write_text("dear reader")
    return tmp_path


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files with their contents, and folders, each with its time."""
    return {
        str(one.relative_to(folder)): (one.lstat().st_mtime_ns, one.read_bytes() if one.is_file() else b"")
        for one in [folder, *folder.rglob("*")]
    }


CHANGES: dict[str, Callable[[Path], object]] = {
    "revise": revise,
    "rehearse": lambda folder: revise(folder, dry=True),
    "merge": lambda folder: compact(folder / "m"),
    "append": lambda folder: fit(folder, "more.parquet", append=True),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["_aside", "_old", "_pulse"])
def test_a_folder_that_is_a_link_is_not_followed(folder: Path, change: str, name: str) -> None:
    shutil.rmtree(folder / "m" / name, ignore_errors=True)
    (folder / "m" / name).symlink_to(folder / "mine")
    before = state(folder / "mine")
    with pytest.raises(LinkedFileError, match=f"{name}: expected .* got a symbolic link"):
        CHANGES[change](folder)
    assert state(folder / "mine") == before


@pytest.mark.parametrize("name", ["part", "_ends", "_tuples", "_revisions", "_layer"])
def test_no_file_of_a_model_is_read_through_a_link(folder: Path, name: str) -> None:
    (file, *_) = sorted((folder / "m").glob(f"{name}*"))
    file.rename(folder / "mine" / file.name)
    file.symlink_to(folder / "mine" / file.name)
    for open_it in (lambda: Model(folder / "m"), lambda: fit(folder, "more.parquet", append=True)):
        with pytest.raises(LinkedFileError, match=f"{file.name}: .*links are not followed"):
            open_it()


def test_files_of_older_versions_and_asides_are_not_read_through_links(folder: Path) -> None:
    for place in ("_old", "_aside"):
        (folder / "m" / place).mkdir(exist_ok=True)
        (folder / "m" / place / "part-009-00000.parquet").symlink_to(folder / "mine" / "letter")
        with pytest.raises(LinkedFileError, match=place):
            Model(folder / "m")
        (folder / "m" / place / "part-009-00000.parquet").unlink()


def test_a_pipe_among_the_files_does_not_hang(folder: Path) -> None:
    (part,) = (folder / "m").glob("part-0*")
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(LinkedFileError, match="got neither"):
        Model(folder / "m")


def test_a_link_to_a_model_is_the_users_own_word(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "m")
    assert Model(folder / "link").version == 2


def test_files_beside_the_model_that_nobody_reads_may_be_links(folder: Path) -> None:
    (folder / "m" / "README").symlink_to(folder / "mine" / "letter")
    revise(folder)
    assert (folder / "mine" / "letter").read_text() == "dear reader"


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    """Nor does it remove what an interrupted revision left."""
    (folder / "m" / "_draft-003.0.tmp").write_text("left behind")
    before = state(folder)
    outcome = Session(engine="local").revise(folder / "m", folder / "revisions.parquet", dry=True)
    assert outcome.counts["revisions"] == 1
    assert state(folder) == before
