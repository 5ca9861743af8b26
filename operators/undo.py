"""Undo: raw tuples in the units of their stream's start, before they are fitted (semantics 8.1, 8.5).

Modelled attributes become doubles, by the composed inverse of what was altered; whole numbers (keys, times, unmodelled ones) are
undone exactly. Tuples that cannot be modelled are left out with a reason and counted: those that by accents lack a key, the time
or a modelled attribute, and those that nothing undoes. All but those that only lack a modelled attribute are set aside as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core import StreamSchema
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.decimals import as_doubles
from pulse.operators.tuples import needed_columns, times
from pulse.stream.affine import Affine
from pulse.stream.log import AccentLog
from pulse.stream.raw import RawUnits, raw_units
from pulse.stream.steps import Steps

Leave = Callable[[pa.Table, str, bool], None]
"""Told of tuples that are left out: them, why, and whether they are to be set aside."""
_LARGEST = (1 << 63) - 1
_FAR = 1 << 62


@dataclass(frozen=True)
class RawUndo:
    """What brings recorded tuples to the units of the start, whatever tells it: a log, or what a job has heard."""

    units: RawUnits
    schema: StreamSchema

    @cached_property
    def _inverse(self) -> dict[str, Steps]:
        """What undoes each attribute, compiled once."""
        return {name: steps.inverse() for name, steps in self.units.steps.items()}

    def timed(self, batch: pa.RecordBatch, at: IntArray, leave: Leave) -> tuple[pa.RecordBatch, IntArray]:
        """With the times of the start, in microseconds, where recorded ones were altered; of no time nothing is told."""
        schema, units = self.schema, self.units
        if units.clock is None or units.unsaid is None:
            return batch, at
        unsaid = _applied(np.ones(len(at)), units.unsaid, batch, at) > 1.0
        if batch.column(schema.time).null_count:
            unsaid &= ~_nulls(batch.column(schema.time))
        batch, at = self.without(batch, unsaid, "a time that no instant was altered to", leave), at[~unsaid]
        compared = {one: batch.column(one) for one in units.clock.columns}
        first, unfit = _exact(at, *units.clock.inverse().exactly(compared, at))
        place, null = batch.schema.get_field_index(schema.time), None
        if batch.column(schema.time).null_count:
            null = _nulls(batch.column(schema.time))
            unfit &= ~null
            null = null[~unfit]
        batch = self.without(batch, unfit, "no whole microsecond once undone", leave)
        first = first[~unfit]
        times = pa.array(first, mask=null).cast(pa.timestamp("us"))
        return batch.set_column(place, schema.time, times), first

    def lacking(self, batch: pa.RecordBatch, at: IntArray) -> Iterator[tuple[str, BoolArray]]:
        """The attributes that tuples lack by accents, one after the other, and which tuples do."""
        for name, steps in self.units.absent.items():
            yield name, _applied(np.ones(len(at)), steps, batch, at) > 1.0

    def undone(self, batch: pa.RecordBatch, at: IntArray, leave: Leave) -> pa.RecordBatch:
        """The tuples that can be undone, undone, with all their columns."""
        found = {
            name: self._undone(batch, name, steps, at)
            for name, steps in self.units.steps.items()
            if name in self.schema.names
        }
        recorded, bad = batch, np.zeros(batch.num_rows, np.bool_)
        for name, (column, unfit) in found.items():
            if column is not None:
                batch = batch.set_column(batch.schema.get_field_index(name), name, column)
            if unfit is not None:
                bad = bad | unfit
        if bad.any():  # told as they came: there is nothing that they were
            self.without(recorded, bad, "no whole number once undone", leave)
            batch = batch.filter(pa.array(~bad))
        return batch

    def _undone(
        self, batch: pa.RecordBatch, name: str, steps: Steps, at: IntArray
    ) -> tuple[pa.Array | None, BoolArray | None]:
        """A column undone, None where it stays as it is, and the rows in which there is nothing that it could have been."""
        column = batch.column(name)
        null = _nulls(column) if column.null_count else None
        exact = pa.types.is_integer(column.type) or _is_time(column.type)
        if exact and name not in self.schema.modelled_names:
            whole, type_ = _whole(column)
            compared = {one: batch.column(one) for one in steps.columns}
            moved, unfit = _exact(whole, *self._inverse[name].exactly(compared, at))
            if pa.types.is_integer(type_):
                low, high = _range(type_)
                unfit |= (moved < low) | (moved > high)
                moved[unfit] = 0
            undone = pa.array(moved, mask=null).cast(type_)
            return undone, unfit if null is None else unfit & ~null
        if plain := pa.types.is_float64(column.type):
            values = column.to_numpy(zero_copy_only=False)
        else:
            values = as_doubles(column).to_numpy(zero_copy_only=False)
        undone_values = _applied(values, self._inverse[name], batch, at)
        if undone_values is values and plain:
            return None, None
        made = pa.array(undone_values, mask=null)
        if name not in self.schema.modelled_names and not plain:
            made = made.cast(column.type, safe=False)
        return made, None

    def without(
        self, batch: pa.RecordBatch, rows: BoolArray, reason: str, leave: Leave, *, keep: bool = True
    ) -> pa.RecordBatch:
        """All tuples but some, of which it is told why they are left out."""
        if not rows.any():
            return batch
        leave(pa.Table.from_batches([batch.filter(pa.array(rows))]), reason, keep)
        return batch.filter(pa.array(~rows))


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
    def _raw(self) -> RawUndo:
        return RawUndo(self.units, self.schema)

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
        raw, schema, needed = self._raw, self.schema, needed_columns(self.schema)

        def told(rows: pa.Table, reason: str, keep: bool) -> None:
            leave(rows.select(needed), reason, keep)

        if schema.time in self.units.absent and batch.column(schema.time).null_count:
            batch = raw.without(batch, _nulls(batch.column(schema.time)), lacks(schema.time), told)
        batch, at = raw.timed(batch, times(pa.Table.from_batches([batch]), schema)[0], told)
        gone = np.zeros(batch.num_rows, np.bool_)
        for name, rows in raw.lacking(batch, at):
            keep = name not in schema.modelled_names
            raw.without(batch, rows & ~gone, lacks(name), told, keep=keep)
            gone |= rows
        if gone.any():
            batch, at = batch.filter(pa.array(~gone)), at[~gone]
        return raw.undone(batch, at, told).select(needed)


def lacks(name: str) -> str:
    """Why a tuple is left out that lacks an attribute."""
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


def _whole(column: pa.Array) -> tuple[IntArray, pa.DataType]:
    """Whole numbers, and the type that they have once undone; times in microseconds, those out of range far out."""
    type_ = column.type
    if not _is_time(type_):
        return column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False), type_
    if pa.types.is_date(type_):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(type_) else "ms"))
    count = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    undone = pa.timestamp("us", column.type.tz)
    if column.type.unit == "ns":
        return count // 1000, undone
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[column.type.unit]
    return np.clip(count, -_FAR // scale, _FAR // scale) * scale, undone


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _range(type_: pa.DataType) -> tuple[int, int]:
    """The least and the largest number of a type, as far as 64 bits with a sign reach."""
    limits = np.iinfo(type_.to_pandas_dtype())
    return int(limits.min), min(int(limits.max), _LARGEST)


def _nulls(column: pa.Array) -> BoolArray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))
