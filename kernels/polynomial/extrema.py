"""Find minimum and maximum of polynomials on ranges: at the ends and the derivative's roots (semantics 3.6).

The critical points also split a range into monotone pieces, which sliding extrema and envelopes use.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, OUT1, OUT_INT1, device, kernel, step
from pulse.kernels.polynomial.arithmetic import as_batch, per_row
from pulse.kernels.polynomial.roots import Roots, roots_row, value_row
from pulse.kernels.status import EMPTY_RANGE, NOT_FINITE, OK, ZERO_POLYNOMIAL

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Above this a derivative's coefficients could overflow; they are scaled down, which moves no critical point.
_LARGE = 1e300
_SHRINK = 2.0**-16


@device
def extrema_work(k):
    """Allocate scratch for this module's row functions: the derivative in row 0, below it the scratch of its roots."""
    return np.empty((k + 4, k + 1))


@device
def critical_points_row(c, i, k, lo, hi, work, out):
    """Find the interior critical points of row ``i``: the derivative's roots in the open ``(lo, hi)``, ascending.

    Written to ``out[0:count]`` (room for ``k``); returns ``count``. Degenerate: constants, empty ranges
    and rows that are not finite have none; points of inflection with a level tangent count, and split a
    monotone stretch harmlessly.
    """
    return _critical(c, i, k, lo, hi, work, out)[0]


@device
def _critical(c, i, k, lo, hi, work, out):
    """Run :func:`critical_points_row` and also return the status of the derivative's roots."""
    if not (np.isfinite(c[i, 0]) and np.isfinite(lo) and np.isfinite(hi)):
        return 0, NOT_FINITE
    if k == 1:
        return 0, OK if lo <= hi else EMPTY_RANGE
    largest = 0.0
    for j in range(1, k):
        largest = max(largest, abs(c[i, j]))
    shrink = _SHRINK if largest > _LARGE else 1.0
    for j in range(1, k):
        work[0, j - 1] = j * (shrink * c[i, j])
    count, status = roots_row(work, 0, k - 1, lo, hi, 0.0, work[1:], out)
    if status == ZERO_POLYNOMIAL:
        status = OK
    kept = 0
    for j in range(count):
        if lo < out[j] < hi:
            out[kept] = out[j]
            kept += 1
    return kept, status


@device
def extrema_row(c, i, k, lo, hi, work, out):
    """Return ``(minimum, maximum, status)`` of row ``i`` on the closed ``[lo, hi]``; ``out`` has room for ``k``.

    Degenerate: ``lo == hi`` gives the value there twice; ``hi < lo`` the extrema of the empty set, ``(inf,
    -inf)``; a row or range that is not finite ``(-inf, inf)``, so that pruning keeps the row.
    """
    count, status = _critical(c, i, k, lo, hi, work, out)
    if status == NOT_FINITE:
        return -np.inf, np.inf, status
    if status == EMPTY_RANGE:
        return np.inf, -np.inf, status
    first = value_row(c, i, k, lo)
    last = value_row(c, i, k, hi)
    minimum = min(first, last)
    maximum = max(first, last)
    for j in range(count):
        value = value_row(c, i, k, out[j])
        minimum = min(minimum, value)
        maximum = max(maximum, value)
    return minimum, maximum, OK


@step
def _line_extrema(c, i, k, lo, hi):
    """Run :func:`extrema_row` for degree 0 or 1, whose extrema are at the ends; status below 0 for unusual input."""
    first = value_row(c, i, k, lo)
    last = value_row(c, i, k, hi)
    low, high = (first, last) if first < last else (last, first)
    usual = 0.0 <= hi - lo < _LARGE and low > -_LARGE and high < _LARGE  # false for NaN
    return low, high, OK if usual else -1


@kernel(IN2, IN1, IN1, OUT1, OUT1, OUT_INT1)
def _bounds(c, lo, hi, minimum, maximum, status):
    n, k = c.shape
    work = extrema_work(k)
    points = np.empty(k)
    for i in range(n):
        if k <= 2:
            minimum[i], maximum[i], status[i] = _line_extrema(c, i, k, lo[i], hi[i])
            if status[i] >= 0:
                continue
        minimum[i], maximum[i], status[i] = extrema_row(c, i, k, lo[i], hi[i], work, points)


@kernel(IN2, IN1, IN1, OUT1, OUT_INT1, OUT_INT1)
def _critical_points(c, lo, hi, flat, offsets, status):
    n, k = c.shape
    work = extrema_work(k)
    points = np.empty(k)
    total = 0
    offsets[0] = 0
    for i in range(n):
        count, status[i] = _critical(c, i, k, lo[i], hi[i], work, points)
        for j in range(count):
            flat[total + j] = points[j]
        total += count
        offsets[i + 1] = total


def bounds(c: Array, lo: Array | float, hi: Array | float) -> tuple[Array, Array, Integers]:
    """Return ``(minimum, maximum, status)`` of each polynomial on its closed range; see :func:`extrema_row`.

    >>> bounds(np.array([[0.0, -1.0, 1.0]]), 0.0, 2.0)
    (array([-0.25]), array([2.]), array([0]))
    """
    c = as_batch(c)
    n = len(c)
    minimum, maximum = np.empty(n), np.empty(n)
    status = np.empty(n, dtype=np.int64)
    _bounds(c, per_row(lo, n), per_row(hi, n), minimum, maximum, status)
    return minimum, maximum, status


def critical_points(c: Array, lo: Array | float, hi: Array | float) -> Roots:
    """Return the interior critical points of each polynomial in its open range, in CSR; see :func:`critical_points_row`.

    >>> critical_points(np.array([[0.0, -1.0, 1.0]]), 0.0, 2.0).roots
    array([0.5])
    """
    c = as_batch(c)
    n, k = c.shape
    flat = np.empty(n * max(k - 2, 0))
    offsets = np.empty(n + 1, dtype=np.int64)
    status = np.empty(n, dtype=np.int64)
    _critical_points(c, per_row(lo, n), per_row(hi, n), flat, offsets, status)
    return Roots(offsets, flat[: offsets[-1]].copy(), status)
