"""Lock a checkpoint: one process changes it at a time, others are rejected.

The lock is the system's, on a file such as ``_lock`` of the folder, so that it ends with the process that holds it, even if
killed. The file must be the folder's own: a link in its place is rejected, and its target stays unchanged.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

from pulse.core.errors import PulseError
from pulse.store.errors import LinkedFileError, WriteError

LOCK = "_lock"


class LockedError(PulseError, BlockingIOError):
    """Another process uses the folder: ``holder`` describes it, as far as known."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


def take(path: Path, subject: str, what: str) -> int:
    """Open and lock the file, and write into it who holds it and why; :func:`release` ends it."""
    handle = _take(path, subject)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    text = f"{what}, process {os.getpid()} on {socket.gethostname()} since {now}"
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)
    return handle


def release(handle: int) -> None:
    """Release a lock."""
    fcntl.flock(handle, fcntl.LOCK_UN)  # not left to closing: a fork of this process may hold it open
    os.close(handle)


def _take(path: Path, subject: str) -> int:
    while True:
        handle = _open(path, subject)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 1000, 0).decode(errors="replace") or "just now"
            os.close(handle)
            raise LockedError(
                f"{subject}: it is being changed ({holder}); try again when that is done", holder
            ) from None
        # The file may have been replaced between opening and locking: then this locks a deleted file.
        if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
        os.close(handle)


def _open(path: Path, subject: str) -> int:
    """Open the file of a lock, or create it. It is written to, so it must be a regular file with no other name."""
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
