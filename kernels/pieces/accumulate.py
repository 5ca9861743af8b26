"""Rates per row that add up over time, group by group: what a drift grows by (semantics 1.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN_INT1, OUT1, kernel
from pulse.kernels.rounding import UNIT

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_SMALLEST = 2.0**-1074  # what a product that underflows may lose


@kernel(IN_INT1, IN1, IN1, IN1, OUT1)
def _accumulate(offsets, rates, lo, hi, out):
    for g in range(offsets.shape[0] - 1):
        total, terms = 0.0, 0
        for i in range(offsets[g], offsets[g + 1]):
            if rates[i] > 0.0:  # a row that lasts no time adds nothing, were its rate infinite
                if hi[i] > lo[i]:
                    total += rates[i] * (hi[i] - lo[i]) + _SMALLEST
                terms += 1
            out[i] = total * (1.0 + 2 * (terms + 2) * UNIT)


def accumulate(offsets: Integers, rates: Array, lo: Array, hi: Array) -> Array:
    """Per row of groups ``offsets`` an upper bound of ``sum(rates * (hi - lo))`` from the first row of its group to itself.

    Every group is added up by itself: a sum over all groups less the sum before the group would lose a small group's rates beside
    a large one's. A sum of ``m`` terms, none negative, is off by ``m + 1`` roundings of itself at most, which are added.

    >>> accumulate(np.array([0, 1, 3]), np.array([1e16, 1.0, 1.0]), np.zeros(3), np.ones(3)).round(9).tolist()
    [1.0000000000000006e+16, 1.0, 2.0]
    """
    out = np.empty(len(rates))
    columns = [np.ascontiguousarray(one, np.float64) for one in (rates, lo, hi)]
    _accumulate(np.ascontiguousarray(offsets, np.int64), *columns, out)
    return out
