"""Apply affine maps that change at instants to segments, samples and tuples (alter, semantics 8.1).

1 Transforms: where a map ``y -> a*y + b`` is in force, coefficients scale by ``a`` and the constant term shifts by ``b``; a
  segment that straddles an instant at which the map changes is cut there.
2 Bounds: ``err`` and ``drift`` scale by ``a``; over a change of scale the drift so far is carried on
  (:func:`pulse.kernels.pieces.step_maps.scaled_drift`). Nothing is approximated, but ``a`` and ``b`` are exact fractions and
  values doubles: the rounding of ``a`` and ``b`` to doubles, of products and of sums is added
  (:func:`pulse.kernels.pieces.step_maps.restate`).
3 Inverts: a bound on the output becomes ``1/a`` of it on the input.
4 Revises: passes revisions on, altered.
5 Accents: this operator implements them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.decimals import as_doubles
from pulse.core.schema import StreamSchema
from pulse.kernels.pieces.mapped_pieces import cut_at_steps, restate, scaled_drift
from pulse.kernels.pieces.step_maps import apply_steps_on_grid, apply_steps_with_bounds
from pulse.kernels.rounding import GROWN
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.data.tuple_columns import times
from pulse.operators.units.unsure_units import check_lines, covering
from pulse.stream.units.step_maps import Absences, Located, Steps


@dataclass(frozen=True)
class Alter:
    """An operator that applies ``steps`` by attribute; descriptions name keys, unmodelled attributes and time as the input does.

    Segments of attributes in ``held`` keep the map in force at their start. This undoes a value recorded before the change and
    held across it; as the value may also have been recorded again after the change, their bounds cover that, too. Segments of
    attributes in ``lines`` join tuples; a map that changes between two tuples is an error
    (:mod:`pulse.operators.units.unsure_units`).
    """

    steps: Mapping[str, Steps]
    held: frozenset[str] = frozenset()
    lines: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Return whether no step alters anything."""
        return all(one.is_empty for one in self.steps.values())

    def inverse(self) -> Alter:
        """Return the operator that undoes this one."""
        return replace(self, steps={name: steps.inverse() for name, steps in self.steps.items()})

    def segments(self, relation: Relation) -> Relation:
        """Cut segments where a map changes, and scale them."""
        began = relation.lo  # the start of a row's segment, before the cuts for any attribute
        for name, steps in self.steps.items():
            if name in relation.models and not steps.is_empty:
                relation, began = self._altered(relation, name, steps, began)
        return relation

    def _altered(
        self, relation: Relation, name: str, steps: Steps, began: FloatArray
    ) -> tuple[Relation, FloatArray]:
        found = steps.located(segment_columns(relation, steps), len(relation))
        if not _concerns(found):
            return relation, began
        parts = cut_at_steps(relation.ref, relation.lo, relation.hi, found.cell, found.steps)
        if (parts.step < 0).all():
            return relation, began
        if name in self.lines:
            check_lines(relation, name, parts, found)
        step = parts.step
        if name in self.held:
            step = cut_at_steps(relation.ref, began, began, found.cell, found.steps).step[parts.row]
        if len(parts.row) > len(relation):
            relation = relation.take(parts.row, lo=parts.lo, hi=parts.hi)
            began, found = began[parts.row], found._replace(cell=found.cell[parts.row])
        made = restate(
            relation.models[name],
            relation.lo,
            relation.hi,
            relation.err[name],
            step,
            found.maps + found.off,
        )
        err, rates = made.err, made.rounding
        if name in self.held:
            err, apart = covering(relation, name, made, step, parts.step, found)
            rates = rates + apart
        drift = dict(relation.drift)
        if name in drift:
            scales = found.maps[0], found.off[0]
            own = scaled_drift(relation.offsets, step, scales, np.ascontiguousarray(drift[name]))
            drift[name] = (own + relation.accumulated(rates)) * GROWN if rates.any() else own
        models, bounds = {**relation.models, name: made.c}, {**relation.err, name: err}
        return replace(relation, models=models, err=bounds, drift=drift), began

    def samples(self, samples: Samples) -> Samples:
        """Map every value by the map in force at its instant."""
        values, err = dict(samples.values), dict(samples.err)
        for name, steps in self._concerned(samples):
            numbers = values[name], err[name]
            if (found := _by_group(samples, steps)) is not None:
                grid = samples.first, samples.offsets, samples.every
                if _concerns(found):
                    maps = found.maps + found.off
                    values[name], err[name] = apply_steps_on_grid(
                        numbers, grid, found.cell, found.steps, maps
                    )
                continue
            columns = described_columns(
                samples.columns, samples.keys, samples.of_group, samples.unmodelled, steps
            )
            found = steps.located(columns, len(samples))
            if _concerns(found):
                values[name], err[name] = apply_steps_with_bounds(
                    *numbers, found.cell, samples.times, found.steps, found.maps + found.off
                )
        return replace(samples, values=values, err=err)

    def _concerned(self, samples: Samples) -> Iterator[tuple[str, Steps]]:
        """Yield the attributes of samples that steps may alter."""
        for name, steps in self.steps.items():
            if name in samples.values and not steps.is_empty:
                yield name, steps

    def on_stretches(self, samples: Samples) -> dict[str, Located] | None:
        """Locate the steps of every group by attribute, so that sampling copies no samples.

        Return None where descriptions concern more than keys.
        """
        found: dict[str, Located] = {}
        for name, steps in self._concerned(samples):
            located = _by_group(samples, steps)
            if located is None:
                return None
            if _concerns(located):
                found[name] = located
        return found

    def tuples(self, batch: pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
        """Alter the modelled attributes of a batch of tuples, as doubles; the other columns are unchanged."""
        at: IntArray | None = None
        for name, steps in self.steps.items():
            if name not in batch.schema.names or steps.is_empty:
                continue
            at = times(pa.Table.from_batches([batch]), schema)[0] if at is None else at
            column = batch.column(name)
            values = as_doubles(column).to_numpy(zero_copy_only=False)
            moved = steps.applied(values, batch, at)
            if moved is values:
                continue
            null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
            altered = pa.array(moved, mask=null)
            batch = batch.set_column(batch.schema.get_field_index(name), name, altered)
        return batch


def described_columns(
    columns: Columns,
    keys: tuple[pa.Array, ...],
    group: IntArray,
    unmodelled: Mapping[str, pa.Array],
    steps: Steps | Absences,
) -> dict[str, Any]:
    """Return the columns that descriptions compare, for every row; a key is stored once per group."""
    of_row = pa.array(group)
    return {
        name: unmodelled[name]
        if name in unmodelled
        else pa.DictionaryArray.from_arrays(of_row, keys[columns.key_names.index(name)])
        for name in steps.columns
    }


def _by_group(samples: Samples, steps: Steps) -> Located | None:
    """Locate the steps of every group; None where descriptions concern more than keys, so that a group is in several cells."""
    if not set(steps.columns) <= set(samples.columns.key_names):
        return None
    columns = described_columns(samples.columns, samples.keys, samples.group, {}, steps)
    return steps.located(columns, len(samples.group))


def segment_columns(relation: Relation, steps: Steps | Absences) -> dict[str, Any]:
    """Return the columns that descriptions compare, for every segment."""
    return described_columns(relation.columns, relation.keys, relation.group, relation.unmodelled, steps)


def _concerns(found: Located) -> bool:
    """Return whether some row's cell has a step at all."""
    busy = np.diff(found.steps[0]) > 0
    return bool(busy.any()) and bool(busy[found.cell].any())


@dataclass(frozen=True)
class Presence:
    """An operator that keeps rows only where all attributes exist (drop, semantics 8.2)."""

    absences: Mapping[str, Absences]
    stored: bool = False
    """Whether rows are segments of a model as its fit made them, from tuples with all of its attributes. Rows then end where any
    attribute ends, also one that is not read, and the rest of a segment is void: a later value has a segment of its own.
    """

    def segments(self, relation: Relation) -> Relation:
        """Cut segments where an attribute ends or begins, and drop the parts without it."""
        for name, absences in self.absences.items():
            read = self.stored or name in relation.models or name in relation.unmodelled
            if absences.is_empty or not read:
                continue
            found = absences.located(segment_columns(relation, absences), len(relation))
            parts = cut_at_steps(relation.ref, relation.lo, relation.hi, found.cell, found.steps)
            gone = np.append(found.absent, False)[parts.step]
            if self.stored and gone.any():
                ended = np.full(len(relation), len(gone))
                np.minimum.at(ended, parts.row[gone], np.flatnonzero(gone))
                gone = np.arange(len(gone)) >= ended[parts.row]
            kept = np.flatnonzero(~gone)
            if len(kept) < len(parts.row):
                relation = relation.take(parts.row[kept], lo=parts.lo[kept], hi=parts.hi[kept])
                relation = replace(relation, drift={})
        return relation

    def samples(self, samples: Samples) -> Samples:
        """Mark samples absent where an attribute is absent."""
        certainty = samples.certainty
        for name, absences in self.absences.items():
            if absences.is_empty or (name not in samples.values and name not in samples.unmodelled):
                continue
            columns = described_columns(
                samples.columns, samples.keys, samples.of_group, samples.unmodelled, absences
            )
            certainty = np.where(absences.mask(columns, samples.times), np.uint8(ABSENT), certainty)
        return replace(samples, certainty=certainty)
