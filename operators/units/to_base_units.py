"""Convert recorded tuples to the units of their stream's start, in fits and in jobs (semantics 8.1, 8.5).

Modelled attributes become doubles, by the composed inverse of the alterations; integers (keys, times, unmodelled attributes) are
undone exactly. Tuples that cannot be modelled are left out with a reason and counted: those that by accents lack a key, the time
or a modelled attribute, and those without an inverse image. All except those that only lack a modelled attribute are set aside.

The truth is the exact image of the recorded value. An undone tuple is a double near it, and a fit certifies its segments against
such doubles. :class:`UndoneRounding` adds the difference when segments are read: for a map ``a*v + b`` with the image ``y``, the
doubles for ``a`` and ``b``, the product and the sum round by at most ``u (2 |a v| + |b| + |y|)``, below ``4 u (|y| + |b|)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.decimals import as_doubles
from pulse.core.schema import StreamSchema, Truth
from pulse.kernels.pieces.mapped_pieces import cut_at_steps
from pulse.kernels.rounding import GROWN, TERM, magnitudes
from pulse.operators.data.relation import Relation
from pulse.operators.data.tuple_columns import instants, needed_columns, times
from pulse.operators.units.apply_maps import segment_columns
from pulse.stream.accents.log import AccentLog
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import WHOLE_ROW, RecordedUnits, units_of_log
from pulse.stream.units.step_maps import EXACT, Steps

RejectCallback = Callable[[pa.Table, str, bool], None]
"""A callback for tuples that are left out: the tuples, the reason, and whether to set them aside."""
CONTRADICTS = "an earlier punctuation excludes this tuple"
_LARGEST = (1 << 63) - 1
_LEAST = 2.0**-1074


class BaseTuples(NamedTuple):
    """Tuples in base units, and by attribute which of them lack it by accents."""

    batch: pa.RecordBatch
    lacking: dict[str, BoolArray]


@dataclass(frozen=True)
class ToBaseUnits:
    """A converter of recorded tuples to base units, by a log or by the accents of a running job."""

    units: RecordedUnits
    schema: StreamSchema

    @classmethod
    def of(cls, log: AccentLog | None, schema: StreamSchema) -> ToBaseUnits | None:
        """Build the converter for the tuples of a stream with this log; None where they are in base units."""
        units = RecordedUnits() if log is None else units_of_log(log, schema)
        return None if units.is_empty else cls(units, schema)

    @property
    def columns(self) -> list[str]:
        """Return the columns to read from the tuples."""
        return list(dict.fromkeys((*needed_columns(self.schema), *self.units.columns)))

    @cached_property
    def _inverse(self) -> dict[str, Steps]:
        """Return the inverse of each attribute's steps, compiled once."""
        return {name: steps.inverse() for name, steps in self.units.steps.items()}

    @cached_property
    def shifts(self) -> dict[str, float]:
        """Return the largest shift that undoes each modelled attribute, from which the rounding of tuples follows."""
        modelled = self.schema.modelled_names
        return {name: steps.largest_shift for name, steps in self._inverse.items() if name in modelled}

    def by_time(self, batch: pa.RecordBatch, leave: RejectCallback) -> pa.RecordBatch:
        """Convert the tuples that can be modelled, by their own times, and report the others to ``leave``."""
        schema, needed = self.schema, needed_columns(self.schema)

        def report(rows: pa.Table, reason: str, keep: bool) -> None:
            leave(rows.select(needed), reason, keep)

        if schema.time in self.units.absent and batch.column(schema.time).null_count:
            batch = _without(batch, _nulls(batch.column(schema.time)), lacks(schema.time), report)
        at = times(pa.Table.from_batches([batch]), schema)[0]
        return self.tuples(batch, at, report).batch.select(needed)

    def tuples(
        self, batch: pa.RecordBatch, at: IntArray, leave: RejectCallback, *, keep: Collection[str] = ()
    ) -> BaseTuples:
        """Convert tuples by their instants or places, and report those that cannot be modelled to ``leave``.

        Tuples that lack attributes among ``keep`` are converted as well.
        """
        batch, at = self._timed(batch, at, leave)
        absent = sorted(self.units.absent.items(), key=lambda one: one[0] != WHOLE_ROW)
        lacking = {name: one.mask(batch, at) for name, one in absent}
        gone = np.zeros(batch.num_rows, np.bool_)
        for name, rows in lacking.items():
            if name not in keep:
                aside = name not in self.schema.modelled_names
                _without(batch, rows & ~gone, lacks(name), leave, keep=aside)
                gone |= rows
        if gone.any():
            batch, at = batch.filter(pa.array(~gone)), at[~gone]
        batch, unfit = self._values(batch, at, leave)
        kept = {name: rows[~gone][~unfit] for name, rows in lacking.items() if name in keep}
        return BaseTuples(batch, kept)

    def _timed(
        self, batch: pa.RecordBatch, at: IntArray, leave: RejectCallback
    ) -> tuple[pa.RecordBatch, IntArray]:
        """Convert altered times to base times in microseconds; leave out tuples whose time has no inverse image."""
        schema, units = self.schema, self.units
        if units.clock is None or units.uncovered is None:
            return batch, at
        uncovered = units.uncovered.mask(batch, at)
        if batch.column(schema.time).null_count:
            uncovered &= ~_nulls(batch.column(schema.time))
        batch, at = _without(batch, uncovered, "no instant maps to this time", leave), at[~uncovered]
        first, unfit = _exact(at, *units.clock.inverse().exactly(batch, at))
        place, null = batch.schema.get_field_index(schema.time), None
        if batch.column(schema.time).null_count:
            null = _nulls(batch.column(schema.time))
            unfit &= ~null
            null = null[~unfit]
        batch = _without(batch, unfit, "not a whole microsecond in base units", leave)
        first = first[~unfit]
        times = pa.array(first, mask=null).cast(pa.timestamp("us"))
        return batch.set_column(place, schema.time, times), first

    def _values(
        self, batch: pa.RecordBatch, at: IntArray, leave: RejectCallback
    ) -> tuple[pa.RecordBatch, BoolArray]:
        """Convert the tuples that have an inverse image, with all their columns; return them and the mask of the others."""
        recorded, bad = batch, np.zeros(batch.num_rows, np.bool_)
        for name, steps in self._inverse.items():
            if name in self.schema.names and name in recorded.schema.names:
                column, unfit = self._column(recorded, name, steps, at)
                batch = batch.set_column(batch.schema.get_field_index(name), name, column)
                bad = bad if unfit is None else bad | unfit
        if bad.any():  # reported as recorded: they have no inverse image
            _without(recorded, bad, "not a whole number in base units", leave)
            batch = batch.filter(pa.array(~bad))
        return batch, bad

    def _column(
        self, batch: pa.RecordBatch, name: str, steps: Steps, at: IntArray
    ) -> tuple[pa.Array, BoolArray | None]:
        """Convert a column, and mark the rows without an inverse image."""
        column, modelled = batch.column(name), name in self.schema.modelled_names
        null = _nulls(column) if column.null_count else None
        if not modelled and (pa.types.is_integer(column.type) or _is_time(column.type)):
            if _is_time(column.type):
                whole, type_ = instants(column), pa.timestamp("us", getattr(column.type, "tz", None))
            else:
                whole, type_ = (
                    column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False),
                    column.type,
                )
            moved, unfit = _exact(whole, *steps.exactly(batch, at))
            if pa.types.is_integer(type_):
                low, high = _range(type_)
                unfit |= (moved < low) | (moved > high)
                moved[unfit] = 0
            return pa.array(moved, mask=null).cast(type_), unfit if null is None else unfit & ~null
        plain = pa.types.is_float64(column.type)
        values = (column if plain else as_doubles(column)).to_numpy(zero_copy_only=False)
        undone = steps.applied(np.ascontiguousarray(values), batch, at)
        if undone is values and plain:
            return column, None
        made = pa.array(undone, mask=null)
        return made if modelled or plain else made.cast(column.type, safe=False), None


def _without(
    batch: pa.RecordBatch, rows: BoolArray, reason: str, leave: RejectCallback, *, keep: bool = True
) -> pa.RecordBatch:
    """Filter out some tuples and report them with the reason."""
    if not rows.any():
        return batch
    leave(pa.Table.from_batches([batch.filter(pa.array(rows))]), reason, keep)
    return batch.filter(pa.array(~rows))


@dataclass(frozen=True)
class UndoneRounding:
    """An operator that adds to segments' bounds the rounding of the undone tuples that they were fitted to.

    ``steps`` by attribute undo it; ``by_segment``: whether segments have the columns that steps compare. If not, the largest
    shift of all counts.
    """

    steps: Mapping[str, Steps]
    schema: StreamSchema
    by_segment: bool

    @classmethod
    def of(cls, log: AccentLog, schema: StreamSchema) -> UndoneRounding | None:
        """Build the operator for a model fitted with these accents; None where undoing them is exact."""
        by_segment = not log.needs_tuples(schema)
        steps = log.steps(schema.time) if by_segment else units_of_log(log, schema).steps
        found = {
            name: one.inverse()
            for name, one in steps.items()
            if name in schema.modelled_names and not one.is_exact
        }
        return cls(found, schema, by_segment) if found else None

    @property
    def columns(self) -> set[str]:
        """Return the columns that the steps compare."""
        return {name for steps in self.steps.values() for name in steps.columns} if self.by_segment else set()

    def segments(self, relation: Relation) -> Relation:
        """Widen bounds and drifts so that they hold for the exact images of the tuples."""
        truths = dict(self.schema.modelled)
        shifts = {
            name: self._shifts(relation, steps, straight=truths[name] is Truth.LINEAR)
            for name, steps in self.steps.items()
            if name in relation.models
        }
        return with_rounding(relation, shifts)

    def _shifts(self, relation: Relation, steps: Steps, *, straight: bool) -> FloatArray:
        """Return per row the largest shift by which one of its tuples was undone."""
        if not self.by_segment:
            return np.full(len(relation), steps.largest_shift)
        found = steps.located(segment_columns(relation, steps), len(relation))
        offsets, shift = found.steps[0], found.shifts
        so_far = np.append(shift, EXACT)
        for begin, end in itertools.pairwise(offsets.tolist()):
            so_far[begin:end] = np.maximum.accumulate(shift[begin:end])
        if straight:  # includes the tuples before a segment's start and after its end
            last = np.where(np.diff(offsets) > 0, offsets[1:] - 1, len(shift))
            return so_far[last][found.cell]
        step = cut_at_steps(relation.ref, relation.hi, relation.hi, found.cell, found.steps).step
        return so_far[step]


def with_rounding(relation: Relation, shifts: Mapping[str, FloatArray | float]) -> Relation:
    """Widen bounds and drifts so that they hold for the exact images of tuples undone by such shifts.

    ``shifts`` by attribute: the largest over the tuples of a row, or one for all rows;
    :data:`~pulse.stream.units.step_maps.EXACT` where nothing was rounded.
    """
    err, drift = dict(relation.err), dict(relation.drift)
    for name, shift in shifts.items():
        # Between its tuples a truth deviates no more than at them, and they lie within the bound of the model.
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
    """Return the reason for leaving out a tuple that lacks an attribute, or that punctuation excludes."""
    return CONTRADICTS if name == WHOLE_ROW else f"without '{name}', by accents"


def _exact(values: IntArray, which: IntArray, maps: list[Affine]) -> tuple[IntArray, BoolArray]:
    """Map integers exactly, and mark those without an integer image."""
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


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _range(type_: pa.DataType) -> tuple[int, int]:
    """Return the least and largest number of an integer type, within signed 64 bits."""
    limits = np.iinfo(type_.to_pandas_dtype())
    return int(limits.min), min(int(limits.max), _LARGEST)


def _nulls(column: pa.Array) -> BoolArray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))
