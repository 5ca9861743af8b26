"""Jobs over small streams of ticks and objects, and how they are run: what the tests of predictive jobs share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.spark_driver import start
from pulse.runtime.predict.status import Status

FILTER = "select symbol, price from S where price > 103"
MACD = (
    "select A.symbol, A.a - B.a as d from (select symbol, avg(price) as a from S[size 5 advance 1]) as A "
    "join (select symbol, avg(price) as a from S[size 20 advance 1]) as B on (A.symbol = B.symbol) where A.a > B.a"
)
NEAR = (
    "select R.id as one, Q.id as other from O as R join O as Q on (R.id <> Q.id) "
    "where abs(distance(R.x, R.y, Q.x, Q.y)) < 40"
)
FIG_1 = "select A.id as a, B.id as b from A MODEL A.x = A.x + A.vx * t JOIN B MODEL B.y = B.y + B.vy * t ON (A.x < B.y)"


def ticks(folder: Path, files: int = 3, *, keys: int = 4, seconds: int = 40) -> Path:
    """Prices of a few symbols that wander up and down, a file per stretch of time."""
    folder.mkdir(parents=True, exist_ok=True)
    for f in range(files):
        t = np.repeat(np.arange(f * seconds, (f + 1) * seconds), keys)
        k = np.tile(np.arange(keys), seconds)
        price = 100 + k + 3 * np.sin(t / 12 + k) + 0.02 * np.cos(t * 1.7)
        arrive(
            folder,
            f,
            pa.table(
                {
                    "symbol": [f"s{one}" for one in k],
                    "t": pa.array(t * 1_000_000, pa.timestamp("us")),
                    "price": price,
                }
            ),
        )
    return folder


def objects(folder: Path, files: int = 3) -> Path:
    """Ships on straight lines that turn now and then."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-200, 200, (2, 6))
    for f in range(files):
        vx, vy = rng.uniform(-8, 8, (2, 6))
        rows = []
        for s in range(10):
            t = (f * 10 + s) * 1_000_000
            rows += [(i, t, x[i] + vx[i] * s, y[i] + vy[i] * s, vx[i], vy[i]) for i in range(6)]
        x, y = x + 10 * vx, y + 10 * vy
        columns = list(zip(*rows, strict=True))
        arrive(
            folder,
            f,
            pa.table(
                {
                    "id": pa.array(columns[0], pa.int64()),
                    "t": pa.array(columns[1], pa.timestamp("us")),
                    **{name: columns[2 + i] for i, name in enumerate(("x", "y", "vx", "vy"))},
                }
            ),
        )
    return folder


def arrive(folder: Path, number: int, table: pa.Table) -> Path:
    """A file, with a modification time that follows its number."""
    file = folder / f"part-{number:03d}.parquet"
    draft = folder / f".{number}"
    pq.write_table(table, draft)
    os.utime(draft, (1_000_000 + number, 1_000_000 + number))
    draft.rename(file)
    return file


def of_files(**reported: Any) -> dict[str, Any]:
    """A stream of the files in ``in``, one a batch."""
    first = {"source": "files", "path": "in", "time": "t", "options": {"maxFilesPerTrigger": 1}}
    return {**first, **reported}


def job_on(folder: Path, query: str, streams: Mapping[str, Mapping[str, Any]], **more: Any) -> Job:
    """A job whose results are a Parquet sink in ``folder / out``."""
    values = {"query": query, "buckets": 3, "streams": streams, "sink": {"kind": "parquet", "path": "out"}}
    return job_of({**values, **more}, folder=folder)


def tick_job(folder: Path, query: str = FILTER, **more: Any) -> Job:
    """A job on the ticks in ``folder / in``, one file a batch."""
    stream = of_files(key="symbol", model={"price": "step"}, error="1%", horizon="20 s")
    return job_on(folder, query, {"S": stream}, **{"checkpoint": "checkpoint", **more})


def object_job(folder: Path, query: str, streams: str, **more: Any) -> Job:
    """A job on the objects in ``folder / in``, whatever the query calls them."""
    model = {"x": "linear", "y": "linear"}
    stream = of_files(key="id", model=model, keep=["vx", "vy"], error=1, horizon="30 s")
    given = {"checkpoint": "checkpoint", "buckets": 2, **more}
    return job_on(folder, query, dict.fromkeys(streams, stream), **given)


def in_process(job: Job) -> pa.Table:
    """What the job gives in process, as rows of a Parquet sink would be."""
    parts: list[pa.Table] = []
    bare = replace(job, sink=replace(job.sink, kind="none", aside=None, path=None), checkpoint=None)
    run_local(bare, on_batch=lambda _, changes: parts.append(changes))
    return pa.concat_tables(parts)


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows, rounded, in their order."""
    names = [name for name in sorted(table.column_names) if name != "position"]
    found = table.sort_by([("batch", "ascending"), ("position", "ascending")]).to_pylist()
    return [tuple(_rounded(row[name]) for name in names) for row in found]


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{round(value, 9):.6g}") + 0.0
    return tuple(map(_rounded, value)) if isinstance(value, list) else value


def final(
    table: pa.Table, keys: tuple[str, ...], value: str | None = None
) -> dict[tuple[object, ...], object]:
    """What holds in the end: the changelog applied, seen at instants that are no ends of segments."""
    held: dict[tuple[object, ...], object] = {}
    ordered = table.sort_by([("batch", "ascending"), ("position", "ascending")])
    for row in ordered.to_pylist():
        ref = (row["ref"] - datetime(1970, 1, 1)).total_seconds()
        first, last = ref + row["lo"], ref + row["hi"]
        for step in range(math.ceil((first - 0.137) * 2), math.ceil((last - 0.137) * 2)):
            at = (*(row[name] for name in keys), step)
            if row["kind"].startswith("-"):
                assert at in held
                del held[at]
            else:
                assert at not in held
                h = step / 2 + 0.137 - ref
                reported = None if value is None else sum(c * h**i for i, c in enumerate(row[value]))
                held[at] = (row["certainty"], reported if reported is None else float(f"{reported:.6f}"))
    return held


def ran(spark: SparkSession, job: Job, **more: Any) -> Status:
    """Once over what is there, on Spark."""
    running = start(spark, job, once=True, **more)
    try:
        running.wait()
    finally:
        running.stop()
    return running.status


def aside(folder: Path, stream: str = "S") -> list[dict[str, Any]]:
    """What was set aside of a stream, as rows."""
    files: Iterable[Path] = sorted((folder / "checkpoint" / "aside" / f"stream={stream}").glob("*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
