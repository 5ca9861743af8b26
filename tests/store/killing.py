"""Kills a command before each of its file operations, one process after the other.

Operations are counted as Python announces them before they are done (audit events), and those of Arrow, which announces none, by
standing before ``pyarrow.parquet.write_table``: before it, and once more with half of its file written.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.waiting import LONGEST

_CHANGING = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

Command = Callable[[], object]


class _Counter:
    """Counts operations in a folder, and ends the process before the one of a number."""

    def __init__(self, root: Path, last: int | None) -> None:
        self.root, self.last, self.count, self.busy = str(root), last, 0, False

    def step(self) -> None:
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(LONGEST)  # until the signal is there
        self.count += 1

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and self._ours(path, -1):
                self.step()
        elif event in _CHANGING:
            folder = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
            if self._ours(arguments[0], folder):
                self.step()

    def _ours(self, path: Any, folder: Any) -> bool:
        found = _opened(path) if isinstance(path, int) else Path(os.fsdecode(path))
        if isinstance(folder, int) and folder >= 0:
            found = _opened(folder) / found
        return str(found.absolute()).startswith(self.root)


def _opened(handle: int) -> Path:
    return Path(f"/proc/self/fd/{handle}").readlink()


def _intercept(counter: _Counter) -> None:
    sys.addaudithook(counter.hook)
    write = pq.write_table

    def write_table(table: Any, where: Any, **options: Any) -> None:
        if isinstance(where, (str, Path)):
            Path(where).write_bytes(b"PAR1")
            counter.step()
        write(table, where, **options)

    pq.write_table = write_table


def run(command: Command, root: Path, last: int | None = None) -> int | None:
    """Run a command in a process of its own: how many operations in the folder it made, or None where it was killed before
    operation ``last``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            gc.disable()  # a collection would copy all that the tests have loaded
            counter = _Counter(root, last)
            _intercept(counter)
            command()
            counter.root = "\0"
            os.write(writing, str(counter.count).encode())
            status = 0
        except BaseException as e:  # noqa: BLE001  # whatever it is, the parent is to see it
            os.write(writing, f"{type(e).__name__}: {e}"[:4000].encode())
        finally:
            os._exit(status)
    os.close(writing)
    status = _end_of(child)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert last is not None, "killed by somebody else"
        return None
    assert status == 0, text
    return int(text)


def _end_of(child: int) -> int:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the process was stuck")
