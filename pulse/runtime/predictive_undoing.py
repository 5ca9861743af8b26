"""Tuples of a running stream in the units of its start (semantics 8.1), many at once: nothing is done per tuple or per epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.kernels.steps import apply_steps
from pulse.stream.accents import Accent, AddAttribute, AlterData
from pulse.stream.affine import Affine
from pulse.stream.log import AccentLog
from pulse.stream.policy import Policy
from pulse.stream.steps import Alteration, Steps

_ROW = "\0row"  # the name of the place of a row: no attribute is called so


@dataclass(frozen=True)
class TupleUndoing:
    """What undoes the first ``count`` accents of a stream, by attribute; ``gone``: the scale is above 1 where it was dropped."""

    count: int
    altered: Mapping[str, Steps]
    gone: Mapping[str, Steps]

    @classmethod
    def of(
        cls, log: AccentLog, policy: Policy, time: str, since: Sequence[int] | None = None
    ) -> TupleUndoing:
        """Accents from their instants on, or from the places ``since`` among the rows on."""
        altered: dict[str, list[Alteration]] = {}
        gone: dict[str, list[Alteration]] = {}
        for i, one in enumerate(log.controls):
            if not isinstance(one, Accent) or policy.choice(one) == "ignore":
                continue
            at = one.position if since is None else since[i]
            if isinstance(one.primitive, AlterData):
                change = Alteration(at, one.description, one.primitive.alpha)
                altered.setdefault(one.attribute, []).append(change)
            else:
                scale = Affine("1/2") if isinstance(one.primitive, AddAttribute) else Affine(2)
                gone.setdefault(one.attribute, []).append(Alteration(at, one.description, scale))
        by = time if since is None else _ROW
        return cls(
            len(log),
            {name: Steps.of(some, time=by).inverse() for name, some in altered.items()},
            {name: Steps.of(some, time=by) for name, some in gone.items()},
        )

    def tuples(self, table: pa.Table, at: IntArray, unread: Collection[str]) -> pa.Table:
        """Tuples undone, by their instants or places; without those that lack an attribute which the query reads."""
        for name, steps in self.altered.items():
            if name in table.column_names and name not in unread and not steps.is_empty:
                column = table.column(name).combine_chunks()
                null = column.is_null().to_numpy(zero_copy_only=False)
                values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
                undone = pa.array(_applied(values, table, steps, at), mask=null)
                table = table.set_column(table.column_names.index(name), name, undone)
        kept = np.ones(table.num_rows, bool)
        for name, steps in self.gone.items():
            if name in table.column_names and name not in unread:
                kept &= _applied(np.ones(table.num_rows), table, steps, at) <= 1.0
        return table if kept.all() else table.filter(pa.array(kept))


def blank(table: pa.Table, unread: Collection[str]) -> pa.Table:
    """Without values that the query does not read: they may be dropped at any time, and no model is to begin for them."""
    for name in unread:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(np.zeros(table.num_rows)))
    return table


def _applied(values: FloatArray, table: pa.Table, steps: Steps, at: IntArray) -> FloatArray:
    found = steps.located({one: table.column(one) for one in steps.columns}, table.num_rows)
    return apply_steps(np.ascontiguousarray(values), found.cell, at, found.steps, found.maps)
