"""What columns the tuples of a job have: as it lists them, as its checkpoint knows them, or as its first file has them.

Text tells no types. What its first file looks like is kept with the checkpoint, so that a job goes on with the same types when
that file, or every file, was moved away.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.core.arrow_types import canonical_type, parse_type
from pulse.core.errors import SchemaError, unknown_column
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import check_columns, needed_columns
from pulse.runtime.jobs.file_source import SourceError, files_of, read_file, readable
from pulse.runtime.jobs.toml import Job, JobError, StreamJob

_log = logging.getLogger(__name__)
_RATE = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])

LED_BY_ZERO = r"^\s*-?0[0-9]"

_NOT_READ = "null"  # the type of columns of which nothing can be read
Others = Sequence[tuple[str, pa.DataType]]
"""Columns of which only descriptions of accents speak, with their types."""

Types = Mapping[str, Mapping[str, str]]
"""Types of columns by stream and name, as they are written."""


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
        with readable(files[0], stream):
            return pq.read_schema(files[0]).remove_metadata()
    found = read_file(stream, files[0]).schema
    codes = _codes(stream, files[0], found)
    return pa.schema(
        [(one.name, pa.string() if one.name in codes else _of_text(stream, one)) for one in found]
    )


def _codes(stream: StreamJob, file: Path, found: pa.Schema) -> set[str]:
    """Keys of CSV that look like whole numbers, but for zeros that they begin with: 007 is another key than 7."""
    whole = [one.name for one in found if one.name in stream.key and pa.types.is_integer(one.type)]
    if stream.format != "csv" or not whole:
        return set()
    texts = read_file(replace(stream, columns=dict.fromkeys(whole, "string")), file)
    return {one for one in whole if pc.any(pc.match_substring_regex(texts.column(one), LED_BY_ZERO)).as_py()}


def _of_text(stream: StreamJob, column: pa.Field) -> pa.DataType:
    """The type of a column of text, which looks like this in the first file. Text has no unit: what is read from it is in
    microseconds, as Spark's timestamps are. What is modelled is not whole for ever because its first values are."""
    if pa.types.is_timestamp(column.type):
        return pa.timestamp("us", column.type.tz)
    whole = pa.types.is_integer(column.type) or pa.types.is_null(column.type)
    return pa.float64() if whole and column.name in stream.model else column.type


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


def absent_of(stream: StreamJob, columns: pa.Schema) -> tuple[str, ...]:
    """Modelled attributes that the stream does not have until an accent adds them: as the job says, and those that neither its
    first file nor its list of columns has."""
    if not stream.follows:
        return ()
    added = stream.adds or ()
    return tuple(name for name in stream.model if name in added or name not in columns.names)


def tell_absent(stream: StreamJob, absent: tuple[str, ...], columns: pa.Schema, *, where: str) -> None:
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


def kind_columns(stream: StreamJob) -> tuple[str, ...]:
    """The columns that tell revisions and accents from tuples, if there are any."""
    return tuple(name for name in (stream.kind, stream.accent_column) if name is not None)


class ResolvedSchema(NamedTuple):
    """A job with the types of its columns listed, and all types of streams that list none, by stream, to be kept."""

    job: Job
    types: Types


def settled(job: Job, known: Types | None = None, *, every: bool = False) -> ResolvedSchema:
    """The job with the types that files have listed, so that all later files are read with those: as they are ``known`` from runs
    before, else as the stream's first file has them. In process text has those that are needed, with ``every`` all."""
    streams, types = {}, {}
    for name, one in job.streams.items():
        streams[name] = one
        if one.columns is None and one.source == "files":
            columns = _known(known, name) or columns_of(one, where=job.where)
            told = told_types(one, columns)
            if told is not None:
                types[name] = told
                streams[name] = replace(
                    one, columns=told if every or one.format == "parquet" else _read(one, told)
                )
    return ResolvedSchema(replace(job, streams=streams), types)


def _known(known: Types | None, name: str) -> pa.Schema | None:
    own = (known or {}).get(name)
    return None if own is None else pa.schema([(column, parse_type(type_)) for column, type_ in own.items()])


def told_types(stream: StreamJob, columns: pa.Schema) -> dict[str, str] | None:
    """The types of columns as they are written; of what nests only that it is there. None where a column that is needed is not
    there, or has a type that cannot be written: which is said where the schema is made, with all the columns there are."""
    told, written = {}, set()
    for one in columns:
        plain = not pa.types.is_null(one.type) and not pa.types.is_nested(one.type)
        type_ = canonical_type(one.type, what=one.name) if plain else one.type
        told[one.name] = _NOT_READ
        if _is_written(type_):
            told[one.name] = str(type_)
            written.add(one.name)
    own = [*_own(stream), *(name for name in stream.model if name not in absent_of(stream, columns))]
    return told if set(own) <= written and len(set(columns.names)) == len(columns) else None


def _is_written(type_: pa.DataType) -> bool:
    """Whether a type can be read from its name."""
    try:
        return bool(parse_type(str(type_)) == type_)
    except SchemaError:
        return False


def _own(stream: StreamJob) -> tuple[str, ...]:
    return (*stream.key, stream.time, *stream.keep, *kind_columns(stream))


def _read(stream: StreamJob, types: Mapping[str, str]) -> dict[str, str]:
    """The types of what is read of text: of other columns each file tells its own."""
    needed = dict.fromkeys((*_own(stream), *stream.model))
    if stream.follows:  # accents may speak of any other
        needed |= dict.fromkeys(name for name, type_ in types.items() if _is_told(parse_type(type_)))
    return {name: types.get(name, "double") for name in needed}


def same_types(listed: Mapping[str, str], known: Mapping[str, str], *, all_of_them: bool) -> bool:
    """Whether types that a job lists are those that are known; ``all_of_them``: and there are no others."""
    plain = {name for name, type_ in known.items() if type_ != _NOT_READ}
    if (all_of_them and not plain <= set(listed)) or not set(listed) <= set(known):
        return False
    return all(parse_type(type_) == parse_type(known[name]) for name, type_ in listed.items())
