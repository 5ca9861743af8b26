"""Propagate deltas through a scan: those of its stream, restricted to what it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.expression import TRUE
from pulse.operators.incremental.arrangement_buffers import bare
from pulse.operators.incremental.base import IncrementalOperator, Maintenance
from pulse.operators.incremental.delta import BeforeAfter, Delta, KeyRanges, changed_rows, diff_rows
from pulse.operators.reach import NONE

if TYPE_CHECKING:
    from pulse.operators.relational.scan import Scan


class IncrementalScan(IncrementalOperator):
    """A scan of a stream; the connection point is the stream's, shared by all its scans."""

    node: Scan

    def __init__(self, node: Scan, view: Maintenance) -> None:
        super().__init__(node, view, False, (), NONE)
        self.point = view.arrangement(node.stream)
        self._wanted: BoolArray = np.zeros(0, bool)

    def keys(self) -> tuple[pa.Array, ...]:
        assert self.point is not None
        return self.point.keys

    def count(self) -> int:
        assert self.point is not None
        return self.point.groups

    def codes(self) -> IntArray:
        wanted = self.wanted()
        return np.arange(self.count()) if wanted is None else np.flatnonzero(wanted)

    def codes_of(self, keys: tuple[pa.Array, ...], n: int) -> IntArray:
        assert self.point is not None
        return self.point.codes(keys, n)

    def wanted(self) -> BoolArray | None:
        """Return which codes the scan reads; None for all."""
        if self.node.keys == TRUE:
            return None
        if len(self._wanted) < self.count():
            columns = replace(self.node.stored, modelled=(), unmodelled=())
            numbered = replace(
                columns, key=(*((name, type_) for name, type_ in columns.key), ("#code", pa.int64()))
            )
            every = bare(numbered, (*self.keys(), pa.array(np.arange(self.count()))), self.count())
            chosen = self.view.of_keys(every, self.node.keys).keys[-1].to_numpy()
            self._wanted = np.zeros(self.count(), bool)
            self._wanted[chosen] = True
        return self._wanted

    def begin(self) -> None:
        self.delta = self.cache = None

    @property
    def revised(self) -> int:
        assert self.point is not None
        return len(self.point.pending)

    def record(self, delta: Delta) -> None:
        self.delta = delta

    def content(self, stretches: KeyRanges) -> BeforeAfter:
        assert self.point is not None
        found = self.point.content(stretches, self.wanted())
        return found.within(self.node.narrowed(found.relation))

    def change(self) -> Delta:
        assert self.point is not None
        raw = self.point.pending
        wanted = self.wanted()
        if wanted is not None:
            chosen = np.flatnonzero(wanted[raw.stretches.code])
            raw = Delta(raw.stretches.take(chosen), raw.relation, raw.old[chosen], raw.new[chosen])
        if self._is_plain:
            return diff_rows(self.node.narrowed(raw.relation), raw.stretches.code, raw.old, raw.new)
        content = raw.content()
        return changed_rows(content.within(self.node.narrowed(content.relation)))

    @property
    def _is_plain(self) -> bool:
        """Return whether rows stay as stored, apart from their names."""
        return self.node.start is None and self.node.end is None and not self.node.models
