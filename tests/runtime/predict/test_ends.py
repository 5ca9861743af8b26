"""Jobs that end at an accent: what was reported of earlier times stays, and nothing of later ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulse
from pulse.core.time import format_instant
from pulse.runtime.accents.follower import JobAbortedError
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import JobError
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spec import Predictor
from pulse.stream.accents.policy import Policy
from tests.runtime.accents.accented_jobs import (
    ACCENT,
    PLAIN,
    SECOND,
    Run,
    at,
    close,
    cut,
    files,
    held,
    late,
    predictors_of,
    split,
    the_job,
    ticks,
)
from tests.runtime.jobs.running_jobs import final

TOP = "select max(price) as top from S"


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    return predictors_of(tmp_path_factory.mktemp("jobs"), {"plain": (PLAIN, {})})


def test_a_job_may_end_where_it_would_hold(tmp_path: Path) -> None:
    files(tmp_path / "in", split(ticks(60), at(30)), [60, 120])
    (tmp_path / "log.jsonl").write_text(f"{format_instant(at(30))} {ACCENT}\n")
    job = the_job(tmp_path, TOP, stream={"accents": "log.jsonl"}, on_accent="abort")
    with pytest.raises(JobAbortedError, match=r"ends at 1970-01-01T00:00:30.*alter\(S\.price"):
        run_local(job)
    left = final(read_changes(tmp_path / "out"), (), "top")
    assert max(left) == (59,)
    with pytest.raises(JobError, match="'on_accent': expected one of hold, abort, got 'stop'"):
        the_job(tmp_path, TOP, stream={"accents": "log.jsonl"}, on_accent="stop")
    with pytest.raises(JobError, match="'on_accent': expected a stream with 'accents' or 'splits', got none"):
        the_job(tmp_path, TOP, on_accent="abort")


@given(st.lists(st.integers(1, 178), max_size=4), st.integers(5, 55), st.integers(0, 5))
@settings(deadline=None)
def test_what_is_left_at_an_end_is_what_was_reported_of_before(
    predictors: dict[str, Predictor], cuts: list[int], second: int, received: int
) -> None:
    """Every row that takes back takes back what holds (refused otherwise), and nothing of later times is left, but for what was
    behind the watermark when the accent was received."""
    run, plain = Run(predictors["plain log"]), Run(predictors["plain none"])
    line = f"{format_instant(at(second))} [[true, drop(price)]]"
    run.predictor = run.follower.predictor = _with_policy(run.predictor)
    ended, taken, kept = "", [], 0.0
    for i, one in enumerate(cut(ticks(60), cuts)):
        if i == min(received, len(cuts)) and run.prediction.now is not None:
            kept = run.prediction.now / SECOND - 10
        ended = run.take({"S": one}, {"S": [line] if i == min(received, len(cuts)) else []})
        taken.append(one)
        if ended:
            break
    assert "the policy is to stop" in ended
    for one in taken:
        plain.take({"S": one})
    left = pulse.apply_changes(run.changes)
    ends = left["ref"].cast(pa.int64()).to_numpy() / 1e6 + left["hi"].to_numpy()
    assert (ends <= max(second, kept) + 1e-9).all()
    found, expected = held(run.changes, "price"), held(plain.changes, "price")
    before = {key for key in expected if not late(key[1], at(second))}
    assert before == {key for key in found if not late(key[1], at(second))}
    # From its last tuple to the drop a key has exactly its last value, of which the model was within its bound.
    tuples = {key for key in before if not late(key[1], at(second - 1))}
    assert close({key: found[key] for key in tuples}, {key: expected[key] for key in tuples})
    prices = {row["symbol"]: row["price"] for row in ticks(second).to_pylist()}  # the last before the drop
    for key in before - tuples:
        assert found[key][0] == expected[key][0]
        assert any(abs(found[key][1] - one) < 1e-4 for one in (prices[key[0]], expected[key][1]))


def _with_policy(predictor: Predictor) -> Predictor:
    accent_options = {"S": replace(predictor.accent_options["S"], policy=Policy(drop="exception"))}
    return replace(predictor, accent_options=accent_options)
