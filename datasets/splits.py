"""Stock splits as accents: a table of symbol, day and ratio becomes alter data of prices and sizes (semantics 8.1).

::

    symbol,t,ratio
    AIG,2013-10-08,4:1        four new shares for an old one: prices are a quarter from here on, sizes four times
    XYZ,2013-10-09T09:30,1:10  ten old ones for a new one
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.datasets.errors import DatasetError, MalformedRowError, MissingInputError
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES
from pulse.stream.accents import Accent, AlterData
from pulse.stream.affine import Affine
from pulse.stream.description import Description
from pulse.stream.log import AccentLog

PRICES = ("price", "bid", "ask", "open", "high", "low", "close", "last", "mid")
SIZES = ("size", "volume", "bid_size", "ask_size", "shares")
_TIMES, _RATIOS = ("t", "time", "date", "day", "ex_date"), ("ratio", "split")
_RATIO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:[:/]|for|-for-)\s*(\d+(?:\.\d+)?)\s*")


def read_splits(
    path: str | Path,
    schema: StreamSchema,
    *,
    attributes: Collection[str] = (),
    prices: Collection[str] = PRICES,
    sizes: Collection[str] = SIZES,
) -> AccentLog:
    """The splits in a CSV or Parquet file as the accents of a stream: of those attributes among its own (and ``attributes``)
    that are prices or sizes."""
    where = str(path)
    if not Path(path).is_file():
        raise MissingInputError(f"{where}: there is no such file of splits")
    if where.lower().endswith(PARQUET_SUFFIXES):
        rows: Iterable[Mapping[str, Any]] = pq.read_table(path).to_pylist()
        first = 1
    else:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows, first = list(csv.DictReader(file, skipinitialspace=True)), 2
    names = tuple(dict.fromkeys((*schema.names, *attributes)))
    chosen = {name: name in prices for name in names if name in (*prices, *sizes)}
    if not any(chosen.values()):
        raise DatasetError(
            f"{where}: expected a stream with a price ({', '.join(prices)}), got {', '.join(names)}; name it with prices="
        )
    found, lines = [], []
    for number, row in enumerate(rows, first):
        line = f"{where}, line {number}"
        at, key, ratio = _row(row, schema, line)
        for name, is_price in chosen.items():
            alpha = Affine(1 / ratio if is_price else ratio)
            found.append(Accent.of(Description.where(**key), AlterData(name, alpha), position=at))
            lines.append(line)
    return AccentLog.of(found, lines=lines)


def split_ratio(text: Any) -> Fraction:
    """New shares for one old one.

    >>> split_ratio("4:1"), split_ratio("1 for 10"), split_ratio(1.5)
    (Fraction(4, 1), Fraction(1, 10), Fraction(3, 2))
    """
    try:
        match = _RATIO.fullmatch(text.lower()) if isinstance(text, str) else None
        ratio = Fraction(match[1]) / Fraction(match[2]) if match else Fraction(text)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
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
    return int(value) if "int" in str(dict(schema.key)[name]) else str(value).strip()
