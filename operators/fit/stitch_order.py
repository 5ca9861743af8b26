"""Order the input and output of stitching: parts by key, unit, kind and time; segments by key and time.

Units are fitted key by key in time order, so parts only need grouping by key and unit, which takes one pass. Parts in any
other order are sorted.
"""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.segment.order import Ranges, time_order
from pulse.kernels.counting_sort import group

_PLACES_PER_ROW = 4  # with more codes than this per row, sorting beats counting


def part_order(rank: IntArray, unit: IntArray, part: IntArray, ref: IntArray, lo: FloatArray) -> IntArray:
    """Return the row order by ``rank``, ``unit``, ``part``, ``ref`` and ``lo``; ties keep their order of arrival."""
    n = len(rank)
    if n:
        first, units, parts = int(unit.min()), int(unit.max() - unit.min()) + 1, int(part.max()) + 1
        places = (int(rank.max()) + 1) * units * parts
        if places <= _PLACES_PER_ROW * n + 1024:
            code = (rank * units + (unit - first)) * parts + part
            order = group(code, places)[0]
            order = np.arange(n) if order is None else order
            if _ascend(code[order], ref[order], lo[order]):
                return order
    return np.lexsort((lo, ref, part, unit, rank))


def _ascend(code: IntArray, ref: IntArray, lo: FloatArray) -> bool:
    """Return whether times never decrease among the rows of a code."""
    later, earlier = slice(1, None), slice(None, -1)
    falls = ref[later] < ref[earlier]
    falls |= (ref[later] == ref[earlier]) & (lo[later] < lo[earlier])
    return not bool((falls & (code[later] == code[earlier])).any())


def at_rest(ranges: Ranges) -> tuple[IntArray, BoolArray]:
    """Return the rows by key and time without superseded points, and a mask of the points that end a key.

    A point is superseded where another row of its key begins at the same instant: the last of equal timestamps counts
    (semantics 2.5).
    """
    order = time_order(ranges)
    order = np.arange(len(ranges.rank)) if order is None else order
    rank, ref, lo, hi = ranges.take(order)
    here, after = slice(None, -1), slice(1, None)
    point = lo == hi
    superseded = np.zeros(len(order), dtype=bool)
    superseded[here] = (rank[here] == rank[after]) & (ref[here] == ref[after]) & (lo[here] == lo[after])
    kept = ~(superseded & point)
    rank, point = rank[kept], point[kept]
    return order[kept], point & np.append(np.diff(rank) != 0, True)[: len(rank)]
