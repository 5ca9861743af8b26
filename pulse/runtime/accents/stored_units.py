"""Alter data that stored segments still show, undone as they are read; and what they hold across a drop (semantics 8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse.operators.data.relation import Relation
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.operators.units.to_base_units import UndoneRounding


@dataclass(frozen=True)
class InputUnits:
    """What is done to the segments of a stream that are read; ``name`` tells it from any other."""

    alters: tuple[Alter, ...] = field(compare=False)
    name: str = ""
    # Where there is nothing, whatever a model holds across it.
    cease: Presence = field(default=Presence({}), compare=False)
    # What the fit rounded when it undid the tuples.
    rounding: UndoneRounding | None = field(default=None, compare=False)

    @property
    def columns(self) -> set[str]:
        """What its descriptions compare."""
        every = [*(alter.steps for alter in self.alters), self.cease.steps]
        found = {name for one in every for steps in one.values() for name in steps.columns}
        return found if self.rounding is None else found | self.rounding.columns

    def segments(self, relation: Relation) -> Relation:
        """In the units that the query is evaluated in."""
        if self.rounding is not None:
            relation = self.rounding.segments(relation)
        relation = self.cease.segments(relation)  # before alterations cut what the fit made
        for alter in self.alters:
            relation = alter.segments(relation)
        return relation
