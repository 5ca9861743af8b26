"""Propagate deltas through a projection: row by row, under new keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.expression import Column, Constant
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import STATELESS, IncrementalRowwise
from pulse.operators.incremental.delta import Delta, diff_rows

if TYPE_CHECKING:
    from pulse.operators.relational.project import Project


class IncrementalProject(IncrementalRowwise):
    """A projection."""

    node: Project

    def keys(self) -> tuple[pa.Array, ...]:
        below, names = self.inputs[0].keys(), self.node.input.columns.key_names
        outputs = dict(self.node.outputs)
        made = []
        for name in self.node.columns.key_names:
            expression = outputs.get(name, Column(name))
            if isinstance(expression, Constant):
                made.append(pa.repeat(pa.scalar(str(expression.value), pa.string()), self.count()))
            else:
                assert isinstance(expression, Column)
                made.append(below[names.index(expression.name)])
        return tuple(made)

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        outputs, names = dict(self.node.outputs), self.node.columns.key_names
        source = {e.name: name for name in names if isinstance(e := outputs.get(name, Column(name)), Column)}
        source |= {name: source[equal] for name, equal in self.node.hidden}
        below = tuple(keys[names.index(source[name])] for name in self.node.input.columns.key_names)
        return self.inputs[0].codes_of(below, n)

    def applied(self, relation: Relation) -> Relation:
        return self.node.operator.segments(relation)

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        made = self._renamed(below)
        if made is None:
            return super().change()
        self.count_mode(STATELESS, len(below))
        return made

    def _renamed(self, below: Delta) -> Delta | None:
        """Rename the delta and the cached content around it; None unless the projection gives one row per row."""
        made = self.applied(below.relation)
        if len(made) != len(below.relation):
            return None
        known = self.inputs[0].cache
        if known is not None and known.relation is below.relation:
            self.cache = known.within(made)
        return diff_rows(made, below.stretches.code, below.old, below.new)
