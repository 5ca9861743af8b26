"""Accents through the two stages of a prediction, without Spark: every place hears of them, and one tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pulse.core.time import format_instant
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.stage_rows import ENDING
from pulse.runtime.predict.state_codec import unpack_state
from tests.runtime.accents.accented_jobs import (
    ACCENT,
    SECOND,
    Run,
    close,
    cut,
    files,
    late,
    marked,
    split,
    the_job,
    ticks,
)
from tests.runtime.jobs.running_jobs import NEAR, final, object_job, objects
from tests.runtime.predict.stages import staged


@pytest.mark.parametrize("where", ["rows", "log"])
@pytest.mark.parametrize("accent", ["[[true, alter(price, y / 4)]]", ACCENT], ids=["all", "one"])
def test_one_place_for_all_keys(tmp_path: Path, where: str, accent: str) -> None:
    """An output without the key moves once all keys have; till then what one has altered is undone."""
    data = ticks(60)
    for key in ("s0", "s1", "s2") if accent != ACCENT else ("s1",):
        data = split(data, 30 * SECOND, key=key)
    query = "select max(price) as top from S"
    files(tmp_path / "in", marked(data, []), [])
    details = {"accents": "accent" if where == "rows" else "log.jsonl"}
    predictor = predictor_of(the_job(tmp_path, query, stream=details))
    if where == "rows":
        batches = [({"S": one}, {}) for one in cut(marked(data, [(30 * SECOND, accent)]), [70, 120])]
    else:
        line = f"{format_instant(30 * SECOND)} {accent}"
        batches = [({"S": one}, {"S": [line]} if i == 1 else {}) for i, one in enumerate(cut(data, [70, 80]))]
    changes, rest = staged(predictor, batches)
    assert sum(one["accents"] for one in rest) == 1
    without = Run(predictor_of(the_job(tmp_path, query)))
    for one in cut(ticks(60), [70, 120]):
        without.take({"S": one})
    expected = final(without.changes, (), "top")
    if accent != ACCENT:
        expected = {
            at: (one[0], one[1] / 4 if late(at[0], 30 * SECOND) else one[1]) for at, one in expected.items()
        }
    got = final(changes, (), "top")
    some = {at for at in got if at[0] < 118}
    assert len(some) > 100
    assert close({at: got[at] for at in some}, {at: expected[at] for at in some})


def test_pairs_in_the_places_of_their_cells(tmp_path: Path) -> None:
    """From some instant on x is in other units, of all ships: the same pairs come near, at positions in the new ones."""
    objects(tmp_path / "in")
    query = NEAR.replace("Q.id as other", "Q.id as other, R.x as x")
    job = object_job(tmp_path, query, "O", cell=120)
    tables = [pq.ParquetFile(one).read() for one in sorted((tmp_path / "in").glob("*.parquet"))]
    without = Run(predictor_of(job))
    for one in tables:
        without.take({"O": one})
    at = 15 * SECOND
    late_ = [pc.greater_equal(one["t"].cast(pa.int64()), at) for one in tables]
    halved = [
        one.set_column(2, "x", pc.if_else(where, pc.divide(one["x"], 2.0), one["x"]))
        for one, where in zip(tables, late_, strict=True)
    ]
    predictor = predictor_of(replace(job, streams={"O": replace(job.streams["O"], accents="log.jsonl")}))
    line = f"{format_instant(at)} [[true, alter(x, y / 2)]]"
    changes, rest = staged(
        predictor, [({"O": one}, {"O": [line]} if i == 1 else {}) for i, one in enumerate(halved)], 120
    )
    assert sum(one["accents"] for one in rest) == 1
    expected = {
        key: (one[0], one[1] / 2 if late(key[2], at) else one[1])
        for key, one in final(without.changes, ("one", "other"), "x").items()
    }
    assert len(expected) > 20
    assert close(final(changes, ("one", "other"), "x"), expected)


def test_every_place_hears_of_the_end(tmp_path: Path) -> None:
    files(tmp_path / "in", marked(ticks(30), []), [])
    predictor = predictor_of(
        the_job(tmp_path, "select max(price) as top from S where price > 3", stream={"accents": "accent"})
    )
    batches = [
        ({"S": one}, {}) for one in cut(marked(ticks(30), [(20 * SECOND, "[[true, drop(price)]]")]), [30])
    ]
    changes, rest = staged(predictor, batches)
    endings = [unpack_state(forms.ENDING, one["payload"]) for one in rest if one["channel"] == ENDING]
    assert len(endings) == 3
    assert all(
        one.end == 20 * SECOND and one.reached(None) and "drop(S.price)" in one.reason for one in endings
    )
    assert max(at[0] for at in final(changes, (), "top")) == 39
