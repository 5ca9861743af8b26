"""Define needs: per modelled column of a node's output, and key, the largest error that keeps the query's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.arrow_types import decoded
from pulse.core.keys import key_ranks

Needs: TypeAlias = dict[str, FloatArray]
"""By column, one entry per group of the node's relation: infinite where nothing depends on it, NaN where unknown."""


def smaller(a: Needs, b: Needs) -> Needs:
    """Combine two needs by the smaller of each.

    >>> smaller({"x": np.array([1.0, np.nan])}, {"x": np.array([2.0, 3.0])})
    {'x': array([1., 3.])}
    """
    out = dict(a)
    for name, need in b.items():
        out[name] = np.fmin(out[name], need) if name in out else need
    return out


TUPLE_RATE = "#pace"
"""The entry for each key's tuples per second, among the volatilities of a stream's attributes."""


def positions(keys: Sequence[pa.Array], among: Sequence[pa.Array], n: int, m: int) -> IntArray:
    """Return the position of each of ``n`` keys among ``m`` others (the last of equal ones), or -1.

    Without key columns all keys are equal.

    >>> positions([pa.array(["b", "x"])], [pa.array(["a", "b"])], 2, 2)
    array([ 1, -1])
    """
    columns = [
        pa.concat_arrays([decoded(b), decoded(a).cast(decoded(b).type)])
        for a, b in zip(keys, among, strict=True)
    ]
    ranks = key_ranks(columns, m + n)
    where = np.full(int(ranks.max(initial=-1)) + 1, -1, np.int64)
    where[ranks[:m]] = np.arange(m)
    return where[ranks[m:]]


def group_min(values: FloatArray, place: IntArray, n: int) -> FloatArray:
    """Return the smallest value at each of ``n`` places, NaN without one; NaN values and negative places are ignored."""
    out = np.full(n, np.nan)
    there = place >= 0
    np.fmin.at(out, place[there], values[there])
    return out


def group_max(values: FloatArray, place: IntArray, n: int) -> FloatArray:
    """Return the largest value at each of ``n`` places, NaN without one."""
    return -group_min(-values, place, n)


def gather(values: FloatArray, place: IntArray) -> FloatArray:
    """Return ``values[place]``, NaN for negative places."""
    return np.where(place >= 0, np.append(values, np.nan)[place], np.nan)
