"""What Spark's processes say of nothing, left out of what they write to stderr.

The JVM and, through it, Python workers write to the stderr that the JVM was started with. Nothing there can be told to be quiet:
PySpark's worker for stateful operators prints its progress, and Java warns of a module that Spark asks for. So the JVM is
started with a pipe instead, and all lines are passed on but those that are known to mean nothing.
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
"""How lines begin that say nothing."""

_DRAINED = 0.2  # seconds without a line after which nothing more is waited for


def said(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that say something; an empty one after chatter belongs to it.

    >>> list(said([b"Starting Streaming TransformWithStateInPandas Python worker.\\n", b"\\n", b"ERROR\\n", b"\\n"]))
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
    """Processes that are started meanwhile write to stderr without chatter, for as long as this process lives."""
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


_heard = [0.0]  # when the last line came


def drain() -> None:
    """Wait until no more lines come that were written before."""
    begin = time.monotonic()
    while time.monotonic() - max(begin, _heard[0]) < _DRAINED:
        time.sleep(_DRAINED / 10)


def _pass_on(read: int, to: int) -> None:
    with os.fdopen(read, "rb") as pipe:
        for line in said(_timed(pipe)):
            try:
                os.write(to, line)
            except OSError:  # nobody listens any more; but the pipe must not fill up
                continue
    os.close(to)


def _timed(pipe: BinaryIO) -> Iterator[bytes]:
    for line in iter(pipe.readline, b""):
        _heard[0] = time.monotonic()
        yield line
