"""Changes of results in the units in force at each instant (semantics 8.2): restated, and said again when units change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import certainty_codes
from pulse.core.coefficients import to_padded
from pulse.core.columns import Columns
from pulse.operators.difference import difference
from pulse.operators.relation import Relation
from pulse.runtime.accents import Restating
from pulse.runtime.standing import Standing, selected

_FROM = "\0from"  # the row of the changelog that a segment is a part of


def restated_changes(
    standing: Standing,
    restating: tuple[Restating | None, Restating | None],
    results: tuple[Relation, Relation],
    changes: pa.Table,
) -> pa.Table:
    """Changes from some results to others, restated; before them, where the restating itself changes, what that changes.

    Where descriptions speak of keys that are not among the output's columns, rows of the changelog do not tell how they are
    restated: then all results are compared.
    """
    before, now = restating
    if before is None and now is None:
        return changes
    held, after = results
    if not _told(before, standing.output) or not _told(now, standing.output):
        return _compared(standing, _as(before, held), _as(now, after))
    told = changes if now is None else _rows(changes, standing.output, now)
    if before == now:
        return told
    return pa.concat_tables(
        [_compared(standing, _as(before, held), _as(now, held)), told.cast(changes.schema)]
    )


def _as(restating: Restating | None, relation: Relation) -> Relation:
    return relation if restating is None else restating.segments(relation).without_empty_groups()


def _compared(standing: Standing, old: Relation, new: Relation) -> pa.Table:
    return difference(selected(old, standing.output), selected(new, standing.output)).table


def _told(restating: Restating | None, output: Columns) -> bool:
    """Whether the output's own columns tell which rows are restated."""
    if restating is None:
        return True
    every = [*restating.alter.steps.values(), *restating.cease.steps.values()]
    return all(name in output.names for steps in every for name in steps.columns)


def _rows(changes: pa.Table, output: Columns, restating: Restating) -> pa.Table:
    """Rows of a changelog restated; the parts of an old row each right before those of the new one."""
    n = changes.num_rows
    if not n:
        return changes
    batch = changes.combine_chunks().to_batches()[0]
    kind = batch.column("kind")
    each = Relation(
        columns=output,
        keys=tuple(batch.column(name) for name in output.key_names),
        offsets=np.arange(n + 1),
        ref=batch.column("ref").view(pa.int64()).to_numpy(),
        lo=batch.column("lo").to_numpy(),
        hi=batch.column("hi").to_numpy(),
        models={name: to_padded(batch.column(name)) for name in output.modelled},
        err={name: batch.column(f"{name}_err").to_numpy() for name in output.modelled},
        drift={},
        certainty=certainty_codes(batch.column("certainty")),
        unmodelled={name: batch.column(name) for name in output.unmodelled_names}
        | {_FROM: pa.array(np.arange(n))},
    )
    found = restating.segments(each)
    row = found.unmodelled[_FROM].to_numpy()
    first = np.searchsorted(row, row)
    new = np.array([one == "+U" for one in kind.to_pylist()], bool)[row]
    order = np.lexsort((new, np.arange(len(row)) - first, row - new))
    table = pa.Table.from_batches([found.to_segments()]).append_column("kind", kind.take(pa.array(row)))
    return table.take(pa.array(order)).select(changes.column_names).cast(changes.schema)


def instants(times: pa.ChunkedArray | pa.Array) -> IntArray:
    """Times of whatever unit as microseconds; 0 where there is none."""
    if pa.types.is_timestamp(times.type) and times.type.unit == "us" and not times.null_count:
        plain = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
        return np.asarray(plain.view(pa.int64()).to_numpy())
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
    whole = times.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    unit = times.type.unit if pa.types.is_timestamp(times.type) else "us"
    if unit == "ns":
        return np.asarray(whole // 1000)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    limit = (1 << 62) // scale
    return np.asarray(np.clip(whole, -limit, limit) * scale)
