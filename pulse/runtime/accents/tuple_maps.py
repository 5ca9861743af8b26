"""Unit maps of a running stream that depend on tuples' values (semantics 8.1), and the conversion of tuples to base units.

Descriptions may use altered attributes, and keys, times and unmodelled attributes may be altered themselves. Then alterations
depend on each other, and all of a stream are kept in one sequence: compacted ones as one map of rows
(:mod:`pulse.stream.units.unit_map`), recent ones by instant or place. A tuple is converted by its own values
(:mod:`pulse.stream.units.recorded_units`), a batch at a time (:mod:`pulse.operators.units.to_base_units`).
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
from pulse.runtime.accents.compacted_maps import CompactedMaps, simplify_after
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import Move, RawUnits, absence, coming, recorded_units
from pulse.stream.units.unit_map import Units
from pulse.validation.online.rejects import add_reason

CONTRADICTS = "an earlier punctuation excludes this tuple"
_NUMBER = "\0number"  # column of row numbers; no attribute has such a name
_CLOSED = "\0closed"  # attribute that is absent in rows closed by punctuation


@dataclass
class TupleMaps:
    """All alterations, additions and drops of a stream: compacted ones as units, recent ones in their order. Picklable."""

    compacted: Units = field(default_factory=Units)
    recent: list[Move] = field(default_factory=list)

    @classmethod
    def of(cls, alterations: Mapping[str, CompactedMaps], absences: Mapping[str, CompactedMaps]) -> TupleMaps:
        """Merge maps kept by attribute, in which no description uses an altered attribute."""
        every = {**alterations, **{absence(name): one for name, one in absences.items()}}
        compacted = {name: cells for name, one in every.items() if (cells := one.cells)}
        recent = [Move(at, name, map, where) for name, one in every.items() for at, where, map in one.recent]
        return cls(Units(compacted), sorted(recent, key=lambda one: one.at))

    def __len__(self) -> int:
        cells = [where for own in self.compacted.cells.values() for where in own.values()]
        return sum(len(where.boxes) for where in cells) + len(self.recent)

    def with_(self, more: Collection[Move]) -> TupleMaps:
        """Add more moves; those of one instant in their order."""
        return TupleMaps(self.compacted, sorted((*self.recent, *more), key=lambda one: one.at))

    def alters(self, name: str) -> bool:
        """Whether an attribute is altered by a map still kept."""
        return name in self.compacted.cells or any(one.attribute == name for one in self.recent)

    def units(self, time: str, by: str) -> RawUnits:
        """The maps to base units, by tuples' instants (``by`` is the time) or places; raises if they are ambiguous."""
        place = None if by == time else by
        return recorded_units(list(self.recent), time, before=self.compacted, by=place)

    def back(self, description: Description, at: int) -> Description:
        """Convert a description at an instant or place to base units."""
        return self._units_at(at).back(description)

    def closed(self, before: Description, closing: Sequence[tuple[int, Description]]) -> TupleMaps:
        """Mark rows closed by punctuation, described in base units, as lacking an extra attribute: rows of ``before`` always,
        those of ``closing`` each from a place on. So they are matched on recorded values, like rows of accents."""
        cells, recent = dict(self.compacted.cells), list(self.recent)
        if not before.is_empty:
            cells[absence(_CLOSED)] = {Affine(2): before}
        for at, rows in closing:
            new = rows - before  # do not close rows twice
            if not new.is_empty:
                recent.append(coming(_CLOSED, at, self._units_at(at).forward(new), added=False))
                before |= new
        return TupleMaps(Units(cells), sorted(recent, key=lambda one: one.at))

    def carry_over(self) -> None:
        """Put all recent alterations in force for every later row, whatever its place."""
        self.compacted, self.recent = self._folded(lambda _: True), []

    def compact(self, horizon: int, time: str) -> None:
        """Compact the alterations up to the horizon, before which no tuple is expected."""
        past = [one for one in self.recent if one.at <= horizon]
        if not past:
            return
        if not self.alters(time):
            rows = [simplify_after(one.description, horizon, time) for one in past]
            past = [one._replace(description=where) for one, where in zip(past, rows, strict=True)]
        left = [one for one in self.recent if one.at > horizon]
        self.compacted = TupleMaps(self.compacted, past)._folded(lambda _: True)
        self.recent = left

    def forget(self, rows: Description) -> None:
        """Free the maps of rows, described in base units, that no longer occur.

        Rows described by an altered attribute keep their maps: such a tuple is recognised only after conversion.
        """
        if rows.is_empty or not self.compacted.cells or any(self.alters(name) for name in rows.attributes):
            return
        cells: dict[str, dict[Affine, Description]] = {}
        for name, own in self.compacted.cells.items():
            left = {map: rest for map, where in own.items() if not (rest := where - rows).is_empty}
            if left:
                cells[name] = left
        self.compacted = Units(cells)

    def _units_at(self, at: int) -> Units:
        return self._folded(lambda one: one.at <= at)

    def _folded(self, which: Callable[[Move], bool]) -> Units:
        units = self.compacted
        for one in self.recent:
            if which(one):
                units = units.altered(one.attribute, one.map, units.back(one.description))
        return units


class RecordedTuples(NamedTuple):
    """Tuples in base units, their row numbers in the batch, which of them lack an attribute by accents, and rejects as recorded
    with a reason."""

    table: pa.Table
    number: IntArray
    lacking: tuple[tuple[str, BoolArray], ...]
    aside: list[pa.Table]


def raw_undo(maps: TupleMaps, schema: StreamSchema, by: str, unread: Collection[str]) -> RawUndo:
    """The conversion to base units by tuples' instants (``by`` is the time) or places; ``unread`` attributes are skipped."""
    units = maps.units(schema.time, by)
    steps = {name: one for name, one in units.steps.items() if name not in unread}
    absent = {name: one for name, one in units.absent.items() if name not in unread}
    return RawUndo(replace(units, steps=steps, absent=absent), schema)


def rebase_tuples(to_base: RawUndo, table: pa.Table, at: IntArray) -> RecordedTuples:
    """Convert tuples to base units by their instants or places.

    Tuples that lack a modelled attribute are converted as well, since they have a time. Tuples that punctuation excludes are
    rejected for that reason first.
    """
    aside: list[pa.Table] = []

    def leave(rows: pa.Table, reason: str, _: bool) -> None:
        aside.append(add_reason(table.take(rows.column(_NUMBER)), reason))

    with_numbers = table.append_column(_NUMBER, pa.array(np.arange(table.num_rows)))
    (batch,) = with_numbers.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], with_numbers.schema)
    ]
    batch, at = to_base.timed(batch, at, leave)
    lost: dict[str, IntArray] = {}
    gone = np.zeros(batch.num_rows, np.bool_)
    lacking = sorted(to_base.lacking(batch, at), key=lambda one: one[0] != _CLOSED)
    for name, rows in lacking:
        if name in to_base.schema.modelled_names:
            lost[name] = batch.column(_NUMBER).to_numpy()[rows]
        else:
            reason = CONTRADICTS if name == _CLOSED else lacks(name)
            to_base.without(batch, rows & ~gone, reason, leave)
            gone |= rows
    if gone.any():
        batch, at = batch.filter(pa.array(~gone)), at[~gone]
    batch = to_base.undone(batch, at, leave)
    number = batch.column(_NUMBER).to_numpy()
    found = pa.Table.from_batches([batch]).drop_columns([_NUMBER])
    return RecordedTuples(
        found, number, tuple((name, np.isin(number, own)) for name, own in lost.items()), aside
    )
