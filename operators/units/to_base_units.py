"""Undo: raw tuples in the units of their stream's start, before they are fitted (semantics 8.1, 8.5).

Modelled attributes become doubles, by the composed inverse of what was altered; whole numbers (keys, times, unmodelled ones) are
undone exactly. Tuples that cannot be modelled are left out with a reason and counted: those that by accents lack a key, the time
or a modelled attribute, and those that nothing undoes. All but those that only lack a modelled attribute are set aside as well.

The truth is the exact image of what was recorded. A tuple undone is a double near it, and a fit certifies its segments against
such doubles. :class:`UndoneRounding` adds the rest where segments are read: for a map ``a*v + b`` with the image ``y``, the
doubles for ``a`` and ``b``, the product and the sum round by at most ``u (2 |a v| + |b| + |y|)``, below ``4 u (|y| + |b|)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core import StreamSchema
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.decimals import as_doubles
from pulse.core.schema import Truth
from pulse.kernels.pieces.step_maps import cut_at_steps
from pulse.kernels.rounding import GROWN, TERM, magnitudes
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import needed_columns, times
from pulse.operators.units.apply_maps import described_columns
from pulse.stream.accents.log import AccentLog
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import RawUnits, raw_units
from pulse.stream.units.step_maps import EXACT, Steps

Leave = Callable[[pa.Table, str, bool], None]
"""Told of tuples that are left out: them, why, and whether they are to be set aside."""
_LARGEST = (1 << 63) - 1
_FAR = 1 << 62
_LEAST = 2.0**-1074


@dataclass(frozen=True)
class RawUndo:
    """What brings recorded tuples to the units of the start, whatever tells it: a log, or what a job has heard."""

    units: RawUnits
    schema: StreamSchema

    @cached_property
    def _inverse(self) -> dict[str, Steps]:
        """What undoes each attribute, compiled once."""
        return {name: steps.inverse() for name, steps in self.units.steps.items()}

    @cached_property
    def shifts(self) -> dict[str, float]:
        """The largest shift by which each modelled attribute is undone, which the rounding of tuples counts from."""
        modelled = self.schema.modelled_names
        return {name: steps.largest_shift for name, steps in self._inverse.items() if name in modelled}

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


@dataclass(frozen=True)
class UndoneRounding:
    """Adds to the bounds of segments what rounding did to the tuples that they were fitted to, as these were undone.

    ``steps`` by attribute are those that undo it; ``told`` says whether segments have what they compare. If not, the largest
    shift of all counts.
    """

    steps: Mapping[str, Steps]
    schema: StreamSchema
    told: bool

    @classmethod
    def of(cls, log: AccentLog, schema: StreamSchema) -> UndoneRounding | None:
        """Of a model that was fitted with these accents; None where undoing them rounds nothing."""
        told = not log.needs_tuples(schema)
        steps = log.steps(schema.time) if told else raw_units(log, schema).steps
        found = {
            name: one.inverse()
            for name, one in steps.items()
            if name in schema.modelled_names and not all(some.map.is_exact for some in one.alterations)
        }
        return cls(found, schema, told) if found else None

    @property
    def columns(self) -> set[str]:
        """What it compares."""
        return {name for steps in self.steps.values() for name in steps.columns} if self.told else set()

    def segments(self, relation: Relation) -> Relation:
        """The same segments with bounds, and drifts, that hold for the exact images of their tuples."""
        truths = dict(self.schema.modelled)
        shifts = {
            name: self._shifts(relation, steps, straight=truths[name] is Truth.LINEAR)
            for name, steps in self.steps.items()
            if name in relation.models
        }
        return with_rounding(relation, shifts)

    def _shifts(self, relation: Relation, steps: Steps, *, straight: bool) -> FloatArray:
        """Per row the largest shift by which a tuple that it is made of was undone."""
        if not self.told:
            return np.full(len(relation), steps.largest_shift)
        found = steps.located(
            described_columns(relation.columns, relation.keys, relation.group, relation.unmodelled, steps),
            len(relation),
        )
        offsets, shift = found.steps[0], found.shifts
        so_far = np.append(shift, EXACT)
        for begin, end in itertools.pairwise(offsets.tolist()):
            so_far[begin:end] = np.maximum.accumulate(shift[begin:end])
        if straight:  # from the tuple before a segment's start to the one after its end
            last = np.where(np.diff(offsets) > 0, offsets[1:] - 1, len(shift))
            return so_far[last][found.cell]
        step = cut_at_steps(relation.ref, relation.hi, relation.hi, found.cell, found.steps).step
        return so_far[step]


def with_rounding(relation: Relation, shifts: Mapping[str, FloatArray | float]) -> Relation:
    """The same segments with bounds, and drifts, that hold for the exact images of tuples that were undone by such shifts.

    ``shifts`` by attribute: the largest of the tuples that a row is made of, or one for all rows;
    :data:`~pulse.stream.units.step_maps.EXACT` where nothing was rounded.
    """
    err, drift = dict(relation.err), dict(relation.drift)
    for name, shift in shifts.items():
        # Between its tuples a truth is no further off than at them, and they lie within the bound of the model.
        size = magnitudes(relation.models[name], relation.lo, relation.hi) + err[name]
        rate = np.where(np.equal(shift, EXACT), 0.0, (TERM * (size + shift) + _LEAST) * GROWN)
        if not rate.any():
            continue
        err[name] = (err[name] + rate) * np.where(rate > 0.0, GROWN, 1.0)
        if name in drift:
            more = relation.accumulated(rate)
            drift[name] = (drift[name] + more) * np.where(more > 0.0, GROWN, 1.0)
    return replace(relation, err=err, drift=drift)


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
