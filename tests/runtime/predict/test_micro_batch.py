"""Places run micro-batches by one protocol: they continue from their saved state, and refuse that of another stage or version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.core.encoding.codec import StateEncodingError
from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.micro_batch import Emission, Part, Place
from pulse.runtime.predict.solve_stage import Solver, SolveStage
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stages import SingleStage
from pulse.runtime.predict.state_codec import VERSION, pack_state
from pulse.runtime.predict.state_schema import SINGLE, SOLVE
from tests.runtime.jobs.running_jobs import MACD, tick_job, ticks
from tests.runtime.predict.stages import batches


def itself(emission: Emission) -> Emission:
    return emission


def test_a_place_continues_from_its_saved_state(tmp_path: Path) -> None:
    ticks(tmp_path / "in")
    job = tick_job(tmp_path, MACD)
    predictor = predictor_of(job)
    stage = SingleStage(predictor, job.lateness)
    whole, again = (Place.of(Prediction(predictor), job.lateness) for _ in range(2))
    changes = 0
    for tables in batches(job, {name: spec.schema for name, spec in predictor.specs.items()}):
        expected = whole.run(whole.decode(tables), itself)
        found = again.run(again.decode(tables), itself)
        assert found.changes.equals(expected.changes)
        assert found.tally == expected.tally
        assert again.part.now == whole.part.now
        changes += found.changes.num_rows
        again = stage.open(0, pack_state(SINGLE, again.state))
    assert changes > 5


def test_what_is_emitted_is_known_before_state_is_freed(tmp_path: Path) -> None:
    ticks(tmp_path / "in")
    job = tick_job(tmp_path, MACD)
    predictor = predictor_of(job)
    place = Place.of(Prediction(predictor), job.lateness)
    freed: list[str] = []
    place.follower.settle = lambda *_: freed.append("settled")  # type: ignore[method-assign]
    (tables, *_) = batches(job, {name: spec.schema for name, spec in predictor.specs.items()})
    place.run(place.decode(tables), lambda _: freed.append("emitted"))
    assert freed == ["emitted", "settled"]


@pytest.mark.parametrize("part", [Prediction, Solver])
def test_state_of_another_stage_is_refused_by_name(tmp_path: Path, part: type[Part]) -> None:
    ticks(tmp_path / "in")
    predictor: Predictor = predictor_of(tick_job(tmp_path, MACD))
    saved = Place.of(part(predictor), 0).state
    kept = pack_state(SINGLE if part is Prediction else SOLVE, saved)
    other = SolveStage(predictor, 0) if part is Prediction else SingleStage(predictor, 0)
    with pytest.raises(
        StateEncodingError, match=r"expected state of kind '(single|solve)', got '(solve|single)'"
    ):
        other.open(0, kept)


def test_a_checkpoint_of_the_version_before_is_refused(tmp_path: Path) -> None:
    ticks(tmp_path / "in", 1)
    job = tick_job(tmp_path, MACD, checkpoint="checkpoint")
    run_local(job)
    state = tmp_path / "checkpoint" / "local" / "state"
    state.write_bytes(bytes([VERSION - 1]) + state.read_bytes()[1:])
    with pytest.raises(
        CheckpointError,
        match=rf"saved state 'checkpoint' of version {VERSION - 1}, expected {VERSION}: .* new checkpoint",
    ):
        run_local(job)
