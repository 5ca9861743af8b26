"""Columns of Hive-partitioned data: ``data/symbol=SPY/date=2013-10-07/part-0.parquet`` has a symbol and a date.

Names and values are percent-encoded; ``__HIVE_DEFAULT_PARTITION__`` and an empty value are null, as is a column that a file's
folders lack. A column is one of whole numbers if all its values are, else of text; a key is text if some value begins with a
zero, as keys in CSV are. A column that the files hold themselves stays theirs; a value that contradicts the folder's is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.arrow_types import decoded, is_text
from pulse.datasets.csv_parse import KEY_TEXT
from pulse.datasets.errors import DatasetError, UnknownFormatError, UnreadableError

NULL = "__HIVE_DEFAULT_PARTITION__"
TYPES = {"int64": pa.int64(), "string": KEY_TEXT}
Partitions = tuple[tuple[str, str], ...]  # columns, each with the name of its type
Value = str | int | None
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_LED_BY_ZERO = re.compile(r"[+-]?0[0-9]", re.ASCII)


def check_partitions(given: Any) -> Partitions | None:
    """Check for None, or columns with the names of their types."""
    if given is None:
        return None
    try:
        pairs = tuple((str(name), str(type_)) for name, type_ in dict(given).items())
    except (TypeError, ValueError):
        raise UnknownFormatError(
            f"partitions: expected columns with their types, such as {{'symbol': 'string'}}, got {given!r}"
        ) from None
    for name, type_ in pairs:
        if type_ not in TYPES:
            raise UnknownFormatError(
                f"partitions: column '{name}': expected one of {', '.join(TYPES)}, got {type_!r}"
            )
    return pairs


def find_partitions(
    files: Sequence[str], key: Sequence[str], text: str | None, given: Partitions
) -> Partitions:
    """Return the columns in the folders of all files, with their types: those ``given``, ``text`` as text, others inferred."""
    values: dict[str, set[str]] = {}
    for folder in dict.fromkeys(Path(path).parent for path in files):
        for name, value in _texts(folder).items():
            values.setdefault(name, set()).update(() if value is None else (value,))
    types = {
        name: "int64"
        if found
        and name != text
        and all(map(_WHOLE.fullmatch, found))
        and not (name in key and any(map(_LED_BY_ZERO.match, found)))
        else "string"
        for name, found in values.items()
    }
    return tuple({**types, **dict(given)}.items())


def values_of(path: str, partitions: Partitions) -> dict[str, Value]:
    """Return the values of a file's columns: those that its folders lack are null.

    >>> values_of("data/symbol=BRK%20B/day=03/a.parquet", (("symbol", "string"), ("day", "int64"), ("x", "string")))
    {'symbol': 'BRK B', 'day': 3, 'x': None}
    """
    texts = _texts(Path(path).parent) if partitions else {}
    found: dict[str, Value] = {}
    for name, type_ in partitions:
        text = texts.get(name)
        if text is not None and type_ == "int64" and not _WHOLE.fullmatch(text):
            raise DatasetError(
                f"{path}: expected a whole number in the folder {name}=…, as those before it have, got {text!r}; fit these files "
                f"separately, or read the column as text: partitions={{'{name}': 'string'}} (--read partitions={name}:string)"
            )
        found[name] = int(text) if text is not None and type_ == "int64" else text
    return found


def has_partition(path: str, name: str) -> bool:
    """Check whether a folder of a file has a value for this column."""
    return name in _texts(Path(path).parent)


def _texts(folder: Path) -> dict[str, str | None]:
    """Return names and values of a folder and those above; the innermost counts where one is named twice."""
    found: dict[str, str | None] = {}
    for part in folder.parts:
        name, equals, value = part.partition("=")
        if not equals or not name:
            continue
        try:
            name, value = (unquote(one, errors="strict") for one in (name, value))
        except UnicodeDecodeError:
            raise UnreadableError(
                f"{folder}: the folder {part!r} is percent-encoded, but not as UTF-8; rename it"
            ) from None
        found[name] = None if value in ("", NULL) else value
    return found


def partition_fields(partitions: Partitions, own: Sequence[str]) -> list[pa.Field]:
    """Return the fields of the columns that a file does not hold itself."""
    return [pa.field(name, TYPES[type_]) for name, type_ in partitions if name not in own]


def with_partitions(
    table: pa.Table, names: Sequence[str], values: Mapping[str, Value], partitions: Partitions, where: str
) -> pa.Table:
    """Return these columns of a file's rows: its own, compared with its folders' values, and those of the folders alone."""
    types, rows, columns = dict(partitions), table.num_rows, []
    for name in names:
        if name not in table.column_names:
            columns.append(_repeated(values[name], types[name], rows))
            continue
        own = table.column(name)
        if name in values:
            _check_same(own.combine_chunks(), values[name], name, where)
        columns.append(own)
    return pa.table(columns, names=list(names))


def _repeated(value: Value, type_: str, rows: int) -> pa.Array:
    if type_ == "int64":
        return pa.nulls(rows, pa.int64()) if value is None else pa.repeat(pa.scalar(value, pa.int64()), rows)
    texts = pa.array([] if value is None else [value], pa.string())
    places = pa.nulls(rows, pa.int32()) if value is None else pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(places, texts)


def _check_same(own: pa.Array, value: Value, name: str, where: str) -> None:
    """Check that all rows have the folder's value; the time of day that a date lacks is no contradiction."""
    wrong = ~_same(decoded(own), value)
    if not wrong.any():
        return
    got = decoded(own)[int(np.flatnonzero(wrong)[0])].as_py()
    folder = f"{name}={NULL if value is None else value}"
    raise DatasetError(
        f"{where}, column '{name}': expected the value of the folder {folder}, got {str(got)!r}; correct one of the two, or read "
        "what the files hold alone with partitions=None (--read partitions=none)"
    )


def _same(own: pa.Array, value: Value) -> BoolArray:
    if value is None:
        found: BoolArray = own.is_null().to_numpy(zero_copy_only=False)
        return found
    kinds, text = pa.types, str(value)
    if kinds.is_integer(own.type) or kinds.is_floating(own.type):
        try:
            number = pa.scalar(int(text) if _WHOLE.fullmatch(text) else float(text))
        except ValueError:
            return np.zeros(len(own), np.bool_)
        return _true(pc.equal(own, number))
    if kinds.is_temporal(own.type) and not kinds.is_time(own.type):
        whole = pc.equal(own.cast(pa.string()), text)
        day = pc.equal(
            own.cast(pa.timestamp("us"), safe=False).cast(pa.date32(), safe=False).cast(pa.string()), text
        )
        return _true(pc.or_(whole, day))
    if kinds.is_boolean(own.type):
        return _true(pc.equal(own.cast(pa.string()), text.lower()))
    return _true(pc.equal(own.cast(pa.string()), text)) if is_text(own.type) else np.zeros(len(own), np.bool_)


def _true(values: pa.Array) -> BoolArray:
    found: BoolArray = pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
