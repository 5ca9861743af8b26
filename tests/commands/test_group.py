"""What all commands share: help in groups, -q and -v, exit codes, completion, and how they end when they are cut short."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from pulse import cli
from pulse.commands.group import GROUPS
from pulse.commands.output.progress import Bar
from pulse.store.model import Model
from tests.commands.running import LOCAL, Run
from tests.runtime.execution.asking import MACD, ticks
from tests.waiting import LONGEST

HIGH = "select symbol, price from S where price > 20 sample every 1 s"
PULSE = str(Path(sys.executable).with_name("pulse"))


pytestmark = pytest.mark.usefixtures("logging_as_before")


def test_every_command_is_in_a_group(run: Run) -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(get_command(cli.app).commands)  # type: ignore[attr-defined]
    reported = run("--help").out
    assert [reported.index(f"\n{title}:\n") for title in GROUPS] == sorted(
        reported.index(f"\n{title}:\n") for title in GROUPS
    )
    assert "More:" not in reported
    for code in ("0 ", "1 ", "2 ", "130", "141"):
        assert f"\n    {code}  " in reported


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from _commands(one, (*path, name))
        else:
            yield (*path, name), one


def test_every_command_speaks_to_programs_and_has_examples() -> None:
    for path, one in _commands(get_command(cli.app)):
        options = {option for parameter in one.params for option in parameter.opts}
        assert "--json" in options, path
        assert f"pulse {' '.join(path)}" in one.help, path


@pytest.mark.parametrize(
    ("before", "after", "level"),
    [
        ([], ["-q"], logging.ERROR),
        ([], ["--verbose"], logging.INFO),
        (["-v"], ["-v"], logging.DEBUG),
        ([], ["-vv"], logging.DEBUG),
    ],
)
def test_speaking_before_or_behind_a_command(
    run: Run, stored: Model, before: list[str], after: list[str], level: int
) -> None:
    assert run(*before, "info", stored.path, *after).code == 0
    assert logging.getLogger("pulse").level == level


def test_explain_for_programs(run: Run, stored: Model) -> None:
    done = run("explain", "--stream", f"S={stored.path}", MACD, "--param", "short=4", "--json")
    found = json.loads(done.out)
    assert (done.code, found["parameters"]) == (0, {"short": 4})
    assert "Scan S" in "\n".join(found["sections"]["logical plan"])


def test_progress_is_for_people_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Bar()._bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert Bar()._bar is not None
    assert Bar(quiet=True)._bar is None
    logging.getLogger("pulse").setLevel(logging.ERROR)
    assert Bar()._bar is None


# -- completion ---------------------------------------------------------------------------------------------------


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """With the script that is printed, read by bash itself."""
    environment = {
        **os.environ,
        "PATH": f"{Path(PULSE).parent}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    shown = subprocess.run(
        [PULSE, "--show-completion", "bash"], capture_output=True, text=True, check=True, env=environment
    )
    (tmp_path / "completion").write_text(shown.stdout)
    for words, expected in ((["pulse", "sw"], "sweep"), (["pulse", "fit", "--ove"], "--overwrite")):
        script = (
            f"source {tmp_path}/completion; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            '_pulse_completion pulse; echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.split() == [expected], done.stderr


# -- cut short ----------------------------------------------------------------------------------------------------


def _interrupting(real: Any, at: int = 1) -> Any:
    """The same function, and at this call Ctrl-C."""
    calls = 0

    def called(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(*arguments, **more)
        if calls == at:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    return called


def _files(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


def test_an_interrupted_fit_leaves_no_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulse.runtime.fit import local_driver

    pq.write_table(ticks(), tmp_path / "ticks.parquet", row_group_size=50)
    monkeypatch.setattr(local_driver, "write_part", _interrupting(local_driver.write_part))
    asked = ("--key", "symbol", "--time", "t", "--model", "price:step", "--error", "0.5", *LOCAL)
    done = run("fit", tmp_path / "ticks.parquet", *asked, "--out", tmp_path / "new" / "model")
    assert done == (130, "", "pulse: interrupted; nothing is left half-written\n")
    assert _files(tmp_path) == ["ticks.parquet"]


@pytest.mark.parametrize("kind", ["query", "sweep"])
def test_an_interrupted_answer_leaves_no_file(
    run: Run, s: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    old = tmp_path / "old.parquet"
    pq.write_table(pa.table({"x": [1]}), old)
    before = old.read_bytes()
    monkeypatch.setattr(pq.ParquetWriter, "write_batch", _interrupting(pq.ParquetWriter.write_batch))
    asked = [MACD, "--param", "short=4,6", "--param", "long=12"] if kind == "sweep" else [HIGH]
    done = run(kind, *s, *asked, "--out", old, "--overwrite")
    assert done == (130, "", "pulse: interrupted; nothing is left half-written\n")
    assert _files(tmp_path) == ["old.parquet"]
    assert old.read_bytes() == before


def test_interrupted_data_leaves_no_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("write_table", "write_batch"):
        monkeypatch.setattr(pq.ParquetWriter, name, _interrupting(getattr(pq.ParquetWriter, name)))
    done = run("generate", "ticks", "--rows", "1000", "--out", tmp_path / "ticks.parquet")
    assert done == (130, "", "pulse: interrupted; nothing is left half-written\n")
    assert _files(tmp_path) == []


def test_an_interrupt_that_a_library_made_something_else_of(
    run: Run, s: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's collecting does."""

    def failing(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("the stream broke off")  # noqa: B904

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", failing)
    done = run("query", *s, HIGH, "--out", tmp_path / "out.parquet")
    assert done == (130, "", "pulse: interrupted; nothing is left half-written\n")
    assert _files(tmp_path) == []


@pytest.mark.parametrize("at", ["launch", "later"])
def test_an_interrupt_while_spark_starts_leaves_no_jvm_behind(tmp_path: Path, at: str) -> None:
    """Whatever holds the pipes lives; and a terminal sends Ctrl-C to all processes of the group."""
    pq.write_table(ticks(), tmp_path / "ticks.parquet")
    asked = ("--key", "symbol", "--time", "t", "--model", "price:step", "--error", "0.5")
    command = [PULSE, "fit", str(tmp_path / "ticks.parquet"), *asked, "--out", str(tmp_path / "model")]
    with subprocess.Popen(
        [*command, "--engine", "spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while running.poll() is None and not children.read_text().split():
            time.sleep(0.02)
        time.sleep(0.5 if at == "launch" else 1.5)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=LONGEST)
    assert (running.returncode, out) == (130, ""), err
    assert err.endswith("pulse: interrupted; nothing is left half-written\n")
    assert "Traceback" not in err
    assert _files(tmp_path) == ["ticks.parquet"]


def test_a_reader_that_goes_away_is_no_error_to_speak_of(stored: Model) -> None:
    """As `pulse query … | head` does, with more than a pipe holds."""
    command = [PULSE, "query", "--stream", f"S={stored.path}", *LOCAL, HIGH.replace("1 s", "1 ms")]
    with subprocess.Popen(
        [*command, "--limit", "20000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().split()[:2] == [b"t", b"symbol"]
        running.stdout.close()
        reported = running.stderr.read()
        assert (running.wait(LONGEST), reported) == (141, b"")
