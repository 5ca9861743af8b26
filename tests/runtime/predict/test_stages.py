"""The stateful operators without Spark: packed, dealt to buckets and solved in stages, tuples give what one prediction gives."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict import stage_rows, stages, state_schema
from pulse.runtime.predict.batch_store import latest_before, put
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.stage_rows import ASIDE, BOUNDS, CHANGES
from pulse.runtime.predict.stages import SingleStage, ValidateStage
from tests.runtime.jobs.running_jobs import (
    FIG_1,
    FILTER,
    MACD,
    NEAR,
    final,
    in_process,
    object_job,
    objects,
    tick_job,
    ticks,
)
from tests.runtime.predict.stages import Places, batches, dealt


def staged(job: Job, key: str, monkeypatch: pytest.MonkeyPatch, folder: Path | None = None) -> pa.Table:
    """The job's changes through stages."""
    predictor = predictor_of(job)
    two = job.query not in (FILTER, MACD)
    first = Places(
        ValidateStage(predictor, job.lateness, None if folder is None else str(folder))
        if two
        else SingleStage(predictor, job.lateness)
    )
    second = Places(SolveStage(predictor, job.lateness))
    parts = []
    schemas = {name: spec.schema for name, spec in predictor.specs.items()}
    for batch, tables in enumerate(batches(job, schemas)):
        monkeypatch.setattr(stages, "_batch", lambda batch=batch: batch)
        rows = first.take(dealt(tables, key, job.buckets))
        if two:
            rows = second.take(rows)
        reported = [one for one in rows.to_dict("records") if one["channel"] == CHANGES]
        parts.append(
            numbered(
                [(unpacked_table(one["payload"]), one["now"]) for one in reported],
                predictor.continuous.schema,
                batch,
            )
        )
        for one in rows.to_dict("records"):
            if one["channel"] == BOUNDS and folder is not None:
                put(folder, batch, one["payload"])
    return pa.concat_tables(parts)


@pytest.mark.parametrize("query", [FILTER, MACD], ids=["filter", "macd"])
def test_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    ticks(tmp_path / "in")
    job = tick_job(tmp_path, query)
    value = "price" if query == FILTER else "d"
    keys = ("symbol",)
    found, expected = staged(job, "symbol", monkeypatch), in_process(job)
    assert len(found) > 5
    assert final(found, keys, value) == final(expected, keys, value)


@pytest.mark.parametrize(
    ("query", "streams", "keys"),
    [(NEAR, "O", ("one", "other")), (FIG_1, "AB", ("a", "b"))],
    ids=["near", "fig 1"],
)
def test_two_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, streams: str, keys: tuple[str, ...]
) -> None:
    objects(tmp_path / "in")
    job = object_job(tmp_path, query, streams)
    found, expected = staged(job, "id", monkeypatch), in_process(job)
    assert len(found) > 5
    assert final(found, keys) == final(expected, keys)


def test_bounds_of_a_batch_hold_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks(tmp_path / "in")
    query = "select sum(price) as total from S error within 1%"
    job = tick_job(tmp_path, query)
    folder = tmp_path / "bounds"
    found = staged(job, "symbol", monkeypatch, folder)
    allotted = latest_before(state_schema.BOUNDS, folder, 99)
    assert allotted is not None
    assert allotted[0] == 2
    limit = 0.01 * 4 * 106
    reported = [row for row in found.to_pylist() if row["kind"].startswith("+") and row["batch"] == 2]
    # Where a key's model has ended before those of the others nothing bounds the sum.
    assert {row["certainty"] for row in reported if math.isinf(row["total_err"])} <= {"likely"}
    late = [row["total_err"] for row in reported if math.isfinite(row["total_err"])]
    assert late
    assert max(late) <= limit


def test_tuples_set_aside_pass_through_the_second_stage(tmp_path: Path) -> None:
    objects(tmp_path / "in", 1)
    predictor = predictor_of(object_job(tmp_path, NEAR, "O"))
    passing = stage_rows.row(3, ASIDE, stream="O", payload=b"kept")
    assert SolveStage(predictor, 0).work(3, None, iter([pd.DataFrame([passing])])) == (None, [passing])
