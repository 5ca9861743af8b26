"""Classify whole ranges of a model with an error bound into bands about zero, to decide comparisons without root finding.

For ``D = left - right`` with ``|error of D| <= e`` there are four bands, and a comparison has one answer in each (semantics 3.9;
the table of :mod:`pulse.operators.expressions.solve`)::

    BELOW      D < -e        every truth is below zero
    UNDER      -e < D < 0    the model is below, some truth is not
    OVER       0 < D < e
    ABOVE      D > e

A row has a band if all values of D on its closed range lie in it, clear of both edges by a multiple of rounding; roots and
signs would then give the same answer. Otherwise, and where a value is not finite or the range is empty, the row is
MIXED: to be solved. Most segments of most queries have a band, and finding it takes two values of a line.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import FLOAT, IN1, IN2, OUT_BYTE1, kernel, step
from pulse.kernels.polynomial.arithmetic import as_batch, horner, magnitude, per_row, subtract
from pulse.kernels.polynomial.extrema import extrema_row, extrema_work

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

BELOW, UNDER, OVER, ABOVE, MIXED = range(5)

# Solving treats values within 4 k eps of the terms' magnitude as zero, and its roots err by 2 k eps of it (polynomial.roots).
_CLEAR = 16 * 2.220446049250313e-16


@step
def band_of(low, high, e, margin):
    """Return the band of values between ``low`` and ``high``; NaN compares as false and gives MIXED."""
    if low > margin:
        if low > e + margin and e < np.inf and high < np.inf:
            return ABOVE
        if high < e - margin and e < np.inf:
            return OVER
    elif high < -margin:
        if high < -e - margin and e < np.inf and low > -np.inf:
            return BELOW
        if low > margin - e and e < np.inf:
            return UNDER
    return MIXED


@step
def _ends_in(c, i, k, span, other, e, scale):
    """Return the band of a row of degree 0 or 1, whose extremes are at its ends."""
    lo, hi = span
    first = horner(c, i, k, lo) - other
    last = horner(c, i, k, hi) - other
    reach = max(abs(lo), abs(hi))
    margin = _CLEAR * k * (magnitude(c, i, k, reach) + scale + e)
    if not lo <= hi:
        return MIXED
    return band_of(min(first, last), max(first, last), e, margin)


@kernel(IN2, IN1, IN1, IN1, FLOAT, OUT_BYTE1)
def _bands_of_lines(c, lo, hi, err, level, out):
    k = c.shape[1]
    scale = abs(level)
    if k == 1:
        for i in range(out.shape[0]):
            out[i] = _ends_in(c, i, 1, (lo[i], hi[i]), level, err[i], scale)
    else:
        for i in range(out.shape[0]):
            out[i] = _ends_in(c, i, 2, (lo[i], hi[i]), level, err[i], scale)


@kernel(IN2, IN1, IN1, IN1, IN1, OUT_BYTE1)
def _bands(c, lo, hi, err, scale, out):
    k = c.shape[1]
    work, points = extrema_work(k), np.empty(k)
    for i in range(out.shape[0]):
        low, high, _ = extrema_row(c, i, k, lo[i], hi[i], work, points)
        reach = max(abs(lo[i]), abs(hi[i]))
        margin = _CLEAR * k * (magnitude(c, i, k, reach) + scale[i] + err[i])
        out[i] = band_of(low, high, err[i], margin) if lo[i] <= hi[i] else MIXED


@kernel(IN2, IN2, IN1, IN1, IN1, FLOAT, OUT_BYTE1)
def _bands_of_distance(dx, dy, lo, hi, err, square, out):
    a, b = dx.shape[1] - 1, dy.shape[1] - 1
    level = math.sqrt(square)
    for i in range(out.shape[0]):
        x0, x1 = dx[i, 0], dx[i, a] if a > 0 else 0.0
        y0, y1 = dy[i, 0], dy[i, b] if b > 0 else 0.0
        begin, end, e = lo[i], hi[i], err[i]
        reach = abs(begin) if abs(begin) > abs(end) else abs(end)
        x, y = abs(x0) + abs(x1) * reach, abs(y0) + abs(y1) * reach
        bend, tilt = x1 * x1 + y1 * y1, x0 * x1 + y0 * y1
        middle = -tilt / bend if bend > 0.0 else begin
        middle = min(max(middle, begin), end)
        low = (x0 + x1 * middle) ** 2 + (y0 + y1 * middle) ** 2
        first = (x0 + x1 * begin) ** 2 + (y0 + y1 * begin) ** 2
        last = (x0 + x1 * end) ** 2 + (y0 + y1 * end) ** 2
        low, high = min(low, min(first, last)), max(first, last)
        outer = (level + e) * (level + e)
        inner = (level - e) * (level - e) if level > e else -np.inf
        margin = 3 * _CLEAR * (x * x + y * y + outer)
        out[i] = MIXED
        if begin <= end and margin < np.inf:  # false for NaN
            if low > outer + margin:
                out[i] = ABOVE
            elif high < inner - margin:
                out[i] = BELOW
            elif low > square + margin and high < outer - margin:
                out[i] = OVER
            elif high < square - margin and low > inner + margin:
                out[i] = UNDER


def bands_of_distance(dx: Array, dy: Array, lo: Array, hi: Array, err: Array, square: float) -> Bytes:
    """Return the band of a distance ``sqrt(dx^2 + dy^2)``, which errs by at most ``err``, about the root of ``square >= 0``.

    For lines; if either has a higher degree all rows are MIXED. No distance is below zero, so none is certainly below a level
    that is within the error.

    >>> bands_of_distance(np.array([[-3.0, 1.0]]), np.array([[4.0]]), 0.0, 1.0, 0.5, 9.0).tolist()
    [3]
    """
    dx, dy = as_batch(dx), as_batch(dy)
    n = len(dx)
    out = np.full(n, MIXED, np.uint8)
    if dx.shape[1] <= 2 and dy.shape[1] <= 2 and len(dy) == n:
        _bands_of_distance(dx, dy, per_row(lo, n), per_row(hi, n), per_row(err, n), float(square), out)
    return out


def bands_about(c: Array, lo: Array, hi: Array, err: Array, level: float) -> Bytes:
    """Return the band of each row of ``c`` about a level, on its closed ``[lo, hi]``.

    >>> bands_about(np.array([[5.0, 0.4], [5.0, -1.0], [5.0, -1.0]]), 0.0, np.array([1.0, 1.0, 9.0]), 2.0, 3.5).tolist()
    [2, 2, 4]
    """
    c = as_batch(c)
    n, k = c.shape
    lo, hi, err = per_row(lo, n), per_row(hi, n), per_row(err, n)
    out = np.empty(n, np.uint8)
    if k <= 2:
        _bands_of_lines(c, lo, hi, err, float(level), out)
    else:
        moved = c.copy()
        moved[:, 0] -= level
        _bands(moved, lo, hi, err, np.full(n, 2.0 * abs(level)), out)
    return out


def bands_between(a: Array, b: Array, lo: Array, hi: Array, err: Array) -> Bytes:
    """Return the band of each difference ``a - b``, which errs by at most ``err``.

    >>> bands_between(np.array([[5.0, 1.0]]), np.array([[5.0, 2.0]]), 1.0, 2.0, 0.0).tolist()
    [0]
    """
    c = subtract(a, b)
    n = len(c)
    lo, hi, err = per_row(lo, n), per_row(hi, n), per_row(err, n)
    scale = _magnitudes(as_batch(a), lo, hi) + _magnitudes(as_batch(b), lo, hi)
    out = np.empty(n, np.uint8)
    _bands(c, lo, hi, err, scale, out)
    return out


def _magnitudes(c: Array, lo: Array, hi: Array) -> Array:
    reach = np.maximum(np.abs(lo), np.abs(hi))
    total = np.abs(c[:, -1])
    for j in range(c.shape[1] - 2, -1, -1):
        total = total * reach + np.abs(c[:, j])
    return total
