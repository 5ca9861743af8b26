"""The log of a model: small numbered documents, of which the newest is the model.

::

    DIR/_pulse/00000001.json      a fit
    DIR/_pulse/00000002.json      an append: the documents before it stay as they are

A document is created under its number once, whole or not at all: of two writers that create the same one succeeds, and
the other finds out (:func:`create`). It is a hard link to a file that has been written through to the disk, so that nobody ever
reads half of one. Each ends with the checksum of what precedes. Nothing here depends on locks, or on renames.

A model of earlier versions of Pulse has ``DIR/_pulse.json`` instead, which stays the truth until it is removed
(:mod:`pulse.store.migration`).
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path

from pulse.store.checksums import checksum_of
from pulse.store.errors import DamagedModelError

LOG = "_pulse"
"""The folder of the documents, in that of the model."""
LEGACY = "_pulse.json"
"""The manifest of a model of earlier versions of Pulse."""
TEMPORARY = ".tmp"
_NAME = re.compile(r"(\d{8})\.json")
_SIGNATURE = re.compile(rb',\n  "checksum": "(crc32:[0-9a-f]{8})"\n}\n\Z')
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def commit_path(folder: str | Path, number: int) -> Path:
    """Return the path of a document."""
    return Path(folder) / LOG / f"{number:08d}.json"


def numbers(folder: str | Path) -> list[int]:
    """Return the numbers of the documents there are, in order."""
    try:
        with os.scandir(Path(folder) / LOG) as entries:
            return sorted(int(found[1]) for one in entries if (found := _NAME.fullmatch(one.name)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_model(folder: str | Path) -> bool:
    """Check whether a folder holds a stored model."""
    return (Path(folder) / LEGACY).is_file() or bool(numbers(folder))


def signed(text: str) -> bytes:
    """Return a document's content: JSON text of an object, with its checksum as the last field."""
    body = text.rstrip("\n").encode()
    assert body.endswith(b"\n}"), "expected an indented object"
    return body[:-2] + f',\n  "checksum": "{checksum_of(body)}"\n}}\n'.encode()


def check_signed(path: Path, content: bytes) -> None:
    """Check that a document is whole and as it was written."""
    found = _SIGNATURE.search(content)
    if found is None:
        raise DamagedModelError(
            f"{path}: not a whole commit: its checksum is missing; the document is damaged: restore it"
        )
    body = content[: found.start()] + b"\n}"
    if checksum_of(body).encode() != found[1]:
        raise DamagedModelError(
            f"{path}: its content has the checksum {checksum_of(body)}, expected {found[1].decode()}; the document is damaged: "
            "restore it"
        )


def create(folder: str | Path, number: int, content: bytes) -> bool:
    """Create a document, whole and on the disk; return False, changing nothing, if there is one of this number."""
    path = commit_path(folder, number)
    draft = path.with_name(f"_{path.stem}-{uuid.uuid4().hex[:8]}{TEMPORARY}")
    path.parent.mkdir(exist_ok=True)  # a writer that failed may have removed it, being empty
    try:
        write_through(draft, content)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            try:  # a file system without hard links: exclusive creation; half a document is reported, not read
                write_through(path, content)
            except FileExistsError:
                return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def empty(folder: Path, number: int) -> None:
    """Remove the content of an old document in one step; its number stays taken."""
    draft = commit_path(folder, number).with_name(f"_empty-{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        write_through(draft, b"")
        draft.replace(commit_path(folder, number))
    finally:
        draft.unlink(missing_ok=True)


def forget(folder: Path, number: int, after: int) -> None:
    """Remove an empty document that is older than so many seconds."""
    path = commit_path(folder, number)
    with suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime > after:
            path.unlink()


def write_through(path: Path, content: bytes) -> None:
    """Write a new file through to the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
