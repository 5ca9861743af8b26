"""Read the keys that a job file declares for a stream with accents, from a list, a table or a file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.stream.descriptions.description import NO_PROMISES, Domain

Keys = Mapping[str, tuple[Any, ...]]
"""The values that key columns may have, by column."""


class DeclaredKeysError(PulseError, ValueError):
    """Declared keys that are malformed or empty."""


def declared_keys(given: Any, key: tuple[str, ...], folder: Path) -> Keys:
    """Read keys from a list (for one key column), a table of lists by column, or a file with columns of these names."""
    if isinstance(given, str):
        return _from_file(folder / given, key)
    if isinstance(given, list):
        if len(key) != 1:
            raise DeclaredKeysError(f"a table of lists by {', '.join(key)}, as there are several, got a list")
        given = {key[0]: given}
    if not isinstance(given, Mapping) or not given:
        raise DeclaredKeysError(f"a list of keys, a table of lists by column, or a file, got {given!r}")
    found = {}
    for name, values in given.items():
        if name not in key:
            raise DeclaredKeysError(f"lists for key columns, {', '.join(key)}, got one for '{name}'")
        plain = isinstance(values, list) and all(isinstance(one, (str, int)) for one in values)
        if not plain or not values:
            raise DeclaredKeysError(f"a list of texts or whole numbers for '{name}', got {values!r}")
        found[name] = tuple(dict.fromkeys(values))
    return found


def _from_file(file: Path, key: tuple[str, ...]) -> Keys:
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            table = pq.read_table(file)
            columns = {name: table.column(name).to_pylist() for name in key if name in table.column_names}
        else:
            with file.open(encoding="utf-8-sig", newline="") as lines:
                rows = list(csv.DictReader(lines, skipinitialspace=True))
            names = [name for name in key if rows and name in rows[0]]
            columns = {name: [row[name] for row in rows] for name in names}
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as e:
        raise DeclaredKeysError(f"a CSV or Parquet file of keys, got {file} ({e})") from None
    found = {
        name: tuple(dict.fromkeys(one for one in values if one is not None))
        for name, values in columns.items()
    }
    if not any(found.values()):
        raise DeclaredKeysError(f"columns {', '.join(key)} with values, got {file} without")
    return found


def domain_of(keys: Keys | None, schema: StreamSchema) -> Domain:
    """The domain of key values that declared keys promise for every row."""
    if keys is None:
        return NO_PROMISES
    types = dict(schema.key)
    found = {}
    for name, values in keys.items():
        try:
            texts = pa.array([str(one) for one in values])
            found[name] = set(texts.cast(types[name]).to_pylist())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise DeclaredKeysError(
                f"values of {types[name]} for '{name}', got {list(values)[:5]} ({e})"
            ) from None
    return Domain.of(**found)
