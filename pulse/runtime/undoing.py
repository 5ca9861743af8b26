"""Alter data that stored segments still show, undone as they are read (semantics 8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse.operators.alter import Alter
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class Undoing:
    """What is done to the segments of a stream that are read; ``name`` tells it from any other."""

    alters: tuple[Alter, ...] = field(compare=False)
    name: str = ""

    @property
    def columns(self) -> set[str]:
        """What its descriptions compare."""
        return {name for alter in self.alters for steps in alter.steps.values() for name in steps.columns}

    def segments(self, relation: Relation) -> Relation:
        """In the units that the query is evaluated in."""
        for alter in self.alters:
            relation = alter.segments(relation)
        return relation
