"""Alter data that stored segments still show, undone as they are read; and what they hold across a drop (semantics 8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse.operators.alter import Alter, Cease
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class Undoing:
    """What is done to the segments of a stream that are read; ``name`` tells it from any other."""

    alters: tuple[Alter, ...] = field(compare=False)
    name: str = ""
    # Where there is nothing, whatever a model holds across it.
    cease: Cease = field(default=Cease({}), compare=False)

    @property
    def columns(self) -> set[str]:
        """What its descriptions compare."""
        every = [*(alter.steps for alter in self.alters), self.cease.steps]
        return {name for one in every for steps in one.values() for name in steps.columns}

    def segments(self, relation: Relation) -> Relation:
        """In the units that the query is evaluated in."""
        for alter in self.alters:
            relation = alter.segments(relation)
        return self.cease.segments(relation)
