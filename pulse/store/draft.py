"""Write a model's next state: files under names of their own first, then the commit that names them.

::

    with drafted(out) as draft:               the newest commit, from which the draft starts; None for a new model
        … part-000-00000-<tag>.parquet        workers write files whose names have the draft's tag; nothing reads them yet
        draft.commit(manifest, "fitted")      files are on the disk, then the document is created: readers see the new state

Nothing that is there is changed or removed. A writer that is killed leaves files that no commit names, which
``pulse vacuum`` removes later; one that fails removes its own. Of two writers that start from one commit the first succeeds, and
the other raises :class:`~pulse.store.errors.ConflictError`, with what was committed in between.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pulse.core.errors import PulseError
from pulse.store.checksums import DataFile, seal
from pulse.store.commits import LOG, TEMPORARY, create, is_model, numbers, sync_folder
from pulse.store.errors import ConflictError, MissingFileError, ModelExistsError, WriteError
from pulse.store.link_checks import check_own
from pulse.store.manifest import ASIDE, FOLDERS, Manifest
from pulse.store.migration import migrate
from pulse.store.plain_reading import is_guard, put_guard, remove_guard, supersedes

OVERWRITTEN, VACUUMED = "overwritten", "vacuumed"
"""Reasons of commits that other writers treat differently: they cannot go on from the first, and can from the second."""
SCRATCH = ("_progress", "_bins", "_draft")
"""Beginnings of names that only the writer itself reads: removed at its end."""


class Draft:
    """The next state of a model, while it is written: in ``folder``, from the commit of ``base``, in files with the ``tag``."""

    def __init__(self, folder: Path, base: Manifest | None) -> None:
        self.folder, self.base, self.tag = folder, base, uuid.uuid4().hex[:8]
        self.committed = False
        self._guard = self.tag
        put_guard(folder, self._guard)

    def commit_removal(self, names: Iterable[str]) -> Manifest:
        """Publish the base again, with the files that are removed after this commit; raise an error if another commit came."""
        base = self.base
        assert base is not None, "there is nothing to remove of a new model"
        new = replace(
            base,
            commit=base.commit + 1,
            parent=base.commit,
            reason=VACUUMED,
            committed=time.time_ns() // 1000,
            removed=tuple(names),
        )
        if not create(self.folder, new.commit, new.document()):
            raise ConflictError(f"{self.folder}: another process has just changed it; run it again")
        self.committed = True
        remove_guard(self.folder, self._guard)
        return new

    def commit(self, manifest: Manifest, reason: str, *, drop: Iterable[str] | None) -> Manifest:
        """Publish a manifest as the newest state; return it with all that the commit adds.

        Its files are those written with the draft's tag, and those of the base less those of ``drop``; none of those with None,
        for a model that replaces the old one.
        """
        made = self._written()
        dropped = set(drop or ())
        while True:
            if numbers(self.folder)[-1:] != ([] if self.base is None else [self.base.commit]):
                self._rebase()
            base = self.base
            if base is None or drop is None:
                kept, commits = {}, {}
            else:
                kept = {name: file for name, file in base.data.items() if name not in dropped}
                commits = base.commits
                if manifest.version != base.version:
                    commits = {**commits, str(base.version): base.commit}
            number = 1 if base is None else base.commit + 1
            new = replace(
                manifest,
                commit=number,
                parent=number - 1,
                reason=reason,
                committed=time.time_ns() // 1000,
                commits=commits,
                data={**kept, **made},
                removed=(),
            )
            _check_whole(self.folder, new)
            if create(self.folder, number, new.document()):
                break
        self.committed = True
        if not supersedes(new, base):
            remove_guard(self.folder, self._guard)
        return new

    @property
    def is_empty(self) -> bool:
        """Check whether nothing was written."""
        return all(_is_scratch(name) for name in self._names())

    def _written(self) -> dict[str, DataFile]:
        """Write all files with the tag through to the disk; return them with their checksums."""
        names = sorted(name for name in self._names() if not _is_scratch(name))
        with ThreadPoolExecutor(min(4, len(names) or 1)) as pool:
            sealed = list(pool.map(lambda name: seal(self.folder / name), names))
        for folder in (self.folder / ASIDE, self.folder, self.folder.parent):
            if folder.is_dir():
                sync_folder(folder)
        return dict(zip(names, sealed, strict=True))

    def _names(self) -> list[str]:
        found = [one.name for one in self.folder.iterdir() if self.tag in one.name]
        aside = self.folder / ASIDE
        if aside.is_dir():
            found += [f"{ASIDE}/{one.name}" for one in aside.iterdir() if self.tag in one.name]
        return found

    def _rebase(self) -> None:
        """Take the newest commit as the base if only vacuums came between; raise an error otherwise."""
        base = 0 if self.base is None else self.base.commit
        between = [Manifest.read(self.folder, commit=n) for n in numbers(self.folder) if n > base]
        reasons = tuple(one.reason for one in between)
        whole = [one.commit for one in between] == list(range(base + 1, base + 1 + len(between)))
        if self.base is None:
            raise ConflictError(
                f"{self.folder}: another process has fitted a model here meanwhile; nothing was changed by this one: choose "
                "another folder, or replace the model (--overwrite), or append to it (--append)",
                reasons,
            )
        if set(reasons) != {VACUUMED} or not whole:
            raise ConflictError(
                f"{self.folder}: commit {base} was read, and meanwhile another process has {' and '.join(reasons)} the model; "
                "nothing was changed by this one: run it again",
                reasons,
            )
        removed = [name for one in between for name in one.removed if self.tag in name]
        if any(not is_guard(name) for name in removed):
            raise ConflictError(
                f"{self.folder}: a vacuum has removed the files of this command before they were committed; run it again, and "
                "vacuum with a longer --retain than commands take",
                reasons,
            )
        self.base = between[-1]
        if removed:  # under another name, as the vacuum may not have come to the old one yet
            self._guard = f"{self.tag}-{self.base.commit}"
            put_guard(self.folder, self._guard)

    def discard_unless(self, prefix: str) -> None:
        """Remove the files that were written, but those whose names begin so."""
        for name in self._names():
            if not _is_scratch(name) and not name.startswith(prefix):
                (self.folder / name).unlink(missing_ok=True)

    def clear(self, *, scratch_only: bool = False) -> None:
        """Remove the draft's files, or only those that nobody reads after it."""
        for name in self._names():
            if scratch_only and (not _is_scratch(name) or is_guard(name)):
                continue
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_scratch(name: str) -> bool:
    return name.startswith(SCRATCH) or name.endswith(TEMPORARY) or is_guard(name)


def _check_whole(folder: Path, manifest: Manifest) -> None:
    missing = sorted(manifest.needed - set(manifest.data))
    if missing:
        raise MissingFileError(
            f"{folder / missing[0]}: this file is missing, which was written for a commit; nothing was changed: run the command "
            "again"
        )


@contextmanager
def drafted(out: str | Path, *, replace: bool = False) -> Iterator[Draft]:
    """Yield a draft of the model in a folder, which is made for it; what was written is removed unless it is committed.

    With ``replace`` there may be a model, which the draft appends to or replaces.
    """
    target = Path(out).absolute()
    with _explained(target):
        if target.is_symlink():
            target = target.resolve()
        check_free(target, replace=replace)
    made = [folder for folder in (target, *target.parents) if not folder.exists()]  # innermost first
    try:
        with _explained(target):
            check_own(target, FOLDERS)
            (target / LOG).mkdir(parents=True, exist_ok=True)
            base = migrate(target) if is_model(target) else None
            draft = Draft(target, base)
            try:
                yield draft
            except BaseException:
                draft.clear()
                raise
            draft.clear(scratch_only=draft.committed)
    finally:
        if not is_model(target):
            for folder in (target / ASIDE, target / LOG, *made):
                with suppress(OSError):  # it is not empty, since another process writes into it
                    folder.rmdir()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Convert errors of a file system without space or permission."""
    try:
        yield
    except OSError as e:
        if isinstance(e, PulseError) or e.errno is None or e.errno not in _REFUSED:
            raise
        raise WriteError(
            f"{target}: could not be written ({os.strerror(e.errno)}); nothing was changed"
        ) from e


# Errors of a file system without space or permission: the user's to fix, not a bug.
_REFUSED = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EIO,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


def check_free(target: Path, *, replace: bool) -> None:
    """Check that a model may be written here: never over other content, over another model only with ``replace``.

    What a first fit that was killed has left is no content.
    """
    if not target.exists() and not target.is_symlink():
        return
    there = is_model(target)
    if not there and target.is_dir() and ((target / LOG).is_dir() or (replace and not any(target.iterdir()))):
        return
    if not replace:
        raise ModelExistsError(
            f"{target}: exists already; choose another folder, or replace the model (--overwrite), or append to it (--append)"
        )
    if not there:
        raise ModelExistsError(
            f"{target}: exists and is no stored model, so it is not replaced; choose another folder"
        )


def check_inputs_outside(target: Path, inputs: Iterable[str | Path]) -> None:
    """Check that no input file lies in the folder of the model to be replaced: a vacuum would remove it with the old model."""
    place = target.resolve()
    for one in inputs:
        if Path(one).resolve().is_relative_to(place):
            raise ModelExistsError(
                f"{target}: holds {one}, which is read for the model that would replace it; choose another folder"
            )
