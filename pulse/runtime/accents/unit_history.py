"""Keep the unit changes of a running stream or of its results, and compact those that event time has passed (semantics 8.7).

A change is in force from an instant or a place in the stream on. Once no row or result before a horizon is needed, the changes up
to it reduce to their composition: one map for each set of rows (:mod:`pulse.stream.units.unit_map`). So the state grows with the
maps in force and the recent changes, not with the number of unit changes.

Changes may depend on each other: descriptions may use altered attributes, and keys, times and unmodelled attributes may be
altered themselves. So all of a stream are kept in one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pulse.core.time import EARLIEST
from pulse.stream.accents.accents import Accent, AlterData, DropAttribute, is_alteration
from pulse.stream.accents.log import since
from pulse.stream.descriptions.description import Description, rows_with_values
from pulse.stream.units.affine import Affine
from pulse.stream.units.recorded_units import WHOLE_ROW, RecordedUnits, recorded_units
from pulse.stream.units.unit_map import Units

COMPACT_AT = 256
"""Number of recent changes from which compaction pays off."""


@dataclass
class UnitHistory:
    """Unit changes in their order: compacted ones as units, recent ones as accents at their instants or places. Picklable.

    >>> found = UnitHistory()
    >>> found.add(Accent.of("s = 'A'", AlterData("x", Affine(2)), position=at) for at in range(1000))
    >>> found.compact(997, "t")
    >>> len(found), len(found.recent)
    (3, 2)
    """

    compacted: Units = field(default_factory=Units)
    recent: list[Accent] = field(default_factory=list)

    def __len__(self) -> int:
        units = self.compacted
        cells = [*units.absent.values(), *(where for own in units.cells.values() for where in own.values())]
        return sum(len(where.boxes) for where in cells) + len(self.recent)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return self.compacted.is_empty and not self.recent

    @property
    def altered(self) -> set[str]:
        """The attributes that kept changes alter."""
        return {one.attribute for one in self.recent if is_alteration(one)} | self.compacted.cells.keys()

    @property
    def is_interdependent(self) -> bool:
        """Whether a description uses an altered attribute: the fewer changes are kept, the fewer epochs are compared."""
        altered = self.altered
        return any(altered & one.description.attributes for one in self.recent)

    def add(self, accents: Iterable[Accent]) -> None:
        """Add changes; those of one instant in their order."""
        self.recent = sorted((*self.recent, *accents), key=lambda one: one.position)

    def units(self, time: str, by: str | None = None) -> RecordedUnits:
        """The units of rows, by their instants or, with ``by``, places; raises if altered times are ambiguous."""
        return recorded_units(self.recent, time, before=self.compacted, by=by)

    def accents(self) -> Iterator[Accent]:
        """All alterations, compacted ones first."""
        for name, own in self.compacted.cells.items():
            for map, where in own.items():
                yield Accent.of(where, AlterData(name, map), position=EARLIEST)
        yield from self.recent

    def back(self, description: Description, at: int) -> Description:
        """Convert a description at an instant or place to base units."""
        return self._units_at(description, at).back(description)

    def excluding(self, rows: Description, later: Iterable[tuple[int, Description]] = ()) -> UnitHistory:
        """Add the rows, in base units, that punctuation excludes: some always, others each from a place on."""
        absent = self.compacted.absent if rows.is_empty else {**self.compacted.absent, WHOLE_ROW: rows}
        found = UnitHistory(replace(self.compacted, absent=absent), self.recent)
        gone = DropAttribute(WHOLE_ROW)
        found.add(
            Accent(position=at, description=self._units_at(where, at).forward(where), primitive=gone)
            for at, where in later
        )
        return found

    def carry_over(self) -> None:
        """Put all recent changes in force for every later row, whatever its place."""
        self.compacted, self.recent = self._folded(self.recent), []

    def compactable_until(self, horizon: int, time: str) -> int:
        """The last instant up to the horizon before which all can be compacted: a description of later times stops it."""
        if time in self.altered:
            return horizon
        return min(
            (
                one.position - 1
                for one in self.recent
                if one.position <= horizon and time in since(one, time, horizon).description.attributes
            ),
            default=horizon,
        )

    def compact(self, horizon: int, time: str) -> None:
        """Compact the changes up to the horizon, before which no row or result is needed."""
        until = self.compactable_until(horizon, time)
        past = [one for one in self.recent if one.position <= until]
        if not past:
            return
        if time not in self.altered:
            past = [since(one, time, horizon) for one in past]
        self.compacted, self.recent = self._folded(past), self.recent[len(past) :]

    def forget(self, rows: Description) -> None:
        """Free the maps of rows, described in base units, that no longer occur.

        Rows described by an altered attribute keep their maps: such a tuple is recognised only after conversion.
        """
        if not rows.is_empty and not rows.attributes & self.altered:
            self.compacted = self.compacted.limited(lambda where: where - rows)

    def _units_at(self, description: Description, at: int) -> Units:
        """The units in force at an instant or place, as far as a description depends on them."""
        if not description.attributes & self.altered:
            return Units()
        return self._folded(one for one in self.recent if one.position <= at)

    def _folded(self, accents: Iterable[Accent]) -> Units:
        """The compacted units after some more changes."""
        units, of_values = self.compacted, _ValueMaps()
        for one in accents:
            if not of_values.take(one):
                units = of_values.put_into(units)
                if not one.description.is_empty and not of_values.take(one):
                    units = units.then(one)
        return of_values.put_into(units)


class _ValueMaps:
    """Compose alterations of rows that are named by texts in one column, the common case, before they join the others.

    No description depends on such a column's units, as texts have none.
    """

    def __init__(self) -> None:
        self.columns: dict[str, str] = {}
        self.maps: dict[tuple[str, str], Affine] = {}

    def take(self, accent: Accent) -> bool:
        """Take an alteration if values of its attribute's column name its rows; return whether it was taken."""
        primitive, listed = accent.primitive, accent.description.listed_values
        if not isinstance(primitive, AlterData) or listed is None:
            return False
        name = primitive.attribute
        if self.columns.setdefault(name, listed[0]) != listed[0]:
            return False
        for value in listed[1]:
            before = self.maps.get((name, value))
            self.maps[name, value] = primitive.alpha if before is None else primitive.alpha.after(before)
        return True

    def put_into(self, units: Units) -> Units:
        """Return the units with the taken alterations applied, and clear these."""
        values: dict[tuple[str, Affine], set[str]] = {}
        for (name, value), map in self.maps.items():
            if not map.is_identity:
                values.setdefault((name, map), set()).add(value)
        for (name, map), some in values.items():
            units = units.altered(name, map, rows_with_values(self.columns[name], some))
        self.columns, self.maps = {}, {}
        return units
