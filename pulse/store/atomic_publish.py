"""Publish directories atomically: they appear whole or not at all.

A model is written into a hidden folder beside its place (:mod:`pulse.store.staging`). When it is complete the two exchange
their names in one step, so a killed fit leaves the old model or the new one, and a reader never finds a partial or missing
model::

    .NAME.staging  <──exchange──>  NAME        then .NAME.staging, now the old model, is removed

Where the system has no such step (:mod:`pulse.store.name_exchange`) there are two renames, and a moment without a model. A
process killed in between leaves both hidden folders; the next reader or writer detects that and restores the old name
(:func:`recover`)::

    NAME ──> .NAME.replaced        .NAME.staging ──> NAME        then .NAME.replaced is removed
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
    """Yield a folder to write into; it becomes ``out`` if the block succeeds, and is removed otherwise."""
    target = Path(out).absolute()
    if target.is_symlink():
        target = target.resolve()  # replace the folder, not the link to it
    check_free(target, replace=replace)
    with locked(target, "a fit") if (target / FILE).is_file() else nullcontext():
        yield from _staged(target, replace)


def _staged(target: Path, replace: bool) -> Iterator[Path]:
    made = [folder for folder in target.parents if not folder.exists()]  # innermost first
    try:
        with claimed(target) as staging:
            check_free(target, replace=replace)  # another process may have been faster
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


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # another process has written into it
            folder.rmdir()


def check_free(target: Path, *, replace: bool) -> None:
    """Check that a model may be written here, never over other content. Restores the name of a model whose replacement was
    killed.
    """
    recover(target)
    if not target.exists():
        return
    if not replace:
        raise ModelExistsError(
            f"{target}: exists already; choose another folder, or replace the model (--overwrite), or append to it (--append)"
        )
    if not (target.is_dir() and ((target / FILE).is_file() or not any(target.iterdir()))):
        raise ModelExistsError(
            f"{target}: exists and is no stored model, so it is not replaced; choose another folder"
        )


def check_inputs_outside(target: Path, inputs: Iterable[str | Path]) -> None:
    """Check that no input file lies in the folder to be replaced: it would be deleted with it."""
    place = target.resolve()
    for one in inputs:
        if Path(one).resolve().is_relative_to(place):
            raise ModelExistsError(
                f"{target}: holds {one}, which is read for the model that would replace it; choose another folder"
            )


def _publish(staging: Path, target: Path) -> None:
    """Replace the old folder, if any, by the new one."""
    if not target.exists():
        staging.rename(target)
        return
    if exchange(staging, target):
        return  # the staging folder now holds the old model, and is removed
    old = replaced_beside(target)
    target.rename(old)
    try:
        staging.rename(target)
    except OSError:
        old.rename(target)
        raise
    remove(old)
