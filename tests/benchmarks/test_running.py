"""A run leaves a report of what ran, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pulse.benchmarks.report.rows import Run, read
from tests.benchmarks.test_compare import doctored
from tests.fork_server import ForkServer

GOOD = '''
"""Good ones, in one file.

And more.
"""
import pytest
from pulse.benchmarks.recording import Accuracy, apart, exact, record


@pytest.mark.parametrize("contender", ["pulse", "DuckDB"])
def test_it(benchmark, contender):
    with apart("waiting"):
        pass
    record(benchmark, lambda: sum(range(10_000)), group="g", contender=contender, work=10_000, accuracy=exact())
'''
BAD = """
import pytest
from pulse.benchmarks.recording import Accuracy, exact, record


def test_wrong_answer(benchmark):
    record(benchmark, lambda: 1, group="g", contender="Polars", work=1, accuracy=lambda _: Accuracy(1, 1, 0, 0.5))


def test_failing_after_it_was_timed(benchmark):
    record(benchmark, lambda: 1, group="g", contender="pandas", work=1, accuracy=exact())
    assert 1 == 2


def test_failing_before_it_was_timed(benchmark):
    raise RuntimeError("no such engine")


def test_unjudged(benchmark):
    benchmark(lambda: 1)


def test_skipped(benchmark):
    pytest.skip("no data")
"""
UNREADABLE = "import nothing_of_this_name\n"
ENDING = """
import os
import signal
from pulse.benchmarks.recording import exact, record


def test_that_is_interrupted(benchmark):
    def run():
        os.kill(os.getpid(), signal.{0})

    record(benchmark, run, group="g", contender="numpy", work=1, accuracy=exact(), warmup=0)


def test_never_reached(benchmark):
    record(benchmark, lambda: 1, group="g", contender="scipy", work=1, accuracy=exact())
"""


Ran = Callable[..., tuple[int, str, Run]]


@pytest.fixture
def ran(fork_server: ForkServer) -> Ran:
    """Exit code and output of a run of files, and its rows."""
    return partial(_ran, fork_server)


def _ran(server: ForkServer, folder: Path, *arguments: str, **files: str) -> tuple[int, str, Run]:
    (folder / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\n")
    (folder / "conftest.py").write_text('pytest_plugins = ["pulse.benchmarks.running"]\n')
    chosen = {name: files.pop(name) for name in list(files) if name.isupper()}  # settings
    for name, text in files.items():
        (folder / f"bench_{name}.py").write_text(text)
    command = [
        str(server.python),
        "-m",
        "pytest",
        str(folder),
        "-c",
        str(folder / "pytest.ini"),
        "-p",
        "no:cacheprovider",
    ]
    details = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PULSE_BENCH"))
    }
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=folder, env=details | chosen
    )
    (file,) = folder.glob(".benchmarks/2*/run.json")
    return done.returncode, done.stdout + done.stderr, read(file)


def texts(folder: Path) -> list[str]:
    return [path.read_text("utf-8") for path in sorted(folder.glob(".benchmarks/latest/report.*"))]


def test_what_fails_has_no_row_and_is_reported(ran: Ran, tmp_path: Path) -> None:
    code, reported, run = ran(tmp_path, a_good=GOOD, b_bad=BAD, c_unreadable=UNREADABLE)
    assert code == 1
    assert [row.contender for row in run.rows] == ["pulse", "DuckDB"]
    assert run.complete
    failures = {one["name"]: one["message"] for one in run.failures}
    assert len(failures) == len(run.failures) == 5
    details = "\n".join(f"{name}: {message}" for name, message in failures.items())
    for part in (
        "test_wrong_answer: ValueError: the answer is off by 0.5, but certifies 0",
        "test_failing_after_it_was_timed: assert 1 == 2",
        "test_failing_before_it_was_timed: RuntimeError: no such engine",
        "test_unjudged has no row: time it with pulse.benchmarks.recording.record()",
        "bench_c_unreadable.py (while it was read): ",
    ):
        assert part in details
    assert [one["message"] for one in run.skipped] == ["no data"]
    assert run.chapters["a_good"] == "Good ones, in one file."
    assert len(run.apart["waiting"]) == 2
    assert {"processor", "memory", "load at the start", "load at the end", "packages"} <= set(run.facts)
    page, text = texts(tmp_path)
    for written in (page, text, reported):
        assert "5 benchmarks failed" in written
        assert "DuckDB" in written
    assert "Polars" not in page + text


@pytest.mark.parametrize("signalled", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_leaves_what_it_had(ran: Ran, tmp_path: Path, signalled: str) -> None:
    code, _, run = ran(tmp_path, a_good=GOOD, b_ending=ENDING.format(signalled))
    assert code == pytest.ExitCode.INTERRUPTED
    assert [row.contender for row in run.rows] == ["pulse", "DuckDB"]
    assert not run.complete
    assert "test_that_is_interrupted" in run.failures[-1]["name"]
    for written in texts(tmp_path):
        assert "did not reach its end" in written


def test_a_killed_run_leaves_what_it_had(ran: Ran, tmp_path: Path) -> None:
    code, _, run = ran(tmp_path, a_good=GOOD, b_ending=ENDING.format("SIGKILL"))
    assert code == -signal.SIGKILL
    assert [row.contender for row in run.rows] == ["pulse", "DuckDB"]
    assert not run.complete
    assert run.ahead.endswith("test_that_is_interrupted")
    (page,) = tmp_path.glob(".benchmarks/2*/report.html")
    assert "It got as far as" in page.read_text("utf-8")


def test_a_run_is_compared_with_an_earlier_one(ran: Ran, tmp_path: Path) -> None:
    code, _, _ = ran(tmp_path, a_good=GOOD)
    assert code == 0
    (folder,) = tmp_path.glob(".benchmarks/2*")
    earlier = tmp_path / "earlier.json"
    details: dict[str, Any] = json.loads((folder / "run.json").read_text())
    for name in list(folder.iterdir()):
        name.unlink()
    folder.rmdir()
    earlier.write_text(json.dumps(doctored(details, 1e-3)))
    code, reported, run = ran(tmp_path, "--pulse-compare", str(earlier))
    assert code == 1
    assert "of 1 row of Pulse 1 slower or less accurate" in reported
    assert len(run.rows) == 2
    assert "1 row got worse" in texts(tmp_path)[0]


def test_an_earlier_run_that_cannot_be_read_ends_it_at_once(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(ValueError, match="not enough values"):
        ran(tmp_path, "--pulse-compare", str(tmp_path / "old.json"), a_good=GOOD)


HANGING = """
import time
import pytest
from pulse.benchmarks.recording import exact, record


def test_that_hangs(benchmark):
    record(benchmark, lambda: time.sleep(60), group="g", contender="numpy", work=1, accuracy=exact())


def test_elsewhere(benchmark):
    raise RuntimeError("An exception was thrown from the worker:\\nTraceback\\n  in there\\nValueError: no room")
"""


def test_what_hangs_fails_and_the_others_run(ran: Ran, tmp_path: Path) -> None:
    code, _, run = ran(tmp_path, a_hanging=HANGING, b_good=GOOD, PULSE_BENCH_LIMIT="3")
    assert code == 1
    details = "\n".join(f"{one['name']}: {one['message']}" for one in run.failures)
    assert "test_that_hangs: TimeoutError: not done after 3 s" in details
    assert (
        "test_elsewhere: RuntimeError: An exception was thrown from the worker: ValueError: no room"
        in details
    )
    assert [row.contender for row in run.rows] == ["pulse", "DuckDB"]


def test_progress_says_what_runs_and_what_remains(ran: Ran, tmp_path: Path) -> None:
    _, reported, _ = ran(tmp_path, a_good=GOOD, b_good=GOOD)
    lines = [line for line in reported.splitlines() if line.startswith("[")]
    assert [line.partition("] ")[2] for line in lines] == [
        "0 of 4 done, now a_good (2 left in it), then b_good",
        "2 of 4 done, now b_good (2 left in it)",
    ]
