"""Commands as `main` runs them, errors and exit codes included, on small stored models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from pulse import cli


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]

LOCAL = ("--engine", "local")


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `pulse` with these arguments."""

    def command(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["pulse", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        code = stopped.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return command


def refused(done: Done, reported: str) -> None:
    """A message and exit code 2, nothing else."""
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("pulse: ")
    assert reported in done.err
    assert "Traceback" not in done.err
