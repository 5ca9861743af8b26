"""Determine the columns of a job's tuples: as the job lists them, as its checkpoint stores them, or as its first file has them.

Text carries no types. Types inferred from the first file are stored with the checkpoint, so that a job continues with the same
types when that file, or every file, is moved away.
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

from pulse.core.arrow_types import canonical_type, is_text, parse_type
from pulse.core.errors import SchemaError, unknown_column
from pulse.core.schema import StreamSchema
from pulse.operators.data.tuple_columns import check_columns, needed_columns
from pulse.runtime.jobs.file_source import SourceError, files_of, naming_file, read_file
from pulse.runtime.jobs.toml import Job, JobError, StreamJob

_log = logging.getLogger(__name__)
_RATE = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])

LED_BY_ZERO = r"^\s*-?0[0-9]"

_NOT_READ = "null"  # the type of columns that cannot be read
Others = Sequence[tuple[str, pa.DataType]]
"""Columns that only descriptions of accents refer to, with their types."""

Types = Mapping[str, Mapping[str, str]]
"""Types of columns by stream and name, as text."""


def schema_of(stream: StreamJob, given: pa.Schema | None = None, *, where: str = "job") -> StreamSchema:
    """Make the stream's schema, with types from its columns."""
    columns = with_absent(stream, columns_of(stream, where=where) if given is None else given)
    place = f"{where}, [streams.{stream.name}]"
    for name in (*stream.key, stream.time, *stream.model, *stream.keep, *kind_columns(stream)):
        if name not in columns.names:
            raise unknown_column(name, columns.names, place)
    accents = stream.accent_column
    # A column of nulls may hold texts later.
    if accents is not None and not (is_text(kind := columns.field(accents).type) or pa.types.is_null(kind)):
        raise JobError(
            f"{place}, 'accents': expected a column of texts, got '{accents}' of {kind}; name a file by "
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


def columns_of(stream: StreamJob, *, where: str = "job") -> pa.Schema:
    """Return the columns of a stream's tuples: as the job lists them, or as its first file has them."""
    if stream.columns is not None:
        return pa.schema([(name, parse_type(type_)) for name, type_ in stream.columns.items()])
    if stream.source == "rate":
        return _RATE
    place = f"{where}, [streams.{stream.name}]"
    if stream.source != "files":
        raise JobError(
            f"{place}, 'columns': expected types by name, as {stream.source} does not provide them, got nothing"
        )
    files = files_of(stream)
    if not files:
        raise SourceError(
            f"{place}: there is no {stream.format} file in {stream.path} yet; put one there, or list 'columns'"
        )
    if stream.format == "parquet":
        with naming_file(files[0], stream):
            return pq.read_schema(files[0]).remove_metadata()
    found = read_file(stream, files[0]).schema
    codes = _codes(stream, files[0], found)
    return pa.schema(
        [(one.name, pa.string() if one.name in codes else _of_text(stream, one)) for one in found]
    )


def _codes(stream: StreamJob, file: Path, found: pa.Schema) -> set[str]:
    """Return CSV keys that look like integers but have leading zeros: 007 is another key than 7."""
    whole = [one.name for one in found if one.name in stream.key and pa.types.is_integer(one.type)]
    if stream.format != "csv" or not whole:
        return set()
    texts = read_file(replace(stream, columns=dict.fromkeys(whole, "string")), file)
    return {one for one in whole if pc.any(pc.match_substring_regex(texts.column(one), LED_BY_ZERO)).as_py()}


def _of_text(stream: StreamJob, column: pa.Field) -> pa.DataType:
    """Return the type of a text column, given its inferred type in the first file. Text has no time unit: timestamps are in
    microseconds, as on Spark. A modelled attribute is a double even if its first values are integers."""
    if pa.types.is_timestamp(column.type):
        return pa.timestamp("us", column.type.tz)
    whole = pa.types.is_integer(column.type) or pa.types.is_null(column.type)
    return pa.float64() if whole and column.name in stream.model else column.type


def others_of(stream: StreamJob, columns: pa.Schema, schema: StreamSchema) -> list[tuple[str, pa.DataType]]:
    """Return the columns outside the model that descriptions of accents may refer to: numbers, times, strings and booleans."""
    if not stream.follows:
        return []
    own = {*needed_columns(schema), *kind_columns(stream)}
    plain = [
        (one.name, canonical_type(one.type, what=one.name))
        for one in columns
        if one.name not in own and not pa.types.is_nested(one.type) and not pa.types.is_null(one.type)
    ]
    return [(name, type_) for name, type_ in plain if _is_describable(type_)]


def _is_describable(type_: pa.DataType) -> bool:
    """Return whether descriptions of accents can compare values of a type."""
    of = pa.types
    numbers = of.is_integer(type_) or of.is_floating(type_) or of.is_timestamp(type_)
    return bool(numbers or of.is_string(type_) or of.is_boolean(type_))


def absent_of(stream: StreamJob, columns: pa.Schema) -> tuple[str, ...]:
    """Return modelled attributes that the stream lacks until an accent adds them: those in the job's ``adds``, and those that
    neither its first file nor its list of columns has."""
    if not stream.follows:
        return ()
    added = stream.adds or ()
    return tuple(name for name in stream.model if name in added or name not in columns.names)


def warn_absent(stream: StreamJob, absent: tuple[str, ...], columns: pa.Schema, *, where: str) -> None:
    """Warn of attributes that are missing and not announced in ``adds``: the name may be mistyped."""
    for name in absent:
        if name not in (stream.adds or ()):
            _log.warning(
                "%s, [streams.%s], 'model': expected attributes among the columns %s, got '%s'; assuming that an accent adds it "
                "later; until then queries that read it give no rows; name it in 'adds' if that is intended",
                *(where, stream.name, ", ".join(columns.names), name),
            )


def with_absent(stream: StreamJob, columns: pa.Schema) -> pa.Schema:
    """Append a double column for each attribute that an accent is yet to add."""
    for name in absent_of(stream, columns):
        if name not in columns.names:
            columns = columns.append(pa.field(name, pa.float64()))
    return columns


def kind_columns(stream: StreamJob) -> tuple[str, ...]:
    """Return the columns, if any, that distinguish revisions and accents from tuples."""
    return tuple(name for name in (stream.kind, stream.accent_column) if name is not None)


class ResolvedSchema(NamedTuple):
    """A job with the types of its columns listed, and the inferred types by stream, to be stored."""

    job: Job
    types: Types


def resolve_types(job: Job, known: Types | None = None, *, every: bool = False) -> ResolvedSchema:
    """List the types of file columns in the job, so that all later files are read with them: ``known`` from earlier runs, else
    inferred from the stream's first file. In process text lists only the needed ones; with ``every``, all."""
    streams, types = {}, {}
    for name, one in job.streams.items():
        streams[name] = one
        if one.columns is None and one.source == "files":
            columns = _known(known, name) or columns_of(one, where=job.where)
            found = type_names(one, columns)
            if found is not None:
                types[name] = found
                streams[name] = replace(
                    one, columns=found if every or one.format == "parquet" else _read(one, found)
                )
    return ResolvedSchema(replace(job, streams=streams), types)


def _known(known: Types | None, name: str) -> pa.Schema | None:
    own = (known or {}).get(name)
    return None if own is None else pa.schema([(column, parse_type(type_)) for column, type_ in own.items()])


def type_names(stream: StreamJob, columns: pa.Schema) -> dict[str, str] | None:
    """Return the names of column types, ``null`` for nested ones. None where a needed column is missing or its type has no
    readable name: the error is raised where the schema is made, with all existing columns listed."""
    names, written = {}, set()
    for one in columns:
        plain = not pa.types.is_null(one.type) and not pa.types.is_nested(one.type)
        type_ = canonical_type(one.type, what=one.name) if plain else one.type
        names[one.name] = _NOT_READ
        if _is_written(type_):
            names[one.name] = str(type_)
            written.add(one.name)
    own = [*_own(stream), *(name for name in stream.model if name not in absent_of(stream, columns))]
    return names if set(own) <= written and len(set(columns.names)) == len(columns) else None


def _is_written(type_: pa.DataType) -> bool:
    """Return whether a type can be parsed from its name."""
    try:
        return bool(parse_type(str(type_)) == type_)
    except SchemaError:
        return False


def _own(stream: StreamJob) -> tuple[str, ...]:
    return (*stream.key, stream.time, *stream.keep, *kind_columns(stream))


def _read(stream: StreamJob, types: Mapping[str, str]) -> dict[str, str]:
    """Return the types of columns that are read from text; other columns are inferred per file."""
    needed = dict.fromkeys((*_own(stream), *stream.model))
    if stream.follows:  # accents may refer to any other
        needed |= dict.fromkeys(name for name, type_ in types.items() if _is_describable(parse_type(type_)))
    return {name: types.get(name, "double") for name in needed}


def same_types(listed: Mapping[str, str], known: Mapping[str, str], *, all_of_them: bool) -> bool:
    """Return whether the types a job lists equal the known ones; ``all_of_them``: and none are missing."""
    plain = {name for name, type_ in known.items() if type_ != _NOT_READ}
    if (all_of_them and not plain <= set(listed)) or not set(listed) <= set(known):
        return False
    return all(parse_type(type_) == parse_type(known[name]) for name, type_ in listed.items())
