"""Propagate deltas through a division of keys by unmodelled attributes: one key of the input has a code for each value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.time import EARLIEST, LATEST
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.base import STATELESS, IncrementalOperator
from pulse.operators.incremental.delta import BeforeAfter, Delta, KeyRanges, concat_ranges

if TYPE_CHECKING:
    from pulse.operators.relational.key_by import KeyBy


class IncrementalKeyBy(IncrementalOperator):
    """A division of keys by value: codes are pairs of an input's code and values, in the order of first appearance."""

    node: KeyBy

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._code: dict[tuple[Any, ...], int] = {}  # by the input's code, then the values
        every = self.inputs[0].codes()
        if len(every):
            ever = KeyRanges(every, np.full(len(every), EARLIEST), np.full(len(every), LATEST))
            held = self.inputs[0].content(ever)
            of_group = np.empty(held.relation.groups, np.int64)
            of_group[held.before] = of_group[held.after] = every
            self._codes_of_rows(held.relation, of_group)

    # -- keys -----------------------------------------------------------------------------------------------

    def keys(self) -> tuple[pa.Array, ...]:
        below = pa.array(self._below)
        columns = list(zip(*self._code, strict=True))[1:] or [()] * len(self.node.names)
        types = [self.node.columns.type_of(name) for name in self.node.names]
        own = (pa.array(list(values), type_) for values, type_ in zip(columns, types, strict=True))
        theirs = self.inputs[0].keys()
        return (*(column.take(below) for column in theirs), *own)

    def count(self) -> int:
        return len(self._code)

    def codes(self) -> IntArray:
        return np.flatnonzero(np.isin(self._below, self.inputs[0].codes()))

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        cut = len(self.node.input.columns.key)
        below = self.inputs[0].codes_of(keys[:cut], n).tolist()
        values = zip(*(column.to_pylist() for column in keys[cut:]), strict=True)
        return self._numbers([(code, *row) for code, row in zip(below, values, strict=True)])

    @property
    def _below(self) -> IntArray:
        """Return the input's code of each own code."""
        return np.array([code for code, *_ in self._code], np.int64)

    def _numbers(self, pairs: list[tuple[Any, ...]]) -> IntArray:
        """Return the codes of an input's code and values each, adding new ones."""
        known = self._code
        return np.array([known.setdefault(one, len(known)) for one in pairs], np.int64)

    def _codes_of_rows(self, relation: Relation, code: IntArray) -> IntArray:
        """Return the own code of each row of the input, whose groups have these codes of the input."""
        of_row = code[relation.group]
        columns = [relation.unmodelled[name].to_pylist() for name in self.node.names]
        return self._numbers(list(zip(of_row.tolist(), *columns, strict=True)))

    # -- rows -----------------------------------------------------------------------------------------------

    def estimate(self, stretches: KeyRanges) -> IntArray:
        if self.point is not None:
            return super().estimate(stretches)
        return self.inputs[0].estimate(replace(stretches, code=self._below[stretches.code]))

    def replay(self, stretches: KeyRanges) -> BeforeAfter:
        n, below = len(stretches), self._below[stretches.code]
        requested, place = np.unique(
            np.column_stack([below, stretches.start, stretches.end]), axis=0, return_inverse=True
        )
        place = place.reshape(-1)
        found = self.inputs[0].content(KeyRanges(*np.ascontiguousarray(requested.T)))
        before, after = found.before[place], found.after[place]
        again = np.flatnonzero(before != after)
        groups = np.concatenate([before, after[again]])
        of_stretch = np.concatenate([np.arange(n), again])
        of_group = np.empty(found.relation.groups, np.int64)
        of_group[found.before] = of_group[found.after] = requested[:, 0]
        own = self._codes_of_rows(found.relation, of_group)
        starts = found.relation.offsets
        rows, offsets = concat_ranges(np.stack([starts[groups], starts[groups + 1]], axis=1))
        wanted = np.repeat(stretches.code[of_stretch], np.diff(offsets))
        chosen = own[rows] == wanted
        cuts = np.concatenate(([0], np.cumsum(chosen)))[offsets]
        code = pa.array(stretches.code[of_stretch])
        keys = tuple(column.take(code) for column in self.keys())
        made = found.relation._pick(rows[chosen], keys, cuts)
        columns = self.node.columns
        rest = {name: made.unmodelled[name] for name in columns.unmodelled_names}
        points = replace(columns, points=made.columns.points)
        # Whether a key has one value alone depends on all its rows.
        made = replace(made, columns=points, unmodelled=rest, drift={})
        place = np.arange(n)
        place[again] = n + np.arange(len(again))
        return BeforeAfter(stretches, made, np.arange(n), place)

    def change(self) -> Delta:
        below = self.inputs[0].delta
        assert below is not None
        self.count_mode(STATELESS, len(below))
        content = below.content()
        code = np.empty(content.relation.groups, np.int64)
        at = np.empty(content.relation.groups, np.int64)
        for groups in (content.before, content.after):
            code[groups], at[groups] = below.stretches.code, np.arange(len(below))
        own = self._codes_of_rows(content.relation, code)
        touched = np.unique(np.column_stack([own, at[content.relation.group]]), axis=0)
        times = below.stretches
        affected = KeyRanges(
            np.ascontiguousarray(touched[:, 0]), times.start[touched[:, 1]], times.end[touched[:, 1]]
        )
        return self.evaluated_again(affected.merged())
