"""Changes of results in the units in force at each instant (semantics 8.2): restated, and said again when units change.

Only what a change of units touches is looked at: rows of the changelog that reach over an instant from which on their values are
restated, and of the results at rest those that reach over the first instant of what is new. Of these only the parts whose units
have changed are said again: an accent of one key says nothing of the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import certainty_codes
from pulse.core.columns import Columns
from pulse.core.segment.coefficients import from_padded, to_padded
from pulse.kernels.pieces.step_maps import cut_at_steps, restate
from pulse.operators.data.relation import Relation
from pulse.operators.output.diff import difference
from pulse.operators.units.apply_maps import described_columns
from pulse.runtime.accents.query_units import OutputUnits
from pulse.runtime.accents.to_base_units import whole
from pulse.runtime.incremental.continuous_query import ContinuousQuery, selected
from pulse.stream.units.step_maps import Located

_FROM = "\0from"  # the row of the changelog that a segment is a part of


def restated_changes(
    standing: ContinuousQuery,
    restating: tuple[OutputUnits | None, OutputUnits | None],
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
    if _only_alters(before) and _only_alters(now):
        again = _said_again(selected(touched, standing.output), before, now)
    else:
        again = _compared(standing, _as(before, touched), _as(now, touched))
    return pa.concat_tables([again, told.cast(changes.schema)]) if again.num_rows else told


def _parted(before: OutputUnits | None, now: OutputUnits | None) -> int | None:
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


def _as(restating: OutputUnits | None, relation: Relation) -> Relation:
    return relation if restating is None else restating.segments(relation).without_empty_groups()


def _compared(standing: ContinuousQuery, old: Relation, new: Relation) -> pa.Table:
    return difference(selected(old, standing.output), selected(new, standing.output)).table


def _only_alters(restating: OutputUnits | None) -> bool:
    return restating is None or (not restating.cease.steps and restating.end is None)


def _said_again(held: Relation, before: OutputUnits | None, now: OutputUnits | None) -> pa.Table:
    """The parts of results that are restated otherwise now: each as it was said, and right after it as it is now."""
    parts = _Parts.of(held.ref, held.lo, held.hi)
    for name in held.columns.modelled:
        for when, restating in (("before", before), ("now", now)):
            steps = None if restating is None else restating.alter.steps.get(name)
            if steps is not None:
                columns = described_columns(held.columns, held.keys, held.group, held.unmodelled, steps)
                parts.cut(f"{when} {name}", steps.located(columns, len(held)))
    maps = {name: (parts.map(f"before {name}"), parts.map(f"now {name}")) for name in held.columns.modelled}
    moved = np.any([(old[0] != now[0]) | (old[1] != now[1]) for old, now in maps.values()], axis=0)
    chosen = np.repeat(np.flatnonzero(moved), 2)
    new = np.arange(len(chosen)) % 2 == 1
    found = held.take(parts.row[chosen], lo=parts.lo[chosen], hi=parts.hi[chosen])
    models, err = dict(found.models), dict(found.err)
    for name, (as_before, as_now) in maps.items():
        own = _Maps(*(np.where(new, y[chosen], x[chosen]) for x, y in zip(as_before, as_now, strict=True)))
        models[name], err[name], _ = restate(
            models[name], found.lo, found.hi, err[name], np.arange(len(chosen)), own
        )
    said = pa.Table.from_batches([replace(found, models=models, err=err, drift={}).to_segments()])
    return said.append_column("kind", pa.array(np.where(new, "+U", "-U"), pa.string()))


def _told(restating: OutputUnits | None, output: Columns) -> bool:
    """Whether the output's own columns tell which rows are restated."""
    if restating is None:
        return True
    every = [*restating.alter.steps.values(), *restating.cease.steps.values()]
    return all(name in output.names for steps in every for name in steps.columns)


def _rows(changes: pa.Table, output: Columns, restating: OutputUnits) -> pa.Table:
    """Rows of a changelog restated; the parts of an old row each right before those of the new one."""
    if not changes.num_rows:
        return changes
    if restating.cease.steps or restating.end is not None:
        return _rows_cut_short(changes, output, restating)
    altered = {name: one for name, one in restating.alter.steps.items() if name in output.modelled}
    ref, lo, hi = (whole(changes.column(name)) for name in ("ref", "lo", "hi"))
    parts = _Parts.of(ref.view(pa.int64()).to_numpy(), lo.to_numpy(), hi.to_numpy())
    for name, steps in altered.items():
        columns = {one: whole(changes.column(one)) for one in steps.columns}
        parts.cut(name, steps.located(columns, changes.num_rows))
    return _altered(changes, parts)


class _Maps(NamedTuple):
    """The map of each row: its scale and shift as doubles, and how far these may be from the exact ones."""

    a: FloatArray
    b: FloatArray
    a_off: FloatArray
    b_off: FloatArray

    def take(self, rows: IntArray) -> _Maps:
        """Those of some rows."""
        return _Maps(*(one[rows] for one in self))


class _Parts:
    """Rows cut where one of their attributes is restated otherwise, each part with its maps."""

    def __init__(self, row: IntArray, ref: IntArray, lo: FloatArray, hi: FloatArray) -> None:
        self.row, self.ref, self.lo, self.hi = row, ref, lo, hi
        self.maps: dict[str, _Maps] = {}
        self.is_cut = False

    @classmethod
    def of(cls, ref: IntArray, lo: FloatArray, hi: FloatArray) -> _Parts:
        """Whole rows."""
        return cls(np.arange(len(ref)), ref, lo, hi)

    def cut(self, name: str, located: Located) -> None:
        """Where the map of an attribute changes."""
        found = cut_at_steps(self.ref, self.lo, self.hi, located.cell[self.row], located.steps)
        if (found.step < 0).all():
            return
        if len(found.row) > len(self.row):
            self.is_cut = True
            self.row, self.ref = self.row[found.row], self.ref[found.row]
            self.lo, self.hi = found.lo, found.hi
            self.maps = {one: maps.take(found.row) for one, maps in self.maps.items()}
        same = (1.0, 0.0, 0.0, 0.0)
        every = zip(located.maps + located.off, same, strict=True)
        self.maps[name] = _Maps(*(np.append(one, none)[found.step] for one, none in every))

    def map(self, name: str) -> _Maps:
        """The maps of every part; where nothing is restated scales are 1 and shifts 0."""
        zeros = np.zeros(len(self.row))
        return self.maps[name] if name in self.maps else _Maps(zeros + 1.0, zeros, zeros, zeros)


def _altered(changes: pa.Table, parts: _Parts) -> pa.Table:
    """The rows as their parts say."""
    if not parts.maps:
        return changes
    order = np.arange(len(parts.row))
    new: dict[str, pa.Array] = {}
    if parts.is_cut:
        order = _paired(parts.row, np.asarray(pc.equal(changes.column("kind"), "+U"))[parts.row])
        changes = changes.take(pa.array(parts.row[order]))
        new |= {"lo": pa.array(parts.lo[order]), "hi": pa.array(parts.hi[order])}
    for name, maps in parts.maps.items():
        made = restate(
            to_padded(whole(changes.column(name))),
            parts.lo[order],
            parts.hi[order],
            whole(changes.column(f"{name}_err")).to_numpy(),
            np.arange(len(order)),
            maps.take(order),
        )
        new[name], new[f"{name}_err"] = from_padded(made.c), pa.array(made.err)
        new[f"{name}_drift"] = pa.nulls(len(order), pa.float64())
    columns = [
        new[one.name].cast(one.type) if one.name in new else changes.column(place)
        for place, one in enumerate(changes.schema)
    ]
    return pa.Table.from_arrays(columns, schema=changes.schema)


def _paired(row: IntArray, new: BoolArray) -> IntArray:
    """The order in which parts stand: those of an old row each before the part of the new row that replaces it."""
    first = np.searchsorted(row, row)
    return np.lexsort((new, np.arange(len(row)) - first, row - new))


def _rows_cut_short(changes: pa.Table, output: Columns, restating: OutputUnits) -> pa.Table:
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
    return (
        table.take(pa.array(_paired(row, np.asarray(pc.equal(kinds, "+U")))))
        .select(changes.column_names)
        .cast(changes.schema)
    )


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
