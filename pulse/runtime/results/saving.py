"""Save an answer as a stored model, so that queries on it give what the nested query gives.

The model holds all that an operator above would receive: keys, segments with their bounds, and their certainty, possible
segments included. In process units of whole keys are written as they are computed; on Spark workers write the files, and only
a row per file reaches the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema, Truth
from pulse.core.segment.batch import SegmentBatch
from pulse.plan.rules.attach_planes import plane_of
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.store.derived import Part, Target, store_derived, write_part
from pulse.store.model import Model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_FILE = 1 << 20
"""Segments of a file that this process writes, at least; a worker of Spark writes one file."""


Convert = Callable[[pa.Table, StreamSchema], SegmentBatch]
"""Turn rows into segments, checked or not."""


class SaveError(PulseError, ValueError):
    """An answer that a stored model cannot represent."""


def save_answer(
    job: BoundPlan,
    out: str | Path,
    given: Mapping[str, Any],
    batches: Callable[[], Iterable[pa.RecordBatch]] | None,
    frame: Callable[[], DataFrame] | None,
    *,
    overwrite: bool,
    watched: AbstractContextManager[Any],
) -> Model:
    """Run a job of segments and store its result; ``batches`` yields it in this process, ``frame`` on Spark."""
    schema = schema_of(job)
    _check_place(job, Path(out))
    job.check_end(None)

    def write(target: Target) -> Iterator[Part]:
        if batches is not None:
            whole_keys = job.fragments[-1].stream is not None
            yield from write_batches(target, batches(), schema, whole_keys=whole_keys)
        else:
            assert frame is not None
            with watched:
                yield from write_frame(target, frame(), schema)

    inputs = [
        {"stream": stream, "path": str(Path(ref.path).absolute()), "version": ref.version, "as_of": ref.as_of}
        for stream, ref in job.paths.items()
    ]
    derived = {"from": "query", "query": job.query.text, "parameters": _as_json(given), "inputs": inputs}
    return store_derived(out, schema, derived, write, overwrite=overwrite, statements=_statements(job))


def schema_of(job: BoundPlan) -> StreamSchema:
    """Return the schema of the model that holds a job's segments; refuse what has none."""
    columns = job.columns
    if columns.points:
        raise SaveError(
            "save: the answer is of tuples (points), and a saved answer is of segments; write it with write(…) or --out, and fit "
            "the file"
        )
    if not columns.modelled:
        raise SaveError(
            "save: the answer has no modelled attribute, so there is nothing to query; select one more, such as the attribute "
            "that the predicate compares"
        )
    units = job.accents.output_units
    altered = [] if units is None else [name for name, one in units.alter.steps.items() if not one.is_empty]
    if altered:
        raise SaveError(
            f"save: accents alter {', '.join(altered)}, so that the answer has several units, and a model has one; ignore these "
            "accents (evolution={'alter': 'ignore'}, --policy alter=ignore) to save it in the units of the stream's start"
        )
    return StreamSchema(
        key=columns.key,
        time=columns.time,
        modelled=tuple((name, Truth.LINEAR) for name in columns.modelled),
        unmodelled=columns.unmodelled,
        plane=plane_of(job.query.plan),
        certainty=True,
    )


def write_batches(
    target: Target, batches: Iterable[pa.RecordBatch], schema: StreamSchema, *, whole_keys: bool
) -> Iterator[Part]:
    """Write batches in this process; if each has all segments of its keys, as they come, else when all are here."""
    held: list[pa.RecordBatch] = []
    number = 0
    for batch in batches:
        held.append(batch)
        if whole_keys and sum(one.num_rows for one in held) >= ROWS_PER_FILE:
            yield write_part(target, number, segments_of(pa.Table.from_batches(held), schema))
            held, number = [], number + 1
    if held:
        yield write_part(target, number, segments_of(pa.Table.from_batches(held), schema))


def segments_of(table: pa.Table, schema: StreamSchema) -> SegmentBatch:
    """Return the rows of an answer as segments; they need no check."""
    return SegmentBatch.from_arrow(table, schema, check=False)


def write_frame(
    target: Target, frame: DataFrame, schema: StreamSchema, convert: Convert = segments_of
) -> list[Part]:
    """Write a DataFrame of segments on Spark: the segments of a key are brought together, and each worker writes a file."""
    from pyspark import TaskContext
    from pyspark.sql import functions as F

    from pulse.runtime.spark.arrow_frames import spark_struct
    from pulse.runtime.spark.errors import translated

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            context = TaskContext.get()
            segments = convert(pa.Table.from_batches(held), schema)
            part = write_part(target, context.partitionId() if context else 0, segments)
            yield pa.RecordBatch.from_pydict({"part": [json.dumps(part)]})

    keys = [F.col(f"`{name}`") for name in schema.key_names]
    with translated():
        partitions = max(frame.sparkSession.sparkContext.defaultParallelism, frame.rdd.getNumPartitions())
        by_key = frame.repartition(partitions, *keys) if keys else frame.coalesce(1)
        rows = by_key.mapInArrow(work, spark_struct(pa.schema([("part", pa.string())]))).toArrow()
    return [json.loads(text) for text in rows.column("part").to_pylist()]


def _check_place(job: BoundPlan, out: Path) -> None:
    """Refuse to replace a model that the query reads: the saved answer would name itself as its input."""
    for stream, ref in job.paths.items():
        if out.resolve() == Path(ref.path).resolve():
            raise SaveError(
                f"save: {out} is the model of stream {stream}, which the query reads; choose another folder"
            )


def _statements(job: BoundPlan) -> tuple[str, ...]:
    """Return the notes of the inputs' readers, of the projection of positions among them."""
    found = [line for ref in job.paths.values() for line in ref.open().manifest.statements]
    return tuple(dict.fromkeys(found))


def _as_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as a manifest holds them; others than numbers, texts and lists of them as text."""
    return json.loads(json.dumps(dict(given), default=str))  # type: ignore[no-any-return]
