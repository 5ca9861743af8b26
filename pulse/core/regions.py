"""Represent time ranges of keys: the regions that a revision changes, and those to read for it (semantics 7.4).

A region is a key and a range ``[start, end)`` in microseconds since the epoch. A set may contain several of one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.keys import key_ranks
from pulse.core.time import EARLIEST, LATEST


@dataclass(frozen=True, eq=False)
class Regions:
    """A set of regions; ``keys`` are the key columns, one row per region, none for a stream without a key."""

    keys: tuple[pa.Array, ...]
    start: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of_instants(cls, keys: Sequence[pa.Array], times: IntArray) -> Regions:
        """Build regions of one microsecond at each instant."""
        return cls(tuple(keys), times, times + 1)

    def take(self, rows: IntArray) -> Regions:
        """Return these regions, in this order."""
        index = pa.array(rows)
        return Regions(tuple(column.take(index) for column in self.keys), self.start[rows], self.end[rows])

    def widened(self, before: int, after: int) -> Regions:
        """Extend each region at its ends, by microseconds."""
        return replace(
            self,
            start=np.maximum(self.start, EARLIEST + before) - before,
            end=np.minimum(self.end, LATEST - after) + after,
        )

    def merged(self) -> Regions:
        """Sort by key and time, merge regions that overlap or touch, and drop empty ones.

        >>> key = pa.array(["a", "b", "a", "a"])
        >>> whole = Regions((key,), np.array([5, 0, 0, 20]), np.array([9, 1, 5, 30])).merged()
        >>> whole.keys[0].to_pylist(), whole.start.tolist(), whole.end.tolist()
        (['a', 'a', 'b'], [0, 20, 0], [9, 30, 1])
        """
        some = self.take(np.flatnonzero(self.end > self.start))
        if not len(some):
            return some
        ranks = key_ranks(list(some.keys), len(some))
        order = np.lexsort((some.start, ranks))
        some, ranks = some.take(order), ranks[order]
        first = np.empty(len(some), bool)
        reached = 0
        for i in range(len(some)):  # few: one per revision
            first[i] = i == 0 or ranks[i] != ranks[i - 1] or some.start[i] > reached
            reached = int(some.end[i]) if first[i] else max(reached, int(some.end[i]))
        starts = np.flatnonzero(first)
        return replace(some.take(starts), end=np.maximum.reduceat(some.end, starts))

    @classmethod
    def concat(cls, parts: Sequence[Regions]) -> Regions:
        """Concatenate sets of regions whose key columns have the same types."""
        columns = range(len(parts[0].keys))
        return cls(
            tuple(
                pa.concat_arrays([part.keys[i].cast(parts[0].keys[i].type) for part in parts])
                for i in columns
            ),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
        )
