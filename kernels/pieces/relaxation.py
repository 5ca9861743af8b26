"""Follow a piecewise polynomial with exponential memory: the solution of ``y' = (x - y) / tau`` at the start of each piece.

On a piece ``x`` is a polynomial, and so is the particular solution ``p = x - tau x' + tau^2 x'' - …``, with coefficients
``p_j = c_j - tau (j + 1) p_(j+1)``. The solution is ``y(t) = p(t) + (y(lo) - p(lo)) exp(-(t - lo) / tau)``, which is a mean of
all earlier values of ``x``: where these err by at most ``err`` per piece, the error of ``y`` follows ``e' = (err - e) / tau``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import FLOAT, IN1, IN2, IN_INT1, OUT2, device, kernel
from pulse.kernels.rounding import UNIT

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_VALUE, _TRANSIENT, _ERROR, _ROUNDING = range(4)


@device
def _horner(c, i, k, t):
    value = c[i, k - 1]
    for j in range(k - 2, -1, -1):
        value = value * t + c[i, j]
    return value


@device
def _particular(c, i, k, tau, reach, p):
    """Fill row ``i`` of ``p``; return the sum of its terms at their largest for ``|t| <= reach``, before any cancel."""
    p[i, k - 1] = c[i, k - 1]
    size = abs(c[i, k - 1])
    total = size
    for j in range(k - 2, -1, -1):
        p[i, j] = c[i, j] - tau * (j + 1) * p[i, j + 1]
        size = abs(c[i, j]) + tau * (j + 1) * size
        total = total * reach + size
    return total


@kernel(IN_INT1, IN1, IN1, IN2, IN1, FLOAT, OUT2, OUT2)
def _relax(runs, lo, hi, c, err, tau, p, out):
    k = c.shape[1]
    for r in range(runs.shape[0] - 1):
        value, error, rounding = 0.0, 0.0, 0.0
        for i in range(runs[r], runs[r + 1]):
            size = _particular(c, i, k, tau, max(abs(lo[i]), abs(hi[i])), p)
            own = 8.0 * k * UNIT * size
            if i == runs[r]:
                value, error, rounding = _horner(c, i, k, lo[i]), err[i], own
            first, last = _horner(p, i, k, lo[i]), _horner(p, i, k, hi[i])
            transient = value - first
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = value, transient, error, rounding + 2.0 * own
            fade = math.exp(-(hi[i] - lo[i]) / tau)
            grown = 1.0 + 16.0 * UNIT
            rounding = (rounding * fade + 3.0 * own + 8.0 * UNIT * (abs(transient) + abs(last))) * grown
            value = last + transient * fade
            # Two positive terms: as err + (error - err) * fade it would lose the digits of an error far below err.
            error = (error * fade - err[i] * math.expm1(-(hi[i] - lo[i]) / tau)) * grown


class Relaxed(NamedTuple):
    """Per piece: the particular solution's coefficients, and where the piece starts the value, its distance from the
    particular solution, the bound of the error that ``err`` causes, and the bound of the rounding of all of them.
    """

    particular: Array
    value: Array
    transient: Array
    error: Array
    rounding: Array


def relax(runs: Integers, lo: Array, hi: Array, c: Array, err: Array, tau: float) -> Relaxed:
    """Solve ``y' = (x - y) / tau`` over runs of pieces without holes, each from ``y = x`` at its first instant.

    ``runs`` are the offsets of the runs, ``c`` of shape ``(n, k)`` coefficients about each piece's own reference, ``lo`` and
    ``hi`` seconds from it, ``tau`` seconds above zero. No pieces, no result.

    >>> made = relax(np.array([0, 2]), np.zeros(2), np.ones(2), np.array([[1.0], [3.0]]), np.array([0.5, 0.0]), 1.0)
    >>> made.value.tolist(), made.transient.tolist(), made.error.tolist()
    ([1.0, 1.0], [0.0, -2.0], [0.5, 0.5000000000000009])
    """
    if not tau > 0.0 or not math.isfinite(tau):
        raise ValueError(f"tau: expected a number of seconds above 0, got {tau!r}")
    columns = [np.ascontiguousarray(one, np.float64) for one in (lo, hi, c, err)]
    p, out = np.empty(columns[2].shape), np.empty((len(lo), 4))
    _relax(np.ascontiguousarray(runs, np.int64), *columns, float(tau), p, out)
    return Relaxed(p, *(np.ascontiguousarray(out[:, j]) for j in (_VALUE, _TRANSIENT, _ERROR, _ROUNDING)))
