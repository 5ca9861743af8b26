"""A row on one core runs on one core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from pulse.benchmarks.cores import here, on_cores
from pulse.runtime.execution import local_driver

TELL = "import os; print(len(os.sched_getaffinity(0)))"


def of_a_new_process() -> int:
    return int(subprocess.run([sys.executable, "-c", TELL], capture_output=True, check=True).stdout)


def test_threads_and_processes_are_kept_to_as_many_cores_and_let_go_again() -> None:
    before, arrow = os.sched_getaffinity(0), pa.cpu_count()
    asked, details, done = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []

    def old_thread() -> None:
        for event in (asked, done):
            event.wait()
            seen.append(here())
            details.set()

    thread = threading.Thread(target=old_thread)
    thread.start()
    with on_cores(1):
        asked.set()
        details.wait()
        assert (here(), local_driver.cores(), pa.cpu_count(), of_a_new_process()) == (1, 1, 1, 1)
    done.set()
    thread.join()
    assert seen == [1, len(before)]
    assert os.sched_getaffinity(0) == before
    assert pa.cpu_count() == arrow


def test_processes_that_run_already_are_kept_to_them_too() -> None:
    before = here()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with on_cores(1):
            assert len(os.sched_getaffinity(child.pid)) == 1
        assert len(os.sched_getaffinity(child.pid)) == before
    finally:
        child.communicate(b"\n")


def test_cores_are_given_back_after_an_error() -> None:
    before = here()

    def fail() -> None:
        with on_cores(1):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert here() == before


@pytest.mark.parametrize("count", [0, -1, 10_000])
def test_cores_that_are_not_there(count: int) -> None:
    with pytest.raises(ValueError, match="from 1 to"), on_cores(count):
        pass
