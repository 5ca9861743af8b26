"""Compact the alterations that accumulate while a job runs, once event time has passed them (semantics 8.7).

An alteration is in force from an instant on. Once no row or result before a horizon is needed, the alterations up to it reduce to
their composition: one map for each set of rows. So the state grows with the maps in force and the recent alterations, not with
the number of unit changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulse.core.instants import EARLIEST
from pulse.stream.descriptions.description import FALSE, Description, Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps
from pulse.stream.units.unit_map import Units

COMPACT_AT = 256
"""Number of recent alterations from which compaction pays off."""

_ONE = "value"  # Units are keyed by attribute; here there is one


@dataclass
class CompactedMaps:
    """The alterations of one attribute: compacted ones as maps of sets of rows, recent ones by instant.

    >>> from pulse.stream.units.affine import Affine
    >>> found = CompactedMaps()
    >>> found.add([Alteration(at, Description.parse("s = 'A'"), Affine(2)) for at in range(1000)])
    >>> found.compact(997, "t")
    >>> len(found), len(found.recent)
    (3, 2)
    """

    compacted: Units = field(default_factory=Units)
    recent: list[Alteration] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(where.boxes) for where in self.cells.values()) + len(self.recent)

    @property
    def cells(self) -> Mapping[Affine, Description]:
        """The compacted maps, and the rows of each."""
        return self.compacted.cells.get(_ONE, {})

    def add(self, more: Iterable[Alteration]) -> None:
        """Add alterations; those of one instant in their order."""
        self.recent += more

    def compactable_until(self, horizon: int, time: str) -> int:
        """The last instant up to the horizon before which all can be compacted: a description of later times stops compaction."""
        return min(
            (
                one.at - 1
                for one in self.recent
                if one.at <= horizon and time in simplify_after(one.description, horizon, time).attributes
            ),
            default=horizon,
        )

    def compact(self, horizon: int, time: str) -> None:
        """Compact the alterations up to the horizon, before which no row or result is needed."""
        self.recent.sort(key=lambda one: one.at)
        count, compacted, by_value = 0, self.compacted, _ValueMaps()
        for one in self.recent:
            rows = simplify_after(one.description, horizon, time)
            if one.at > horizon or time in rows.attributes:
                break  # maps do not commute: later ones must stay behind it
            if not by_value.take(rows, one.map):
                compacted = by_value.put_into(compacted)
                if not rows.is_empty and not by_value.take(rows, one.map):
                    compacted = compacted.altered(_ONE, one.map, rows)
            count += 1
        self.compacted, self.recent = by_value.put_into(compacted), self.recent[count:]

    def carry_over(self) -> None:
        """Put all recent alterations in force for every later row, whatever its time or place; their order stays."""
        self.recent = [one._replace(at=EARLIEST) for one in self.recent]

    def forget(self, rows: Description) -> None:
        """Free the maps of rows that no longer occur."""
        cells = {map: where - rows for map, where in self.cells.items()}
        left = {map: where for map, where in cells.items() if not where.is_empty}
        self.compacted = Units({_ONE: left}) if left else Units()

    @property
    def is_empty(self) -> bool:
        """Whether no alteration is in force."""
        return not self.cells and not self.recent

    def alterations(self) -> list[Alteration]:
        """All alterations, compacted ones first."""
        return [Alteration(EARLIEST, where, map) for map, where in self.cells.items()] + self.recent

    def steps(self, time: str) -> Steps:
        """The alterations as step functions of time."""
        return Steps.of(self.alterations(), time=time)


class _ValueMaps:
    """Compose alterations of rows that are named by values of one column, the common case, before they join the others."""

    def __init__(self) -> None:
        self.column = ""
        self.maps: dict[str, Affine] = {}

    def take(self, where: Description, map: Affine) -> bool:
        """Take an alteration if values of the same column name its rows; return whether it was taken."""
        found = listed_values(where)
        if found is None or (self.maps and found[0] != self.column):
            return False
        self.column = found[0]
        for value in found[1]:
            before = self.maps.get(value)
            self.maps[value] = map if before is None else map.after(before)
        return True

    def put_into(self, units: Units) -> Units:
        """Return the units with the taken alterations applied, and clear these."""
        values: dict[Affine, set[str]] = {}
        for value, map in self.maps.items():
            if not map.is_identity:
                values.setdefault(map, set()).add(value)
        for map, some in values.items():
            units = units.altered(_ONE, map, rows_with_values(self.column, some))
        self.maps = {}
        return units


def simplify_after(rows: Description, horizon: int, time: str) -> Description:
    """Simplify the description of an alteration's rows for times from the horizon on."""
    if time not in rows.attributes:
        return rows
    return rows.simplified(Domain.of(**{time: ValueSet.between(horizon, None)}))


def listed_values(where: Description) -> tuple[str, frozenset[str]] | None:
    """The column whose text values name a description's rows, and the values; None for any other description."""
    if len(where.boxes) != 1 or len(where.boxes[0]) != 1:
        return None
    name, values = where.boxes[0][0]
    plain = values.kind == "string" and not values.rest and not values.null
    return (name, frozenset(map(str, values.members))) if plain else None


def rows_with_values(column: str, values: Iterable[str]) -> Description:
    """Describe the rows that have one of these values in a column."""
    return Description((((column, ValueSet("string", False, False, members=frozenset(values))),),))


def union_of(some: Iterable[Description]) -> Description:
    """Unite descriptions; those that list values of one column are merged at once."""
    values: dict[str, set[str]] = {}
    rest = FALSE
    for one in some:
        found = listed_values(one)
        if found is None:
            rest |= one
        else:
            values.setdefault(found[0], set()).update(found[1])
    for name, members in values.items():
        rest |= rows_with_values(name, members)
    return rest


def steps_of(maps: Mapping[str, CompactedMaps], time: str) -> dict[str, Steps]:
    """The steps of every attribute that has alterations."""
    return {name: one.steps(time) for name, one in maps.items() if not one.is_empty}


def compact_all(maps: Mapping[str, CompactedMaps], horizon: int, time: str) -> None:
    """Compact the alterations of attributes that have at least :data:`COMPACT_AT` recent ones."""
    for one in maps.values():
        if len(one.recent) >= COMPACT_AT:
            one.compact(horizon, time)
