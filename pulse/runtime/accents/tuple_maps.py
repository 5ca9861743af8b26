"""Accents of a running stream that only its tuples tell (semantics 8.1): what is kept of them, and how tuples are undone.

Descriptions may speak of what is altered, and keys, times and unmodelled attributes may be altered themselves. Then alterations
are not independent of each other, and all of a stream are kept together, in their order: what is settled as one map of rows
(:mod:`pulse.stream.units.unit_map`), later ones by instant or place. A tuple is undone by its own values
(:mod:`pulse.stream.units.recorded_units`), all of a batch at once (:mod:`pulse.operators.units.to_base_units`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.schema import StreamSchema
from pulse.operators.units.to_base_units import RawUndo, lacks
from pulse.runtime.accents.compacted_maps import CompactedMaps, said_after
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import Move, RawUnits, absence, coming, recorded_units
from pulse.stream.units.unit_map import Units
from pulse.validation.online.rejects import reasoned

CONTRADICTS = "punctuation before it said that no such tuple comes any more"
_NUMBER = "\0number"  # the name of the number of a row: no attribute is called so
_CLOSED = "\0closed"  # is absent where punctuation says that nothing comes


@dataclass
class TupleMaps:
    """All alterations of a stream, and what has come and gone: settled ones as units, later ones in their order. Picklable."""

    settled: Units = field(default_factory=Units)
    recent: list[Move] = field(default_factory=list)

    @classmethod
    def of(cls, undo: Mapping[str, CompactedMaps], gone: Mapping[str, CompactedMaps]) -> TupleMaps:
        """What was kept by attribute, as long as no description spoke of what is altered."""
        every = {**undo, **{absence(name): one for name, one in gone.items()}}
        settled = {name: cells for name, one in every.items() if (cells := one.cells)}
        recent = [Move(at, name, map, where) for name, one in every.items() for at, where, map in one.recent]
        return cls(Units(settled), sorted(recent, key=lambda one: one.at))

    def __len__(self) -> int:
        cells = [where for own in self.settled.cells.values() for where in own.values()]
        return sum(len(where.boxes) for where in cells) + len(self.recent)

    def with_(self, more: Collection[Move]) -> TupleMaps:
        """After more of them; of one instant in their order."""
        return TupleMaps(self.settled, sorted((*self.recent, *more), key=lambda one: one.at))

    def alters(self, name: str) -> bool:
        """Whether an attribute was ever altered, as far as that is known still."""
        return name in self.settled.cells or any(one.attribute == name for one in self.recent)

    def units(self, time: str, by: str) -> RawUnits:
        """How tuples are undone, by their instants (``by`` is the time) or their places; an error where that cannot be told."""
        place = None if by == time else by
        return recorded_units(list(self.recent), time, before=self.settled, by=place)

    def back(self, description: Description, at: int) -> Description:
        """What a description said at an instant or place in the units of the start."""
        return self._until(at).back(description)

    def closed(self, before: Description, closing: Sequence[tuple[int, Description]]) -> TupleMaps:
        """With rows that punctuation closes, told in the units of the start, as rows that lack one more attribute: all of those
        before, others each from a place on. So they are compared with what was recorded, as rows of accents are, whatever of it
        is undone."""
        cells, recent = dict(self.settled.cells), list(self.recent)
        if not before.is_empty:
            cells[absence(_CLOSED)] = {Affine(2): before}
        for at, rows in closing:
            new = rows - before  # what is closed twice is closed
            if not new.is_empty:
                recent.append(coming(_CLOSED, at, self._until(at).forward(new), added=False))
                before |= new
        return TupleMaps(Units(cells), sorted(recent, key=lambda one: one.at))

    def pass_by(self) -> None:
        """All of them hold from now on, wherever a row stands."""
        self.settled, self.recent = self._folded(lambda _: True), []

    def settle(self, horizon: int, time: str) -> None:
        """No tuple before the horizon comes any more."""
        past = [one for one in self.recent if one.at <= horizon]
        if not past:
            return
        if not self.alters(time):
            said = [said_after(one.description, horizon, time) for one in past]
            past = [one._replace(description=where) for one, where in zip(past, said, strict=True)]
        left = [one for one in self.recent if one.at > horizon]
        self.settled = TupleMaps(self.settled, past)._folded(lambda _: True)
        self.recent = left

    def forget(self, rows: Description) -> None:
        """No tuple of these rows, which are told in the units of the start, comes any more. As long as what tells them is altered
        itself, one that comes all the same is known only once it is undone."""
        if rows.is_empty or not self.settled.cells or any(self.alters(name) for name in rows.attributes):
            return
        cells: dict[str, dict[Affine, Description]] = {}
        for name, own in self.settled.cells.items():
            left = {map: rest for map, where in own.items() if not (rest := where - rows).is_empty}
            if left:
                cells[name] = left
        self.settled = Units(cells)

    def _until(self, at: int) -> Units:
        return self._folded(lambda one: one.at <= at)

    def _folded(self, which: Callable[[Move], bool]) -> Units:
        units = self.settled
        for one in self.recent:
            if which(one):
                units = units.altered(one.attribute, one.map, units.back(one.description))
        return units


class RecordedTuples(NamedTuple):
    """Tuples in the units of the start, which rows of the batch they were, which of them lack an attribute by accents, and those
    that nothing undoes, as they came and with a reason."""

    table: pa.Table
    number: IntArray
    lacking: tuple[tuple[str, BoolArray], ...]
    aside: list[pa.Table]


def raw_undo(turns: TupleMaps, schema: StreamSchema, by: str, unread: Collection[str]) -> RawUndo:
    """What undoes tuples by their instants (``by`` is the time) or places; of what the query does not read nothing is asked."""
    units = turns.units(schema.time, by)
    steps = {name: one for name, one in units.steps.items() if name not in unread}
    absent = {name: one for name, one in units.absent.items() if name not in unread}
    return RawUndo(replace(units, steps=steps, absent=absent), schema)


def undone_tuples(undo: RawUndo, table: pa.Table, at: IntArray) -> RecordedTuples:
    """Undo tuples by their instants or places; those that lack a modelled attribute as well, as they have a time. Those that
    punctuation excludes are set aside, whatever else is wrong with them."""
    aside: list[pa.Table] = []

    def leave(rows: pa.Table, reason: str, _: bool) -> None:
        aside.append(reasoned(table.take(rows.column(_NUMBER)), reason))

    numbered = table.append_column(_NUMBER, pa.array(np.arange(table.num_rows)))
    (batch,) = numbered.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], numbered.schema)]
    batch, at = undo.timed(batch, at, leave)
    lost: dict[str, IntArray] = {}
    gone = np.zeros(batch.num_rows, np.bool_)
    lacking = sorted(undo.lacking(batch, at), key=lambda one: one[0] != _CLOSED)
    for name, rows in lacking:
        if name in undo.schema.modelled_names:
            lost[name] = batch.column(_NUMBER).to_numpy()[rows]
        else:
            reason = CONTRADICTS if name == _CLOSED else lacks(name)
            undo.without(batch, rows & ~gone, reason, leave)
            gone |= rows
    if gone.any():
        batch, at = batch.filter(pa.array(~gone)), at[~gone]
    batch = undo.undone(batch, at, leave)
    number = batch.column(_NUMBER).to_numpy()
    found = pa.Table.from_batches([batch]).drop_columns([_NUMBER])
    return RecordedTuples(
        found, number, tuple((name, np.isin(number, own)) for name, own in lost.items()), aside
    )
