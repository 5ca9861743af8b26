"""Bind a job's query to the schemas of its streams, and read the streams' files batch by batch.

Tuples from sources other than files are ordered by their times.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pulse.core.arrow_types import canonical_type
from pulse.core.errors import ColumnTypeError, PulseError, unknown_column
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import check_columns, needed_columns
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.relational.scan import scans
from pulse.runtime.accents.declared_options import DeclaredKeysError, domain_of
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.jobs.file_source import SourceError as SourceError
from pulse.runtime.jobs.file_source import read_file
from pulse.runtime.jobs.sinks import CHANGELOG_COLUMNS
from pulse.runtime.jobs.source_schema import (
    Others,
    absent_of,
    columns_of,
    kind_columns,
    others_of,
    schema_of,
    warn_absent,
)
from pulse.runtime.jobs.toml import Job, JobError, StreamJob
from pulse.runtime.predict.spec import Predictor, check_predicted
from pulse.stream.accents.policy import Policy
from pulse.stream.propagation.state import Mode
from pulse.validation.online.rejects import with_origin


def predictor_of(job: Job, given: Mapping[str, pa.Schema] | None = None, *, dealt: bool = False) -> Predictor:
    """Bind the job's query to its streams; ``given``: columns of frames that the caller passes, ``dealt``: whether tuples are
    partitioned into buckets, as on Spark."""
    from pulse.language import parse

    schemas = {
        name: schema_of(one, (given or {}).get(name), where=job.where) for name, one in job.streams.items()
    }
    query = parse(job.query, schemas, tuple(job.parameters)).bind(job.parameters)
    for name in query.plan.columns.names:
        if name.lower() in CHANGELOG_COLUMNS:
            raise JobError(
                f"{job.where}: query: a changelog has columns {', '.join(CHANGELOG_COLUMNS)} of its own, "
                f"got results with '{name}'; rename it: {name} AS ..."
            )
    if any(scan.at is not None for scan in scans(query.plan)):
        raise JobError(
            f"{job.where}: AS OF is for stored models; a job reads its streams as they are now; leave it out"
        )
    check_predicted(query)
    if query.every is not None:
        raise JobError(
            f"{job.where}: query: SAMPLE EVERY is for stored models; a job's results are segments, valid at every instant of "
            "their range; leave the clause out, and sample the current results where tuples are needed"
        )
    specs = {}
    for name, one in job.streams.items():
        try:
            specs[name] = PredictSpec.of(
                schemas[name],
                horizon=one.horizon,
                error=one.error,
                policy=one.predict,
                memory=one.memory,
                max_gap=one.max_gap,
            )
        except PulseError as e:
            raise JobError(f"{job.where}, [streams.{name}]: {e}") from None
    read = {scan.stream for scan in scans(query.plan)}
    retentions = {
        name: one.retention for name, one in job.streams.items() if one.retention is not None and name in read
    }
    made = Predictor.of(query, specs, split=job.split, retentions=retentions)
    accents = {}
    for name, one in job.streams.items():
        if one.follows and name in read:
            columns = (given or {}).get(name) or columns_of(one, where=job.where)
            try:
                domain = domain_of(one.keys, schemas[name])
            except DeclaredKeysError as e:
                raise JobError(f"{job.where}, [streams.{name}], 'keys': expected {e}") from None
            absent = absent_of(one, columns)
            warn_absent(one, absent, columns, where=job.where)
            policy = Policy.of(one.policy)
            accents[name] = AccentOptions.of(
                made,
                name,
                one.accent_column,
                policy,
                columns.names,
                absent=absent,
                domain=domain,
                others=others_of(one, columns, schemas[name]),
                fixed=_fixed(made, one, job.buckets if dealt else 1),
            )
    mode: Mode = "abort" if job.on_accent == "abort" else "accumulate"
    made = replace(made, alerting=job.sink.kind == "alert")
    return replace(made, accent_options=accents, mode=mode) if accents else made


def _fixed(made: Predictor, stream: StreamJob, buckets: int) -> list[tuple[str, str]]:
    """Return the columns that accents cannot alter in this job, each with the reason."""
    from pulse.runtime.predict.co_partitioning import partition_keys

    found = []
    if buckets > 1:
        partitioning = partition_keys(made)
        keys = stream.key if partitioning is None else partitioning[stream.name]
        why = "tuples are partitioned by its recorded values; start the job with buckets = 1, or with engine = 'local'"
        found += [(name, why) for name in keys]
    if stream.accent_column is not None and stream.source != "files":
        why = (
            f"rows of {stream.source} are ordered by their times; put the accent in a log beside the stream (accents = FILE), or "
            "read the stream from files"
        )
        found.append((stream.time, why))
    return found


def read_batch(
    job: Job,
    schemas: Mapping[str, StreamSchema],
    files: Mapping[str, list[Path]],
    others: Mapping[str, Others] | None = None,
    *,
    located: bool = False,
) -> dict[str, pa.Table]:
    """Read the tuples of these files, by stream; with the columns ``others``, which only accents refer to, and if ``located``
    with each tuple's origin."""
    tables = {}
    for name, some in files.items():
        if some:
            one = job.streams[name]
            more = (others or {}).get(name, ())
            parts = [_needed(read_file(one, file), schemas[name], one, file, more) for file in some]
            if located:
                read = zip(parts, some, strict=True)
                parts = [with_origin(part, str(file), rows=one.format != "parquet") for part, file in read]
            tables[name] = pa.concat_tables(parts, promote_options="permissive")
    return tables


def _needed(table: pa.Table, schema: StreamSchema, stream: StreamJob, file: Path, others: Others) -> pa.Table:
    if stream.follows:
        table = _with_lost(table, schema, stream, others)
    for name, type_ in others:
        table = _of_type(table, name, type_)
    check_columns(table.schema, schema, str(file))
    for name, type_ in (*schema.key, *schema.unmodelled):
        table = _as_before(table, name, type_, file)
    for name in kind_columns(stream):
        if name not in table.column_names:
            raise unknown_column(name, table.column_names, str(file))
    return table.select([*needed_columns(schema), *kind_columns(stream), *(name for name, _ in others)])


def _as_before(table: pa.Table, name: str, type_: pa.DataType, file: Path) -> pa.Table:
    """Cast a key or unmodelled column to the stream's type. Numbers may have another type; strings are not converted."""
    column = table.column(name)
    found, of = column.type, pa.types
    if not of.is_null(found) and not of.is_nested(found) and canonical_type(found, what=name) == type_:
        return table
    number = of.is_integer(found) or of.is_floating(found) or of.is_decimal(found)
    alike = of.is_null(found) or (number and (of.is_integer(type_) or of.is_floating(type_)))
    if alike or (of.is_timestamp(found) and of.is_timestamp(type_)):
        with suppress(pa.ArrowInvalid):  # 1.5 is not an integer
            return table.set_column(table.column_names.index(name), name, column.cast(type_))
    raise ColumnTypeError(
        f"{file}, column '{name}': expected {type_}, as in the first file or 'columns', got {found}; rewrite the file with that "
        "type, under the same name, and restart the job: files read before are not read again"
    )


def _of_type(table: pa.Table, name: str, type_: pa.DataType) -> pa.Table:
    """Cast a column that only accents refer to, to its type in the first file; values that do not cast become null."""
    column, unknown = table.column(name), pa.nulls(table.num_rows, type_)
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        column = unknown
    elif canonical_type(column.type, what=name) == type_:
        return table
    try:
        column = column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        column = unknown
    return table.set_column(table.column_names.index(name), name, column)


def _with_lost(table: pa.Table, schema: StreamSchema, stream: StreamJob, others: Others) -> pa.Table:
    """Append nulls for columns that the file lacks: accents may have dropped the attributes, or the file has no accents."""
    missing = [(name, pa.float64()) for name in schema.modelled_names] + [*schema.unmodelled, *others]
    missing += [] if stream.accent_column is None else [(stream.accent_column, pa.string())]
    for name, type_ in missing:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return table
