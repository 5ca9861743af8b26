"""Revisions through the stages of a job, with and without Spark: the same results as in process, and as from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulse.runtime.jobs.checkpoint import CheckpointError
from pulse.runtime.jobs.sinks import NullSink, numbered, read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.pair_stages import PairStage, RouteStage, partitioning_of
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spark_driver import runs_in_buckets
from pulse.runtime.predict.spatial_partitioning import coalesced
from pulse.runtime.predict.stage_rows import CHANGES
from pulse.runtime.predict.stages import SingleStage, ValidateStage
from pulse.validation.revisions.element_matching import PAIR, replacements
from tests.runtime.jobs.running_jobs import (
    FIG_1,
    FILTER,
    MACD,
    NEAR,
    arrive,
    aside,
    final,
    in_process,
    object_job,
    ran,
    tick_job,
)
from tests.runtime.predict.stages import batches, dealt
from tests.runtime.predict.test_spatial_partitioning import FOLLOWING, MOVING, fleet


def spoilt(table: pa.Table, value: str, seed: int) -> pa.Table:
    """A changelog that leads to the table: some rows come late, some wrong at first, and some that never were are taken back."""
    rng = np.random.default_rng(seed)
    reported: list[tuple[float, str, dict[str, Any]]] = []
    for i, row in enumerate(table.to_pylist()):
        luck = rng.random()
        wrong = {**row, value: row[value] + float(rng.normal(0.0, 20.0))}
        if luck < 0.08:
            reported.append((i + rng.integers(5, 60), "+I", row))
        elif luck < 0.16:
            after = i + rng.integers(1, 60)
            reported += [(i, "+I", wrong), (after, "-U", wrong), (after + 0.25, "+U", row)]
        elif luck < 0.22:
            reported += [(i, "+I", row), (i + 0.5, "+I", wrong), (i + rng.integers(1, 60), "-D", wrong)]
        else:
            reported.append((i, "+I", row))
    reported.sort(key=lambda one: one[0])
    made = pa.Table.from_pylist([row for _, _, row in reported], schema=table.schema)
    return made.append_column("op", pa.array([kind for _, kind, _ in reported]))


def ticking(keys: int = 4, seconds: int = 90) -> pa.Table:
    t, k = np.repeat(np.arange(seconds), keys), np.tile(np.arange(keys), seconds)
    price = 100 + k + 3 * np.sin(t / 12 + k) + 0.02 * np.cos(t * 1.7)
    return pa.table(
        {
            "symbol": [f"s{one}" for one in k],
            "t": pa.array(t * 1_000_000, pa.timestamp("us")),
            "price": price,
        }
    )


def folded(folder: Path, table: pa.Table, files: int) -> None:
    """The table as files; the halves of a replacement stay together."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = table.column("op").to_pylist() if "op" in table.column_names else [""] * table.num_rows
    edges = [table.num_rows * f // files for f in range(1, files)]
    edges = [0, *(one + (kinds[one] == "+U") for one in edges), table.num_rows]
    for f in range(files):
        arrive(folder, f, table.slice(edges[f], edges[f + 1] - edges[f]))


class Store:
    """Spark's state of one place."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.map: dict[tuple[str, int], tuple[bytes]] = {}

    def exists(self) -> bool:
        return self.value is not None

    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def getValue(self, key: tuple[str, int]) -> tuple[bytes]:
        return self.map[key]

    def updateValue(self, key: tuple[str, int], value: tuple[bytes]) -> None:
        assert key not in self.map  # chunks never change
        self.map[key] = value

    def removeKey(self, key: tuple[str, int]) -> None:
        del self.map[key]

    def getValueState(self, *_: str) -> Store:
        return self

    def getMapState(self, *_: str) -> Store:
        return self


class Stage:
    """The places of one stateful operator, as Spark calls it."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.stores: dict[int, Store] = {}

    def take(self, frame: pd.DataFrame) -> pd.DataFrame:
        out = []
        for place, rows in frame.groupby("place"):
            self.processor.init(self.stores.setdefault(int(place), Store()))
            out += list(self.processor.handleInputRows((int(place),), iter([rows]), None))
        return pd.concat(out)


def staged(job: Job, key: str, cell: float | None = None) -> pa.Table:
    """The job's changes through the stages that it has on Spark."""
    predictor = predictor_of(job)
    spread = partitioning_of(predictor, job.buckets, cell)
    if runs_in_buckets(predictor):
        stages = [Stage(SingleStage(predictor, job.lateness))]
    elif spread is not None:
        stages = [
            Stage(RouteStage(predictor, job.lateness, spread)),
            Stage(PairStage(predictor, job.lateness, spread)),
        ]
    else:
        stages = [
            Stage(ValidateStage(predictor, job.lateness, None)),
            Stage(SolveStage(predictor, job.lateness)),
        ]
    parts = []
    schemas = {name: spec.schema for name, spec in predictor.specs.items()}
    for number, tables in enumerate(batches(job, schemas)):
        rows = dealt(marked(tables, key), key, job.buckets)
        for stage in stages:
            rows = stage.take(rows)
        reported = [one for one in rows.to_dict("records") if one["channel"] == CHANGES]
        changes = [(unpacked_table(one["payload"]), one["now"]) for one in reported]
        if spread is not None and len(stages) > 1:
            changes = coalesced(changes, predictor.continuous)
        parts.append(numbered(changes, predictor.continuous.schema, number))
    return pa.concat_tables(parts)


def marked(tables: dict[str, pa.Table], key: str) -> dict[str, pa.Table]:
    """Tuples with the halves of replacements marked, as they are before they are dealt out."""
    return {
        name: table.append_column(PAIR, pa.array(replacements(table, (key,), "op")))
        if "op" in table.column_names
        else table
        for name, table in tables.items()
    }


def jobs(folder: Path, query: str) -> Iterator[tuple[Job, Job]]:
    """A job over a spoilt stream, and the same over the stream as it should have been."""
    ticking_ = query in (FILTER, MACD)
    table = ticking() if ticking_ else fleet(3, seconds=30)
    value = "price" if ticking_ else "x"
    for seed in (1, 2):
        made = []
        for name, one in (("spoilt", spoilt(table, value, seed)), ("right", table)):
            place = folder / f"{name}{seed}"
            folded(place / "in", one, 5)
            streams = "AB" if query == FIG_1 else "O"
            job = tick_job(place, query) if ticking_ else object_job(place, query, streams)
            # Long enough for all that comes late, so short that most is forgotten before the end.
            made.append(revisable(job, "op" if name == "spoilt" else None, 20))
        yield made[0], made[1]


def revisable(job: Job, kind: str | None, span: int) -> Job:
    """The job with so many seconds of history."""
    kept = {name: replace(one, kind=kind, revisions=span * 1_000_000) for name, one in job.streams.items()}
    return replace(job, streams=kept, lateness=1_000_000)


@pytest.mark.parametrize(
    ("query", "keys", "value", "cell"),
    [
        (FILTER, ("symbol",), "price", None),
        (MACD, ("symbol",), "d", None),
        (NEAR, ("one", "other"), None, 60.0),
        (MOVING, ("one", "other"), None, 60.0),
        (FOLLOWING, ("one", "other"), "mean", 60.0),
        (FIG_1, ("a", "b"), None, None),
    ],
    ids=["filter", "macd", "near", "moving", "following", "fig 1"],
)
def test_stages(
    tmp_path: Path, query: str, keys: tuple[str, ...], value: str | None, cell: float | None
) -> None:
    key = "symbol" if query in (FILTER, MACD) else "id"
    for spoilt_, right in jobs(tmp_path, query):
        found = final(staged(spoilt_, key, cell), keys, value)
        assert found
        assert found == final(in_process(spoilt_), keys, value)
        p = run_local(replace(spoilt_, checkpoint=None), sink=NullSink())
        assert p.tally.revisions > 20
        assert p.tally.aside == 0
        if not p.tally.absorbed:
            assert found == final(in_process(right), keys, value)


def test_on_spark_as_in_process_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    table = spoilt(ticking(seconds=40), "price", 5)
    never = table.slice(0, 1).set_column(3, "op", pa.array(["-D"])).set_column(2, "price", pa.array([1.0]))
    table = pa.concat_tables([table, never])
    folded(tmp_path / "all", table, 4)
    (tmp_path / "in").mkdir()
    job = revisable(tick_job(tmp_path, MACD), "op", 30)
    for f in range(2):
        (tmp_path / "all" / f"part-{f:03d}.parquet").rename(tmp_path / "in" / f"part-{f:03d}.parquet")
    first = ran(spark, job)
    for f in range(2, 4):
        (tmp_path / "all" / f"part-{f:03d}.parquet").rename(tmp_path / "in" / f"part-{f:03d}.parquet")
    second = ran(spark, job)
    found = read_changes(tmp_path / "out")
    assert final(found, ("symbol",), "d") == final(in_process(job), ("symbol",), "d")
    apart = replace(job.sink, path=str(tmp_path / "out_in_process"), aside=None)
    p = run_local(replace(job, sink=apart, checkpoint=None), sink=NullSink())
    assert first.tally.revisions + second.tally.revisions == p.tally.revisions > 10
    assert first.tally.absorbed + second.tally.absorbed == p.tally.absorbed
    (reported,) = aside(tmp_path)
    assert reported["op"] == "-D"
    assert reported["reason"].startswith(
        "deletion of a tuple that is not recorded: at 1970-01-01T00:00:00.000000Z: expected price = 1.0; recorded there: price = "
    )
    with pytest.raises(CheckpointError, match=r"streams\.S\.revisions was 30 s, is"):
        ran(spark, tick_job(tmp_path, MACD))
