"""Squares of the plane in a table of lists: where pairs within reach are looked for, in the nine squares around a place."""

from __future__ import annotations

import numpy as np

from pulse.benchmarks.peers.compiled import compiled


@compiled
def square(cx, cy, mask):
    """The list of a square, given by whole numbers; ``mask`` is a power of two less one. Squares may share a list."""
    h = cx * 73856093 ^ cy * 19349663
    return (h ^ (h >> 15)) & mask


@compiled
def cell(x, side):
    """Which square along an axis."""
    return np.int64(np.floor(x / side))
