"""Find the connected components of a graph."""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import IntArray


def connected(a: IntArray, b: IntArray, n: int) -> IntArray:
    """Number ``n`` nodes by component, in the order of first nodes; edges join node ``a[i]`` to ``b[i]``.

    >>> connected(np.array([3, 1]), np.array([1, 4]), 5).tolist()
    [0, 1, 2, 1, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(a), bool), (a, b)), shape=(n, n))
    found: IntArray = connected_components(edges, directed=False)[1]
    return found
