"""Read stock splits as accents: a table of symbol, day and ratio becomes alter data of prices and sizes (semantics 8.1).

::

    symbol,t,ratio
    AIG,2013-10-08,4:1        four new shares for an old one: prices are a quarter from here on, sizes four times
    XYZ,2013-10-09T09:30,1:10  ten old ones for a new one
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.datasets.errors import (
    DatasetError,
    MalformedRowError,
    MissingInputError,
    UnreadableError,
    readable,
)
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES
from pulse.stream.accents.accents import Accent, AlterData
from pulse.stream.accents.log import AccentLog
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine, AffineError, exact

PRICES = ("price", "bid", "ask", "open", "high", "low", "close", "last", "mid")
SIZES = ("size", "volume", "bid_size", "ask_size", "shares")
_TIMES, _RATIOS = ("t", "time", "date", "day", "ex_date"), ("ratio", "split")
_RATIO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:[:/]|for|-for-)\s*(\d+(?:\.\d+)?)\s*")


def read_splits(path: str | Path, schema: StreamSchema, *, attributes: Collection[str] = ()) -> AccentLog:
    """Read the splits in a CSV or Parquet file as accents on the stream's prices and sizes, including ``attributes``."""
    found: list[Accent] = []
    lines: list[str] = []
    for row in split_rows(path, schema, attributes=attributes):
        if row.wrong is not None:
            raise row.wrong
        found.extend(row.accents)
        lines.extend([row.line] * len(row.accents))
    return AccentLog.of(found, lines=lines)


@dataclass(frozen=True)
class SplitRow:
    """A row of a table of splits: its accents, one per altered attribute, or its error."""

    line: str
    text: str
    altered: int
    accents: tuple[Accent, ...] = ()
    wrong: MalformedRowError | None = None


def split_rows(
    path: str | Path,
    schema: StreamSchema,
    *,
    attributes: Collection[str] = (),
    ended: bool = False,
) -> list[SplitRow]:
    """Read the rows one by one, including malformed ones. ``ended``: ignore a last CSV row without a line break, which is still
    being written.
    """
    where = str(path)
    if not Path(path).is_file():
        raise MissingInputError(f"{where}: no such file of splits")
    names = tuple(dict.fromkeys((*schema.names, *attributes)))
    chosen = {name: name in PRICES for name in names if name in (*PRICES, *SIZES)}
    if not any(chosen.values()):
        raise DatasetError(
            f"{where}: expected a stream with a price ({', '.join(PRICES)}), got {', '.join(names)}; rename its column"
        )
    rows, first = _table(Path(path), ended)
    found = []
    for number, row in enumerate(rows, first):
        line, text = f"{where}, line {number}", ",".join(str(value) for value in row.values())
        try:
            at, key, ratio = _row(row, schema, line)
        except MalformedRowError as e:
            found.append(SplitRow(line, text, len(chosen), wrong=e))
            continue
        altered = (AlterData(name, Affine(1 / ratio if price else ratio)) for name, price in chosen.items())
        accents = (Accent.of(Description.where(**key), one, position=at) for one in altered)
        found.append(SplitRow(line, text, len(chosen), tuple(accents)))
    return found


def _table(path: Path, ended: bool) -> tuple[list[dict[str, Any]], int]:
    """Return the rows, and the number of the first."""
    with readable(str(path)):
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            return pq.read_table(path).to_pylist(), 1
        data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
        if ended:
            text = text[: text.rfind("\n") + 1]
        return list(csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)), 2
    except (UnicodeDecodeError, csv.Error) as e:
        raise UnreadableError(
            f"{path}: expected CSV in UTF-8 with the columns symbol, t and ratio; {e}"
        ) from None


def split_ratio(text: Any) -> Fraction:
    """Return the number of new shares for one old one.

    >>> split_ratio("4:1"), split_ratio("1 for 10"), split_ratio(1.5)
    (Fraction(4, 1), Fraction(1, 10), Fraction(3, 2))
    """
    try:
        match = _RATIO.fullmatch(text.lower()) if isinstance(text, str) else None
        ratio = exact(match[1]) / exact(match[2]) if match else exact(text)
    except (AffineError, ZeroDivisionError):
        ratio = Fraction(0)
    if ratio <= 0:
        raise DatasetError(f"expected a ratio such as 4:1 (new to old), got {text!r}")
    return ratio


def _row(row: Mapping[str, Any], schema: StreamSchema, line: str) -> tuple[int, dict[str, Any], Fraction]:
    given = {str(name).strip().lower(): value for name, value in row.items()}
    day = next((given[name] for name in (schema.time, *_TIMES) if name in given), None)
    ratio = next((given[name] for name in _RATIOS if name in given), None)
    keys = {name: given[name.lower()] for name in schema.key_names if name.lower() in given}
    if day is None or ratio is None or not keys:
        raise MalformedRowError(
            f"{line}: expected {' or '.join(schema.key_names) or 'a key'}, t and ratio, got {', '.join(given) or 'nothing'}"
        )
    try:
        at = parse_instant(day)
        return at, {name: _key(value, schema, name) for name, value in keys.items()}, split_ratio(ratio)
    except (PulseError, ValueError, TypeError) as e:
        raise MalformedRowError(f"{line}: {e}") from None


def _key(value: Any, schema: StreamSchema, name: str) -> Any:
    if value is None or not str(value).strip():
        raise ValueError(f"expected a {name}, got none")
    return int(value) if "int" in str(dict(schema.key)[name]) else str(value).strip()
