"""One core against several: the whole process, what it starts, and Arrow's pool kept to a number of cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from pulse.benchmarks.processes import descendants

_PROC = Path("/proc")


def here() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep all threads that there are, of this process and of those it started, and with them what is started meanwhile, on the
    first ``count`` cores. Spark's JVM is such a process: it outlives its sessions.

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
    for process in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):  # what is looked at may end meanwhile
            for thread in (_PROC / str(process) / "task").iterdir():
                with suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
