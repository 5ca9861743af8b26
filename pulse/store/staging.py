"""Staging: the hidden folder in which a model is written, and the recovery of what killed writers left.

A writer holds the lock ``.NAME.lock`` beside the model. It ends with the process, even if killed: hidden folders that exist
while the lock is free are leftovers, and the next writer removes them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulse.store.errors import ModelNotFoundError, RevisionUnderWayError, WriteError
from pulse.store.lock import locked_file

MANIFEST = "_pulse.json"
_PATIENCE = 10.0  # seconds that the two renames of a live process may take
_LOOK = 0.01


def staging_beside(target: Path) -> Path:
    """Return the folder in which a model is written."""
    return target.with_name(f".{target.name}.staging")


def replaced_beside(target: Path) -> Path:
    """Return the folder of the old model while the new one gets its name."""
    return target.with_name(f".{target.name}.replaced")


@contextmanager
def claimed(target: Path) -> Iterator[Path]:
    """Yield an exclusive, empty staging folder for the length of the block; removed at its end unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = staging_beside(target)
    with locked_file(_lock_beside(target), str(target), "a fit", remove=True):
        _restore(target)
        for left in (staging, replaced_beside(target)):
            remove(left)
        try:
            staging.mkdir()
            yield staging
        finally:
            remove(staging)


def remove(folder: Path) -> None:
    """Remove a complete or partial model: its manifest first, so that an interruption leaves no model."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def recover(target: Path) -> None:
    """Restore the name of a model whose replacement was killed between its two renames."""
    if target.is_symlink():
        target = target.resolve()
    end = time.monotonic() + _PATIENCE
    while _is_interrupted(target) and time.monotonic() < end:
        try:
            with locked_file(_lock_beside(target), str(target), "recovering it", remove=True):
                _restore(target)
        except RevisionUnderWayError:  # the process is alive: the name appears soon
            time.sleep(_LOOK)
        except (WriteError, OSError) as e:
            old = replaced_beside(target)
            raise ModelNotFoundError(
                f"{target}: its replacement was interrupted, and it lies in {old}, which cannot be renamed ({e}); rename it to "
                f"{target.name}"
            ) from e


def _restore(target: Path) -> None:
    if _is_interrupted(target):
        replaced_beside(target).rename(target)


def _is_interrupted(target: Path) -> bool:
    """Check whether a process ended, or is, between the two renames: otherwise only one of the hidden folders exists."""
    hidden = staging_beside(target), replaced_beside(target)
    try:
        return not target.exists() and all((one / MANIFEST).is_file() for one in hidden)
    except OSError:  # for example a name that is too long, which no folder has
        return False


def _lock_beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")
