"""What aggregates over a window of one key share (semantics 3.5, 3.6): their definition, and the certainty of a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.certainty import CertaintyArray
from pulse.core.columns import Columns


@dataclass(frozen=True)
class WindowFunction:
    """``function`` of ``argument`` over windows of ``size`` microseconds, named ``output``.

    ``advance`` says at which closing times tuples are asked for; segments know all of them.
    """

    function: str
    argument: str
    output: str
    size: int
    advance: int | None = None

    def columns(self, before: Columns) -> Columns:
        """What comes out of an input of such columns."""
        return Columns(before.key, (self.output,), (), before.time)


def least_certain(certainty: CertaintyArray, first: IntArray, last: IntArray) -> CertaintyArray:
    """The smallest certainty among rows ``first[i] … last[i]``, for any number of such spans."""
    least = np.full(len(first), 3, np.uint8)
    for code in (3, 2, 1):
        below = np.concatenate(([0], np.cumsum(certainty < code)))
        least -= (below[last + 1] > below[first]).astype(np.uint8)
    return least
