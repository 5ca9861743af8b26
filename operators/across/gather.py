"""Gather: the points of all keys that share some of them, as one stream each (semantics 1.2, 3.7).

1 Transforms: nothing but the keys: every point stays, those of one instant beside each other. What aggregates over the
  tuples of a group, whatever their keys, works on it.
2 Bounds: a point keeps its own.
3 Inverts: passes it on.
4 Revises: passes it on, under the group's key.
5 Accents: as an aggregate by ``by`` (semantics 8.2): a description on a key that goes accumulates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse.operators.across.base import AcrossKeys
from pulse.operators.data.relation import Relation


@dataclass(frozen=True)
class Gather(AcrossKeys):
    """``each``: the points of all keys. What was gathered of parts and gathered again is what is gathered of the whole."""

    def segments(self, relation: Relation) -> Relation:
        """The points of each group, in time."""
        names = relation.columns.key_names
        keys = tuple(relation.keys[names.index(name)] for name in names if name in self.by)
        bare = replace(
            relation,
            columns=self.columns(relation.columns),
            keys=keys,
            models={self.output: relation.models[self.source]},
            err={self.output: relation.err[self.source]},
            drift={},
            unmodelled={},
        )
        if not keys:
            bare = replace(bare, offsets=np.array([0, len(bare)], np.int64))
        return bare.merged()
