"""Undo: raw tuples in the units of their stream's start, before they are fitted (semantics 8.1, 8.5).

Modelled attributes become doubles, by the composed inverse of what was altered; whole numbers (keys, times, unmodelled ones) are
undone exactly. Tuples that cannot be modelled are left out with a reason and counted: those that by accents lack a key, the time
or a modelled attribute, and those that nothing undoes. All but those that only lack a modelled attribute are set aside as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core import StreamSchema
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.operators.tuples import needed_columns, times
from pulse.stream.affine import Affine
from pulse.stream.log import AccentLog
from pulse.stream.raw import RawUnits, raw_units
from pulse.stream.steps import Steps

Leave = Callable[[pa.Table, str, bool], None]
"""Told of tuples that are left out: them, why, and whether they are to be set aside."""
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Undo:
    """What undoes the accents of a log in tuples of a stream."""

    log: AccentLog
    schema: StreamSchema

    @cached_property
    def units(self) -> RawUnits:
        """What is done."""
        return raw_units(self.log, self.schema)

    @cached_property
    def _inverse(self) -> dict[str, Steps]:
        """What undoes each attribute, compiled once."""
        return {name: steps.inverse() for name, steps in self.units.steps.items()}

    @property
    def columns(self) -> list[str]:
        """What has to be read of the tuples."""
        return list(dict.fromkeys((*needed_columns(self.schema), *self.units.columns)))

    @cached_property
    def optional(self) -> frozenset[str]:
        """The columns that a file may lack: they come and go by accents."""
        return self.log.coming

    def tuples(self, batch: pa.RecordBatch, leave: Leave) -> pa.RecordBatch:
        """The tuples that can be modelled, undone; ``leave`` is told of the others."""
        units, schema = self.units, self.schema
        if schema.time in units.absent and batch.column(schema.time).null_count:
            null = batch.column(schema.time).is_null().to_numpy(zero_copy_only=False)
            batch = self._without(batch, null, _lacking(schema.time), leave)
        batch, at = self._timed(batch, leave)
        for name, steps in units.absent.items():
            lacks = _applied(np.ones(len(at)), steps, batch, at) > 1.0
            batch = self._without(batch, lacks, _lacking(name), leave, keep=name not in schema.modelled_names)
            at = at[~lacks]
        found = {
            name: self._undone(batch, name, steps, at)
            for name, steps in units.steps.items()
            if name in schema.names
        }
        recorded, bad = batch, np.zeros(batch.num_rows, np.bool_)
        for name, (column, unfit) in found.items():
            if column is not None:
                batch = batch.set_column(batch.schema.get_field_index(name), name, column)
            if unfit is not None:
                bad = bad | unfit
        if bad.any():  # told as they came: there is nothing that they were
            self._without(recorded, bad, "no whole number once undone", leave)
            batch = batch.filter(pa.array(~bad))
        return batch.select(needed_columns(schema))

    def _timed(self, batch: pa.RecordBatch, leave: Leave) -> tuple[pa.RecordBatch, IntArray]:
        """With the times of the start, in microseconds, where recorded ones were altered."""
        schema, units = self.schema, self.units
        at = times(pa.Table.from_batches([batch]), schema)[0]
        if units.clock is None or units.unsaid is None:
            return batch, at
        unsaid = _applied(np.ones(len(at)), units.unsaid, batch, at) > 1.0
        batch, at = self._without(batch, unsaid, "a time that no instant was altered to", leave), at[~unsaid]
        compared = {one: batch.column(one) for one in units.clock.columns}
        first, unfit = _exact(at, *units.clock.inverse().exactly(compared, at))
        place = batch.schema.get_field_index(schema.time)
        batch = self._without(batch, unfit, "no whole microsecond once undone", leave)
        first = first[~unfit]
        return batch.set_column(place, schema.time, pa.array(first).cast(pa.timestamp("us"))), first

    def _undone(
        self, batch: pa.RecordBatch, name: str, steps: Steps, at: IntArray
    ) -> tuple[pa.Array | None, BoolArray | None]:
        """A column undone, None where it stays as it is, and the rows in which there is nothing that it could have been."""
        column = batch.column(name)
        null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        if pa.types.is_integer(column.type) and name not in self.schema.modelled_names:
            whole = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            compared = {one: batch.column(one) for one in steps.columns}
            moved, unfit = _exact(whole, *self._inverse[name].exactly(compared, at))
            return pa.array(moved, mask=null), unfit if null is None else unfit & ~null
        if plain := pa.types.is_float64(column.type):
            values = column.to_numpy(zero_copy_only=False)
        else:
            values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        undone = _applied(values, self._inverse[name], batch, at)
        return (None if undone is values and plain else pa.array(undone, mask=null)), None

    def _without(
        self, batch: pa.RecordBatch, rows: BoolArray, reason: str, leave: Leave, *, keep: bool = True
    ) -> pa.RecordBatch:
        if not rows.any():
            return batch
        left = batch.select(needed_columns(self.schema)).filter(pa.array(rows))
        leave(pa.Table.from_batches([left]), reason, keep)
        return batch.filter(pa.array(~rows))


def _lacking(name: str) -> str:
    return f"without '{name}', by accents"


def _applied(values: FloatArray, steps: Steps, batch: pa.RecordBatch, at: IntArray) -> FloatArray:
    return steps.applied(values, {one: batch.column(one) for one in steps.columns}, at)


def _exact(values: IntArray, which: IntArray, maps: list[Affine]) -> tuple[IntArray, BoolArray]:
    """Whole numbers under exact maps, and where there is none."""
    out, unfit = values.copy(), np.zeros(len(values), np.bool_)
    for k in np.unique(which):
        rows, map = np.flatnonzero(which == k), maps[k]
        if map.is_identity:
            continue
        distinct, back = np.unique(values[rows], return_inverse=True)
        images = [map.a * int(one) + map.b for one in distinct]
        whole = np.array([_fits(one) for one in images], np.bool_)
        moved = np.array([int(one) if fits else 0 for one, fits in zip(images, whole, strict=True)], np.int64)
        out[rows], unfit[rows] = moved[back], ~whole[back]
    return out, unfit


def _fits(value: Fraction) -> bool:
    return value.denominator == 1 and abs(value) <= _LARGEST
