"""Return the columns of a job's changelog and of its dead letters while there are none."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pulse.core.arrow_types import parse_type
from pulse.operators.data.tuple_columns import needed_columns
from pulse.runtime.jobs.checkpoint import known_columns
from pulse.runtime.jobs.dead_letters import concat_rows, with_stream
from pulse.runtime.jobs.file_source import SourceError
from pulse.runtime.jobs.result_log import store_schema
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.source_schema import kind_columns, resolve_types
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.spec import Job, StreamJob
from pulse.runtime.predict.spec import Predictor


def store_result_columns(job: Job, predictor: Predictor) -> None:
    """Store the columns of the changelog in the folder of the job's results, before the first batch."""
    if job.sink.kind == "parquet" and job.sink.path is not None:
        store_schema(job.sink.path, numbered([], predictor.continuous.schema, 0))


def no_rejects(job: Job, given: Mapping[str, pa.Schema]) -> pa.Table:
    """Return an empty table with the columns of the job's rejected rows; ``given`` are the schemas of frames, by stream.

    Without columns if the files that columns are inferred from are gone.
    """
    in_process = job.engine == "local"
    try:
        typed, _ = resolve_types(job, known_columns(job), every=not in_process)
        predictor = predictor_of(typed, given)
    except SourceError:
        return pa.table({})
    streams = typed.streams.items()
    return concat_rows([with_stream(name, _rejects_of(one, predictor, in_process)) for name, one in streams])


def _rejects_of(stream: StreamJob, predictor: Predictor, with_rows: bool) -> pa.Table:
    """Return a stream's own columns, then the reason and the origin: of text in process also the line."""
    schema = predictor.specs[stream.name].schema
    options = predictor.accent_options.get(stream.name)
    types: dict[str, pa.DataType] = {schema.time: pa.timestamp("us")}
    if stream.columns is not None:
        types |= {name: parse_type(type_) for name, type_ in stream.columns.items() if type_ != "null"}
    types |= dict((*schema.key, *schema.unmodelled))
    others = () if options is None else options.others
    types |= dict(others)
    types |= dict.fromkeys(kind_columns(stream), pa.string())
    names = [*needed_columns(schema), *kind_columns(stream), *(name for name, _ in others)]
    fields = {name: types.get(name, pa.float64()) for name in names} | {"reason": pa.string()}
    if stream.source == "files" and "file" not in fields:
        fields["file"] = pa.string()
        if with_rows and stream.format != "parquet" and "line" not in fields:
            fields["line"] = pa.int64()
    return pa.schema(list((fields | {"batch": pa.int64()}).items())).empty_table()
