"""Split a stored model into units for workers: whole keys, so that work per key needs no exchange.

Files of one fit hold different keys; after ``--append`` a key may lie in a file of each fit. So a unit is a set of files that
share no key with any other, or a share of the keys of a large set. The layers over a file belong to its unit: a layer may
withdraw segments of any file, or earlier layer, of the unit.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.core.arrays import IntArray
from pulse.core.arrow_types import decoded
from pulse.core.components import connected
from pulse.core.keys import ranks_of_rows, texts_of_rows
from pulse.core.schema import StreamSchema
from pulse.store.manifest import PartFile
from pulse.store.parquet_io import (
    check_columns,
    open_parquet,
    read_parquet,
    read_segments,
    squared_errors,
    with_squared_errors,
)
from pulse.store.versions.layers import OWN, Overlay, in_order

if TYPE_CHECKING:
    from pulse.store.model import Model

ROWS = 1 << 18
"""Segments that one unit should hold at most; a single key may have more."""


@dataclass(frozen=True)
class ReadUnit:
    """Files by name, and which of how many shares of their keys."""

    files: tuple[str, ...]
    share: int = 0
    shares: int = 1


def units(model: Model, *, at_least: int = 1, shared: bool = True) -> tuple[ReadUnit, ...]:
    """Return all units of a model: together they hold every segment once.

    Large sets are cut into shares of about :data:`ROWS` segments, and further until there are ``at_least`` units, as far as
    keys allow; not if ``shared`` is false.
    """
    files = model.manifest.files
    total = sum(file.rows for file in files)
    found = []
    for group in _files_by_keys(model, files):
        rows, keys = sum(file.rows for file in group), max(_most_keys(file) for file in group)
        shares = 1
        if shared and model.schema.key_names:
            wanted = max(math.ceil(rows / ROWS), round(at_least * rows / max(total, 1)))
            shares = max(1, min(wanted, keys))
        names = tuple(file.name for file in group)
        found += [ReadUnit(names, share, shares) for share in range(shares)]
    return tuple(found)


def _most_keys(file: PartFile) -> int:
    return file.keys + sum(layer.keys for layer in file.layers)


def read_unit(
    model: Model, unit: ReadUnit, columns: list[str], keys: pc.Expression | None = None
) -> pa.Table:
    """Read these columns (keys, ``ref``, ``lo`` and ``hi`` among them) of the unit's segments, corrected, by key and time.

    ``keys`` is a condition on whole keys, or on them and ``ref``, for units with one share: row groups without matches are
    skipped.
    """
    by_name = {file.name: file for file in model.manifest.files}
    files = [by_name[name] for name in unit.files]
    layers = [layer for file in files for layer in file.layers]
    names = [*unit.files, *(layer.name for layer in layers)]
    wanted = [columns] * len(files) + [[*OWN, *columns]] * len(layers)
    if unit.shares == 1:
        found = [
            read_segments(model.file(name), model.schema, columns=own, filters=keys)
            for name, own in zip(names, wanted, strict=True)
        ]
    else:
        assert keys is None, "a share is of all keys"
        found = _read_share(model, unit, names, wanted)
    tables = found[: len(files)]
    if layers:
        versions = [layer.version for layer in layers]
        overlay = Overlay(list(zip(versions, found[len(files) :], strict=True)), model.schema, model.as_of)
        tables = [*(overlay.over(table) for table in tables), overlay.put]
    if model.as_of is not None or model.manifest.drift_is_void:
        tables = [model.as_read(table) for table in tables]
    tables = [table for table in tables if table.num_rows] or tables[:1]
    if len(tables) == 1 and not layers:
        return tables[0]
    return in_order(pa.concat_tables(tables), model.schema)


def _read_share(model: Model, unit: ReadUnit, files: list[str], columns: list[list[str]]) -> list[pa.Table]:
    """Read the rows of the share's keys from each file: they are contiguous, as every file is sorted by key."""
    tables = []
    for name, cuts, wanted in zip(files, _cuts(model, unit, files), columns, strict=True):
        begin, end = cuts[unit.share : unit.share + 2]
        with open_parquet(model.file(name)) as file:
            tables.append(_read_rows(file, begin, end, wanted, model.schema))
    return tables


_CUTS: OrderedDict[Any, list[list[int]]] = OrderedDict()
_CUTS_KEPT = 64
_FINDING = threading.Lock()


def _cuts(model: Model, unit: ReadUnit, files: list[str]) -> list[list[int]]:
    """Return per file the start of each share, and the end. Computed once for all shares, as it reads all keys."""
    cache_key = str(model.path.absolute()), model.stamp, tuple(files), unit.shares
    with _FINDING:  # others wait, as they need the same result
        if cache_key not in _CUTS:
            _CUTS[cache_key] = _find_cuts(model, unit.shares, files)
            while len(_CUTS) > _CUTS_KEPT:
                _CUTS.popitem(last=False)
        return _CUTS[cache_key]


def _find_cuts(model: Model, shares: int, files: list[str]) -> list[list[int]]:
    """Find the first key of each share when all rows are divided evenly; a share may be empty."""
    names = list(model.schema.key_names)
    texts = [name for name, type_ in model.schema.key if pa.types.is_string(type_)]
    listed, starts = [], []
    for name in files:
        keys = read_parquet(model.file(name), columns=names, read_dictionary=texts)
        starts.append(np.append(_starts(keys, names), keys.num_rows))
        firsts = keys.take(pa.array(starts[-1][:-1]))
        listed.append(pa.table({n: decoded(firsts.column(n)) for n in names}))
    ranks = ranks_of_rows(pa.concat_tables(listed), names)
    rows = np.bincount(ranks, weights=np.concatenate([np.diff(one) for one in starts])).astype(np.int64)
    share_of = (np.cumsum(rows) - rows) * shares // max(int(rows.sum()), 1)
    cuts, seen = [], 0
    for own in starts:
        mine = share_of[ranks[seen : seen + len(own) - 1]]
        seen += len(own) - 1
        cuts.append(own[np.searchsorted(mine, np.arange(shares + 1))].tolist())
    return cuts


def _read_rows(
    file: pq.ParquetFile, begin: int, end: int, columns: list[str], schema: StreamSchema
) -> pa.Table:
    """Read rows of a file from the row groups that hold them."""
    have, later = file.schema_arrow.names, squared_errors(schema)
    check_columns("the model", have, [name for name in columns if name not in later])
    stored = [name for name in columns if name in have]
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    groups = [i for i in range(len(sizes)) if offsets[i] < end and offsets[i + 1] > begin]
    if begin >= end:
        return with_squared_errors(file.schema_arrow.empty_table().select(stored), schema, columns)
    table = file.read_row_groups(groups, columns=stored).slice(begin - int(offsets[groups[0]]), end - begin)
    return with_squared_errors(table, schema, columns)


def _starts(keys: pa.Table, names: list[str]) -> IntArray:
    """Return the first row of every key of a file sorted by key; empty for an empty file."""
    return np.flatnonzero(np.diff(ranks_of_rows(keys, names), prepend=-1)).astype(np.int64)


def _files_by_keys(model: Model, files: Iterable[PartFile]) -> list[list[PartFile]]:
    """Group files that share keys, with their closing points."""
    files = list(files)
    if not model.schema.key_names:
        return [files] if files else []
    if model.manifest.fits == 1:
        by_label: dict[str, list[PartFile]] = {}
        for file in files:
            by_label.setdefault(file.name.partition("-")[2], []).append(file)
        return list(by_label.values())
    return _connected(files, [_keys_of(model, file) for file in files])


def _keys_of(model: Model, file: PartFile) -> set[str]:
    names = list(model.schema.key_names)
    tables = [read_parquet(model.file(name), columns=names) for name in file.names]
    return set(texts_of_rows(pa.concat_tables(tables).group_by(names).aggregate([]), names))


def _connected(files: list[PartFile], keys: list[set[str]]) -> list[list[PartFile]]:
    """Merge files into sets until no two sets share a key."""
    first_of: dict[str, int] = {}
    shared = [(i, first_of.setdefault(key, i)) for i, own in enumerate(keys) for key in own]
    a, b = np.array(shared, np.int64).reshape(-1, 2).T
    sets = connected(a, b, len(files))
    return [[files[i] for i in np.flatnonzero(sets == one)] for one in np.unique(sets)]
