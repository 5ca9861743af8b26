"""Convert stored segments to the units of the query as they are read, and cut them at drops (semantics 8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse.operators.data.relation import Relation
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.operators.units.to_base_units import UndoneRounding


@dataclass(frozen=True)
class InputUnits:
    """The unit maps applied to a stream's segments on reading; ``name`` identifies them."""

    alters: tuple[Alter, ...] = field(compare=False)
    name: str = ""
    # Where an attribute is absent, even if a model continues across it.
    presence: Presence = field(default=Presence({}), compare=False)
    # The rounding of tuples that the fit converted to base units.
    rounding: UndoneRounding | None = field(default=None, compare=False)

    @property
    def columns(self) -> set[str]:
        """The columns that the descriptions compare."""
        found = {name for alter in self.alters for steps in alter.steps.values() for name in steps.columns}
        found |= {name for one in self.presence.absences.values() for name in one.columns}
        return found if self.rounding is None else found | self.rounding.columns

    def segments(self, relation: Relation) -> Relation:
        """Convert segments to the units that the query is evaluated in."""
        if self.rounding is not None:
            relation = self.rounding.segments(relation)
        relation = self.presence.segments(relation)  # before alterations cut what the fit made
        for alter in self.alters:
            relation = alter.segments(relation)
        return relation
