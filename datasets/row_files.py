"""Read files of rows in any form: Parquet, CSV and JSON lines; and locate the parts that are no rows."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pulse.datasets.errors import EmptyInputError, UnreadableError, readable
from pulse.datasets.json_lines import Unread, read_json_lines
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES
from pulse.datasets.text_blocks import read_layout

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
SUFFIXES = (*PARQUET_SUFFIXES, ".csv", ".txt", *JSON_SUFFIXES)
_SHOWN = 80
_BLOCK = 1 << 20


class Rows(NamedTuple):
    """The rows of a file, and its rejected parts."""

    table: pa.Table
    unread: list[Unread]


def read_rows(path: str) -> Rows:
    """Read a file's rows. CSV comes as text."""
    lowered = path.lower()
    with readable(path):
        if not Path(path).stat().st_size:
            raise EmptyInputError(f"{path}: the file is empty; expected a changelog")
        if lowered.endswith(PARQUET_SUFFIXES):
            table = pq.read_table(path)
            table.validate(full=True)  # Arrow accepts texts and names that are not UTF-8
            _names(table.schema)
            return Rows(table, [])
        if lowered.endswith(JSON_SUFFIXES):
            return Rows(*read_json_lines(path))
        return _read_csv(path)


def _read_csv(path: str) -> Rows:
    layout = read_layout(path, ",", "utf-8")
    names = [layout.names[layout.index(name)] for name in layout.names]
    text = dict.fromkeys(names, pa.string())
    unread: list[Unread] = []

    def note(row: Any) -> str:
        shown = row.text if len(row.text) < _SHOWN else f"{row.text[:_SHOWN]}…"
        reason = f"malformed: expected {row.expected_columns} fields, got {row.actual_columns}: {shown!r}"
        # Arrow counts rows from 1, and counts neither empty lines nor line breaks within quotes.
        unread.append(Unread(row.number - 1 - len(unread), reason))
        return "skip"

    if Path(path).stat().st_size == layout.header_bytes:
        return Rows(pa.schema(list(text.items())).empty_table(), [])
    _check_utf8(path)
    with Path(path).open("rb") as file:
        file.seek(layout.header_bytes)
        table = pyarrow.csv.read_csv(
            file,
            # One thread: only then does Arrow report the numbers of rows.
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=note, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=text, strings_can_be_null=True, null_values=["", "null"]
            ),
        )
    return Rows(table, unread)


def _names(fields: Iterable[pa.Field]) -> list[str]:
    """Return all names of columns, including nested ones; raise a ``UnicodeDecodeError`` if one is no text."""
    inside = [name for field in fields if pa.types.is_struct(field.type) for name in _names(field.type)]
    return [field.name for field in fields] + inside


def _check_utf8(path: str) -> None:
    """Reject text that is not UTF-8: Arrow skips such rows with too few fields without calling the handler of invalid rows."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block, final=len(block) < _BLOCK)
            except UnicodeDecodeError as e:
                line += bytes(e.object).count(b"\n", 0, e.start)
                raise UnreadableError(
                    f"{path}: cannot be read (no UTF8 in line {line}: {e.reason}); write the file in UTF-8"
                ) from None
            line += block.count(b"\n")
