"""Read JSON lines: the valid rows, and the errors of the other lines.

Arrow reads a file at once, or rejects all of it for one line. Where it does, lines are read one by one. The majority of lines
determines the kind of each field; a line with another kind there is rejected.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.json

from pulse.datasets.errors import DatasetError

Row = dict[str, Any]

_WHOLE = 1 << 63  # whole numbers below it have a type
_SHOWN = 60
_NULL = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\n}])\s*null\b")


class Unread(NamedTuple):
    """A part of a file that is no row: the number of rows before it, and its error."""

    before: int
    reason: str


def arrow_json(data: bytes, options: pyarrow.json.ParseOptions | None = None) -> pa.Table:
    """Parse lines with Arrow; raise ``ArrowInvalid`` where it fails, and where a line is null (a tombstone of a topic).

    Arrow 26 crashes the process if its first line is null.
    """
    if _NULL.search(data):
        raise pa.ArrowInvalid("JSON parse error: null in place of an object")
    return pyarrow.json.read_json(pa.BufferReader(data), parse_options=options)


def read_json_lines(path: str) -> tuple[pa.Table, list[Unread]]:
    """Return the rows of a file, and the rejected lines, with their numbers from 1."""
    try:
        data = Path(path).read_bytes()
        data.decode()  # Arrow passes on names and texts that are not UTF-8
        return arrow_json(data), []
    except (pa.ArrowInvalid, UnicodeDecodeError) as whole:
        rows, wrong = _parsed(path)
        wrong |= _of_another_kind(rows)
        good: list[Row] = []
        unread: list[Unread] = []
        for number in sorted({*rows, *wrong}):
            if number in wrong:
                unread.append(Unread(len(good), f"malformed: line {number}: {wrong[number]}"))
            else:
                good.append(rows[number])
        if not good:
            raise DatasetError(
                f"{path}: no line reads as a JSON object; {unread[0].reason if unread else whole}"
            ) from None
        return _table(good), unread


def _parsed(path: str) -> tuple[dict[int, Row], dict[int, str]]:
    """Return the objects by line number, and the errors of other lines; empty ones are skipped."""
    rows: dict[int, Row] = {}
    wrong: dict[int, str] = {}
    with Path(path).open("rb") as file:
        for number, read in enumerate(file, 1):
            line = read.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").strip()
            if not line:
                continue
            try:
                read.decode()
                row = json.loads(line)
                json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair is no text
            except (ValueError, RecursionError) as e:  # also a number with more digits than Python parses
                what = "not UTF-8" if isinstance(e, UnicodeError) else "not JSON"
                wrong[number] = f"{what}: {_short(line)}"
                continue
            if isinstance(row, dict):
                rows[number] = row
            else:
                wrong[number] = f"expected a JSON object, got {_short(line)}"
    return rows, wrong


def _of_another_kind(rows: dict[int, Row]) -> dict[int, str]:
    """Return lines with another kind of value in a field than most lines."""
    kinds: dict[str, Counter[str]] = {}
    for row in rows.values():
        for field, kind, _ in _fields(row):
            kinds.setdefault(field, Counter())[kind] += 1
    usual = {field: counted.most_common(1)[0][0] for field, counted in kinds.items()}
    found: dict[int, str] = {}
    for number, row in rows.items():
        for field, kind, value in _fields(row):
            if kind != usual[field] or kind == _ODD:
                expected = "a number" if usual[field] == _ODD else usual[field]
                found.setdefault(number, f"'{field}': expected {expected}, got {_short(json.dumps(value))}")
    return found


_ODD = "a number beyond 64 bits"


def _fields(row: Row, within: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield the fields of an object and of nested ones: name, kind and value; without nulls."""
    for name, value in row.items():
        field = f"{within}{name}"
        if value is None:
            continue
        if isinstance(value, dict):
            yield field, "an object", value
            yield from _fields(value, f"{field}.")
        elif isinstance(value, bool):
            yield field, "true or false", value
        elif isinstance(value, (int, float)):
            yield field, "a number" if isinstance(value, float) or abs(value) < _WHOLE else _ODD, value
        else:
            yield field, "text" if isinstance(value, str) else "a list", value


def _table(rows: list[Row]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
