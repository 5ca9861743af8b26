"""A job over one object that climbs by one a second: as a file, as tables, and its tuples."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from pulse.runtime.jobs.toml import Job, job_of
from tests.runtime.jobs.streams import ONE_FILE, file_stream

SECOND = 1_000_000
QUERY = "select id, x from S MODEL S.x = S.x + S.v * t where x > 15"
TOML = f"""
query = "{QUERY}"
engine = "local"

[streams.S]
source = "files"
path = "in"
key = "id"
time = "t"
model = {{ x = "linear" }}
keep = ["v"]
error = 0.1
horizon = "60 s"
options = {{ maxFilesPerTrigger = 1 }}

[sink]
kind = "parquet"
path = "out"
"""


def climbing(folder: Path, format: str = "parquet", files: int = 2) -> None:
    """One object that climbs by one a second, and says so."""
    folder.mkdir()
    for f in range(files):
        t = list(range(10 * f, 10 * f + 10))
        table = pa.table(
            {
                "id": ["a"] * 10,
                "t": pa.array([one * SECOND for one in t], pa.timestamp("us")),
                "x": [float(one) for one in t],
                "v": [1.0] * 10,
            }
        )
        file = folder / f"{f}.{format}"
        if format == "parquet":
            pq.write_table(table, file)
        elif format == "csv":
            pa_csv.write_csv(table, file)
        else:
            lines = [json.dumps({**row, "t": row["t"].isoformat(sep=" ")}) for row in table.to_pylist()]
            file.write_text("\n".join(lines), encoding="utf-8")
        os.utime(file, (1000 + f, 1000 + f))


def moving_stream(**more: Any) -> dict[str, Any]:
    """A stream of objects with a velocity, one file a batch."""
    return file_stream("id", {"x": "linear"}, **{"keep": ["v"], "options": ONE_FILE, **more})


def climbing_tables(**more: Any) -> dict[str, Any]:
    """The job as tables, without a sink; ``stream`` adds to its stream."""
    stream = moving_stream(error=0.1, horizon="60 s") | more.pop("stream", {})
    return {"query": QUERY, "streams": {"S": stream}, **more}


def climbing_job(folder: Path, **more: Any) -> Job:
    """The job with a sink of Parquet."""
    return job_of(climbing_tables(**{"sink": {"kind": "parquet", "path": "out"}, **more}), folder=folder)
