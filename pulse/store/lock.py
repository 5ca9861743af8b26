"""One at a time: who changes a stored model, or runs a job on a checkpoint, holds its lock, and a second one is refused.

The lock is the system's, on a file such as ``_lock`` of the folder, so that it ends with the process that holds it, however that
ends. The file is the folder's own: a link in its place is refused, and what it points to stays as it is.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulse.store.errors import LinkedFileError, RevisionUnderWayError, WriteError

LOCK = "_lock"


@contextmanager
def locked(folder: str | Path, what: str) -> Iterator[None]:
    """Hold the lock of a model for the length of the block; ``what`` is said to whoever comes meanwhile."""
    with locked_file(Path(folder) / LOCK, str(folder), what):
        yield


@contextmanager
def locked_file(path: Path, subject: str, what: str, *, remove: bool = False) -> Iterator[None]:
    """Hold the lock on a file, which is made for it, and removed at the end of the block if ``remove`` says so.

    Messages are about the ``subject`` that is being changed.
    """
    handle = take(path, subject, what)
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)  # who has opened it by then sees that it is gone, and makes another
        release(handle)


def take(path: Path, subject: str, what: str) -> int:
    """The file opened, locked, and with a text that says who holds it and for what; :func:`release` ends it."""
    handle = _take(path, subject)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    text = f"{what}, process {os.getpid()} on {socket.gethostname()} since {now}"
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)
    return handle


def release(handle: int) -> None:
    """Let go of a lock."""
    fcntl.flock(handle, fcntl.LOCK_UN)  # not left to closing: a fork of this process may hold it open
    os.close(handle)


def _take(path: Path, subject: str) -> int:
    while True:
        handle = _open(path, subject)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 1000, 0).decode(errors="replace")
            os.close(handle)
            refusal = RevisionUnderWayError(
                f"{subject}: it is being changed ({holder or 'just now'}); try again when that is done"
            )
            refusal.holder = holder or refusal.holder
            raise refusal from None
        # It may have been replaced between opening and locking: then this is the lock of one that is gone.
        if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
        os.close(handle)


def _open(path: Path, subject: str) -> int:
    """The file of a lock, made if it is not there. It is written to, so it must be a file under this name alone."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise LinkedFileError(
                f"{path}: expected a file of its own for the lock, got a symbolic link to {path.readlink()}; remove "
                "it if nobody needs it"
            ) from None
        raise WriteError(f"{subject}: it could not be written to ({e.strerror})") from e
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise LinkedFileError(
            f"{path}: expected a file of its own for the lock, got one that has other names, or is no file; remove it if "
            "nobody needs it"
        )
    return handle
