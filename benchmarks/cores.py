"""One core against several: the whole process, what it starts, and Arrow's pool kept to a number of cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

_THREADS = Path("/proc/self/task")


def here() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep all threads that there are, and with them threads and processes started meanwhile, on the first ``count`` cores.

    A thread that a library starts for good in here stays there, so libraries should be asked for their number of threads as
    well, as is done of Arrow. ValueError where there are not as many cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(allowed):
        raise ValueError(f"count is a number of cores from 1 to {len(allowed)}; got {count}")
    threads = pa.cpu_count()
    _pin(set(allowed[:count]))
    pa.set_cpu_count(count)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        _pin(set(allowed))


def _pin(cores: set[int]) -> None:
    """Every thread: the call by itself reaches the calling one alone."""
    for thread in _THREADS.iterdir():
        with suppress(ProcessLookupError):  # it may end while the others are pinned
            os.sched_setaffinity(int(thread.name), cores)
