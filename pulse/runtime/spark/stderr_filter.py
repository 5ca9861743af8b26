"""Filter harmless lines from Spark's stderr.

The JVM and, through it, Python workers write to the stderr that the JVM was started with, and have no switch to be quiet:
PySpark's worker for stateful operators prints its progress, and Java warns of a module that Spark requests. So the JVM is
started with a pipe instead, and all lines except the known harmless ones are passed on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

CHATTER = (
    b"Starting Streaming TransformWithStateInPandas Python worker.",
    b"Streaming TransformWithStateInPandas Python worker ",
    b"WARNING: Using incubator modules: jdk.incubator.vector",
)
"""Prefixes of harmless lines."""

_DRAINED = 0.2  # seconds without a line after which stderr counts as drained


def drop_chatter(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Drop harmless lines, and an empty line after one.

    >>> lines = [b"Starting Streaming TransformWithStateInPandas Python worker.\\n", b"\\n", b"ERROR\\n", b"\\n"]
    >>> list(drop_chatter(lines))
    [b'ERROR\\n', b'\\n']
    """
    dropped = False
    for line in lines:
        chatter = line.startswith(CHATTER)
        if not chatter and not (dropped and not line.strip()):
            yield line
        dropped = chatter


@contextmanager
def without_chatter() -> Iterator[None]:
    """Filter the stderr of processes that start in this block, for as long as this process lives."""
    sys.stderr.flush()
    try:
        ours = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_pass_on, args=(read, os.dup(ours)), name="stderr of Spark", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)


_last_line = [0.0]  # time of the last line


def drain() -> None:
    """Wait until lines that were written before have been passed on."""
    begin = time.monotonic()
    while time.monotonic() - max(begin, _last_line[0]) < _DRAINED:
        time.sleep(_DRAINED / 10)


def _pass_on(read: int, to: int) -> None:
    with os.fdopen(read, "rb") as pipe:
        for line in drop_chatter(_timed(pipe)):
            try:
                os.write(to, line)
            except OSError:  # the reader is gone; but the pipe must not fill up
                continue
    os.close(to)


def _timed(pipe: BinaryIO) -> Iterator[bytes]:
    for line in iter(pipe.readline, b""):
        _last_line[0] = time.monotonic()
        yield line
