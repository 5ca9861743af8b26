"""What a process and those it started have used: CPU seconds and the high-water mark of memory.

Read from Linux's ``/proc``. Elsewhere the processes started are not seen: CPU seconds are then those of this process and of
children that have ended, and there is no high-water mark.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")
_ROOT = Path(__file__).resolve().parents[1]


class CpuClock:
    """User and system time, from when it is made, of this process, its threads, and all it started, whether they have ended.

    Spark's JVM and its workers are such: what a query costs them is seen in their time alone, to hundredths of a second.
    Looking for them takes a millisecond or so, which is not counted.
    """

    def __init__(self) -> None:
        self._running = _running_ticks()
        self._own = _own_seconds()

    def spent(self) -> float:
        """Seconds of CPU until now."""
        own = _own_seconds() - self._own
        return own + _ticks_between(self._running, _running_ticks()) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


_Ticks = dict[int, tuple[int, int]]
"""By process: its own time, and that of its children that have ended and were waited for."""


def _running_ticks() -> _Ticks:
    found = {}
    for process in descendants(os.getpid()):
        with suppress(OSError):  # it may end while it is looked at
            user, system, *children = (int(field) for field in _stat(process)[11:15])
            found[process] = (user + system, sum(children))
    return found


def _ticks_between(before: _Ticks, now: _Ticks) -> int:
    """What was used meanwhile. Processes that ended count in those that waited for them, where any did, with all that they ever
    used: what they had used before is taken off again, but from nothing else. Spark lets idle workers go without waiting."""
    grown = [(now[process], before.get(process, (0, 0))) for process in now]
    own = sum(new[0] - old[0] for new, old in grown)
    ended = sum(new[1] - old[1] for new, old in grown)
    return own + max(ended - sum(sum(before[process]) for process in before.keys() - now.keys()), 0)


def descendants(ancestor: int) -> Iterator[int]:
    """The processes that this one started, those that they started, and so on."""
    children = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            children[int(_stat(int(folder.name))[1])].append(int(folder.name))
    pending = children[ancestor]
    while pending:
        process = pending.pop()
        yield process
        pending.extend(children.get(process, ()))


def _stat(process: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the third, the state, on. The second, a name in brackets, may hold anything."""
    return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()


def resident(process: int, *, most: bool = False) -> int:
    """Bytes of memory that a process holds now, or held at most; 0 for one that has ended."""
    with suppress(OSError):
        name = "VmHWM" if most else "VmRSS"
        found = re.search(rf"{name}:\s+(\d+) kB", (_PROC / str(process) / "status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


class Peak(NamedTuple):
    """Bytes: before the function ran, with what it needed loaded, and at most."""

    before: int
    most: int


def peak(function: Callable[[], Any]) -> Peak:
    """The high-water mark of memory of ``function``, run in a fresh process: a figure of its own, whatever this one holds.

    It travels by pickling, so it must be a function of a module, or a ``functools.partial`` of one. Processes that it
    starts, such as Spark's, are counted as often as one can look, with what they hold at the same time.
    """
    try:
        sent = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise ValueError(
            f"the peak of {function!r} is measured in another process, to which it cannot be sent ({e}); "
            "pass a function of a module, or a functools.partial of one"
        ) from e
    command = [sys.executable, "-m", "pulse.benchmarks.processes"]
    done = subprocess.run(command, input=sent, capture_output=True, cwd=_ROOT)
    if done.returncode:
        raise RuntimeError(f"the run whose memory was to be measured failed:\n{done.stderr.decode()[-2000:]}")
    return Peak(*json.loads(done.stdout.splitlines()[-1]))


def _measured(function: Callable[[], Any]) -> Peak:
    own, done, most = os.getpid(), threading.Event(), [0]

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], sum(resident(process) for process in descendants(own)))

    before = resident(own)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    function()
    done.set()
    watcher.join()
    return Peak(before, resident(own, most=True) + most[0])


if __name__ == "__main__":
    print("\n" + json.dumps(_measured(pickle.loads(sys.stdin.buffer.read()))))
