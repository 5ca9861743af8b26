"""The stateful operators without Spark: batches as parcels, and places whose state goes through bytes after every batch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pulse.core.schema import StreamSchema
from pulse.runtime.jobs.file_source import next_batches
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.source_schema import columns_of, others_of
from pulse.runtime.jobs.sources import read_batch
from pulse.runtime.jobs.spec import Job
from pulse.runtime.predict.ingest import LinePacker, Packer, unpacked_table
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, partitioning_of
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import CHANGES
from pulse.runtime.predict.stages import ValidateStage


def batches(job: Job, schemas: Mapping[str, StreamSchema]) -> Iterator[dict[str, pa.Table]]:
    """The present tuples of a job, a micro-batch at a time: the next files of every stream, as many as its option allows."""
    others = {
        name: others_of(job.streams[name], columns_of(job.streams[name]), schema)
        for name, schema in schemas.items()
        if job.streams[name].follows
    }
    for files in next_batches(job, {name: set() for name in schemas}):
        yield read_batch(job, schemas, files, others)


def packed(
    stream: str, table: pa.Table, key: str, places: int, accents: str | None = None, time: str = "t"
) -> list[dict[str, Any]]:
    """A batch's tuples as Spark hands them to the first stage; every place also gets the batch's newest time."""
    n = table.num_rows
    place = np.array([hash_of(one) % places for one in table.column(key).to_pylist()], np.int32)
    table = table.append_column("_place", pa.array(place))
    table = table.append_column("_modified", pa.array([7] * n, pa.int64()))
    table = table.append_column("_origin", pa.array(["file:/a"] * n))
    table = table.append_column("_block", pa.array([0] * n, pa.int64()))
    batches = iter(table.combine_chunks().to_batches(max_chunksize=40))
    packer = Packer(stream, accents=accents, places=places, time=time)
    return [row for batch in packer(batches) for row in batch.to_pylist()]


def dealt(tables: Mapping[str, pa.Table], key: str, buckets: int) -> pd.DataFrame:
    """Parcels of a batch's tuples."""
    return pd.DataFrame([row for stream, one in tables.items() for row in packed(stream, one, key, buckets)])


def hash_of(key: object) -> int:
    return sum(map(ord, str(key)))


class Places:
    """The places of one stateful operator: what is kept of each goes through bytes after every batch."""

    def __init__(self, processor: Any) -> None:
        self.processor = pickle.loads(pickle.dumps(processor))
        self.kept: dict[int, bytes] = {}

    def take(self, frame: pd.DataFrame) -> pd.DataFrame:
        out: list[dict[str, Any]] = []
        for place, rows in frame.groupby("place"):
            kept, more = self.processor.work(int(place), self.kept.get(int(place)), iter([rows]))
            if kept is not None:
                self.kept[int(place)] = kept
            out += more
        return pd.DataFrame(out)


def parcels(
    predictor: Predictor, tables: Mapping[str, pa.Table], lines: Mapping[str, list[str]], places: int
) -> pd.DataFrame:
    """A batch with its accents as Spark would hand it to the first stage."""
    found: list[dict[str, Any]] = []
    for stream, table in tables.items():
        schema, accents = predictor.specs[stream].schema, predictor.accent_options[stream].column
        found += packed(stream, table, schema.key_names[0], places, accents, schema.time)
    for stream, reported in lines.items():
        text = pa.record_batch({"value": ["\n".join(reported)], "modified": [8], "origin": ["file:/log"]})
        for batch in LinePacker(stream, places)(iter([text])):
            found += batch.to_pylist()
    return pd.DataFrame(found)


def staged(
    predictor: Predictor,
    batches: list[tuple[dict[str, pa.Table], dict[str, list[str]]]],
    cell: float | None = None,
) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Changes, and all else that comes out, through two stages whose state goes through bytes after every batch."""
    lateness, places = 10_000_000, 3
    spread = partitioning_of(predictor, places, cell)
    if spread is None:
        first, second = (
            Places(ValidateStage(predictor, lateness, None)),
            Places(SolveStage(predictor, lateness)),
        )
    else:
        first = Places(RouteStage(predictor, lateness, spread))
        second = Places(PairStage(predictor, lateness, spread))
    changes, rest = [], []
    for number, (tables, lines) in enumerate(batches):
        out = second.take(first.take(parcels(predictor, tables, lines, places))).to_dict("records")
        parts = [(unpacked_table(one["payload"]), one["now"]) for one in out if one["channel"] == CHANGES]
        parts = coalesced(parts, predictor.continuous) if spread is not None else parts
        changes.append(numbered(parts, predictor.continuous.schema, number))
        rest += [one for one in out if one["channel"] != CHANGES]
    return pa.concat_tables(changes), rest
