"""Changes of results in the units in force at each instant (semantics 8.2): restated, and said again when units change.

Only what a change of units touches is looked at: rows of the changelog that reach over an instant from which on their values are
restated, and of the results at rest those that reach over the first instant of what is new.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import certainty_codes
from pulse.core.coefficients import from_padded, to_padded
from pulse.core.columns import Columns
from pulse.kernels.steps import cut_at_steps
from pulse.operators.difference import difference
from pulse.operators.relation import Relation
from pulse.runtime.accents import Restating
from pulse.runtime.predictive_undoing import whole
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
    since = _parted(before, now)
    touched = held if since is None else _reaching(held, since)
    if since is None or not len(touched):
        return told
    return pa.concat_tables(
        [_compared(standing, _as(before, touched), _as(now, touched)), told.cast(changes.schema)]
    )


def _parted(before: Restating | None, now: Restating | None) -> int | None:
    """The first instant at which two may restate differently; None where they are the same."""
    if before is now:
        return None
    found: list[int] = []
    for of in ("alter", "cease"):
        old, new = (getattr(one, of).steps if one is not None else {} for one in (before, now))
        for name in {*old, *new}:
            a, b = (steps[name].alterations if name in steps else () for steps in (old, new))
            if a is b:
                continue
            same = next(
                (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
            )
            found += [one[same].at for one in (a, b) if same < len(one)]
    ends = {None if one is None else one.end for one in (before, now)}
    if len(ends) > 1:
        found += [end for end in ends if end is not None]
    return min(found, default=None)


def _reaching(held: Relation, since: int) -> Relation:
    """The results that say something of an instant or of a later one."""
    late = np.flatnonzero(held.ref + np.ceil(held.hi * 1e6) >= since)
    return held if len(late) == len(held) else held.take(late)


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
    if not changes.num_rows:
        return changes
    if restating.cease.steps or restating.end is not None:
        return _rows_cut_short(changes, output, restating)
    altered = {name: one for name, one in restating.alter.steps.items() if name in output.modelled}
    ref, lo, hi = (whole(changes.column(name)) for name in ("ref", "lo", "hi"))
    parts = _Parts.of(ref.view(pa.int64()).to_numpy(), lo.to_numpy(), hi.to_numpy())
    for name, steps in altered.items():
        found = steps.located({one: whole(changes.column(one)) for one in steps.columns}, changes.num_rows)
        parts.cut(name, found.cell, found.steps, found.maps)
    return _altered(changes, parts)


class _Parts:
    """Rows cut where one of their attributes is restated otherwise, each part with its maps."""

    def __init__(self, row: IntArray, ref: IntArray, lo: FloatArray, hi: FloatArray) -> None:
        self.row, self.ref, self.lo, self.hi = row, ref, lo, hi
        self.maps: dict[str, tuple[FloatArray, FloatArray]] = {}
        self.is_cut = False

    @classmethod
    def of(cls, ref: IntArray, lo: FloatArray, hi: FloatArray) -> _Parts:
        """Whole rows."""
        return cls(np.arange(len(ref)), ref, lo, hi)

    def cut(
        self,
        name: str,
        cell: IntArray,
        steps: tuple[IntArray, IntArray],
        maps: tuple[FloatArray, FloatArray],
    ) -> None:
        """Where the map of an attribute changes."""
        found = cut_at_steps(self.ref, self.lo, self.hi, cell[self.row], steps)
        if (found.step < 0).all():
            return
        if len(found.row) > len(self.row):
            self.is_cut = True
            self.row, self.ref, self.lo, self.hi = (
                self.row[found.row],
                self.ref[found.row],
                found.lo,
                found.hi,
            )
            self.maps = {one: (a[found.row], b[found.row]) for one, (a, b) in self.maps.items()}
        self.maps[name] = np.append(maps[0], 1.0)[found.step], np.append(maps[1], 0.0)[found.step]


def _altered(changes: pa.Table, parts: _Parts) -> pa.Table:
    """The rows as their parts say."""
    if not parts.maps:
        return changes
    new: dict[str, pa.Array] = {}
    if parts.is_cut:
        changes = changes.take(pa.array(parts.row))
        new |= {"lo": pa.array(parts.lo), "hi": pa.array(parts.hi)}
    for name, (a, b) in parts.maps.items():
        models = to_padded(whole(changes.column(name))) * a[:, None]
        models[:, 0] += b
        new[name] = from_padded(models)
        new[f"{name}_err"] = pa.array(whole(changes.column(f"{name}_err")).to_numpy() * a)
        new[f"{name}_drift"] = pa.nulls(len(a), pa.float64())
    for name, column in new.items():
        place = changes.schema.get_field_index(name)
        if place >= 0:
            changes = changes.set_column(
                place, changes.schema.field(place), column.cast(changes.schema.field(place).type)
            )
    if not parts.is_cut:
        return changes
    return changes.take(pa.array(_paired(parts.row, changes.column("kind"))))


def _paired(row: IntArray, kind: pa.ChunkedArray) -> IntArray:
    """The order in which parts stand: those of an old row each before the part of the new row that replaces it."""
    first = np.searchsorted(row, row)
    new = np.asarray(pc.equal(kind, "+U"))
    return np.lexsort((new, np.arange(len(row)) - first, row - new))


def _rows_cut_short(changes: pa.Table, output: Columns, restating: Restating) -> pa.Table:
    """The same where rows end, as an attribute is not there or the query ends."""
    n = changes.num_rows
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
    kinds = kind.take(pa.array(row))
    table = pa.Table.from_batches([found.to_segments()]).append_column("kind", kinds)
    return table.take(pa.array(_paired(row, kinds))).select(changes.column_names).cast(changes.schema)


def instants(times: pa.ChunkedArray | pa.Array) -> IntArray:
    """Times of whatever unit as microseconds; 0 where there is none."""
    if pa.types.is_timestamp(times.type) and times.type.unit == "us" and not times.null_count:
        plain = whole(times)
        return np.asarray(plain.view(pa.int64()).to_numpy())
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
    count = times.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    unit = times.type.unit if pa.types.is_timestamp(times.type) else "us"
    if unit == "ns":
        return np.asarray(count // 1000)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    limit = (1 << 62) // scale
    return np.asarray(np.clip(count, -limit, limit) * scale)
