"""Store the columns of a job's changelog and dead letters when it starts, so that both read with them while they are empty."""

from __future__ import annotations

import pyarrow as pa

from pulse.core.arrow_types import parse_type
from pulse.operators.data.tuple_columns import needed_columns
from pulse.runtime.jobs.dead_letters import concat_rows, with_stream
from pulse.runtime.jobs.result_log import store_schema
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.source_schema import kind_columns
from pulse.runtime.jobs.spec import Job, StreamJob
from pulse.runtime.predict.spec import Predictor


def store_result_columns(job: Job, typed: Job, predictor: Predictor, *, with_rows: bool) -> None:
    """Store the columns in the folders of the job's results and dead letters.

    Parameters
    ----------
    job : its folders are locked by this run
    typed : the job with the types of its streams' columns
    predictor : of the typed job
    with_rows : whether rows carry their position in the file, which gives dead letters of text a ``line``
    """
    if job.sink.kind == "parquet" and job.sink.path is not None:
        store_schema(job.sink.path, numbered([], predictor.continuous.schema, 0))
    if job.aside is not None:
        streams = typed.streams.items()
        parts = [with_stream(name, _no_rejects(one, predictor, with_rows)) for name, one in streams]
        store_schema(job.aside, concat_rows(parts))


def _no_rejects(stream: StreamJob, predictor: Predictor, with_rows: bool) -> pa.Table:
    """Return the columns of a stream's rejected rows: its own, then the reason and the origin."""
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
