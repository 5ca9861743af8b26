"""Where the tuples of a job come from: what columns they have, and files in the order of their arrival.

The order of arrival within a micro-batch is, for files, that of their modification times, then names, then rows; what comes from
elsewhere is put in the order of its times. Both engines read files in the same order.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.arrow_types import canonical_type, parse_type
from pulse.core.errors import PulseError, unknown_column
from pulse.core.schema import StreamSchema
from pulse.core.time import LIMIT
from pulse.operators.predict import PredictSpec
from pulse.operators.tuples import check_columns, needed_columns
from pulse.plan.nodes import scans
from pulse.runtime.predictive_accent_options import DeclaredKeysError, domain_of
from pulse.runtime.predictive_accents import Hears
from pulse.runtime.predictive_job import Job, JobError, StreamJob
from pulse.runtime.predictor import Predictor
from pulse.runtime.sinks import BESIDE
from pulse.runtime.text_tuples import Dialect, read_csv, read_json
from pulse.stream.policy import Policy
from pulse.stream.state import Mode

if TYPE_CHECKING:
    pass

_log = logging.getLogger(__name__)

KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_FILES_PER_BATCH = "maxFilesPerTrigger"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_RATE = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])


Others = Sequence[tuple[str, pa.DataType]]
"""Columns of which only descriptions of accents speak, with their types."""


class SourceError(PulseError, OSError):
    """Tuples that cannot be read."""


def predictor_of(job: Job, given: Mapping[str, pa.Schema] | None = None, *, dealt: bool = False) -> Predictor:
    """The job's query, bound to its streams; ``given`` are the columns of frames that the caller brings, ``dealt`` says whether
    tuples are dealt to buckets, as they are on Spark."""
    from pulse.language import parse

    schemas = {
        name: schema_of(one, (given or {}).get(name), where=job.where) for name, one in job.streams.items()
    }
    query = parse(job.query, schemas, tuple(job.parameters)).bind(job.parameters)
    for name in query.plan.columns.names:
        if name.lower() in BESIDE:
            raise JobError(
                f"{job.where}: query: a changelog has columns {', '.join(BESIDE)} of its own, got results with '{name}'; call it "
                f"something else: {name} AS ..."
            )
    if any(scan.at is not None for scan in scans(query.plan)):
        raise JobError(f"{job.where}: AS OF is for stored models; a running stream is as it is known now")
    specs = {}
    for name, one in job.streams.items():
        try:
            specs[name] = PredictSpec.of(
                schemas[name], horizon=one.horizon, error=one.error, policy=one.predict, memory=one.memory
            )
        except PulseError as e:
            raise JobError(f"{job.where}, [streams.{name}]: {e}") from None
    read = {scan.stream for scan in scans(query.plan)}
    retentions = {
        name: one.retention for name, one in job.streams.items() if one.retention is not None and name in read
    }
    made = Predictor.of(query, specs, split=job.split, retentions=retentions)
    hears = {}
    for name, one in job.streams.items():
        if one.follows and name in read:
            columns = (given or {}).get(name) or columns_of(one, where=job.where)
            try:
                domain = domain_of(one.keys, schemas[name])
            except DeclaredKeysError as e:
                raise JobError(f"{job.where}, [streams.{name}], 'keys': expected {e}") from None
            absent = absent_of(one, columns)
            _tell_absent(one, absent, columns, where=job.where)
            policy = Policy.of(one.policy)
            hears[name] = Hears.of(
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
    return replace(made, hears=hears, mode=mode) if hears else made


def others_of(stream: StreamJob, columns: pa.Schema, schema: StreamSchema) -> list[tuple[str, pa.DataType]]:
    """The columns that no model has and descriptions of accents may speak of: numbers, times, texts and truths."""
    if not stream.follows:
        return []
    own = {*needed_columns(schema), *kind_columns(stream)}
    plain = [
        (one.name, canonical_type(one.type, what=one.name))
        for one in columns
        if one.name not in own and not pa.types.is_nested(one.type) and not pa.types.is_null(one.type)
    ]
    return [(name, type_) for name, type_ in plain if _is_told(type_)]


def _is_told(type_: pa.DataType) -> bool:
    """Whether descriptions can speak of values of a type."""
    of = pa.types
    numbers = of.is_integer(type_) or of.is_floating(type_) or of.is_timestamp(type_)
    return bool(numbers or of.is_string(type_) or of.is_boolean(type_))


def _fixed(made: Predictor, stream: StreamJob, buckets: int) -> list[tuple[str, str]]:
    """What cannot be altered in a job, and why."""
    from pulse.runtime.dealing import dealt_by

    found = []
    if buckets > 1:
        dealing = dealt_by(made)
        keys = stream.key if dealing is None else dealing[stream.name]
        why = "tuples are dealt to buckets by it as it was recorded; start the job with buckets = 1, or with engine = 'local'"
        found += [(name, why) for name in keys]
    if stream.accent_column is not None and stream.source != "files":
        why = (
            f"rows of {stream.source} are put in the order of their times; say it in a log beside the stream (accents = FILE), "
            "or read the stream from files"
        )
        found.append((stream.time, why))
    return found


def absent_of(stream: StreamJob, columns: pa.Schema) -> tuple[str, ...]:
    """Modelled attributes that the stream does not have until an accent adds them: as the job says, and those that neither its
    first file nor its list of columns has."""
    if not stream.follows:
        return ()
    added = stream.adds or ()
    return tuple(name for name in stream.model if name in added or name not in columns.names)


def _tell_absent(stream: StreamJob, absent: tuple[str, ...], columns: pa.Schema, *, where: str) -> None:
    """Say of what is missing without having been announced that it is waited for: it may as well be a slip."""
    for name in absent:
        if name not in (stream.adds or ()):
            _log.warning(
                "%s, [streams.%s], 'model': expected attributes among the columns %s, got '%s'; it is taken to come by an accent "
                "(add), and queries that read it leave all rows out until then; name it in 'adds' if that is meant",
                *(where, stream.name, ", ".join(columns.names), name),
            )


def with_absent(stream: StreamJob, columns: pa.Schema) -> pa.Schema:
    """The columns with numbers for attributes that are yet to come."""
    for name in absent_of(stream, columns):
        if name not in columns.names:
            columns = columns.append(pa.field(name, pa.float64()))
    return columns


def schema_of(stream: StreamJob, given: pa.Schema | None = None, *, where: str = "job") -> StreamSchema:
    """The stream's schema, with types from its columns."""
    columns = with_absent(stream, columns_of(stream, where=where) if given is None else given)
    place = f"{where}, [streams.{stream.name}]"
    for name in (*stream.key, stream.time, *stream.model, *stream.keep, *kind_columns(stream)):
        if name not in columns.names:
            raise unknown_column(name, columns.names, place)
    told = stream.accent_column
    if told is not None and not _is_text(columns.field(told).type):
        raise JobError(
            f"{place}, 'accents': expected a column of texts, got '{told}' of {columns.field(told).type}; a file is named with "
            "its path, such as 'accents.jsonl'"
        )
    schema = StreamSchema.of(
        key={name: canonical_type(columns.field(name).type, what=name) for name in stream.key},
        time=stream.time,
        modelled=stream.model,
        unmodelled={name: canonical_type(columns.field(name).type, what=name) for name in stream.keep},
    )
    check_columns(columns, schema, place)
    return schema


def _is_text(type_: pa.DataType) -> bool:
    """Whether a column may hold texts; one of nothing may."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_))


def columns_of(stream: StreamJob, *, where: str = "job") -> pa.Schema:
    """The columns of a stream's tuples: as the job lists them, or as its first file has them."""
    if stream.columns is not None:
        return pa.schema([(name, parse_type(type_)) for name, type_ in stream.columns.items()])
    if stream.source == "rate":
        return _RATE
    place = f"{where}, [streams.{stream.name}]"
    if stream.source != "files":
        raise JobError(
            f"{place}, 'columns': expected types by name, as {stream.source} does not know them, got nothing"
        )
    files = files_of(stream)
    if not files:
        raise SourceError(
            f"{place}: there is no {stream.format} file in {stream.path} yet; put one there, or list 'columns'"
        )
    if stream.format == "parquet":
        with _readable(files[0], stream):
            return pq.read_schema(files[0]).remove_metadata()
    return pa.schema([(one.name, _of_text(stream, one)) for one in read_file(stream, files[0]).schema])


def _of_text(stream: StreamJob, column: pa.Field) -> pa.DataType:
    """The type of a column of text, which looks like this in the first file. Text has no unit: what is read from it is in
    microseconds, as Spark's timestamps are. What is modelled is not whole for ever because its first values are."""
    if pa.types.is_timestamp(column.type):
        return pa.timestamp("us", column.type.tz)
    whole = pa.types.is_integer(column.type) or pa.types.is_null(column.type)
    return pa.float64() if whole and column.name in stream.model else column.type


def newest(tables: Mapping[str, pa.Table], predictor: Predictor, before: int | None) -> int | None:
    """The newest event time, in microseconds, of these tuples and of those before.

    Times that are out of range do not count: their tuples are set aside, and must not move the watermark.
    """
    for stream, table in tables.items():
        times = table.column(predictor.specs[stream].schema.time).drop_null()
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
        whole = times.cast(pa.int64()).to_numpy()
        per = _PER_SECOND[times.type.unit]
        whole = (
            whole[(whole <= LIMIT // 1_000_000 * per) & (whole >= -(LIMIT // 1_000_000) * per)]
            if per <= 10**6
            else whole
        )
        if len(whole):
            at = int(whole.max()) * 1_000_000 // per
            before = at if before is None else max(before, at)
    return before


# -- files ----------------------------------------------------------------------------------------------------


def files_of(stream: StreamJob) -> list[Path]:
    """The files that are there, in the order of their arrival."""
    assert stream.path is not None
    given = Path(stream.path)
    found: set[Path] = set()
    for root in [given] if given.exists() else _matching(given):
        inside = root.rglob("*") if root.is_dir() else [root]
        found |= {one for one in inside if one.is_file() and not _hidden(one.relative_to(root))}
    return sorted(found, key=lambda one: (one.stat().st_mtime_ns // 1_000_000, str(one)))


def _matching(pattern: Path) -> Iterator[Path]:
    root = Path(pattern.anchor)
    return root.glob(str(pattern.relative_to(root)))


def read_file(stream: StreamJob, file: Path) -> pa.Table:
    """All tuples of a file. A line of text that does not parse is a tuple with nulls, as it is on Spark."""
    listed = {name: parse_type(type_) for name, type_ in (stream.columns or {}).items()}
    with _readable(file, stream):
        if stream.format == "parquet":
            return _spelled(pq.ParquetFile(file).read())
        if stream.format == "csv":
            return _spelled(read_csv(file, listed, Dialect.of(stream.options)))
        return read_json(file, listed)


def _spelled(table: pa.Table) -> pa.Table:
    """The table, whose names and texts are text: Arrow reads bytes that are none, and what asks for them fails later."""
    for _, column in zip(table.column_names, table.columns, strict=True):  # a name may be there twice
        if pa.types.is_string(column.type):
            column.validate(full=True)
    return table


def settled(job: Job) -> Job:
    """The job with the types that text has in the stream's first file listed, so that all later files are read with those."""
    return replace(job, streams={name: _settled(one, job.where) for name, one in job.streams.items()})


def _settled(stream: StreamJob, where: str) -> StreamJob:
    if stream.columns is not None or stream.source != "files" or stream.format == "parquet":
        return stream
    columns = with_absent(stream, columns_of(stream, where=where))
    needed = dict.fromkeys((*stream.key, stream.time, *stream.model, *stream.keep, *kind_columns(stream)))
    if not set(needed) <= set(columns.names):
        return stream  # which is said where the schema is made, with all the columns there are
    if stream.follows:  # accents may speak of any other
        needed |= dict.fromkeys(one.name for one in columns if _is_told(one.type))
    return replace(stream, columns={name: str(columns.field(name).type) for name in needed})


def batches(job: Job, schemas: Mapping[str, StreamSchema]) -> Iterator[dict[str, pa.Table]]:
    """What is there now, a micro-batch at a time: of every stream its next files, as many as its option says."""
    others = {
        name: others_of(job.streams[name], columns_of(job.streams[name]), schema)
        for name, schema in schemas.items()
        if job.streams[name].follows
    }
    for files in unseen(job, {name: set() for name in schemas}):
        yield read_batch(job, schemas, files, others)


def unseen(job: Job, seen: Mapping[str, set[Path]]) -> Iterator[dict[str, list[Path]]]:
    """The files of each micro-batch by stream, of those that are there now and not in ``seen``."""
    queues = {name: _queue(job.streams[name], some) for name, some in seen.items()}
    for chosen in itertools.zip_longest(*queues.values(), fillvalue=[]):
        yield dict(zip(queues, chosen, strict=True))


def read_batch(
    job: Job,
    schemas: Mapping[str, StreamSchema],
    files: Mapping[str, list[Path]],
    others: Mapping[str, Others] | None = None,
) -> dict[str, pa.Table]:
    """The tuples of these files, by stream; with ``others``, of which only accents speak."""
    tables = {}
    for name, some in files.items():
        if some:
            one = job.streams[name]
            more = (others or {}).get(name, ())
            parts = [_needed(read_file(one, file), schemas[name], one, file, more) for file in some]
            tables[name] = pa.concat_tables(parts, promote_options="permissive")
    return tables


def _queue(stream: StreamJob, seen: set[Path]) -> list[list[Path]]:
    files = [one for one in files_of(stream) if one not in seen]
    count = int(stream.options.get(_FILES_PER_BATCH, len(files) or 1))
    return [files[i : i + count] for i in range(0, len(files), count)]


def _needed(table: pa.Table, schema: StreamSchema, stream: StreamJob, file: Path, others: Others) -> pa.Table:
    if stream.follows:
        table = _with_lost(table, schema, stream, others)
    for name, type_ in others:
        table = _of_type(table, name, type_)
    check_columns(table.schema, schema, str(file))
    for name in kind_columns(stream):
        if name not in table.column_names:
            raise unknown_column(name, table.column_names, str(file))
    return table.select([*needed_columns(schema), *kind_columns(stream), *(name for name, _ in others)])


def _of_type(table: pa.Table, name: str, type_: pa.DataType) -> pa.Table:
    """With a column of which only accents speak as it was in the first file; nothing is known of what cannot be that."""
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
    """With nulls for attributes that the file does not have: accents may have dropped them, or none may be in it."""
    missing = [(name, pa.float64()) for name in schema.modelled_names] + [*schema.unmodelled, *others]
    missing += [] if stream.accent_column is None else [(stream.accent_column, pa.string())]
    for name, type_ in missing:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return table


def kind_columns(stream: StreamJob) -> tuple[str, ...]:
    """The columns that tell revisions and accents from tuples, if there are any."""
    return tuple(name for name in (stream.kind, stream.accent_column) if name is not None)


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


class _readable:  # reads as a phrase: with _readable(file, stream)
    """What goes wrong while a file is read, as an error that names the file."""

    def __init__(self, file: Path, stream: StreamJob) -> None:
        self.file, self.stream = file, stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (pa.ArrowInvalid, pa.ArrowTypeError, OSError, ValueError)):
            raise unreadable(str(self.file), self.stream.format, str(error).splitlines()[0]) from None


def unreadable(file: str, format: str, reason: str) -> SourceError:
    """The error for a file that is no whole file of its format."""
    # Parquet ends with what tells where all else is. Text that was cut off is read up to there.
    guess = ", it may be truncated or still being written" if format == "parquet" else ""
    return SourceError(
        f"{file}: cannot be read as {format}{guess}: {reason}; put a whole one in its place, of the same name, and start the job "
        "again: nothing that was read before is read twice"
    )


def misplaced(file: str) -> SourceError:
    """The error for CSV whose header is not that of the files before it, as Spark, which goes by place, cannot read it."""
    return SourceError(
        f"{file}: its header is not that of the stream's first file, or where that was not there yet not the 'columns' "
        "that are listed; on Spark all CSV files of a stream have the same columns in the same order. Write it with that header, "
        "under the same name, or if it is the first file start the job again: nothing that was read before is read twice"
    )
