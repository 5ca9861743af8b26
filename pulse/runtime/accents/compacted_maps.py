"""Alterations that accumulate while a job runs, and what is left of them once event time has passed (semantics 8.7).

An alteration is in force from an instant on. Once nothing is asked of the time before a horizon any more, of all alterations up
to there only what they come to matters: one map for each set of rows, however many there were. So what is kept grows with the
maps that are in force and with what is recent, not with how often units have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulse.stream.descriptions.description import FALSE, Description, Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps
from pulse.stream.units.unit_map import Units

BEFORE_ALL = -(1 << 62)
FEW = 256
"""So many are kept as they came: settling them one by one would cost more than it frees."""

_ONE = "value"  # units are kept by attribute; here there is one


@dataclass
class CompactedMaps:
    """The alterations of one attribute: those that are settled, as maps of sets of rows, and later ones by instant.

    >>> from pulse.stream.units.affine import Affine
    >>> found = CompactedMaps()
    >>> found.add([Alteration(at, Description.parse("s = 'A'"), Affine(2)) for at in range(1000)])
    >>> found.settle(997, "t")
    >>> len(found), len(found.recent)
    (3, 2)
    """

    settled: Units = field(default_factory=Units)
    recent: list[Alteration] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(where.boxes) for where in self.cells.values()) + len(self.recent)

    @property
    def cells(self) -> Mapping[Affine, Description]:
        """What is settled: maps, and the rows of each."""
        return self.settled.cells.get(_ONE, {})

    def add(self, more: Iterable[Alteration]) -> None:
        """Alterations, of one instant in their order."""
        self.recent += more

    def settles_until(self, horizon: int, time: str) -> int:
        """The last instant, up to the horizon, up to which all are settled by it: before one that speaks of a time to come."""
        return min(
            (
                one.at - 1
                for one in self.recent
                if one.at <= horizon and time in said_after(one.description, horizon, time).attributes
            ),
            default=horizon,
        )

    def settle(self, horizon: int, time: str) -> None:
        """Nothing before the horizon is asked for any more."""
        self.recent.sort(key=lambda one: one.at)
        count, settled, named = 0, self.settled, _Named()
        for one in self.recent:
            said = said_after(one.description, horizon, time)
            if one.at > horizon or time in said.attributes:
                break  # those behind it stay behind it: maps do not commute
            if not named.take(said, one.map):
                settled = named.put_into(settled)
                if not said.is_empty and not named.take(said, one.map):
                    settled = settled.altered(_ONE, one.map, said)
            count += 1
        self.settled, self.recent = named.put_into(settled), self.recent[count:]

    def pass_by(self) -> None:
        """All of them hold from now on, whatever the time or place; in their order."""
        self.recent = [one._replace(at=BEFORE_ALL) for one in self.recent]

    def forget(self, rows: Description) -> None:
        """Nothing is asked of these rows any more."""
        cells = {map: where - rows for map, where in self.cells.items()}
        left = {map: where for map, where in cells.items() if not where.is_empty}
        self.settled = Units({_ONE: left}) if left else Units()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is altered any more."""
        return not self.cells and not self.recent

    def alterations(self) -> list[Alteration]:
        """All of them."""
        return [Alteration(BEFORE_ALL, where, map) for map, where in self.cells.items()] + self.recent

    def steps(self, time: str) -> Steps:
        """As step functions of time."""
        return Steps.of(self.alterations(), time=time)


class _Named:
    """Alterations of rows that are named by values of one column, composed before they are put among others: most are."""

    def __init__(self) -> None:
        self.column = ""
        self.maps: dict[str, Affine] = {}

    def take(self, where: Description, map: Affine) -> bool:
        """Whether these rows are named by values of that column."""
        found = listed(where)
        if found is None or (self.maps and found[0] != self.column):
            return False
        self.column = found[0]
        for value in found[1]:
            before = self.maps.get(value)
            self.maps[value] = map if before is None else map.after(before)
        return True

    def put_into(self, units: Units) -> Units:
        """The units with what was taken, of which nothing is left here."""
        values: dict[Affine, set[str]] = {}
        for value, map in self.maps.items():
            if not map.is_identity:
                values.setdefault(map, set()).add(value)
        for map, some in values.items():
            units = units.altered(_ONE, map, listing(self.column, some))
        self.maps = {}
        return units


def said_after(said: Description, horizon: int, time: str) -> Description:
    """The rows of an alteration, told by what distinguishes them from the horizon on."""
    if time not in said.attributes:
        return said
    return said.simplified(Domain.of(**{time: ValueSet.between(horizon, None)}))


def listed(where: Description) -> tuple[str, frozenset[str]] | None:
    """The column whose values name the rows of a description, and the values; None where more is said of them."""
    if len(where.boxes) != 1 or len(where.boxes[0]) != 1:
        return None
    name, values = where.boxes[0][0]
    plain = values.kind == "string" and not values.rest and not values.null
    return (name, frozenset(map(str, values.members))) if plain else None


def listing(column: str, values: Iterable[str]) -> Description:
    """The rows that have one of these values in a column."""
    return Description((((column, ValueSet("string", False, False, members=frozenset(values))),),))


def together(some: Iterable[Description]) -> Description:
    """The union of many descriptions; those that list values of one column are put together at once."""
    values: dict[str, set[str]] = {}
    rest = FALSE
    for one in some:
        found = listed(one)
        if found is None:
            rest |= one
        else:
            values.setdefault(found[0], set()).update(found[1])
    for name, members in values.items():
        rest |= listing(name, members)
    return rest


def steps_of(turns: Mapping[str, CompactedMaps], time: str) -> dict[str, Steps]:
    """The steps of every attribute that has any."""
    return {name: one.steps(time) for name, one in turns.items() if not one.is_empty}


def settle_all(turns: Mapping[str, CompactedMaps], horizon: int, time: str) -> None:
    """Settle the alterations of all attributes that have many."""
    for one in turns.values():
        if len(one.recent) >= FEW:
            one.settle(horizon, time)
