"""Tuples of a running stream in the units of its start (semantics 8.1), many at once: nothing is done per tuple or per epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.runtime.accents.compacted_maps import CompactedMaps, steps_of
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps
from pulse.validation.online.rejects import PLACE, WHENCE

ROW = "\0row"  # the name of the place of a row: no attribute is called so


@dataclass(frozen=True)
class TuplesToBaseUnits:
    """What undoes a stream's accents, by attribute; ``gone``: the scale is above 1 where it is not there."""

    altered: Mapping[str, Steps]
    gone: Mapping[str, Steps]

    @classmethod
    def of(
        cls, undo: Mapping[str, CompactedMaps], gone: Mapping[str, CompactedMaps], by: str
    ) -> TuplesToBaseUnits:
        """Alterations by the time of that name, or by the places of rows (:data:`ROW`)."""
        return cls({name: one.inverse() for name, one in steps_of(undo, by).items()}, steps_of(gone, by))

    @cached_property
    def shifts(self) -> dict[str, float]:
        """The largest shift by which each attribute is undone, which the rounding of tuples counts from."""
        return {name: steps.largest_shift for name, steps in self.altered.items()}

    @property
    def is_empty(self) -> bool:
        """Whether all is in first units as it is."""
        return not self.altered and not self.gone

    def tuples(self, table: pa.Table, at: IntArray, unread: Collection[str]) -> pa.Table:
        """Tuples undone, by their instants or places."""
        for name, steps in self.altered.items():
            if name in table.column_names and name not in unread and not steps.is_empty:
                column = whole(table.column(name))
                if pa.types.is_float64(column.type) and not column.null_count:
                    recorded = column.to_numpy()
                    values = _applied(recorded, table, steps, at)
                    if values is recorded:
                        continue
                    undone = pa.array(values)
                else:
                    null = column.is_null().to_numpy(zero_copy_only=False)
                    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
                    undone = pa.array(_applied(values, table, steps, at), mask=null)
                table = table.set_column(table.column_names.index(name), name, undone)
        return table

    def lacking(
        self, table: pa.Table, at: IntArray, unread: Collection[str]
    ) -> Iterator[tuple[str, BoolArray]]:
        """The attributes that the query reads and tuples, as recorded, lack by accents; and which tuples do."""
        for name, steps in self.gone.items():
            if name in table.column_names and name not in unread:
                yield name, _applied(np.ones(table.num_rows), table, steps, at) > 1.0


def matching(
    table: Mapping[str, pa.Array] | pa.Table, described: Sequence[tuple[int, Description]], rows: IntArray
) -> BoolArray:
    """Which rows, told by their places, match a description of those that hold from a place on."""
    steps = Steps.of([Alteration(at, where, Affine(2)) for at, where in described], time=ROW)
    if steps.is_empty:
        return np.zeros(len(rows), bool)
    return np.asarray(_applied(np.ones(len(rows)), table, steps, rows) > 1.0)


def encoded(table: pa.Table, keys: Collection[str]) -> pa.Table:
    """With keys that are texts told by codes: both what undoes tuples and what validates them asks for these."""
    for name in keys:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            found = pa.chunked_array([whole(column).dictionary_encode()])
            table = table.set_column(table.column_names.index(name), name, found)
    return table


def decoded(table: pa.Table) -> pa.Table:
    """With keys as they came."""
    for place, one in enumerate(table.schema):
        if pa.types.is_dictionary(one.type):
            table = table.set_column(place, one.name, table.column(place).cast(one.type.value_type))
    return table


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece: copied only where it is in several."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def blank(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Without values that the query does not read: they may be dropped at any time, and no model is to begin for them."""
    for name in unread:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(np.zeros(table.num_rows)))
    return table


def unblanked(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Tuples that were blanked, with nothing in place of values that nobody kept."""
    for name in unread:
        if name in table.column_names:
            nothing = pa.nulls(table.num_rows, pa.float64())
            table = table.set_column(table.column_names.index(name), name, nothing)
    return table


def numbered(table: pa.Table) -> pa.Table:
    """Tuples with their places in the batch, by which those that are set aside are found as they came."""
    return table.append_column(PLACE, pa.array(np.arange(table.num_rows)))


def as_came(aside: pa.Table, recorded: pa.Table) -> pa.Table:
    """Tuples that were set aside after they had been undone, as they came; of values in reasons it is said that they are not."""
    if PLACE not in aside.column_names:
        return aside
    own = recorded.take(aside.column(PLACE))
    undone = np.zeros(aside.num_rows, bool)
    for place, name in enumerate(aside.column_names):
        if name in own.column_names and name not in WHENCE:
            came = own.column(name)
            undone |= np.array(
                [a != b for a, b in zip(aside.column(name).to_pylist(), came.to_pylist(), strict=True)], bool
            )
            aside = aside.set_column(place, name, came)
    reasons = [
        f"{why} (values here are in the units of the stream's start)" if other and "expected" in why else why
        for why, other in zip(aside.column("reason").to_pylist(), undone, strict=True)
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
