"""Add up the values of each key's tuples: the running total after each tuple, and a bound on its rounding (semantics 2.2, 2.5).

The total of a flow after tuple ``i`` is ``F[i] = sum of v[j]`` over the tuples ``j <= i`` of its key that have a place: those
that are finite and not late, judged as :mod:`pulse.kernels.fit.truth_intervals` does. It is accumulated as a double-double
``(high, low)``, so that ``F[i] = high`` errs by ``|low|`` and by what the additions of the low words rounded, at most a unit of
``low`` each. Where every sum is exact, as of counts and of sizes in whole numbers, the bound is zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN2, IN_BYTE1, IN_INT1, OUT2, kernel
from pulse.kernels.double_double import two_sum
from pulse.kernels.fit.truth_intervals import NO_TIME

STATE = 4
"""Numbers that continue a total: high word, low word, bound on lost roundings, largest error of a total so far."""
_UNIT = 2.0**-53
_GROWN = 1.0 + 2.0**-20  # sums of bounds are rounded, too, as often as there are tuples
# Per attribute: what share its values are rounded by, negative if it does not add up; per tuple: is it a total already.
_FLAGS = types.Tuple((IN1, IN_BYTE1))
_IntArray = npt.NDArray[np.int64]
_Array = npt.NDArray[np.float64]


class Totals(NamedTuple):
    """``v[A, n]``: the values, with totals in place of those of flows; ``slack[A, n]``: how much a total may err.

    The slack never decreases along a key.
    """

    v: _Array
    slack: _Array


@kernel(IN_INT1, IN2, IN_INT1, IN_INT1, _FLAGS, OUT2, OUT2, OUT2)
def _running_totals(t, v, offsets, watermark, flags, state, out, slack):
    rates, known = flags
    attributes = v.shape[0]
    for k in range(offsets.shape[0] - 1):
        mark = watermark[k]
        for i in range(offsets[k], offsets[k + 1]):
            finite = True
            for a in range(attributes):
                finite = finite and np.isfinite(v[a, i])
            counts = finite and t[i] >= mark
            if counts:
                mark = t[i]
            for a in range(attributes):
                at = STATE * a
                if rates[a] >= 0.0 and counts:
                    if known[i] == 0:
                        state[k, at + 2] += rates[a] * abs(v[a, i])
                        high, error = two_sum(state[k, at], v[a, i])
                        low = state[k, at + 1] + error
                        if error != 0.0 and state[k, at + 1] != 0.0:
                            state[k, at + 2] += _UNIT * abs(low)
                        high, low = two_sum(high, low)
                        state[k, at], state[k, at + 1] = high, low
                        off = (abs(low) + state[k, at + 2]) * _GROWN
                        state[k, at + 3] = max(state[k, at + 3], off)
                        out[a, i] = high
                    slack[a, i] = state[k, at + 3]


def running_totals(
    t: _IntArray,
    v: _Array,
    offsets: _IntArray,
    adds: npt.NDArray[np.bool_],
    *,
    watermark: _IntArray | None = None,
    known: npt.NDArray[np.bool_] | None = None,
    state: _Array | None = None,
    rates: _Array | None = None,
) -> Totals:
    """Replace the values of the attributes that add up by their running totals per key.

    ``t[n]`` microseconds, ``v[A, n]``, key ``k`` in ``offsets[k]:offsets[k + 1]`` in order of arrival, ``adds[A]`` which
    attributes are flows. ``watermark[K]``: what is earlier is late (default: nothing). ``known[n]`` marks tuples whose values are
    totals already: those of a pass before that come again. ``state[K, 4A]``: where totals continue, updated in place (default:
    at zero). ``rates[A]``: what share of itself each value may be rounded by (default: nothing).

    Values of tuples without a place stay as they are; a total beyond the range of floats is not finite.

    >>> running_totals(np.array([0, 5, 4, 6]), np.array([[1.0, 2.0, 9.0, 3.0]]), np.array([0, 4]), np.array([True])).v
    array([[1., 3., 9., 6.]])
    """
    attributes, n = v.shape
    keys = len(offsets) - 1
    made = np.zeros((keys, STATE * attributes)) if state is None else state
    if len(t) != n or len(adds) != attributes or made.shape != (keys, STATE * attributes):
        raise ValueError(
            f"expected v ({len(adds)}, {len(t)}) and state ({keys}, {STATE * len(adds)}), got {v.shape} and {made.shape}"
        )
    marks = np.full(keys, NO_TIME, dtype=np.int64) if watermark is None else watermark
    shares = np.where(adds, 0.0 if rates is None else rates, -1.0)
    again = np.zeros(n, dtype=np.uint8) if known is None else known.astype(np.uint8)
    out, slack = np.array(v, dtype=np.float64, order="C"), np.zeros((attributes, n))
    _running_totals(t, np.ascontiguousarray(v), offsets, marks, (shares, again), made, out, slack)
    return Totals(out, slack)
