"""Alterations that accumulate while a job runs, and what is left of them once event time has passed (semantics 8.7).

An alteration is in force from an instant on. Once nothing is asked of the time before a horizon any more, of all alterations up
to there only what they come to matters: one map for each set of rows, however many there were. So what is kept grows with the
maps that are in force and with what is recent, not with how often units have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulse.stream.description import Description, Domain
from pulse.stream.steps import Alteration, Steps
from pulse.stream.units import Units
from pulse.stream.values import ValueSet

BEFORE_ALL = -(1 << 62)
_ONE = "value"  # units are kept by attribute; here there is one


@dataclass
class Turns:
    """The alterations of one attribute: those that are settled, as maps of sets of rows, and later ones by instant.

    >>> from pulse.stream.affine import Affine
    >>> found = Turns()
    >>> found.add([Alteration(at, Description.parse("s = 'A'"), Affine(2)) for at in range(1000)])
    >>> found.settle(997, "t")
    >>> len(found), len(found.recent)
    (3, 2)
    """

    settled: Units = field(default_factory=Units)
    recent: list[Alteration] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(where.boxes) for where in self._cells.values()) + len(self.recent)

    @property
    def _cells(self) -> Mapping[object, Description]:
        return self.settled.cells.get(_ONE, {})

    def add(self, more: Iterable[Alteration]) -> None:
        """Alterations, of one instant in their order."""
        self.recent += more

    def settle(self, horizon: int, time: str) -> None:
        """Nothing before the horizon is asked for any more."""
        self.recent.sort(key=lambda one: one.at)
        later = Domain.of(**{time: ValueSet.between(horizon, None)})
        count, settled = 0, self.settled
        for one in self.recent:
            said = one.description
            said = said.simplified(later) if time in said.attributes else said
            if one.at > horizon or time in said.attributes:
                break  # those behind it stay behind it: maps do not commute
            if not said.is_empty:
                settled = settled.altered(_ONE, one.map, said)
            count += 1
        self.settled, self.recent = settled, self.recent[count:]

    def forget(self, rows: Description) -> None:
        """Nothing is asked of these rows any more."""
        cells = {map: where - rows for map, where in self.settled.cells.get(_ONE, {}).items()}
        left = {map: where for map, where in cells.items() if not where.is_empty}
        self.settled = Units({_ONE: left}) if left else Units()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is altered any more."""
        return not self._cells and not self.recent

    def alterations(self) -> list[Alteration]:
        """All of them."""
        cells = self.settled.cells.get(_ONE, {}).items()
        return [Alteration(BEFORE_ALL, where, map) for map, where in cells] + self.recent

    def steps(self, time: str) -> Steps:
        """As step functions of time."""
        return Steps.of(self.alterations(), time=time)


def steps_of(turns: Mapping[str, Turns], time: str) -> dict[str, Steps]:
    """The steps of every attribute that has any."""
    return {name: one.steps(time) for name, one in turns.items() if not one.is_empty}


def settle_all(turns: Mapping[str, Turns], horizon: int, time: str) -> None:
    """Settle the alterations of all attributes."""
    for one in turns.values():
        one.settle(horizon, time)
