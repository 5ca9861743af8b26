"""Directories that appear whole or not at all.

A model is written into a hidden folder beside its place (:mod:`pulse.store.staging`). When it is complete the two exchange their
names in one step, so a killed fit leaves the old model or the new one, and a reader never finds half of one, or none where there
was one::

    .NAME.staging  <──exchange──>  NAME        then what is in .NAME.staging, the old model, goes

Where the system has no such step (:mod:`pulse.store.name_exchange`) there are two renames, and a moment without a model. A
process that ends in it leaves both hidden folders, which is how everyone who looks for the model next, reader or writer, knows to
give the old one its name back (:func:`recover`)::

    NAME ──> .NAME.replaced        .NAME.staging ──> NAME        then .NAME.replaced goes
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from pulse.core.errors import PulseError
from pulse.store.errors import ModelExistsError, WriteError
from pulse.store.lock import locked
from pulse.store.manifest import FILE
from pulse.store.name_exchange import exchange
from pulse.store.staging import claimed, recover, remove, replaced_beside


@contextmanager
def staged(out: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to write into; it becomes ``out`` when the block ends well, and is gone when it does not."""
    target = Path(out).absolute()
    if target.is_symlink():
        target = target.resolve()  # what is replaced is the folder, not the link to it
    check_free(target, replace=replace)
    with locked(target, "a fit") if (target / FILE).is_file() else nullcontext():
        yield from _staged(target, replace)


def _staged(target: Path, replace: bool) -> Iterator[Path]:
    made = [folder for folder in target.parents if not folder.exists()]  # the innermost first
    try:
        with claimed(target) as staging:
            check_free(target, replace=replace)  # somebody may have been faster
            yield staging
            _publish(staging, target)
    except OSError as e:
        if isinstance(e, PulseError) or e.errno is None or e.errno not in _REFUSED:
            raise
        raise WriteError(
            f"{target}: could not be written ({os.strerror(e.errno)}); nothing was left behind"
        ) from e
    finally:
        if not target.exists():
            _remove_empty(made)


# What a file system says that has no room, or does not let us: the user's to mend, not a bug.
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


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # somebody else put something in
            folder.rmdir()


def check_free(target: Path, *, replace: bool) -> None:
    """Whether a model may be written here: never over something that is none. One that lost its name in a kill has it again."""
    recover(target)
    if not target.exists():
        return
    if not replace:
        raise ModelExistsError(
            f"{target}: exists already; choose another folder, or say --overwrite or --append"
        )
    if not (target.is_dir() and ((target / FILE).is_file() or not any(target.iterdir()))):
        raise ModelExistsError(
            f"{target}: exists and is no stored model, so it is not replaced; choose another folder"
        )


def check_apart(target: Path, inputs: Iterable[str | Path]) -> None:
    """That none of the files that are read lies in the folder that is to be replaced: they would be gone with it."""
    place = target.resolve()
    for one in inputs:
        if Path(one).resolve().is_relative_to(place):
            raise ModelExistsError(
                f"{target}: holds {one}, which is read for the model that would replace it; choose another folder"
            )


def _publish(staging: Path, target: Path) -> None:
    """Let the new folder take the place of the old one, if there is one."""
    if not target.exists():
        staging.rename(target)
        return
    if exchange(staging, target):
        return  # what is in the staging folder now goes with it
    old = replaced_beside(target)
    target.rename(old)
    try:
        staging.rename(target)
    except OSError:
        old.rename(target)
        raise
    remove(old)
