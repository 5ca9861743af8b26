"""Tasks that wait in the middle until somebody has died: so that a kill meets work under way, on a machine of any speed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pulse.datasets.plain_parquet import PlainParquet
from pulse.datasets.units import Unit
from tests.cluster.standalone import Cluster
from tests.waiting import LONGEST


@dataclass(frozen=True)
class Gate:
    """A gate in a folder that tasks and the test share. The first task that comes to it waits; later ones pass."""

    folder: str

    def pass_through(self) -> None:
        """In a task: say who is here, and wait until the gate is open."""
        if self._open.exists():
            return
        (Path(self.folder) / f"waiting-{os.getpid()}").write_text(str(Path.cwd()))
        _await(self._open.exists, "the gate to be opened")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: lets the first batch through before it waits, so that work is half done."""
        for number, batch in enumerate(batches):
            if number == 1:
                self.pass_through()
            yield batch
        self.pass_through()

    @property
    def _open(self) -> Path:
        return Path(self.folder) / "open"

    @contextlib.contextmanager
    def kills(self, victim: Callable[[str], int]) -> Iterator[list[int]]:
        """While the block runs, wait for a task at the gate, kill who ``victim`` says of its folder, and open the gate.

        Gives the pids that were killed: one, once the block has ended.
        """
        killed: list[int] = []

        def work() -> None:
            folder = Path(self.folder)
            _await(lambda: any(folder.glob("waiting-*")), "a task to come to the gate")
            time.sleep(0.2)  # let it have written where it runs
            (first, *_) = sorted(folder.glob("waiting-*"))
            killed.append(victim(first.read_text()))
            os.kill(killed[0], 9)
            _await(lambda: not _lives(killed[0]), "the killed to be gone")
            self._open.touch()

        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(work)
            try:
                yield killed
            finally:
                self._open.touch()
                watching.result()


def _await(come: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST
    while not come():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {LONGEST:g} s for {what}")
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def executor_of(cluster: Cluster) -> Callable[[str], int]:
    """Whose task waits: the JVM that runs it."""

    def find(folder: str) -> int:
        number = Path(folder).name  # worker-1/app-…/0
        own = [pid for pid, line in cluster.processes().items() if f"--executor-id {number} " in line]
        (pid,) = [pid for pid in own if pid in cluster.executors()]
        return pid

    return find


def worker_of(cluster: Cluster) -> Callable[[str], int]:
    """Whose executor's task waits: the daemon that started the executor."""

    def find(folder: str) -> int:
        (worker,) = [one for one in cluster.workers if one.name in Path(folder).parts]
        return worker.pid

    return find


@dataclass(frozen=True, kw_only=True)
class GatedParquet(PlainParquet):
    """Parquet files of which one unit waits at a gate when part of it is read."""

    gate: str
    gated: int

    def batches(self, unit: Unit, columns: Sequence[str], **more: Any) -> Iterator[pa.RecordBatch]:
        """As those of the files."""
        found = super().batches(unit, columns, **{**more, "batch_rows": 1000})
        return Gate(self.gate)(found) if unit.ordinal == self.gated else found
