"""Reject links in folders of Pulse: a model, a checkpoint or results may come from somebody else.

Everything that Pulse reads, changes and removes in such a folder must lie in it. So a link under one of its names is rejected
when the folder is opened, before anything behind it is read, written or deleted; so is anything that is neither a file nor a
folder, such as a pipe, which would never end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pulse.store.errors import LinkedFileError


def of_a_model(name: str) -> bool:
    """Check whether a model's folder may hold a name, for Pulse or for readers of tables."""
    return name.startswith("_") or name.endswith(".parquet")


def check_own(
    folder: str | Path,
    within: Iterable[str] = (),
    *,
    ours: Callable[[str], bool] = of_a_model,
    what: str = "model",
) -> None:
    """Check that a folder, and those ``within`` it, hold no link, pipe or device under a name that is ``ours``.

    The folder itself may be reached through a link: that is the user's choice.
    """
    for place in (Path(folder), *(Path(folder) / name for name in within)):
        try:
            with os.scandir(place) as entries:
                foreign = [one.path for one in entries if ours(one.name) and not _is_plain(one)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        if foreign:
            raise LinkedFileError(_refusal(min(foreign), what))


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _refusal(path: str, what: str) -> str:
    link = Path(path)
    got = f"a symbolic link to {link.readlink()}" if link.is_symlink() else "neither"
    return (
        f"{path}: expected a file or folder of the {what}'s own, got {got}; links are not followed, as a {what} may come from "
        "somebody else: replace it by the file or folder itself, or remove it"
    )


def create(path: Path) -> int:
    """Create and open a file for writing; an existing file or link of that name is removed."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
