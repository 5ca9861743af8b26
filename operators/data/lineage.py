"""Track which input segments caused each row of a relation (semantics 1.5); every operator maintains it on request.

A sparse table: row ``i`` was caused by ``table[entries[offsets[i]:offsets[i + 1]]]``, entries of id, key, ref, lo and hi.
Operators compose it by taking, merging and spanning rows; they never look up the inputs again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.schema import LINEAGE


@dataclass(frozen=True, eq=False)
class Lineage:
    """The causes of ``len(offsets) - 1`` rows; the entries of a row ascend and are distinct."""

    offsets: IntArray
    entries: IntArray
    table: pa.StructArray

    @classmethod
    def of(cls, lists: pa.ListArray) -> Lineage:
        """Build from a ``lineage`` column; a cause of several rows becomes one entry, so a window over them lists it once."""
        offsets = lists.offsets.to_numpy().astype(np.int64)
        table = lists.values[int(offsets[0]) : int(offsets[-1])]
        return cls(offsets - offsets[0], np.arange(len(table)), table)._deduplicated()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: IntArray) -> Lineage:
        """Return the causes of these rows."""
        starts, counts = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Lineage(offsets, self.entries[_ranges(starts, counts, offsets)], self.table)

    def spans(self, first: IntArray, last: IntArray) -> Lineage:
        """Unite the causes of rows ``first[i] … last[i]`` (inclusive), as for a window."""
        starts = self.offsets[first]
        counts = self.offsets[last + 1] - starts
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Lineage(offsets, self.entries[_ranges(starts, counts, offsets)], self.table)._distinct()

    def gather(self, offsets: IntArray, rows: IntArray) -> Lineage:
        """Unite the causes of the rows ``rows[offsets[i]:offsets[i + 1]]`` for each output row ``i``."""
        taken = self.take(rows)
        return Lineage(taken.offsets[offsets], taken.entries, taken.table)._distinct()

    @staticmethod
    def merge(a: Lineage, b: Lineage) -> Lineage:
        """Unite the causes of two lineages row by row, as for a join."""
        counts_a, counts_b = np.diff(a.offsets), np.diff(b.offsets)
        offsets = np.concatenate(([0], np.cumsum(counts_a + counts_b)))
        entries = np.empty(offsets[-1], np.int64)
        entries[_ranges(offsets[:-1], counts_a, np.concatenate(([0], np.cumsum(counts_a))))] = a.entries
        same = a.table is b.table
        moved = b.entries if same else b.entries + len(a.table)
        entries[_ranges(offsets[:-1] + counts_a, counts_b, np.concatenate(([0], np.cumsum(counts_b))))] = (
            moved
        )
        if same:
            return Lineage(offsets, entries, a.table)._distinct()
        table = pa.concat_arrays([a.table, b.table])
        return Lineage(offsets, _firsts(table)[entries], table)._distinct()

    @staticmethod
    def concat(parts: list[Lineage]) -> Lineage:
        """Concatenate lineages; a cause that occurs in several parts becomes one entry."""
        before = np.cumsum([0, *(len(part.table) for part in parts)])
        entries = [part.entries + shift for part, shift in zip(parts, before, strict=False)]
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        table = pa.concat_arrays([part.table for part in parts])
        whole = Lineage(np.concatenate(([0], np.cumsum(counts))), np.concatenate(entries), table)
        return whole._deduplicated()

    def to_arrow(self) -> pa.ListArray:
        """Return the ``lineage`` column."""
        table = self.table.take(pa.array(self.entries))
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), table).cast(LINEAGE)

    def _deduplicated(self) -> Lineage:
        """Map equal causes to one entry."""
        firsts = _firsts(self.table)
        once = np.array_equal(firsts, np.arange(len(firsts)))
        return self if once else Lineage(self.offsets, firsts[self.entries], self.table)._distinct()

    def _distinct(self) -> Lineage:
        """List each cause of a row once."""
        row = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        order = np.lexsort((self.entries, row))
        row, entries = row[order], self.entries[order]
        fresh = np.ones(len(row), bool)
        fresh[1:] = (row[1:] != row[:-1]) | (entries[1:] != entries[:-1])
        counts = np.bincount(row[fresh], minlength=len(self))
        return Lineage(np.concatenate(([0], np.cumsum(counts))), entries[fresh], self.table)


def _firsts(table: pa.StructArray) -> IntArray:
    """Find for each entry the first equal one: entries from different exchanges may have one origin."""
    segment, key, ref, lo, hi = table.flatten()
    codes = key.dictionary_encode().indices.fill_null(-1)
    columns = [one.to_numpy() for one in (hi, lo, ref.view(pa.int64()), codes, segment)]
    order = np.lexsort(columns)
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any([one[order][1:] != one[order][:-1] for one in columns], axis=0)
    firsts = np.empty(len(order), np.int64)
    firsts[order] = order[np.flatnonzero(fresh)[np.cumsum(fresh) - 1]]
    return firsts


def _ranges(starts: IntArray, counts: IntArray, offsets: IntArray) -> IntArray:
    """Concatenate ``starts[i], starts[i] + 1, …`` (``counts[i]`` of them); ``offsets`` are the cumulated counts."""
    places: IntArray = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
    return places
