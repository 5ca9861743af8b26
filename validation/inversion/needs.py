"""Define needs: per modelled column of a node's output, and key, the largest error that keeps the query's bounds."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pulse.core.arrays import FloatArray

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
