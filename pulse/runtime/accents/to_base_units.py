"""Convert tuples of a running stream to base units, those of its start (semantics 8.1), with arrays for whole batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.arrow_types import decoded
from pulse.runtime.accents.compacted_maps import CompactedMaps, steps_of
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps
from pulse.validation.online.rejects import ORIGIN_COLUMNS, PLACE

ROW = "\0row"  # column of row places; no attribute has such a name


@dataclass(frozen=True)
class TuplesToBaseUnits:
    """The maps to base units by attribute; the scale of ``absent`` is above 1 where an attribute is missing."""

    altered: Mapping[str, Steps]
    absent: Mapping[str, Steps]

    @classmethod
    def of(
        cls, alterations: Mapping[str, CompactedMaps], absences: Mapping[str, CompactedMaps], by: str
    ) -> TuplesToBaseUnits:
        """Invert alterations by the time attribute ``by``, or by the places of rows (:data:`ROW`)."""
        return cls(
            {name: one.inverse() for name, one in steps_of(alterations, by).items()}, steps_of(absences, by)
        )

    @cached_property
    def shifts(self) -> dict[str, float]:
        """The largest shift of each attribute's maps, which bounds the rounding of tuples."""
        return {name: steps.largest_shift for name, steps in self.altered.items()}

    @property
    def is_empty(self) -> bool:
        """Whether tuples are in base units already."""
        return not self.altered and not self.absent

    def tuples(self, table: pa.Table, at: IntArray, unread: Collection[str]) -> pa.Table:
        """Convert tuples to base units, by their instants or places."""
        for name, steps in self.altered.items():
            if name in table.column_names and name not in unread and not steps.is_empty:
                column = whole(table.column(name))
                if pa.types.is_float64(column.type) and not column.null_count:
                    recorded = column.to_numpy()
                    values = _applied(recorded, table, steps, at)
                    if values is recorded:
                        continue
                    rebased = pa.array(values)
                else:
                    null = column.is_null().to_numpy(zero_copy_only=False)
                    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
                    rebased = pa.array(_applied(values, table, steps, at), mask=null)
                table = table.set_column(table.column_names.index(name), name, rebased)
        return table

    def lacking(
        self, table: pa.Table, at: IntArray, unread: Collection[str]
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield the attributes that the query reads and tuples lack by accents, each with the mask of such tuples."""
        for name, steps in self.absent.items():
            if name in table.column_names and name not in unread:
                yield name, _applied(np.ones(table.num_rows), table, steps, at) > 1.0


def matching(
    table: Mapping[str, pa.Array] | pa.Table, described: Sequence[tuple[int, Description]], rows: IntArray
) -> BoolArray:
    """The mask of rows that match one of the descriptions, each in force from a place on; ``rows`` are their places."""
    steps = Steps.of([Alteration(at, where, Affine(2)) for at, where in described], time=ROW)
    if steps.is_empty:
        return np.zeros(len(rows), bool)
    return np.asarray(_applied(np.ones(len(rows)), table, steps, rows) > 1.0)


def encode_keys(table: pa.Table, keys: Collection[str]) -> pa.Table:
    """Dictionary-encode text keys: the conversion to base units and validation both use the codes."""
    for name in keys:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            found = pa.chunked_array([whole(column).dictionary_encode()])
            table = table.set_column(table.column_names.index(name), name, found)
    return table


def decode_keys(table: pa.Table) -> pa.Table:
    """Decode dictionary-encoded keys."""
    for place, one in enumerate(table.schema):
        if pa.types.is_dictionary(one.type):
            table = table.set_column(place, one.name, decoded(table.column(place)))
    return table


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array; copied only if it has several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def blank_unread(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Zero the values that the query does not read: they may be dropped at any time, and must not start a model."""
    for name in unread:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(np.zeros(table.num_rows)))
    return table


def null_unread(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Replace the zeros of :func:`blank_unread` by nulls."""
    for name in unread:
        if name in table.column_names:
            nothing = pa.nulls(table.num_rows, pa.float64())
            table = table.set_column(table.column_names.index(name), name, nothing)
    return table


def with_places(table: pa.Table) -> pa.Table:
    """Add tuples' places in the batch, by which rejects are restored to their recorded values."""
    return table.append_column(PLACE, pa.array(np.arange(table.num_rows)))


def restore_recorded(aside: pa.Table, recorded: pa.Table) -> pa.Table:
    """Restore rejects in base units to their recorded values; a reason with values is marked as in base units."""
    if PLACE not in aside.column_names:
        return aside
    own = recorded.take(aside.column(PLACE))
    rebased = np.zeros(aside.num_rows, bool)
    for place, name in enumerate(aside.column_names):
        if name in own.column_names and name not in ORIGIN_COLUMNS:
            came = own.column(name)
            rebased |= np.array(
                [a != b for a, b in zip(aside.column(name).to_pylist(), came.to_pylist(), strict=True)], bool
            )
            aside = aside.set_column(place, name, came)
    reasons = [
        f"{why} (values here are in the units of the stream's start)" if other and "expected" in why else why
        for why, other in zip(aside.column("reason").to_pylist(), rebased, strict=True)
    ]
    aside = aside.set_column(aside.column_names.index("reason"), "reason", pa.array(reasons, pa.string()))
    return aside.drop_columns([PLACE])


def _applied(
    values: FloatArray, table: Mapping[str, pa.Array] | pa.Table, steps: Steps, at: IntArray
) -> FloatArray:
    return steps.applied(
        np.ascontiguousarray(values), {one: _column(table, one) for one in steps.columns}, at
    )


def _column(table: Mapping[str, pa.Array] | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    return table.column(name) if isinstance(table, pa.Table) else table[name]
