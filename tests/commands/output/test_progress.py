"""The progress line: on a terminal that can draw over a line, in colours unless NO_COLOR is set, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from pulse.commands.output.progress import Bar, redraws
from pulse.commands.run import RunReporter
from tests.waiting import LONGEST

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
WORKING = """
import time
from pulse.commands.output.progress import Bar
with Bar() as bar:
    bar.step(1, 2)
    time.sleep(0.3)
"""


def on_a_terminal(*command: str, **environment: str) -> bytes:
    """What a program writes to a terminal of its own."""
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**known, "TERM": "xterm-256color", **environment},
    ) as running:
        os.close(theirs)
        reported = b""
        while chunk := _read(ours):
            reported += chunk
        os.close(ours)
        assert running.wait(LONGEST) == 0, reported
    return reported


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody is at the other end any more
        return b""


def test_a_terminal_shows_how_far_the_work_is_in_colour() -> None:
    reported = on_a_terminal("-c", WORKING)
    assert b"1 of 2 pieces" in reported
    assert COLOUR.search(reported)


def test_no_color_is_heeded() -> None:
    reported = on_a_terminal("-c", WORKING, NO_COLOR="1")
    assert b"1 of 2 pieces" in reported
    assert not COLOUR.search(reported)


def test_a_terminal_that_cannot_draw_over_a_line_is_left_alone() -> None:
    assert on_a_terminal("-c", WORKING, TERM="dumb") == b""


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_help_and_results_are_plain_on_a_terminal_too(environment: dict[str, str]) -> None:
    reported = on_a_terminal("-m", "pulse.cli", "--help", **environment)
    assert b"Exit codes:" in reported
    assert b"\x1b" not in reported


def test_off_a_terminal_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not redraws(sys.stderr)
    assert Bar()._bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for term, drawn in (("xterm", True), ("dumb", False), ("unknown", False)):
        monkeypatch.setenv("TERM", term)
        assert redraws(sys.stderr) is drawn
        assert (Bar()._bar is not None) is drawn
        assert RunReporter(as_json=False).live is drawn  # the line of a job
