"""What a checkpoint keeps of accents: this version's is gone on from, another's refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulse.core.time import format_instant
from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.state_codec import pack_state, unpack_state
from pulse.runtime.predict.state_schema import CHECKPOINT
from tests.runtime.accents.accented_jobs import ACCENT, EVERY, SECOND, cut, split, the_job, ticks
from tests.runtime.jobs.running_jobs import arrive


def one_run(folder: Path) -> Any:
    return run_local(the_job(folder, EVERY, stream={"accents": "log.jsonl"}, checkpoint="checkpoint"))


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A job that has received an accent, and has a file to come."""
    (tmp_path / "log.jsonl").write_text(f"{format_instant(30 * SECOND)} {ACCENT}\n", encoding="utf-8")
    (tmp_path / "in").mkdir()
    first, second = cut(split(ticks(60), 30 * SECOND), [120])
    arrive(tmp_path / "in", 0, first)
    one_run(tmp_path)
    arrive(tmp_path / "in", 1, second)
    return tmp_path


def test_this_version_goes_on(begun: Path) -> None:
    found = one_run(begun)
    assert (found.tally.tuples, found.tally.aside) == (180, 0)


def test_state_without_what_was_received_is_refused(begun: Path) -> None:
    state = begun / "checkpoint" / "local" / "state"
    kept = unpack_state(CHECKPOINT, state.read_bytes())
    bare = replace(kept.prediction, accents=None)
    without = pack_state(CHECKPOINT, kept._replace(prediction=bare, read={}))
    state.write_bytes(without)
    with pytest.raises(CheckpointError, match=r"local/state: .*expected accent state.* new checkpoint"):
        one_run(begun)
    assert state.read_bytes() == without  # nothing was written in its place


def test_state_of_another_layout_is_refused_by_name(begun: Path) -> None:
    layout = CHECKPOINT.layout
    object.__setattr__(CHECKPOINT, "layout", "0123456789ab")
    try:
        with pytest.raises(CheckpointError, match=r"written by another version of pulse, .* new checkpoint"):
            one_run(begun)
    finally:
        object.__setattr__(CHECKPOINT, "layout", layout)
