"""The hidden folder in which a model is written, one at a time for each model, and what one that was killed left there.

Who writes holds the lock ``.NAME.lock`` beside the model. It ends with the process, however that ends: hidden folders that are
there when the lock is free were left behind, and whoever writes the model next removes them.
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
_PATIENCE = 10.0  # seconds that the two renames of a living process may take
_LOOK = 0.01


def staging_beside(target: Path) -> Path:
    """The folder in which a model is written."""
    return target.with_name(f".{target.name}.staging")


def replaced_beside(target: Path) -> Path:
    """Where the old model lies while the new one gets its name."""
    return target.with_name(f".{target.name}.replaced")


@contextmanager
def claimed(target: Path) -> Iterator[Path]:
    """An empty staging folder for the length of the block, nobody else's; gone at its end unless it got another name."""
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
    """Remove a model, or what is left of one: its manifest first, so that what an interruption leaves is no model."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def recover(target: Path) -> None:
    """Give a model its name back that a process took it from and was killed before it gave the name to the new one."""
    if target.is_symlink():
        target = target.resolve()
    end = time.monotonic() + _PATIENCE
    while _is_interrupted(target) and time.monotonic() < end:
        try:
            with locked_file(_lock_beside(target), str(target), "recovering it", remove=True):
                _restore(target)
        except RevisionUnderWayError:  # the process is at work: the name comes in a moment
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
    """Whether a process ended, or is, between the two renames: before them and after them only one of the folders is there."""
    hidden = staging_beside(target), replaced_beside(target)
    try:
        return not target.exists() and all((one / MANIFEST).is_file() for one in hidden)
    except OSError:  # a name that is too long, for one, is nobody's
        return False


def _lock_beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")
