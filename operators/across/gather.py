"""Gather the points of all keys that share some key columns into one stream each (semantics 1.2, 3.7).

1 Transforms: only the keys: every point stays, those of one instant beside each other. Aggregates over the
  tuples of a group, whatever their keys, work on the result.
2 Bounds: a point keeps its own.
3 Inverts: passes it on.
4 Revises: passes it on, under the group's key.
5 Accents: as an aggregate by ``by`` (semantics 8.2): a description on a dropped key accumulates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.operators.across.base import AcrossKeys
from pulse.operators.data.relation import Relation


@dataclass(frozen=True)
class Gather(AcrossKeys):
    """The aggregate ``each``: the points of all keys. Gathering gathered parts equals gathering the whole."""

    @property
    def equations(self) -> tuple[str, ...]:
        return (f"{self.output}: the tuples of {self.argument} of {self.members}, together",)

    def segments(self, relation: Relation) -> Relation:
        """Collect the points of each group, sorted by time."""
        names = relation.columns.key_names
        keys = tuple(relation.keys[names.index(name)] for name in names if name in self.by)
        bare = relation.only(self.columns(relation.columns), {self.output: self.source})
        bare = replace(bare, keys=keys, drift={})
        if not keys:
            bare = replace(bare, offsets=np.array([0, len(bare)], np.int64))
        return bare.merged()
