"""Remove files that no recent commit names: what appends, revisions and fits have superseded, and what killed writers left.

Writers remove nothing, so that readers of older commits are never disturbed. A vacuum keeps the newest commit, those of the
versions that it keeps, and those that were the newest within the retention, with their files; of files that no commit names,
those younger than the retention, as they may be of a writer at work. It commits what it removes, before it does: a writer
whose files are among them then fails instead of naming files that are gone, and a vacuum that is killed is finished by the next.
A commit that is removed leaves an empty document for a day, so that no slow writer can take its number again.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pulse.store.checksums import DataFile, verify_whole
from pulse.store.commits import LOG, empty, forget, numbers
from pulse.store.draft import SCRATCH, drafted
from pulse.store.errors import ConflictError, ModelNotFoundError, VersionGoneError
from pulse.store.manifest import ASIDE, OLD, Manifest
from pulse.store.plain_reading import is_guard, is_visible

RETAIN = 7 * 86_400_000_000
"""Microseconds for which superseded files and commits stay by default."""

_OURS = re.compile(
    r"(part|closing)-\d+(v\d+)?-\d+.*\.parquet|_(ends|revised-ends|layer|revisions|tuples)-.*\.parquet|_accents-.*\.json"
    r"|_.*\.tmp|_pulse-\d+\.json|_lock"
)
_ASIDE = re.compile(r"(fit|read|reach|revisions)-.*\.parquet|_.*\.tmp")
_ATTEMPTS = 10
_NUMBERS_STAY = 86_400
"""Seconds for which the number of a removed commit stays taken."""


@dataclass(frozen=True)
class Vacuumed:
    """What a vacuum removed, or would with ``dry``."""

    files: tuple[str, ...]
    bytes: int
    commits: tuple[int, ...]


def vacuum(model: str | Path, *, retain: int = RETAIN, dry: bool = False) -> Vacuumed:
    """Remove files and commits of a model that were superseded more than ``retain`` microseconds ago."""
    folder = Path(model)
    if folder.is_symlink():
        folder = folder.resolve()
    Manifest.read(folder)  # not a model: an error
    if dry:
        return _Plan(folder, retain).vacuumed
    for left in range(_ATTEMPTS, -1, -1):
        try:
            return _vacuum(folder, retain)
        except ConflictError:
            if not left:
                raise
    raise AssertionError


def _vacuum(folder: Path, retain: int) -> Vacuumed:
    if not numbers(folder):  # a model of an earlier version of Pulse
        with drafted(folder, replace=True):
            pass
    plan = _Plan(folder, retain)
    if plan.names:
        with drafted(folder, replace=True) as draft:
            assert draft.base is not None, "it was there just now"
            if draft.base.commit != plan.newest.commit:
                raise ConflictError(f"{folder}: another process has just changed it; run it again")
            draft.commit_removal(plan.names)
            plan.remove()
    else:
        plan.remove()
    return plan.vacuumed


class _Plan:
    """The files and commits to remove; computed from the folder first and the log second, so that it has no new commit's file."""

    def __init__(self, folder: Path, retain: int) -> None:
        self.folder = folder
        past = time.time_ns() // 1000 - retain
        there = dict(_files(folder))
        self.newest = Manifest.read(folder)
        self.commits = self._expired(past)
        live = {f"{file.at}/{name}" if file.at else name for name, file in self._live()}
        known = self._known
        gone = {
            name: size
            for name, (size, modified) in there.items()
            if name not in live and (name in known or modified <= past)
        }
        visible = {name for name in there if is_visible(name) and not is_guard(name) and "/" not in name}
        if not self.newest.is_plain or visible - set(gone) - set(self.newest.data):
            gone = {name: size for name, size in gone.items() if not is_guard(name)}
        self.names = tuple(sorted(gone))
        self.vacuumed = Vacuumed(self.names, sum(gone.values()), self.commits)

    def _expired(self, past: int) -> tuple[int, ...]:
        """Return the commits that were superseded before an instant and are of no version that is kept."""
        there = numbers(self.folder)
        kept = {self.newest.commits.get(str(version)) for version in self.newest.kept}
        self._documents = {number: self._read(number) for number in there}
        expired = []
        for number, after in itertools.pairwise(there):
            document = self._documents[after]
            gone = self._documents[number] is None
            if number not in kept and not gone and document is not None and document.committed <= past:
                expired.append(number)
        return tuple(expired)

    def _read(self, number: int) -> Manifest | None:
        try:
            return Manifest.read(self.folder, commit=number)
        except VersionGoneError:  # it was removed
            return None

    def _live(self) -> Iterator[tuple[str, DataFile]]:
        for number, document in self._documents.items():
            if number not in self.commits and document is not None:
                yield from document.data.items()

    @property
    def _known(self) -> set[str]:
        """Return the files that some commit names: removed however young they are."""
        found = [document for document in self._documents.values() if document is not None]
        return {
            f"{file.at}/{name}" if file.at else name
            for document in found
            for name, file in document.data.items()
        }

    def remove(self) -> None:
        """Remove the files, then the commits that name them."""
        for name in self.names:
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for number in self.commits:
            empty(self.folder, number)
        for number, document in self._documents.items():
            if document is None:
                forget(self.folder, number, _NUMBERS_STAY)
        old = self.folder / OLD
        if old.is_dir() and not any(old.iterdir()):
            old.rmdir()


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names in a model's folder that are Pulse's own, each with its size and time (microseconds)."""
    for place, ours in (("", _is_ours), (ASIDE, _ASIDE.fullmatch), (OLD, _OURS.fullmatch), (LOG, _is_draft)):
        try:
            with os.scandir(folder / place) as entries:
                for one in entries:
                    if ours(one.name):
                        found = one.stat(follow_symlinks=False)
                        size = found.st_size if one.is_file(follow_symlinks=False) else 0
                        yield f"{place}/{one.name}" if place else one.name, (size, found.st_mtime_ns // 1000)
        except FileNotFoundError:
            continue


def _is_ours(name: str) -> bool:
    return _OURS.fullmatch(name) is not None or name.startswith(SCRATCH) or is_guard(name)


def _is_draft(name: str) -> bool:
    return name.startswith("_") and name.endswith(".tmp")


def verify_all(model: str | Path) -> int:
    """Check all bytes of all files of the newest commit against their checksums; return how many files there are."""
    manifest = Manifest.read(model)
    if not manifest.commit:
        raise ModelNotFoundError(
            f"{model}: the model is of an earlier version of Pulse, which recorded no checksums; the next write computes them"
        )
    for name, file in manifest.data.items():
        verify_whole(Path(model) / (file.at or "") / name, file)
    return len(manifest.data)
