"""One at a time: who changes a stored model holds its lock, and a second one is refused.

The lock is the system's, on the file ``_lock`` of the folder, so that it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulse.store.errors import RevisionUnderWayError, WriteError

LOCK = "_lock"


@contextmanager
def locked(folder: str | Path, what: str) -> Iterator[None]:
    """Hold the lock of a model for the length of the block; ``what`` is said to whoever comes meanwhile."""
    path = Path(folder) / LOCK
    handle = _take(path)
    try:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = f"{what}, process {os.getpid()} on {socket.gethostname()} since {now}"
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # not left to closing: a fork of this process may hold it open
        os.close(handle)


def _take(path: Path) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as e:
            raise WriteError(f"{path.parent}: it cannot be changed ({e.strerror})") from e
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 1000, 0).decode(errors="replace")
            os.close(handle)
            raise RevisionUnderWayError(
                f"{path.parent}: it is being changed ({holder or 'just now'}); try again when that is done"
            ) from None
        # The model may have been replaced between opening and locking: then this is the lock of one that is gone.
        if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
        os.close(handle)
