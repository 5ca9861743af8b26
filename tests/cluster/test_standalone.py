"""The script that starts clusters: what fails says why, and nothing is left, also when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import standalone
from tests.cluster.standalone import Cluster, ClusterError
from tests.conftest import ROOT
from tests.waiting import LONGEST


def test_an_interrupt_ends_all_of_it() -> None:
    """A master, a worker and the command run; after Ctrl-C none of them does, and the folder is gone."""
    command = [
        sys.executable,
        "-m",
        "tests.cluster.standalone",
        "--workers",
        "1",
        "--memory",
        "1g",
        "--",
        "sleep",
        "600",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        reported = process.stderr.readline()  # once the worker is registered
        found = re.search(r"(spark://127\.0\.0\.1:\d+), 1 workers, logs in (\S+)", reported)
        assert found, reported + process.stderr.read()
        running = Cluster.running_in(found[2])
        assert running.url == found[1]
        assert running.alive() == len(running.workers) == 1
        assert len(running.processes()) == 2
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=LONGEST)
    assert process.returncode == 128 + signal.SIGINT
    assert running.processes() == {}
    assert not Path(found[2]).exists()


def test_what_does_not_start_is_reported_of_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "bare_python", lambda folder: sys.executable)
    with (
        pytest.raises(ClusterError, match=r"worker-1 ended:\n(.*\n)*.*Amount of memory"),
        standalone.cluster(1, memory="much"),
    ):
        pytest.fail("it started")


def test_the_exit_code_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "cluster", _none)
    assert standalone.main(["--", sys.executable, "-c", "raise SystemExit(7)"]) == 7


class _none:
    """A cluster without processes."""

    def __init__(self, *_: object, **__: object) -> None:
        self.running = Cluster(Path("nowhere"))

    def __enter__(self) -> Cluster:
        return self.running

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""
