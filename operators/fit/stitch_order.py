"""The order of what is stitched: parts by key, unit, kind and time, and the segments that come of them by key and time.

Units are fitted key by key and in the order of time, so that parts need only be dealt to their keys and units, which takes one
pass; where they came otherwise they are sorted.
"""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.segment.order import Ranges, time_order
from pulse.kernels.counting_sort import group

_PLACES_PER_ROW = 4  # more than so many kinds of places a row are not worth counting


def arranged(rank: IntArray, unit: IntArray, part: IntArray, ref: IntArray, lo: FloatArray) -> IntArray:
    """The rows by ``rank``, ``unit``, ``part``, ``ref`` and ``lo``, in this order; those equal in all as they came."""
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
    """Whether times do not fall among rows of one code."""
    later, earlier = slice(1, None), slice(None, -1)
    falls = ref[later] < ref[earlier]
    falls |= (ref[later] == ref[earlier]) & (lo[later] < lo[earlier])
    return not bool((falls & (code[later] == code[earlier])).any())


def at_rest(ranges: Ranges) -> tuple[IntArray, BoolArray]:
    """The rows by key and time, without points that are overruled; which of them are points that end a key.

    A point is overruled where something else of its key begins at its very instant: of equal timestamps the last one rules
    (semantics 2.5).
    """
    order = time_order(ranges)
    order = np.arange(len(ranges.rank)) if order is None else order
    rank, ref, lo, hi = ranges.take(order)
    here, after = slice(None, -1), slice(1, None)
    point = lo == hi
    overruled = np.zeros(len(order), dtype=bool)
    overruled[here] = (rank[here] == rank[after]) & (ref[here] == ref[after]) & (lo[here] == lo[after])
    kept = ~(overruled & point)
    rank, point = rank[kept], point[kept]
    return order[kept], point & np.append(np.diff(rank) != 0, True)[: len(rank)]
