"""Find where two versions of a stored model may differ: the regions to examine for changed results.

Versions share files. The content of files and layers in both is the same; so the rows of the other files, and the instants of
tuples corrected in between, even where no segment moved, are all that may differ. That may be more than what differs (merged
files hold the same rows as before), never less.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import one_chunk
from pulse.core.instants import ceil_microsecond, floor_microsecond
from pulse.core.regions import Regions
from pulse.operators.data.tuple_columns import instants
from pulse.store.errors import StoreError
from pulse.store.model import Model
from pulse.store.parquet_io import read_parquet
from pulse.store.versions.layers import KNOWN_FROM, KNOWN_TO, microseconds_of

AROUND = 2
"""Microseconds before and after a corrected tuple, to include the segments that end and begin there."""


def changed_regions(old: Model, new: Model) -> Regions:
    """Return the keys and ranges in which two models of one folder may differ."""
    if old.path.absolute() != new.path.absolute():
        raise StoreError(
            f"revisions: {old.path} and {new.path} are different models; compare versions of one"
        )
    parts = [_no_regions(new)]
    for model, other in ((old, new), (new, old)):
        differing = sorted(model.manifest.names - other.manifest.names)
        parts += [_extents(model, name) for name in differing]
    known = [one.as_of for one in (old, new) if one.as_of is not None]
    if old.as_of != new.as_of:
        layers = [layer.name for file in new.manifest.files for layer in file.layers]
        parts += [_extents(new, name, min(known)) for name in layers if name in old.manifest.names]
    for name in sorted(set(new.manifest.log) ^ set(old.manifest.log)):
        model = new if name in new.manifest.log else old
        parts.append(_corrected(model, name))
    return Regions.concat(parts).merged()


def everywhere(old: Model, new: Model) -> Regions:
    """Return all keys of both models for all their time."""
    touched_of = [_no_regions(new)]
    for model in (old, new):
        keys = model.keys()
        starts, ends = model.manifest.bounds
        if starts and (keys.num_rows or not model.schema.key):
            n = max(keys.num_rows, 1)
            whole = np.full(n, min(starts) - 1), np.full(n, max(ends) + 1)
            touched_of.append(Regions(_keys(keys, model), *whole))
    return Regions.concat(touched_of).merged()


def _no_regions(model: Model) -> Regions:
    none = np.zeros(0, np.int64)
    return Regions(tuple(pa.array([], type_) for _, type_ in model.schema.key), none, none)


def _extents(model: Model, name: str, known_after: int | None = None) -> Regions:
    """Return the regions of a file's rows; of a layer only those that changed after an instant."""
    keys = list(model.schema.key_names)
    columns = [*keys, "ref", "lo", "hi"]
    known = [] if known_after is None else [KNOWN_FROM, KNOWN_TO]
    table = read_parquet(model.file(name), columns=[*columns, *known])
    if known_after is not None:
        latest = np.maximum(*(microseconds_of(table, one, known_after) for one in known))
        table = table.filter(pa.array(latest > known_after))
    ref = microseconds_of(table, "ref")
    start = floor_microsecond(ref, table.column("lo").to_numpy())
    end = ceil_microsecond(ref, table.column("hi").to_numpy())
    return Regions(_keys(table, model), start, np.maximum(end, start + 1))


def _corrected(model: Model, name: str) -> Regions:
    """Return the regions around the instants of tuples that a log corrects."""
    schema = model.schema
    table = read_parquet(model.file(name), columns=[*schema.key_names, schema.time])
    return Regions.of_instants(_keys(table, model), instants(table.column(schema.time))).widened(
        AROUND, AROUND
    )


def _keys(table: pa.Table, model: Model) -> tuple[pa.Array, ...]:
    return tuple(one_chunk(table.column(name)).cast(type_) for name, type_ in model.schema.key)
