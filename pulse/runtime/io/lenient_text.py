"""Read tuples from CSV and JSON lines in process, by column name, without failing on lines that do not parse.

A line is read or not by the rules of a fit, which refuses it: a line of CSV with more or fewer fields than columns, a line that
is not JSON, and a line whose bytes are not text become tuples of nulls only, so that no part of them is used. A value that is not
of its column's type is null by itself. The tuple is then set aside for lack of a key, a time or a number, with a reason and its
line (:func:`unread_lines`), and the job continues. Files without such lines are read by Arrow alone; others a second time,
line by line. An empty field is null; a text such as NA is a text, as in a fit.

Of Spark's options those of the CSV dialect apply here too: ``sep`` (or ``delimiter``), ``quote`` and ``header``.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
_LINE_BYTES = re.compile(rb"\r\n|\n|\r")
_BLANK = (b"\n\n", b"\r", b"\n ", b"\n\t")  # a file without these has no blank line
_NULLS = frozenset(pa_csv.ConvertOptions().null_values)  # of columns other than text
_EMPTY = frozenset({""})
_SHOWN = 200
_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True)
class Dialect:
    """A dialect of CSV."""

    delimiter: str = ","
    quote: str = '"'
    header: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Dialect:
        """Make a dialect from Spark's options, whose names ignore case."""
        lowered = {name.lower(): value for name, value in options.items()}
        return cls(
            lowered.get("sep", lowered.get("delimiter", ",")),
            lowered.get("quote", '"'),
            lowered.get("header", "true").lower() == "true",
        )

    def split(self, line: str) -> list[str]:
        """Split a line into fields; empty if it is not CSV."""
        try:
            return next(csv.reader([line], delimiter=self.delimiter, quotechar=self.quote), [])
        except csv.Error:
            return []


# -- CSV ------------------------------------------------------------------------------------------------------


def csv_header(file: Path, dialect: Dialect) -> list[str]:
    """Return the column names in a file's first line; empty if the file is."""
    with file.open(encoding="utf-8-sig", errors="replace", newline=None) as lines:
        for line in lines:
            if line.strip():
                return dialect.split(line.rstrip("\n"))
    return []


def read_csv(file: Path, types: Types, dialect: Dialect) -> pa.Table:
    """Read a file's tuples, with the given types by name, and guessed types elsewhere.

    Without a header the columns are those of ``types``, by position. An empty file has no tuples.
    """
    names = None if dialect.header else list(types)
    try:
        return _arrow_csv(file, names, types, dialect)
    except _FAILURES:
        return _csv_by_line(_lines(file), types, dialect)


def parse_csv(lines: Sequence[bytes], types: Types, dialect: Dialect) -> pa.Table:
    """Parse lines without a header, none blank, into tuples of these types by position: one per line."""
    try:
        table = _arrow_csv(io.BytesIO(b"\n".join(lines) + b"\n"), list(types), types, dialect)
    except _FAILURES:
        table = None
    if table is not None and table.num_rows == len(lines):
        return table
    return _csv_by_line([_text(line) for line in lines], types, replace(dialect, header=False))


def _arrow_csv(source: Any, names: list[str] | None, types: Types, dialect: Dialect) -> pa.Table:
    table = _validated(
        pa_csv.read_csv(
            source,
            read_options=pa_csv.ReadOptions(column_names=names),
            parse_options=pa_csv.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote),
            convert_options=pa_csv.ConvertOptions(column_types=types),
        ),
        types,
    )
    return pa.Table.from_arrays([_without_empty(column) for column in table.columns], table.column_names)


def _without_empty(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Replace empty texts by null; other columns stay."""
    if not pa.types.is_string(column.type):
        return column
    empty = pc.equal(column, "")
    return pc.if_else(empty, pa.scalar(None, pa.string()), column) if pc.any(empty).as_py() else column


def _csv_by_line(lines: list[str | None], types: Types, dialect: Dialect) -> pa.Table:
    if dialect.header and lines and lines[0] is None:
        raise pa.ArrowInvalid("its first line, which names the columns, is not text in UTF-8")
    rows = [[] if line is None else dialect.split(line) for line in lines]
    names = list(types)
    if dialect.header and rows:
        names, rows = rows[0], rows[1:]
    if not names:
        raise pa.ArrowInvalid("the file is empty, and no columns are listed")
    texts = {}
    for place, name in enumerate(names):
        fields = [row[place] if len(row) == len(names) else "" for row in rows]
        typed = name in types and not pa.types.is_string(types[name])
        nulls = _NULLS if typed else _EMPTY
        texts[name] = pa.array([None if one in nulls else one for one in fields], pa.string())
    guessed = _guessed(pa.table({name: column for name, column in texts.items() if name not in types}))
    return pa.table(
        {
            name: cast_what_parses(texts[name], types[name]) if name in types else guessed[name]
            for name in texts
        }
    )


def _guessed(texts: pa.Table) -> Mapping[str, Any]:
    """Convert columns of text to the types that Arrow infers."""
    if not texts.num_columns:
        return {}
    written = io.BytesIO()
    pa_csv.write_csv(texts, written)
    read = pa_csv.read_csv(
        io.BytesIO(written.getvalue()),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
    )
    return dict(zip(read.column_names, map(_without_empty, read.columns), strict=True))


def cast_what_parses(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast text to a type; null where it does not parse."""
    return cast_what_fits(texts if pa.types.is_string(type_) else pc.utf8_trim_whitespace(texts), type_)


# -- JSON lines -----------------------------------------------------------------------------------------------


def read_json(file: Path, types: Types) -> pa.Table:
    """Read a file's tuples, one per line, with the given types by name."""
    schema = pa.schema(list(types.items())) if types else None
    options = pa_json.ParseOptions(explicit_schema=schema)
    try:
        return _validated(arrow_json(file.read_bytes(), options), types)
    except _FAILURES:
        objects = _objects(_lines(file))
    if not types and objects:
        whole = "\n".join(map(json.dumps, objects)).encode()
        return pa_json.read_json(io.BytesIO(whole))
    if not types:
        raise pa.ArrowInvalid("the file is empty, and no columns are listed")
    return _typed(objects, types)


def parse_json(lines: Sequence[bytes], types: Types) -> pa.Table:
    """Parse lines, none blank, into tuples of these types by name: one per line."""
    options = pa_json.ParseOptions(explicit_schema=pa.schema(list(types.items())))
    try:
        table = _validated(arrow_json(b"\n".join(lines) + b"\n", options), types)
    except _FAILURES:
        table = None
    if table is not None and table.num_rows == len(lines):
        return table.select(list(types))
    return _typed(_objects([_text(line) for line in lines]), types)


def _objects(lines: Sequence[str | None]) -> list[dict[str, Any]]:
    """Return the object of each line; an empty one where there is none."""
    return [{} if line is None else _object(line) for line in lines]


def _typed(objects: Sequence[Mapping[str, Any]], types: Types) -> pa.Table:
    """Convert objects to tuples of these types; null where a value is missing or of another type."""
    return pa.table({name: _values([one.get(name) for one in objects], types[name]) for name in types})


def _object(line: str) -> dict[str, Any]:
    """Parse a line's object; an empty one if it is none, or has invalid texts (half of a surrogate pair)."""
    try:
        found = json.loads(line)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _values(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Convert JSON values to a type; null where they do not fit. Text is never read as a number, but a number may become text."""
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
    """Return the lines, counted from 1, of a file's tuples: ``rows`` counts tuples from 0. None where there is no such line."""
    try:
        data = file.read_bytes()
    except OSError:  # moved away in the meantime
        return [None] * len(rows)
    first = 1 if header else 0
    if not data.startswith((b"\n", b" ", b"\t")) and not any(one in data for one in _BLANK):
        return [row + first + 1 for row in rows]  # every line is a tuple
    lines = _LINES.split(data.decode("utf-8-sig", errors="replace"))
    numbers = [i for i, line in enumerate(lines, 1) if line.strip()][first:]
    return [numbers[row] if row < len(numbers) else None for row in rows]


def unread_lines(
    file: Path, numbers: Sequence[int], columns: int | None, dialect: Dialect
) -> list[str | None]:
    """Describe the faults of lines, by their numbers from 1, each with its text; None for a good line or if the file is gone.

    Lines are CSV with so many ``columns``, or JSON if ``columns`` is None.
    """
    try:
        lines = _LINE_BYTES.split(file.read_bytes().removeprefix(codecs.BOM_UTF8))
    except OSError:  # moved away in the meantime
        return [None] * len(numbers)
    return [_wrong(lines[one - 1], columns, dialect) if 0 < one <= len(lines) else None for one in numbers]


def _wrong(line: bytes, columns: int | None, dialect: Dialect) -> str | None:
    text = _text(line)
    shown = line if text is None else text
    what = repr(shown[:_SHOWN]) + (" …" if len(shown) > _SHOWN else "")
    if text is None:
        return f"expected text in UTF-8, got {what}"
    if columns is None:
        return None if _object(text) else f"expected a JSON object, got {what}"
    found = len(dialect.split(text))
    return None if found == columns else f"expected {columns} fields, got {found or 'no CSV'} in {what}"


def _lines(file: Path) -> list[str | None]:
    """Return the lines that are not blank; None for a line whose bytes are not text: two different ones must not become equal."""
    data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    texts = (_text(line) for line in _LINE_BYTES.split(data))
    return [text for text in texts if text is None or text.strip()]


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _validated(table: pa.Table, types: Types) -> pa.Table:
    """Return the table; raise ``ArrowInvalid`` if texts are not UTF-8, which Arrow does not check everywhere."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_binary(column.type) and name not in types:
            raise pa.ArrowInvalid(f"column '{name}': expected text in UTF-8, got other bytes")
    for name, type_ in types.items():
        if pa.types.is_string(type_) and name in table.column_names:
            for column in table.columns[table.column_names.index(name)].chunks:
                column.validate(full=True)
    return table
