"""Accents that are settled stay in force, whatever goes through the plan's operators after them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pulse.core.time import format_instant
from pulse.runtime.accents.unit_history import COMPACT_AT
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict.spec import Predictor
from tests.runtime.accents.accented_jobs import (
    ACCENT,
    PLAIN,
    SECOND,
    Run,
    close,
    files,
    held,
    the_job,
    ticks,
)

MINUTES = 6
CHANGE = f"{format_instant(SECOND)} {ACCENT}"
PUNCTUATION = [f"[symbol = 'x{i}']" for i in range(COMPACT_AT + 10)]
OTHERS = [f"{format_instant(SECOND)} [[symbol = 'x{i}', alter(size, y * 2)]]" for i in range(COMPACT_AT + 10)]
TO_COME = f"{format_instant(2 * SECOND)} [[symbol = 's1' and t >= '{format_instant(330 * SECOND)}', alter(price, y / 2)]]"
THROUGH = f"{format_instant(302 * SECOND)} [[true, drop(size)]]"  # which takes no route, so that operators are set up


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("jobs")
    files(folder / "in", ticks(), [])
    return predictor_of(the_job(folder, PLAIN, stream={"accents": "x.jsonl"}))


def minute(number: int) -> pa.Table:
    table = ticks(60)
    return table.set_column(1, "t", pc.add(table["t"], pa.scalar(60 * number * SECOND, pa.duration("us"))))


def after(predictor: Predictor, first: list[str]) -> Run:
    """A run over minutes, with lines before the first one, and one that goes through operators before the last."""
    run = Run(predictor)
    for number in range(MINUTES):
        lines = first if number == 0 else [THROUGH] if number == MINUTES - 1 else []
        run.take({"S": minute(number)}, {"S": lines})
    assert run.aside == []
    assert run.follower.propagation.before is not None
    return run


@pytest.mark.parametrize("others", [PUNCTUATION, OTHERS], ids=["punctuation", "of another attribute"])
def test_few_among_many_that_are_settled_stay_in_force(predictor: Predictor, others: list[str]) -> None:
    many, alone = after(predictor, [CHANGE, *others]), after(predictor, [CHANGE])
    assert len(alone.follower.propagation.tail) == 2
    assert len(many.follower.propagation.tail) == 1  # so all before the last were settled
    assert close(held(many.changes, "price"), held(alone.changes, "price"))


def test_what_speaks_of_a_time_to_come_stays_in_force(predictor: Predictor) -> None:
    many, alone = after(predictor, [CHANGE, TO_COME, *OTHERS]), after(predictor, [CHANGE, TO_COME])
    assert close(held(many.changes, "price"), held(alone.changes, "price"))
