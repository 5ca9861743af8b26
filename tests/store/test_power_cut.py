"""A power cut loses what was not written through to the disk: a commit is created only when all that it names has been.

The order of calls is recorded: a file counts as safe once it has been synced, and its name once the folder has been synced after
it was made. At the moment at which a document gets its name, every file that it names, and the name, must be safe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.test_kills import CASES, inputs


class _Disk:
    """What a power cut would leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.safe_files: set[Path] = set()
        self.safe_names: set[Path] = set()
        self.commits: list[Path] = []

    def fsync(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def call(handle: int) -> None:
            original(handle)
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if path.is_dir():
                self.safe_names |= set(path.iterdir())
            else:
                self.safe_files.add(path)

        return call

    def link(self, original: Callable[..., None]) -> Callable[..., None]:
        def call(source: Any, target: Any) -> None:
            assert Path(source) in self.safe_files, "the document itself"
            named = json.loads(Path(source).read_text())["data"]
            paths = {Path(target).parent.parent / file.get("at", "") / name for name, file in named.items()}
            assert paths <= self.safe_files, "contents"
            assert paths <= self.safe_names, "names"
            original(source, target)
            self.commits.append(Path(target))

        return call


@pytest.mark.parametrize("name", CASES)
def test_what_a_commit_names_is_on_the_disk_before(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs(tmp_path)
    disk = _Disk(tmp_path)
    monkeypatch.setattr(os, "fsync", disk.fsync(os.fsync))
    monkeypatch.setattr(os, "link", disk.link(os.link))
    CASES[name].before(tmp_path)
    CASES[name].command(tmp_path)
    assert disk.commits
    assert set(disk.commits) <= disk.safe_names
    assert {tmp_path / "m", tmp_path / "m" / "_pulse"} <= disk.safe_names
