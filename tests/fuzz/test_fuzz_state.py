"""State of jobs that somebody has changed, with a right checksum: a job goes on or refuses it, and no more happens."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.encoding.codec import StateEncodingError
from pulse.core.errors import PulseError
from pulse.core.time import format_instant
from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.state_codec import _HEADER, VERSION, checksum_of, unpack_state
from pulse.stream.units.affine import Affine
from pulse.validation.online.validator import ValidatorState
from tests.core.encoding.encoded import parts_of, put_together
from tests.fuzz.harness import a_share, answer
from tests.runtime.accents.accented_jobs import ACCENT, EVERY, SECOND, cut, split, the_job, ticks
from tests.runtime.jobs.running_jobs import arrive

SUM = "select sum(price) as total from S error within 1%"
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "accents": (EVERY, {"accents": "log.jsonl"}),
    "bounds": (SUM, {}),
    "history": (EVERY, {"revisions": "30 s"}),
}
ODD: list[Any] = [
    None, True, False, -1, 0, 1, 7, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 70, 0.5, float("nan"), 1e308, "", "a", "S",
    "os.system", [], [[]], {}, {"__reduce__": ["os.system", ["true"]]},
]  # fmt: skip


def raw_of(data: bytes) -> bytes:
    """What is inside of kept state."""
    length = _HEADER.unpack(data[: _HEADER.size])[1]
    return bytes(pa.decompress(data[_HEADER.size :], length, codec="lz4", asbytes=True))


def sealed(raw: bytes) -> bytes:
    """As kept state, with a right checksum."""
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    return _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed


@st.composite
def changed(draw: st.DrawFn, raw: bytes) -> bytes:
    """State with some entries of its tree, or some bytes of its buffers, exchanged."""
    details, buffers = parts_of(raw)
    data = bytearray(buffers)
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
            continue
        places = list(_places(details["state"])) + list(_places(details["tables"]))
        tree, key = places[draw(st.integers(0, len(places) - 1))]
        tree[key] = draw(st.sampled_from([*ODD, *([tree[key] + 1] if type(tree[key]) is int else [])]))
    return put_together(details, bytes(data))


def _places(tree: Any) -> Any:
    own = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(own):
        yield tree, key
        yield from _places(value)


class Ran:
    """A job that has run once and has one file more to read; its folder can be had as it was."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.saved = folder / "job", folder / "saved"
        self.query, self.stream = JOBS[name]
        (self.folder / "in").mkdir(parents=True)
        (self.folder / "log.jsonl").write_text(f"{format_instant(30 * SECOND)} {ACCENT}\n", encoding="utf-8")
        tuples = split(ticks(40), 30 * SECOND) if name == "accents" else ticks(40)
        first, second = cut(tuples, [80])
        arrive(self.folder / "in", 0, first)
        run_local(self.job)
        arrive(self.folder / "in", 1, second)
        shutil.copytree(self.folder, self.saved)
        self.state = self.folder / "checkpoint" / "local" / "state"
        self.raw = raw_of(self.state.read_bytes())

    @property
    def job(self) -> Job:
        return the_job(self.folder, self.query, stream=self.stream, checkpoint="checkpoint")

    def again(self, state: bytes) -> Any:
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)
        self.state.write_bytes(state)
        return answer(run_local, self.job)


@pytest.fixture(scope="module", params=list(JOBS))
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp(f"ran-{request.param}"), request.param)


def test_sealed_state_is_gone_on_from(ran: Ran) -> None:
    assert not isinstance(ran.again(sealed(ran.raw)), PulseError)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that nobody measured overflow
@a_share
@given(data=st.data())
def test_changed_state_is_refused_or_gone_on_from(ran: Ran, data: st.DataObject) -> None:
    beside = sorted(one.name for one in ran.folder.parent.iterdir())
    classes = {one: dict(vars(one)) for one in (ValidatorState, Affine, PulseError)}
    found = ran.again(sealed(data.draw(changed(ran.raw))))
    assert not isinstance(found, StateEncodingError) or "checkpoint" in str(found)
    assert sorted(one.name for one in ran.folder.parent.iterdir()) == beside
    assert {one: dict(vars(one)) for one in classes} == classes


@given(data=st.data())
def test_changed_state_is_read_as_its_form_or_refused(ran: Ran, data: st.DataObject) -> None:
    found = answer(unpack_state, forms.CHECKPOINT, sealed(data.draw(changed(ran.raw))))
    assert isinstance(found, (StateEncodingError, forms.Checkpoint))


class Writes:
    """Pickles as a call that writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return pa.OSFile, (str(self.file), "w")


def test_a_pickle_in_place_of_state_is_refused_and_not_run(ran: Ran, tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Writes(tmp_path / "would")))
    assert (tmp_path / "would").exists()  # it is one that acts
    attack = pickle.dumps({"batch": 1, "seen": {}, "prediction": Writes(tmp_path / "made")})
    for state in (sealed(attack), attack, sealed(ran.raw[:8] + attack)):
        assert isinstance(ran.again(state), CheckpointError)
    assert not (tmp_path / "made").exists()
