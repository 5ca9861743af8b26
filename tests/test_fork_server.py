"""Programs of the fork server are run as Python would run them, and end when whoever started them does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.waiting import LONGEST

WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def module(folder: Path, text: str) -> dict[str, str]:
    """An environment with a module ``program`` of this text."""
    (folder / "program.py").write_text(text, "utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        ("print(input())", 0, "given\n", ""),
        ("import os, sys; print(*sys.argv[1:], os.environ['SAID'], os.getcwd())", 0, "a b x {}\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('no')", 1, "", "no\n"),
        ("import atexit; atexit.register(print, 'last')", 0, "last\n", ""),
        ("import threading; threading.Timer(0.1, print, ['later']).start()", 0, "later\n", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "", ""),
    ],
)
def test_as_python_does(
    text: str, code: int, out: str, err: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    done = subprocess.run(
        [fork_server.python, "-m", "program", "a", "b"],
        env={**module(tmp_path, text), "SAID": "x"},
        cwd=tmp_path,
        input="given\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, out.format(tmp_path), err)


def test_an_error_is_shown(fork_server: ForkServer, tmp_path: Path) -> None:
    command = [fork_server.python, "-m", "program"]
    done = subprocess.run(command, env=module(tmp_path, "1 / 0"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_pulse_is_there(fork_server: ForkServer) -> None:
    command = [fork_server.pulse, "info", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pulse: nowhere")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_end_the_program(number: signal.Signals, fork_server: ForkServer, tmp_path: Path) -> None:
    with subprocess.Popen(
        [fork_server.python, "-m", "program"],
        env=module(tmp_path, WAITING),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        client.send_signal(number)
        assert client.wait() == (1 if number == signal.SIGINT else -number)
    end = time.monotonic() + LONGEST
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, "the program outlived its client"
        time.sleep(0.02)
