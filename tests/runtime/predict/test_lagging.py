"""Keys that report less often than lateness, or lag: what their next tuple tells is corrected, and nothing is emitted twice."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.runtime.jobs.sinks import numbered, read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, partitioning_of
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.stage_rows import CHANGES
from pulse.runtime.predict.stages import ValidateStage
from tests.runtime.jobs.climbing import moving_stream
from tests.runtime.predict.stages import Places, batches, dealt

SECOND = 1_000_000
Row = tuple[str, float, float, float]


def job_over(folder: Path, batches: list[list[Row]], query: str, **stream: Any) -> Job:
    """A job over rows of (id, t, x, v), a file per batch."""
    (folder / "in").mkdir()
    for number, rows in enumerate(batches):
        ids, t, x, v = zip(*rows, strict=True)
        times = pa.array([round(one * SECOND) for one in t], pa.timestamp("us"))
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"id": ids, "t": times, "x": list(x), "v": list(v)}), file)
        os.utime(file, (1000 + number, 1000 + number))
    values = {
        "query": query,
        "lateness": "10 s",
        "engine": "local",
        "checkpoint": "checkpoint",
        "streams": {"S": moving_stream(error=0.5, horizon="600 s") | stream},
        "sink": {"kind": "parquet", "path": "out"},
    }
    return job_of(values, folder=folder)


def what_holds(reported: Path | pa.Table, *keys: str) -> list[tuple[Any, ...]]:
    """Keys, begin, end and the model about the begin of what holds in the end, by key and begin; no two rows meet."""
    found = []
    changes = reported if isinstance(reported, pa.Table) else read_changes(reported / "out")
    for row in pulse.apply_changes(changes).to_pylist():
        at = pa.scalar(row["ref"], pa.timestamp("us")).cast(pa.int64()).as_py() / SECOND
        begin, end = round(at + row["lo"], 3), round(at + row["hi"], 3)
        model = np.polynomial.Polynomial(row.get("x", [0.0]))(np.polynomial.Polynomial([row["lo"], 1.0]))
        found.append((*(row[key] for key in keys), begin, end, model))
    found.sort(key=lambda row: row[:-1])
    for one, other in itertools.pairwise(found):
        assert one[: len(keys)] != other[: len(keys)] or one[-2] <= other[-3], (one, other)
    return found


def values(rows: list[tuple[Any, ...]], key: tuple[str, ...], *instants: float) -> list[float | None]:
    """What rows say of a key at instants; None where nothing is reported."""
    mine = [row[-3:] for row in rows if row[:-3] == key]
    return [
        next((round(float(model(at - begin)), 3) for begin, end, model in mine if begin <= at < end), None)
        for at in instants
    ]


MOVING = "MODEL S.x = S.x + S.v * t"


def test_a_prediction_behind_the_watermark_is_replaced_when_its_key_says_otherwise(tmp_path: Path) -> None:
    """a is reported to be below 5 until it is there at 5 s. Others report until 60 s; then a says that it went the other way."""
    batches: list[list[Row]] = [
        [("a", 0, 0, 1), ("b", 0, 0, 0)],
        [("b", 60, 0, 0)],
        [("a", 20, -20, -1), ("b", 61, 0, 0)],
    ]
    run_local(job_over(tmp_path, batches, f"select id, x from S {MOVING} where x < 5"))
    assert values(what_holds(tmp_path, "id"), ("a",), 0, 4, 12, 19) == [0, -4, -12, -19]
    kinds = [
        (row["kind"], row["batch"]) for row in read_changes(tmp_path / "out").to_pylist() if row["id"] == "a"
    ]
    assert ("-U", 2) in kinds


def test_a_pair_is_corrected_back_to_where_the_one_that_lags_was_seen(tmp_path: Path) -> None:
    """The other has had many models since, all of which are needed again."""
    others = [("b", t, 3.0 * (t // 10 % 2), 0.0) for t in range(10, 70, 10)]
    batches: list[list[Row]] = [
        [("a", 0, 0, 1), ("b", 0, 0, 0)],
        *([one] for one in others),
        [("a", 55, 0, 0)],
    ]
    query = (
        "select A.id as one, B.id as other, A.x - B.x as x from S A MODEL A.x = A.x + A.v * t "
        "join S B MODEL B.x = B.x + B.v * t on (A.id <> B.id) where A.x < 2"
    )
    run_local(job_over(tmp_path, batches, query))
    held = what_holds(tmp_path, "one", "other")
    assert values(held, ("a", "b"), 1, 9, 35, 54) == [-0.3, -2.7, -1.5, -1.8]  # a stood still all the time


def test_keys_that_do_not_lag_are_not_reported_again(tmp_path: Path) -> None:
    """b was below 5 until 5 s, which is behind the watermark: solving a again from 0 on says nothing of that."""
    batches: list[list[Row]] = [
        [("a", 0, 0, 1), ("b", 0, 0, 1)],
        [("b", t, float(t), 1) for t in range(10, 61, 10)],
        [("a", 20, -20, -1), ("b", 61, 70, 1)],
    ]
    run_local(job_over(tmp_path, batches, f"select id, x from S {MOVING} where x < 5"))
    assert [row[:3] for row in what_holds(tmp_path, "id") if row[0] == "b"] == [
        ("b", 0.0, 4.5),
        ("b", 4.5, 5.0),
    ]


def test_a_new_key_changes_nothing_of_what_is_no_longer_known_of_others(tmp_path: Path) -> None:
    """The largest of all keys over 30 s: what is before the watermark, of which parts are freed, stays as it was emitted."""
    heights = {
        0: 1.0,
        10: 2.0,
        20: 3.0,
        30: 2.0,
        40: 3.0,
        50: 1.0,
        60: 9.0,
        62: 1.0,
        70: 2.0,
        80: 1.0,
        91: 2.0,
    }
    batches: list[list[Row]] = [[("a", t, x, 0)] for t, x in heights.items()]
    query = "select max(x) as x from S[size 30 advance 10]"
    job = job_over(tmp_path, [*batches, [("c", 75, 0, 0)]], query, model={"x": "step"}, error=0)
    run_local(job)
    rows = what_holds(tmp_path)
    assert values(rows, (), 31, 59, 61, 65, 74, 76, 79, 81, 89.5) == [3, 3, 9, 9, 9, 9, 9, 9, 9]


def through_stages(job: Job) -> pa.Table:
    """The job's changes as Spark's two stages give them."""
    predictor = predictor_of(job)
    spread = partitioning_of(predictor, 3, 50.0)
    first = Places(
        ValidateStage(predictor, job.lateness, None)
        if spread is None
        else RouteStage(predictor, job.lateness, spread)
    )
    second = Places(
        SolveStage(predictor, job.lateness) if spread is None else PairStage(predictor, job.lateness, spread)
    )
    schemas = {name: spec.schema for name, spec in predictor.specs.items()}
    changes = []
    for number, tables in enumerate(batches(job, schemas)):
        out = second.take(first.take(dealt(tables, "id", 3))).to_dict("records")
        parts = [(unpacked_table(one["payload"]), one["now"]) for one in out if one["channel"] == CHANGES]
        parts = coalesced(parts, predictor.continuous) if spread is not None else parts
        changes.append(numbered(parts, predictor.continuous.schema, number))
    return pa.concat_tables(changes)


@pytest.mark.parametrize(
    "condition", ["A.x - B.x < 2", "abs(distance(A.x, A.v, B.x, B.v)) < 2"], ids=["one", "spread"]
)
def test_pairs_of_keys_that_lag_in_two_stages(tmp_path: Path, condition: str) -> None:
    """a was taken to stand beside b, which has had many models since; then a says that it went away at once."""
    others: list[list[Row]] = [[("b", t, t // 10 % 2, 0.0)] for t in range(10, 70, 10)]
    rows: list[list[Row]] = [[("a", 0, 0, 0), ("b", 0, 0, 0)], *others, [("a", 55, 55, 0)]]
    query = f"select A.id as one, B.id as other from S A join S B on (A.id <> B.id) where {condition}"
    job = job_over(tmp_path, rows, query, model={"x": "linear", "v": "linear"}, keep=[], error=0.2)
    run_local(job)
    staged = through_stages(job)
    for reported in (tmp_path, staged):
        held = values(what_holds(reported, "one", "other"), ("a", "b"), 1, 12, 25, 35, 50)
        assert held == [0, None, None, None, None], reported
