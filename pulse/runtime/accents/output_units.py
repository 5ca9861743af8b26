"""Convert changes of results to output units, and emit results again when units change (semantics 8.2).

Only rows affected by a change of units are examined: changelog rows that extend past an instant at which their units change, and
results at rest that extend past the first new such instant. Of these only the parts whose units changed are emitted again: an
accent of one key leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import certainty_codes
from pulse.core.columns import Columns
from pulse.core.segment.coefficients import to_padded
from pulse.kernels.pieces.mapped_pieces import cut_at_steps, restate
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import ending_after
from pulse.operators.output.diff import difference
from pulse.operators.units.apply_maps import segment_columns
from pulse.runtime.accents.query_units import OutputUnits
from pulse.runtime.incremental.continuous_query import ContinuousQuery, selected
from pulse.stream.units.step_maps import Located, StepFunction

_FROM = "\0from"  # the row of the changelog that a segment is a part of


def changes_in_output_units(
    query: ContinuousQuery,
    units: tuple[OutputUnits | None, OutputUnits | None],
    results: tuple[Relation, Relation],
    changes: pa.Table,
) -> pa.Table:
    """Convert changes between two states of results to output units; if the units changed, their own changes come first.

    ``units`` and ``results`` are those before and after the batch. If descriptions use keys that are not among the output's
    columns, changelog rows do not determine their units: then all results are compared.
    """
    before, now = units
    if before is None and now is None:
        return changes
    held, after = results
    if not _units_by_output_columns(before, query.output) or not _units_by_output_columns(now, query.output):
        return _diff(query, _in_units(before, held), _in_units(now, after))
    emitted = changes if now is None else _convert_rows(changes, query.output, now)
    since = _first_difference(before, now)
    touched = held if since is None else ending_after(held, since)
    if since is None or not len(touched):
        return emitted
    if _only_alters(before) and _only_alters(now):
        restated = _restate_parts(selected(touched, query.output), before, now)
    else:
        restated = _diff(query, _in_units(before, touched), _in_units(now, touched))
    return pa.concat_tables([restated, emitted.cast(changes.schema)]) if restated.num_rows else emitted


def _first_difference(before: OutputUnits | None, now: OutputUnits | None) -> int | None:
    """The first instant at which two output units may differ; None if they are equal."""
    if before is now:
        return None
    found: list[int] = []
    for of in (_steps, _absences):
        old, new = of(before), of(now)
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


def _steps(units: OutputUnits | None) -> Mapping[str, StepFunction[Any]]:
    return {} if units is None else units.alter.steps


def _absences(units: OutputUnits | None) -> Mapping[str, StepFunction[Any]]:
    return {} if units is None else units.presence.absences


def _in_units(units: OutputUnits | None, relation: Relation) -> Relation:
    return relation if units is None else units.segments(relation).without_empty_groups()


def _diff(query: ContinuousQuery, old: Relation, new: Relation) -> pa.Table:
    return difference(selected(old, query.output), selected(new, query.output)).table


def _only_alters(units: OutputUnits | None) -> bool:
    return units is None or (not units.presence.absences and units.end is None)


def _restate_parts(held: Relation, before: OutputUnits | None, now: OutputUnits | None) -> pa.Table:
    """The parts of results whose units changed: each in its old units (``-U``), directly followed by its new ones (``+U``)."""
    parts = _Parts.of(held.ref, held.lo, held.hi)
    for name in held.columns.modelled:
        for when, units in (("before", before), ("now", now)):
            steps = None if units is None else units.alter.steps.get(name)
            if steps is not None:
                columns = segment_columns(held, steps)
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
    table = pa.Table.from_batches([replace(found, models=models, err=err, drift={}).to_segments()])
    return table.append_column("kind", pa.array(np.where(new, "+U", "-U"), pa.string()))


def _units_by_output_columns(units: OutputUnits | None, output: Columns) -> bool:
    """Whether the output's own columns determine the units of a row."""
    every = (*_steps(units).values(), *_absences(units).values())
    return all(name in output.names for steps in every for name in steps.columns)


class _Maps(NamedTuple):
    """The affine map of each row: scale and shift as doubles, and bounds of their distance from the exact ones."""

    a: FloatArray
    b: FloatArray
    a_off: FloatArray
    b_off: FloatArray

    def take(self, rows: IntArray) -> _Maps:
        """The maps of some rows."""
        return _Maps(*(one[rows] for one in self))


class _Parts:
    """Rows cut where the units of one of their attributes change, each part with its maps."""

    def __init__(self, row: IntArray, ref: IntArray, lo: FloatArray, hi: FloatArray) -> None:
        self.row, self.ref, self.lo, self.hi = row, ref, lo, hi
        self.maps: dict[str, _Maps] = {}

    @classmethod
    def of(cls, ref: IntArray, lo: FloatArray, hi: FloatArray) -> _Parts:
        """Start with uncut rows."""
        return cls(np.arange(len(ref)), ref, lo, hi)

    def cut(self, name: str, located: Located) -> None:
        """Cut the rows where the map of an attribute changes."""
        found = cut_at_steps(self.ref, self.lo, self.hi, located.cell[self.row], located.steps)
        if (found.step < 0).all():
            return
        if len(found.row) > len(self.row):
            self.row, self.ref = self.row[found.row], self.ref[found.row]
            self.lo, self.hi = found.lo, found.hi
            self.maps = {one: maps.take(found.row) for one, maps in self.maps.items()}
        same = (1.0, 0.0, 0.0, 0.0)
        every = zip(located.maps + located.off, same, strict=True)
        self.maps[name] = _Maps(*(np.append(one, none)[found.step] for one, none in every))

    def map(self, name: str) -> _Maps:
        """The maps of every part; the identity (scale 1, shift 0) if the attribute is not altered."""
        zeros = np.zeros(len(self.row))
        return self.maps[name] if name in self.maps else _Maps(zeros + 1.0, zeros, zeros, zeros)


def _paired(row: IntArray, new: BoolArray) -> IntArray:
    """Order parts so that each part of an old row directly precedes the part of the new row that replaces it."""
    first = np.searchsorted(row, row)
    return np.lexsort((new, np.arange(len(row)) - first, row - new))


def _convert_rows(changes: pa.Table, output: Columns, units: OutputUnits) -> pa.Table:
    """Convert changelog rows to output units; each part of an old row directly precedes that of the new row."""
    n = changes.num_rows
    if not n:
        return changes
    batch = changes.combine_chunks().to_batches()[0]
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
    found = units.segments(each)
    if found is each:
        return changes
    row = found.unmodelled[_FROM]
    table = pa.Table.from_batches([found.to_segments()])
    if _only_alters(units):  # no hole opens: the other attributes keep their drift
        for name in {*output.modelled} - units.alter.steps.keys():
            place = table.column_names.index(f"{name}_drift")
            table = table.set_column(place, f"{name}_drift", changes.column(f"{name}_drift").take(row))
    kinds = batch.column("kind").take(row)
    order = _paired(row.to_numpy(), np.asarray(pc.equal(kinds, "+U")))
    table = table.append_column("kind", kinds).take(pa.array(order))
    return table.select(changes.column_names).cast(changes.schema)
