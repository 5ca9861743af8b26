"""Tuples in text, CSV and JSON lines, read in process as Spark reads them: by name, and a line that does not parse stops nothing.

What a line lacks is null, and so is a value that is not of its column's type: the tuple is then set aside for want of a key, a
time or a number, with a reason, and the job goes on. Files without such lines are read by Arrow alone; others a second time, line
by line.

Of Spark's options those that say how CSV is written are taken here too: ``sep`` (or ``delimiter``), ``quote`` and ``header``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from pulse.datasets.casting import cast_what_fits
from pulse.datasets.json_lines import arrow_json

Types = Mapping[str, pa.DataType]
_LINES = re.compile(r"\r\n|\n|\r")
_BLANK = (b"\n\n", b"\r", b"\n ", b"\n\t")  # without any of these no line is blank
_NULLS = frozenset(pa_csv.ConvertOptions().null_values)
_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True)
class Dialect:
    """How CSV is written."""

    delimiter: str = ","
    quote: str = '"'
    header: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Dialect:
        """From Spark's options, whose names have no case."""
        said = {name.lower(): value for name, value in options.items()}
        return cls(
            said.get("sep", said.get("delimiter", ",")),
            said.get("quote", '"'),
            said.get("header", "true").lower() == "true",
        )

    def split(self, line: str) -> list[str]:
        """The fields of a line; none where it is no CSV."""
        try:
            return next(csv.reader([line], delimiter=self.delimiter, quotechar=self.quote), [])
        except csv.Error:
            return []


# -- CSV ------------------------------------------------------------------------------------------------------


def csv_header(file: Path, dialect: Dialect) -> list[str]:
    """The names that a file's first line gives its columns; none where it is empty."""
    with file.open(encoding="utf-8-sig", errors="replace", newline=None) as lines:
        for line in lines:
            if line.strip():
                return dialect.split(line.rstrip("\n"))
    return []


def read_csv(file: Path, types: Types, dialect: Dialect) -> pa.Table:
    """A file's tuples, of these types where they are given by name, of what the values look like elsewhere.

    Without a header the columns are those of ``types``, by place. An empty file has no tuples.
    """
    names = None if dialect.header else list(types)
    try:
        return pa_csv.read_csv(
            file,
            read_options=pa_csv.ReadOptions(column_names=names),
            parse_options=pa_csv.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote),
            convert_options=pa_csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
    except _FAILURES:
        return _csv_by_line(file, types, dialect)


def _csv_by_line(file: Path, types: Types, dialect: Dialect) -> pa.Table:
    rows = [dialect.split(line) for line in _lines(file)]
    names = list(types)
    if dialect.header and rows:
        names, rows = rows[0], rows[1:]
    if not names:
        raise pa.ArrowInvalid("the file is empty, and no columns are listed")
    texts = {}
    for place, name in enumerate(names):
        fields = [row[place] if place < len(row) else "" for row in rows]
        texts[name] = pa.array([None if one in _NULLS else one for one in fields], pa.string())
    guessed = _guessed(pa.table({name: column for name, column in texts.items() if name not in types}))
    return pa.table(
        {
            name: cast_what_parses(texts[name], types[name]) if name in types else guessed[name]
            for name in texts
        }
    )


def _guessed(texts: pa.Table) -> Mapping[str, Any]:
    """Columns of text as Arrow reads them where it is told no types."""
    if not texts.num_columns:
        return {}
    written = io.BytesIO()
    pa_csv.write_csv(texts, written)
    read = pa_csv.read_csv(
        io.BytesIO(written.getvalue()),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=True),
    )
    return dict(zip(read.column_names, read.columns, strict=True))


def cast_what_parses(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Text as values of a type; null what is none."""
    return cast_what_fits(texts if pa.types.is_string(type_) else pc.utf8_trim_whitespace(texts), type_)


# -- JSON lines -----------------------------------------------------------------------------------------------


def read_json(file: Path, types: Types) -> pa.Table:
    """A file's tuples, one a line, of these types where they are given by name."""
    schema = pa.schema(list(types.items())) if types else None
    options = pa_json.ParseOptions(explicit_schema=schema)
    try:
        return arrow_json(file, options)
    except _FAILURES:
        objects = [_object(line) for line in _lines(file)]
    if not types and objects:
        whole = "\n".join(map(json.dumps, objects)).encode()
        return pa_json.read_json(io.BytesIO(whole))
    if not types:
        raise pa.ArrowInvalid("the file is empty, and no columns are listed")
    return pa.table({name: _values([one.get(name) for one in objects], types[name]) for name in types})


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _values(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values of JSON as a type; null what is none. Numbers are no text that looks like one, and the other way round they are."""
    kept: list[Any]
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        kept = [
            one if isinstance(one, (int, float)) and not isinstance(one, bool) else None for one in values
        ]
    elif pa.types.is_string(type_):
        kept = [one if one is None or isinstance(one, str) else json.dumps(one) for one in values]
        return pa.array(kept, pa.string())
    else:
        kept = [one if isinstance(one, (str, bool)) else None for one in values]
    texts = [None if one is None else str(one) for one in kept]
    return cast_what_parses(pa.array(texts, pa.string()), type_)


def line_numbers(file: Path, rows: Sequence[int], *, header: bool) -> list[int | None]:
    """The lines, counted from 1, that a file's tuples are from: ``rows`` counts tuples from 0. None where it has none."""
    try:
        data = file.read_bytes()
    except OSError:  # moved away meanwhile
        return [None] * len(rows)
    first = 1 if header else 0
    if not data.startswith((b"\n", b" ", b"\t")) and not any(one in data for one in _BLANK):
        return [row + first + 1 for row in rows]  # every line is a tuple
    lines = _LINES.split(data.decode("utf-8-sig", errors="replace"))
    numbers = [i for i, line in enumerate(lines, 1) if line.strip()][first:]
    return [numbers[row] if row < len(numbers) else None for row in rows]


def _lines(file: Path) -> list[str]:
    text = file.read_bytes().decode("utf-8-sig", errors="replace")
    return [line for line in _LINES.split(text) if line.strip()]
