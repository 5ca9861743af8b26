"""``pulse aside``: what was set aside, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulse.runtime.predict.local_driver import run_local
from tests.commands.running import Run, refused
from tests.runtime.jobs.test_dead_letters import BAD, CSV, FIRST, local, text


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A checkpoint beside which five rows are set aside, three of them for want of a key."""
    text(tmp_path / "in", "0.csv", *FIRST, *BAD, *[",1970-01-01T00:00:05,5,1"] * 2)
    run_local(local(tmp_path, CSV))
    return tmp_path / "state"


def test_for_people(run: Run, state: Path) -> None:
    done = run("aside", state)
    lines = done.out.splitlines()
    assert lines[0].split() == ["stream", "reason", "rows"]
    assert lines[1].split() == ["S", "no", "key", "3"]
    assert lines[5].split() == ["stream", "batch", "id", "t", "x", "v", "reason", "file", "line"]
    assert [line.split()[-1] for line in lines[6:-2]] == ["4", "8", "9", "5", "7"]
    assert lines[-1] == "5 rows were set aside"
    assert (done.code, done.err) == (0, "")


def test_some_of_them(run: Run, state: Path) -> None:
    lines = run("aside", state, "--reason", "no time").out.splitlines()
    assert lines[1].split() == ["S", "no", "time", "1"]
    assert lines[-1] == "1 row was set aside"
    assert run("aside", state, "--limit", "2").out.splitlines()[-1] == "5 rows were set aside, 2 shown"
    counts = run("aside", state, "--limit", "0").out.splitlines()
    assert (len(counts), counts[-1]) == (6, "5 rows were set aside, 0 shown")
    assert run("aside", state, "--reason", "late").out == "no rows were set aside for 'late'\n"


def test_for_programs(run: Run, state: Path) -> None:
    found = json.loads(run("aside", state, "--json").out)
    assert found["aside"] == 5
    assert found["reasons"][0] == {"stream": "S", "reason": "no key", "rows": 3}
    assert [one["line"] for one in found["rows"]] == [4, 8, 9, 5, 7]
    assert found["rows"][0]["t"] == "1970-01-01T00:00:02.000000Z"
    assert found["rows"][-1]["x"] is None
    assert json.loads(run("aside", state, "--json", "--limit", "0").out)["rows"] == []


def test_nothing_was(run: Run, tmp_path: Path) -> None:
    (tmp_path / "_pulse_job.json").write_text("{}", encoding="utf-8")
    assert run("aside", tmp_path).out == "no rows were set aside\n"
    assert json.loads(run("aside", tmp_path, "--json").out) == {"aside": 0, "reasons": [], "rows": []}


def test_no_such_place(run: Run, tmp_path: Path) -> None:
    refused(run("aside", tmp_path / "nowhere"), "nowhere: expected a job's checkpoint")
    refused(
        run("aside", tmp_path), "expected rows that were set aside, folders stream=<name>, got something else"
    )
