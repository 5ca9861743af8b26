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

from pulse.core.columns import Columns
from pulse.operators.regroup import columns_by
from pulse.operators.relation import Relation


@dataclass(frozen=True)
class Gather:
    """The points of ``argument``, named ``output``, of all keys that share ``by``.

    In parts, too: what was gathered of parts and gathered again is what is gathered of the whole. A "merge" takes ``output``.
    """

    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"

    def columns(self, before: Columns) -> Columns:
        """What comes out of an input of such columns."""
        return columns_by(before, self.by, (self.output,))

    def segments(self, relation: Relation) -> Relation:
        """The points of each group, in time."""
        source = self.output if self.phase == "merge" else self.argument
        names = relation.columns.key_names
        keys = tuple(relation.keys[names.index(name)] for name in names if name in self.by)
        bare = replace(
            relation,
            columns=self.columns(relation.columns),
            keys=keys,
            models={self.output: relation.models[source]},
            err={self.output: relation.err[source]},
            drift={},
            unmodelled={},
        )
        if not keys:
            bare = replace(bare, offsets=np.array([0, len(bare)], np.int64))
        return bare.merged()
