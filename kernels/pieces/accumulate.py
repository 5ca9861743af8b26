"""Integrate rates per row over time, group by group: the growth of a drift (semantics 1.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN_INT1, OUT1, kernel
from pulse.kernels.rounding import UNIT

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_SMALLEST = 2.0**-1074  # the most that a product loses by underflow


@kernel(IN_INT1, IN1, IN1, IN1, OUT1)
def _accumulate(offsets, rates, lo, hi, out):
    for g in range(offsets.shape[0] - 1):
        total, terms = 0.0, 0
        for i in range(offsets[g], offsets[g + 1]):
            if rates[i] > 0.0:  # a row of zero length adds nothing, even with an infinite rate
                if hi[i] > lo[i]:
                    total += rates[i] * (hi[i] - lo[i]) + _SMALLEST
                terms += 1
            out[i] = total * (1.0 + 2 * (terms + 2) * UNIT)


def accumulate(offsets: Integers, rates: Array, lo: Array, hi: Array) -> Array:
    """Return per row an upper bound of ``sum(rates * (hi - lo))`` from the first row of its group (``offsets``) to itself.

    Each group is summed on its own: a running sum over all groups, minus the sum before the group, would lose a small group's
    rates next to a large one's. A sum of ``m`` non-negative terms is off by at most ``m + 1`` roundings, which are added.

    >>> accumulate(np.array([0, 1, 3]), np.array([1e16, 1.0, 1.0]), np.zeros(3), np.ones(3)).round(9).tolist()
    [1.0000000000000006e+16, 1.0, 2.0]
    """
    out = np.empty(len(rates))
    columns = [np.ascontiguousarray(one, np.float64) for one in (rates, lo, hi)]
    _accumulate(np.ascontiguousarray(offsets, np.int64), *columns, out)
    return out
