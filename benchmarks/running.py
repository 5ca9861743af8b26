"""A run of the benchmarks, as a plugin of pytest: a report is left, whatever happens.

The folder of a run, ``.benchmarks/<date>``, holds its JSON (pytest-benchmark's, and what Pulse adds), Markdown and one HTML
page; ``.benchmarks/latest`` points at the last. They are written anew as benchmarks end, so that a run that is interrupted, or
killed, leaves what it had. ``--pulse-compare FILE`` holds the run against an earlier one and fails where rows got worse. Lines of
progress say what runs and what remains. A benchmark that lasts longer than :data:`LIMIT` fails, and the run goes on.
"""

from __future__ import annotations

import ast
import datetime as dt
import os
import platform
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pulse.benchmarks.recording import APART, QUICK
from pulse.benchmarks.report import facts
from pulse.benchmarks.report.compare import Comparison, compare
from pulse.benchmarks.report.files import RUN, write_json, write_report
from pulse.benchmarks.report.reading import sentences
from pulse.benchmarks.report.rows import ADDED, Run, read, run_of
from pulse.benchmarks.report.table import aligned, table

STORAGE = ".benchmarks"
LIMIT = float(os.environ.get("PULSE_BENCH_LIMIT", 900))
"""Seconds that a benchmark, or what it is given to begin with, may take before it counts as hanging."""
QUIET = 20.0  # seconds after which another line of progress is due
REST = 5.0  # seconds after which the report is written anew: it takes a tenth of one


class Running:
    """What is gathered while a run goes on, and written after every benchmark."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        name = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d-%H%M%S") + ("-quick" if QUICK else "")
        self.folder = Path(config.getoption("pulse_out") or config.rootpath / STORAGE / name)
        old = config.getoption("pulse_compare")
        self.old = None if old is None else read(Path(old) / RUN if Path(old).is_dir() else Path(old))
        self.complete = False
        self.ahead = ""  # what is running, or is next
        self.failures: list[dict[str, str]] = []
        self.skipped: list[dict[str, str]] = []
        self.chapters: dict[str, str] = {}
        self.took: dict[str, float] = {}  # seconds of a chapter, with all that is not timed
        self.left: Counter[str] = Counter()  # benchmarks that are still to run, by chapter
        self.number = 0
        self.began = self.written = time.monotonic()
        self.announced = ("", self.began)  # the chapter, and when
        self.facts = facts.machine() | {"load at the start": facts.load()}
        self.machine = {"cpu": {"brand_raw": facts.processor()}, "python_version": platform.python_version()}

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """A benchmark or a whole file that failed or was skipped."""
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self.skipped.append({"name": report.nodeid, "message": reason})
        elif report.failed:
            when = getattr(report, "when", "collect")
            where = "" if when == "call" else f" ({'while it was read' if when == 'collect' else when})"
            self.failures.append({"name": report.nodeid + where, "message": _message(report)})

    def progress(self, item: pytest.Item) -> None:
        """A line for a chapter that begins, and for a benchmark that begins a while after the line before."""
        chapter, now = _chapter(item), time.monotonic()
        begins = self.announced[0] != chapter
        if begins or now - self.announced[1] > QUIET:
            done = self.number - self.left.total()
            rest = ", ".join(name for name in self.left if name != chapter)
            words = f"[{_clock(now - self.began)}] {done} of {self.number} done, now {chapter}"
            words += f" ({self.left[chapter]} left in it)"
            words += (f", then {rest}" if rest else "") if begins else f": {item.name}"
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.ensure_newline()
                reporter.write_line(words)
            self.announced = (chapter, now)
        self.left[chapter] -= 1
        self.left += Counter()  # without chapters that are over

    def added(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            "quick": QUICK,
            "complete": self.complete,
            "ahead": self.ahead,
            "facts": self.facts | {"load at the end": facts.load()},
            "apart": APART,
            "chapters": self.chapters,
            "took": self.took,
            "failures": self.failures,
            "skipped": self.skipped,
        }

    def write(self) -> tuple[Run, Comparison | None]:
        """All of it, as it stands."""
        self.written = time.monotonic()
        session = self.config._benchmarksession  # type: ignore[attr-defined]
        content = self.config.hook.pytest_benchmark_generate_json(
            config=self.config,
            benchmarks=[bench for bench in session.benchmarks if bench and not _unjudged(bench.fixture)],
            include_data=True,
            machine_info=self.machine,  # its own, of a package that starts processes to find out, takes seconds
            commit_info={},
        )
        content[ADDED] = self.added()
        write_json(self.folder, content)
        run = run_of(content)
        comparison = None if self.old is None else compare(run, self.old)
        write_report(self.folder, run, comparison)
        return run, comparison


def _message(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The error itself, shortened. One that announces another, of a process elsewhere, has that at its end."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr).strip().rpartition("\n")[2]
    lines = [line for line in text.strip().splitlines() if line.strip()] or [""]
    content = [lines[0], lines[-1]] if lines[0].endswith(":") and len(lines) > 1 else lines[:1]
    return " ".join(" ".join(content).split())[:300]


def _chapter(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("bench_")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


_RUNNING = pytest.StashKey[Running]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pulse", "reports of Pulse's benchmarks")
    group.addoption("--pulse-out", metavar="FOLDER", help="the run's folder (.benchmarks/<date>)")
    group.addoption(
        "--pulse-compare", metavar="FILE", help="an earlier run's JSON: fail where rows got worse"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.collectonly or config.getoption("benchmark_disable") or hasattr(config, "workerinput"):
        return
    try:
        config.stash[_RUNNING] = Running(config)
    except (OSError, ValueError) as e:
        raise pytest.UsageError(f"--pulse-compare: {e}") from e
    config.option.benchmark_quiet = True  # its table is not ours
    # Raised for a benchmark that fails before it is timed, whose failure would then be reported twice.
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used")
    # A file that cannot be read is reported, the others run.
    config.option.continue_on_collection_errors = True
    # As if interrupted from the keyboard: what had been measured is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _EARLY.append(report)


_EARLY: list[pytest.CollectReport] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    running = session.config.stash.get(_RUNNING, None)
    if running is None:
        return
    for report in _EARLY:
        running.note(report)
    running.left = Counter(_chapter(item) for item in session.items)
    running.number = len(session.items)
    for path in {item.path for item in session.items}:
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        running.chapters[path.stem.removeprefix("bench_")] = " ".join(text.partition("\n\n")[0].split())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A benchmark that failed has no row, nor has one without accuracy, which fails for it."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    running = item.config.stash.get(_RUNNING, None)
    bench = getattr(item, "funcargs", {}).get("benchmark")
    if running is not None:
        chapter = _chapter(item)
        running.took[chapter] = running.took.get(chapter, 0.0) + call.duration
        if call.when == "call" and report.passed and _unjudged(bench):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} has no row: time it with pulse.benchmarks.recording.record()"
        if report.failed and bench is not None:
            bench.has_error = True
        if report.failed or report.skipped:
            running.note(report)
    return report  # type: ignore[return-value]


def _unjudged(bench: Any) -> bool:
    return bench is not None and not isinstance(bench.extra_info.get("accuracy"), dict)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What is known is written before the next chapter, and now and then: the next benchmark may be the one that ends it all."""
    running = item.config.stash.get(_RUNNING, None)
    if running is not None:
        running.ahead = item.nodeid
        running.progress(item)
    done = yield
    if running is not None:
        running.ahead = nextitem.nodeid if nextitem is not None else ""
        over = nextitem is None or nextitem.path != item.path
        if over or time.monotonic() - running.written > REST:
            running.write()
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _limited(item):
        return (yield)


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """TimeoutError in what lasts longer than the limit, as soon as it gives way to Python."""
    if item.config.stash.get(_RUNNING, None) is None or not hasattr(signal, "setitimer"):
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {LIMIT:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    running = session.config.stash.get(_RUNNING, None)
    if running is not None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        running.complete = ended and not (session.shouldstop or session.shouldfail)
        if not running.complete and running.ahead:
            running.failures.append(
                {"name": running.ahead, "message": "the run ended here, before it was done"}
            )
        run, comparison = running.write()
        if comparison is not None and comparison.flagged and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if run.rows:
            _point_at(running.folder)
    return (yield)


def _point_at(folder: Path) -> None:
    """``.benchmarks/latest`` is the last run, where links can be made."""
    if folder.parent.name != STORAGE:
        return
    link = folder.parent / f"latest.{os.getpid()}"
    with suppress(OSError):
        link.symlink_to(folder.name)
        link.replace(folder.parent / "latest")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    running = config.stash.get(_RUNNING, None)
    if running is None:
        return
    run = read(running.folder / RUN)
    for name, rows in run.tables().items():
        terminalreporter.write_line("")
        terminalreporter.write_line(name, bold=True)
        for line in aligned(*table(rows)):
            terminalreporter.write_line(line)
    terminalreporter.section("reading")
    for sentence in sentences(run):
        terminalreporter.write_line(f"- {sentence}")
    if running.old is not None:
        comparison = compare(run, running.old)
        terminalreporter.section("compared")
        terminalreporter.write_line(comparison.summary())
        for change in comparison.flagged:
            terminalreporter.write_line(f"- {change.words()}", red=True)
    terminalreporter.write_line(f"{running.folder}{os.sep}: run.json, report.md, report.html")
