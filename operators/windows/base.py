"""Define the parts that aggregates over a window of one key share (semantics 3.5, 3.6): definition and certainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.certainty import CertaintyArray
from pulse.core.columns import Columns


@dataclass(frozen=True)
class WindowFunction:
    """An aggregate: ``function`` of ``argument`` over windows of ``size`` microseconds, named ``output``.

    ``advance`` gives the closing times at which tuples are emitted; segments cover all closing times.
    """

    function: str
    argument: str
    output: str
    size: int
    advance: int | None = None

    def columns(self, before: Columns) -> Columns:
        """Return the output columns for an input with these columns."""
        return Columns(before.key, (self.output,), (), before.time)


def least_certain(certainty: CertaintyArray, first: IntArray, last: IntArray) -> CertaintyArray:
    """Return the smallest certainty among rows ``first[i] … last[i]`` of each span."""
    least = np.full(len(first), 3, np.uint8)
    for code in (3, 2, 1):
        below = np.concatenate(([0], np.cumsum(certainty < code)))
        least -= (below[last + 1] > below[first]).astype(np.uint8)
    return least
