"""The closest point of approach and its time, of vessels whose motion is predicted, against brute force over their courses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import Job
from tests.runtime.jobs.running_jobs import arrive, final, in_process, job_on, of_files, ran

APART = "distance(A.x, A.y, B.x, B.y)"
MODELS = {one: f"MODEL {one}.x = {one}.x + {one}.vx * t, {one}.y = {one}.y + {one}.vy * t" for one in "AB"}
QUERY = (
    f"select A.id as one, B.id as other, min({APART}) as cpa, min_at({APART}) as tcpa "
    f"from V as A[size 5 min] {MODELS['A']} join V as B {MODELS['B']} on (A.id < B.id) group by A.id, B.id"
)
ERROR = 4.0
SIZE = 300.0
COURSES = np.array(
    [  # x, y, vx, vy: metres, metres a second
        [0.0, 0.0, 8.0, 0.0],
        [3000.0, -2000.0, 0.0, 5.0],
        [4000.0, 300.0, -6.0, -1.0],
        [-900.0, 2500.0, 7.0, -7.0],
    ]
)
"""Vessels that pass each other within ten minutes, at different distances."""


def reports(folder: Path, noise: float) -> None:
    """Two reports of each vessel, 40 s apart, with positions that are off by up to the noise."""
    folder.mkdir()
    random = np.random.default_rng(5)
    for number, t in enumerate((0, 40)):
        at = COURSES[:, :2] + t * COURSES[:, 2:] + random.uniform(-noise, noise, (len(COURSES), 2))
        columns = {"x": at[:, 0], "y": at[:, 1], "vx": COURSES[:, 2], "vy": COURSES[:, 3]}
        instants = pa.array([t * 1_000_000] * len(COURSES), pa.timestamp("us"))
        arrive(
            folder,
            number,
            pa.table({"id": pa.array(range(len(COURSES)), pa.int64()), "t": instants, **columns}),
        )


def approach_job(folder: Path) -> Job:
    stream = of_files(
        key="id", model={"x": "linear", "y": "linear"}, keep=["vx", "vy"], error=ERROR, horizon="10 min"
    )
    return job_on(folder, QUERY, {"V": stream}, checkpoint="checkpoint", buckets=2)


def held(changes: pa.Table) -> list[dict[str, Any]]:
    """The results that hold in the end."""
    import pulse

    return pulse.apply_changes(changes).to_pylist()


def line(row: dict[str, Any], name: str, t: float) -> float:
    """A result at a closing time, in seconds since the epoch."""
    since = t - row["ref"].timestamp()
    return float(sum(c * since**i for i, c in enumerate(row[name])))


def by_brute_force(one: Any, other: Any, begin: float, end: float) -> tuple[float, float]:
    """The smallest distance of two courses over a window, and the instant, by trying every tenth of a second."""
    t = np.arange(begin, end + 0.05, 0.1)
    dx, dy = ((other[i] + other[i + 2] * t) - (one[i] + one[i + 2] * t) for i in (0, 1))
    apart = np.hypot(dx, dy)
    return float(apart.min()), float(t[apart.argmin()])


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_the_predicted_approach_is_that_of_the_courses(
    tmp_path: Path, noise: float, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    reports(tmp_path / "in", noise)
    changes = in_process(approach_job(tmp_path))
    rows = held(changes)
    assert {(row["one"], row["other"]) for row in rows} == {(i, j) for i in range(4) for j in range(i + 1, 4)}
    newest, random, seen, ahead = 40.0, np.random.default_rng(1), 0, 0
    for row in rows:
        start = row["ref"].timestamp()
        for t in np.linspace(start + row["lo"], start + row["hi"], 7)[1:-1]:
            for _ in range(3):
                # The vessels themselves, off their models by as much as the bound allows.
                pair = COURSES[[row["one"], row["other"]]].copy()
                pair[:, :2] += random.uniform(-1, 1, (2, 2)) * (ERROR - 2 * noise)
                apart, at = by_brute_force(*pair, t - SIZE, t)
                assert abs(line(row, "cpa", t) - apart) <= row["cpa_err"] + 1e-3
                assert abs(t + line(row, "tcpa", t) - at) <= row["tcpa_err"] + 0.1
                seen += 1
            ahead += t + line(row, "tcpa", t) > newest
    assert seen > 100
    assert ahead > 50  # approaches that had not happened when they were emitted
    passing = [row["tcpa_err"] for row in rows if (row["one"], row["other"]) == (0, 2)]
    assert min(passing) < 20.0  # head on at 14 m/s: known to seconds, minutes before


def test_spark_predicts_the_same_approaches(spark: SparkSession, tmp_path: Path) -> None:
    reports(tmp_path / "in", 1.0)
    job = approach_job(tmp_path)
    assert ran(spark, job).tally.tuples == 8
    for name in ("cpa", "tcpa"):
        found = final(read_changes(tmp_path / "out"), ("one", "other"), name)
        assert len(found) > 6
        assert found == final(in_process(job), ("one", "other"), name)
