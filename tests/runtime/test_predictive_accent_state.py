"""What a checkpoint keeps of accents: this version's is gone on from, another's refused by name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulse.core.time import format_instant
from pulse.runtime.predictive_accents import LAYOUT, AccentStateError, Follower
from pulse.runtime.predictive_local import run_local
from pulse.runtime.predictive_packing import pack_state, unpack_state
from pulse.runtime.sources import predictor_of
from tests.runtime.accented_jobs import ACCENT, EVERY, SECOND, cut, split, the_job, ticks
from tests.runtime.jobs import arrive

OLDER: dict[str, Callable[[dict[str, Any]], None]] = {
    "before it had a name": lambda kept: kept["beside"].update(accents=kept["beside"]["accents"][1:]),
    "by another name": lambda kept: kept["beside"].update(
        accents=("0123456789ab", *kept["beside"]["accents"][1:])
    ),
    "nothing": lambda kept: kept["beside"].pop("accents"),
    "nothing beside": lambda kept: kept.pop("beside"),
}


def one_run(folder: Path) -> Any:
    return run_local(the_job(folder, EVERY, stream={"accents": "log.jsonl"}, checkpoint="checkpoint"))


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A job that has heard an accent, and has a file to come."""
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


@pytest.mark.parametrize("older", list(OLDER))
def test_state_of_an_older_follower_is_refused_by_name(begun: Path, older: str) -> None:
    state = begun / "checkpoint" / "local" / "state"
    kept = unpack_state(state.read_bytes())
    OLDER[older](kept)
    state.write_bytes(pack_state(kept))
    with pytest.raises(
        AccentStateError, match=r"state of accents: kept by another version of pulse, .* new checkpoint"
    ):
        one_run(begun)
    assert state.read_bytes() == pack_state(kept)  # which that version can go on with


def test_the_name_of_the_form_is_part_of_the_state(begun: Path) -> None:
    predictor = predictor_of(the_job(begun, EVERY, stream={"accents": "log.jsonl"}))
    follower = Follower(predictor)
    assert follower.state[0] == LAYOUT
    assert Follower(predictor, *pickle.loads(pickle.dumps(follower.state))).state[0] == LAYOUT
