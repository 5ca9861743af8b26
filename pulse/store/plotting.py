"""Plot stored models: choose the segments to read, and the tuples to draw with them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.errors import unknown_column
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import to_microseconds
from pulse.datasets.registry import detect, get_format
from pulse.plot import plot_model, plot_tracks
from pulse.plot.model import MOST_KEYS
from pulse.plot.style import WIDE, require
from pulse.store.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pulse.store.model import Model


def plot_model_segments(
    model: Model,
    *,
    key: Any = None,
    attribute: str | None = None,
    start: Any = None,
    end: Any = None,
    tuples: str | os.PathLike[str] | pa.Table | None = None,
    keys: int = MOST_KEYS,
    width: float = WIDE,
) -> Figure:
    """Plot a model over its tuples; see :meth:`Model.plot`."""
    require()
    batch = segments_for(model, key=key, start=start, end=end, keys=keys)
    rows = None if tuples is None else tuples_for(batch, tuples, model.schema, start, end)
    return plot_model(batch, attribute=attribute, tuples=rows, keys=keys, width=width)


def plot_model_tracks(
    model: Model,
    *,
    key: Any = None,
    start: Any = None,
    end: Any = None,
    **options: Any,
) -> Figure:
    """Plot the tracks of all keys, or of one; see :meth:`Model.plot_tracks`."""
    require()
    return plot_tracks(segments_for(model, key=key, start=start, end=end), **options)


def segments_for(model: Model, *, key: Any, start: Any, end: Any, keys: int | None = None) -> SegmentBatch:
    """Read the segments of one key, of the first ``keys`` keys, or of all, in the units in force."""
    if key is not None:
        found = model.read(key=key, start=start, end=end, recorded=True)
        if not len(found):
            raise StoreError(
                f"{model.path}: no segments of key {key!r}{_when(start, end)}; {_some_keys(model)}"
            )
        return found
    names = model.schema.key_names
    if keys is None or not names:
        return model.read(start=start, end=end, recorded=True)
    first = model.keys().slice(0, keys).to_pylist()
    parts = [model.read(key=one, start=start, end=end, recorded=True) for one in first]
    if not parts:
        return SegmentBatch.empty(model.schema)
    return SegmentBatch.concat(parts, at_rest=False)


def _when(start: Any, end: Any) -> str:
    parts = [f"from {start}" if start is not None else "", f"to {end}" if end is not None else ""]
    return "".join(f" {one}" for one in parts if one)


def _some_keys(model: Model) -> str:
    names = model.schema.key_names
    listed = [
        ", ".join(f"{name}={row[name]}" for name in names) for row in model.keys().slice(0, 5).to_pylist()
    ]
    return f"its keys are such as {'; '.join(listed)}" if listed else "it has no keys"


def tuples_for(
    batch: SegmentBatch,
    tuples: str | os.PathLike[str] | pa.Table,
    schema: StreamSchema,
    start: Any = None,
    end: Any = None,
) -> pa.Table:
    """Read the tuples of these segments' keys within the time range, from a table or from files, piece by piece."""
    names = [*schema.key_names, schema.time, *schema.modelled_names]
    if isinstance(tuples, pa.Table):
        for name in names:
            if name not in tuples.column_names:
                raise unknown_column(name, tuples.column_names, "the tuples to draw")
        return _wanted(tuples, batch, schema, start, end)
    path = os.fspath(tuples)
    format = get_format(detect(path, names), key=tuple(schema.key_names), time=schema.time).prepare(path)
    read = (one for unit in format.units(path) for one in format.batches(unit, names))
    return pa.concat_tables(
        [_wanted(pa.Table.from_batches([one]), batch, schema, start, end) for one in read],
        promote_options="permissive",
    )


def _wanted(table: pa.Table, batch: SegmentBatch, schema: StreamSchema, start: Any, end: Any) -> pa.Table:
    for name, type_ in schema.key:
        known = batch.column(name).unique()
        table = table.filter(pc.is_in(table.column(name).cast(type_), value_set=known))
    if start is None and end is None:
        return table
    at = to_microseconds(table.column(schema.time))
    held = at >= (to_microseconds(start)[0] if start is not None else at.min(initial=0))
    if end is not None:
        held &= at < to_microseconds(end)[0]
    return table.filter(pa.array(held))
