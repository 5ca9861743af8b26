"""Keys that fall silent, on Structured Streaming: what is certain is true there, too, and what nothing confirms is taken back.

That it is so for any keys is shown in process, in test_silent_keys.py; here one stream a query has to do.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import Job, job_of
from tests.runtime.jobs.running_jobs import ran
from tests.runtime.predict.silences import (
    QUERIES,
    Row,
    Run,
    Truth,
    assert_true,
    compared,
    held_rows,
    table_of,
)

NAMES = ("each key", "max", "windows of each key", "sum")


def any_run(seed: int) -> Run:
    """Three keys that report for a while, fall silent for longer than horizons and windows, and come back."""
    chosen = random.Random(seed)
    rows = []
    for key in "abc":
        t, x = chosen.randint(0, 6), chosen.randint(-4, 4)
        for _ in range(8):
            rows.append(Row(key, t, t, x / 2))
            t += chosen.choice([1, 2, 3, 5, 9, 17, 40])
            x += chosen.choice([0, 0, 0, 1, -2, 7])
    rows.sort(key=lambda row: (row.comes, row.id))
    return Run(chosen.choice(["linear", "step"]), chosen.choice([3, 8]), 5, None, rows, [4, 9, 14, 19])


def job_over(folder: Path, name: str, run: Run) -> Job:
    (folder / "in").mkdir()
    for number, batch in enumerate(run.batches()):
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(table_of(batch), file)
        os.utime(file, (1000 + number, 1000 + number))
    return job_of(
        {
            "query": QUERIES[name],
            "lateness": f"{run.lateness} s",
            "checkpoint": "checkpoint",
            "buckets": 3,
            "streams": {
                "S": {
                    "source": "files",
                    "path": "in",
                    "key": "id",
                    "time": "t",
                    "model": {"x": run.truth},
                    "error": 0.25,
                    "horizon": f"{run.horizon} s",
                    "options": {"maxFilesPerTrigger": 1},
                }
            },
            "sink": {"kind": "parquet", "path": "out"},
            "spark": {"sql.shuffle.partitions": 1},
        },
        folder=folder,
    )


@pytest.mark.parametrize(("name", "seed"), [(name, 1 + n % 2) for n, name in enumerate(NAMES)])
def test_what_is_certain_is_true_on_spark(spark: SparkSession, tmp_path: Path, name: str, seed: int) -> None:
    run = any_run(seed)
    ran(spark, job_over(tmp_path, name, run))
    found = read_changes(tmp_path / "out")
    before = compared["certain"]
    taken: list[Row] = []
    for number, batch in enumerate(run.batches()):
        taken += batch
        upto = found.filter(pa.array(found.column("batch").to_numpy() <= number))
        assert_true(name, Truth(run, taken), [upto.drop_columns(["now", "batch", "position"])])
    assert compared["certain"] > before


def test_buckets_without_tuples_take_back_what_nothing_confirms(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Row(key, t, t, 1.0) for key in "abcdef" for t in (0, 2)]
    rows += [Row("a", t, t, 1.0) for t in range(4, 60, 4)]
    rows.sort(key=lambda row: row.comes)
    run = Run("linear", 8, 5, None, rows, [12, 18, 22])
    ran(spark, job_over(tmp_path, "each key", run))
    held = read_changes(tmp_path / "out").drop_columns(["now", "batch", "position"])
    ends = {key: float(end) for key, _, end, _ in held_rows([held]) if key != "a"}
    assert ends == dict.fromkeys("bcdef", 2.0)
