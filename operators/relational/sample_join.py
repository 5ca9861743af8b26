"""Join samples: pair the common instants of two groups with equal keys (semantics 3.4).

Instants of both sides are multiples of the same step, so a common stretch is a slice of each. A pair of samples has the
smaller certainty of the two; where either is absent so is the pair. Each side keeps its bounds.
"""

from __future__ import annotations

from operator import is_
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.samples.grid_runs import Common, common_stretches, copy_codes, copy_stretches
from pulse.operators.data.samples import Samples
from pulse.operators.relational.equi_join import equal_pairs


def join_samples(
    left: Samples, right: Samples, equal: tuple[tuple[str, str], ...], columns: Columns
) -> Samples:
    """Join the common instants of all groups whose key columns ``equal`` (left, right) agree; all pairs if it is empty.

    ``columns`` are the plan node's: left's attributes, then right's, by role. They match by position, not by name, so that a
    relation can be joined with itself.
    """
    if left.every != right.every:
        raise ValueError(f"join: expected samples at one rate, got every {left.every} and {right.every} us")
    pairs, found = _common(left, right, equal)
    used = np.unique(found.pair)
    group = np.searchsorted(used, found.pair)
    keys = [column.take(pa.array(pairs[used, 0])) for column in left.keys]
    keys += [column.take(pa.array(pairs[used, 1])) for column in right.keys]
    values, err, unmodelled, codes = {}, {}, {}, []
    modelled, others = iter(columns.modelled), iter(columns.unmodelled_names)
    for side, starts in ((left, found.left), (right, found.right)):
        for name, out in zip(side.columns.modelled, modelled, strict=False):
            values[out] = copy_stretches(side.values[name], starts, found.offsets)
            err[out] = copy_stretches(side.err[name], starts, found.offsets)
        index = pa.array(_places(starts, found.offsets)) if side.columns.unmodelled else None
        for name, out in zip(side.columns.unmodelled_names, others, strict=False):
            unmodelled[out] = side.unmodelled[name].take(index)
        codes.append(copy_codes(side.certainty, starts, found.offsets))
    return Samples(
        columns=columns,
        keys=tuple(keys),
        group=group,
        first=found.first,
        offsets=found.offsets,
        every=left.every,
        values=values,
        err=err,
        certainty=np.minimum(codes[0], codes[1], out=recycled(int(found.offsets[-1]), np.uint8)),
        unmodelled=unmodelled,
    )


def _common(left: Samples, right: Samples, equal: tuple[tuple[str, str], ...]) -> tuple[IntArray, Common]:
    """Pair groups and find the common stretches of each pair; equal stretches on both sides are reused."""
    if _has_same_keys(left, right, equal):
        groups = np.arange(left.groups)
        pairs = np.stack((groups, groups), axis=1)
        if left.group is right.group and left.first is right.first and left.offsets is right.offsets:
            starts = left.offsets[:-1]
            return pairs, Common(left.group, left.first, left.offsets, starts, starts)
    else:
        pairs = equal_pairs(cast(Any, left), cast(Any, right), equal)
    sides = [(side.group, side.first, side.offsets) for side in (left, right)]
    return pairs, common_stretches(pairs, sides[0], sides[1], left.every)


def _has_same_keys(left: Samples, right: Samples, equal: tuple[tuple[str, str], ...]) -> bool:
    """Test whether every group pairs with itself: both sides share all key columns, and ``equal`` compares each with itself."""
    names = left.columns.key_names, right.columns.key_names
    places = {(names[0].index(a), names[1].index(b)) for a, b in equal}
    whole = bool(equal) and places == {(i, i) for i in range(len(left.keys))}
    return whole and len(left.keys) == len(right.keys) and all(map(is_, left.keys, right.keys))


def _places(starts: IntArray, offsets: IntArray) -> IntArray:
    places: IntArray = np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[-1])
    return places
