"""Propagate deltas where several input keys make one output key: unions and aggregates across keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.operators.incremental.base import IncrementalOperator
from pulse.operators.incremental.delta import Delta, KeyRanges, concat_ranges


class DerivedKeys(IncrementalOperator):
    """An operator whose keys derive from its inputs' keys: codes go by value, in the order of first appearance."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._code: dict[tuple[Any, ...], int] = {}
        self._of: list[IntArray] = [np.zeros(0, np.int64) for _ in self.inputs]  # own code per input code

    def key_columns(self, side: int) -> tuple[pa.Array, ...]:
        """Return the columns of an input's keys that form the own keys."""
        return self.inputs[side].keys()

    def own(self, side: int) -> IntArray:
        """Return the own codes of all codes of an input."""
        arc, known = self.inputs[side], self._code
        have, n = len(self._of[side]), arc.count()
        if have < n:
            columns = [column.slice(have).to_pylist() for column in self.key_columns(side)]
            rows = list(zip(*columns, strict=True)) if columns else [()] * (n - have)
            fresh = [known.setdefault(row, len(known)) for row in rows]
            self._of[side] = np.concatenate([self._of[side], np.array(fresh, np.int64)])
        return self._of[side]

    def keys(self) -> tuple[pa.Array, ...]:
        for side in range(len(self.inputs)):
            self.own(side)
        types = [type_ for _, type_ in self.node.columns.key]
        columns = list(zip(*self._code, strict=True)) if self._code else [()] * len(types)
        return tuple(pa.array(list(values), type_) for values, type_ in zip(columns, types, strict=True))

    def count(self) -> int:
        for side in range(len(self.inputs)):
            self.own(side)
        return len(self._code)

    def codes(self) -> IntArray:
        found = [self.own(side)[arc.codes()] for side, arc in enumerate(self.inputs)]
        return np.unique(np.concatenate(found))

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        self.count()
        rows = zip(*(column.to_pylist() for column in keys), strict=True) if keys else [()] * n
        return np.array([self._code[row] for row in rows], np.int64)

    def estimate(self, stretches: KeyRanges) -> IntArray:
        if self.point is not None:
            return super().estimate(stretches)
        total = np.zeros(len(stretches), np.int64)
        for side, arc in enumerate(self.inputs):
            requested, of = self.requested(side, stretches)
            np.add.at(total, of, arc.estimate(requested))
        return 2 * total

    def requested(self, side: int, stretches: KeyRanges) -> tuple[KeyRanges, IntArray]:
        """Return the stretches of an input's keys behind own stretches, and the own stretch of each."""
        codes = self.inputs[side].codes()
        own = self.own(side)[codes]
        order = np.argsort(own, kind="stable")
        codes, own = codes[order], own[order]
        first, last = np.searchsorted(own, stretches.code), np.searchsorted(own, stretches.code, "right")
        at, offsets = concat_ranges(np.stack([first, last], axis=1))
        of = np.repeat(np.arange(len(stretches)), np.diff(offsets))
        return KeyRanges(codes[at], stretches.start[of], stretches.end[of]), of

    def _affected(self) -> KeyRanges:
        """Return the stretches in which an input changed, under own codes."""
        parts = []
        for side, arc in enumerate(self.inputs):
            assert arc.delta is not None
            parts.append(replace(arc.delta.stretches, code=self.own(side)[arc.delta.stretches.code]))
        return KeyRanges.concat(parts).merged()

    def changed(self, mode: str) -> Delta:
        """Evaluate what changed again, in this mode."""
        self.count_mode(mode, self.revised)
        return self.evaluated_again(self._affected())
