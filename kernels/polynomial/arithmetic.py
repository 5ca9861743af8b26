"""Add, multiply, shift, differentiate, integrate and evaluate batches of polynomials (semantics 1.1, 3.3).

Row ``i`` of ``c`` is ``sum(c[i, j] * t**j)``, ``t`` in seconds relative to the row's own reference. Public
functions check and allocate; kernels loop. All accept ``n = 0``; a polynomial has at least one
coefficient. Coefficients that are not finite give results that are not finite: the kernels that take decisions
check them (:mod:`pulse.kernels.polynomial.roots`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import FLOAT, IN1, IN2, OUT1, OUT2, kernel, step
from pulse.kernels.double_double import dd_add, dd_multiply

Array = npt.NDArray[np.float64]


@step
def horner(c, i, k, t):
    """Evaluate the polynomial in the first ``k`` coefficients of row ``i`` at ``t``."""
    value = c[i, k - 1]
    for j in range(k - 2, -1, -1):
        value = value * t + c[i, j]
    return value


@step
def magnitude(c, i, k, t):
    """Return ``sum(|c[i, j]| * |t|**j)``: the magnitude that rounding errors at ``t`` are proportional to."""
    t = abs(t)
    value = abs(c[i, k - 1])
    for j in range(k - 2, -1, -1):
        value = value * t + abs(c[i, j])
    return value


@step
def mean_row(c, i, k, a, b):
    """Return the mean of row ``i`` between ``a`` and ``b``, in a form that does not cancel for short ranges.

    ``(b**(j+1) - a**(j+1)) / (b - a)`` is ``sum(a**m * b**(j-m))``. Degenerate: ``a == b`` gives the value.
    """
    total = c[i, 0]
    geometric = 1.0  # sum(a**m * b**(j-m) for m in 0..j)
    power = 1.0  # a**j
    for j in range(1, k):
        power *= a
        geometric = geometric * b + power
        total += c[i, j] * geometric / (j + 1)
    return total


@step
def integral_row(c, i, k, a, b):
    """Integrate row ``i`` from ``a`` to ``b``; a short range far from the reference keeps its digits.

    Degenerate: ``a == b`` gives 0, ``a > b`` the negative integral.
    """
    return mean_row(c, i, k, a, b) * (b - a)


@step
def shift_row(c, i, k, d, out, o):
    """Write ``t -> c_i(t + d)`` to row ``o`` of ``out`` (Taylor shift by repeated synthetic division)."""
    for j in range(k):
        out[o, j] = c[i, j]
    if d != 0.0:
        for j in range(k - 1):
            for m in range(k - 2, j - 1, -1):
                out[o, m] += d * out[o, m + 1]


@step
def shift_row_exact(c, i, k, d, high, low):
    """Shift as :func:`shift_row` does, in double-double, into the first ``k`` entries of ``high`` and ``low``.

    For shifts that cancel: a range far from the reference it is written about.
    """
    for j in range(k):
        high[j] = c[i, j]
        low[j] = 0.0
    shift_exact(high, low, k, d, 0.0)


@step
def shift_exact(high, low, k, d, d_low):
    """Shift the double-double polynomial in ``high`` and ``low`` by the double-double ``d + d_low``, in place."""
    if d != 0.0:
        for j in range(k - 1):
            for m in range(k - 2, j - 1, -1):
                ph, pl = dd_multiply(high[m + 1], low[m + 1], d, d_low)
                high[m], low[m] = dd_add(high[m], low[m], ph, pl)


@kernel(IN2, IN1, OUT1)
def _evaluate(c, t, out):
    n, k = c.shape
    if k == 1:
        for i in range(n):
            out[i] = c[i, 0]
    elif k == 2:
        for i in range(n):
            out[i] = c[i, 0] + t[i] * c[i, 1]
    elif k == 3:
        for i in range(n):
            out[i] = c[i, 0] + t[i] * (c[i, 1] + t[i] * c[i, 2])
    elif k == 4:
        for i in range(n):
            out[i] = c[i, 0] + t[i] * (c[i, 1] + t[i] * (c[i, 2] + t[i] * c[i, 3]))
    else:
        for i in range(n):
            out[i] = horner(c, i, k, t[i])


@kernel(IN2, IN1, OUT2)
def _taylor_shift(c, d, out):
    n, k = c.shape
    for i in range(n):
        shift_row(c, i, k, d[i], out, i)


@kernel(IN2, OUT2)
def _derivative(c, out):
    n, k = c.shape
    for i in range(n):
        for j in range(1, k):
            out[i, j - 1] = j * c[i, j]


@kernel(IN2, IN1, IN1, OUT1)
def _integrate(c, lo, hi, out):
    n, k = c.shape
    for i in range(n):
        out[i] = integral_row(c, i, k, lo[i], hi[i])


@kernel(IN2, IN2, FLOAT, FLOAT, OUT2)
def _combine(a, b, alpha, beta, out):
    n = a.shape[0]
    for i in range(n):
        for j in range(a.shape[1]):
            out[i, j] = alpha * a[i, j]
        for j in range(b.shape[1]):
            out[i, j] += beta * b[i, j]


@kernel(IN2, IN2, OUT2)
def _multiply(a, b, out):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for m in range(b.shape[1]):
                out[i, j + m] += a[i, j] * b[i, m]


def evaluate(c: Array, t: Array | float) -> Array:
    """Evaluate each polynomial at its own ``t``.

    >>> evaluate(np.array([[1.0, 2.0, 3.0], [5.0, 0.0, 0.0]]), np.array([2.0, 9.0]))
    array([17.,  5.])
    """
    c = as_batch(c)
    out = np.empty(len(c))
    _evaluate(c, per_row(t, len(c)), out)
    return out


def taylor_shift(c: Array, d: Array | float) -> Array:
    """Return the polynomials ``t -> c(t + d)``: the coefficients after moving the reference by ``d`` seconds.

    >>> taylor_shift(np.array([[0.0, 0.0, 1.0]]), 3.0)
    array([[9., 6., 1.]])
    """
    c = as_batch(c)
    out = np.empty_like(c)
    _taylor_shift(c, per_row(d, len(c)), out)
    return out


def derivative(c: Array) -> Array:
    """Differentiate each polynomial; a batch of constants gives one column of zeros."""
    c = as_batch(c)
    out = np.zeros((len(c), max(c.shape[1] - 1, 1)))
    _derivative(c, out)
    return out


def integrate(c: Array, lo: Array | float, hi: Array | float) -> Array:
    """Integrate each polynomial from its ``lo`` to its ``hi``.

    >>> integrate(np.array([[0.0, 2.0]]), 1.0, 3.0)
    array([8.])
    """
    c = as_batch(c)
    out = np.empty(len(c))
    _integrate(c, per_row(lo, len(c)), per_row(hi, len(c)), out)
    return out


def add(a: Array, b: Array) -> Array:
    """Add row by row; degrees may differ."""
    return combine(a, b, 1.0, 1.0)


def subtract(a: Array, b: Array) -> Array:
    """Subtract ``a - b`` row by row; degrees may differ."""
    return combine(a, b, 1.0, -1.0)


def combine(a: Array, b: Array, alpha: float, beta: float) -> Array:
    """Return ``alpha * a + beta * b`` row by row; degrees may differ."""
    a, b = _same_length(a, b)
    out = np.zeros((len(a), max(a.shape[1], b.shape[1])))
    _combine(a, b, float(alpha), float(beta), out)
    return out


def multiply(a: Array, b: Array) -> Array:
    """Multiply row by row.

    >>> multiply(np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]]))
    array([[ 1.,  0., -1.]])
    """
    a, b = _same_length(a, b)
    out = np.zeros((len(a), a.shape[1] + b.shape[1] - 1))
    _multiply(a, b, out)
    return out


def as_batch(c: Array) -> Array:
    """Check that coefficients are of shape (n, k), k >= 1, and make them contiguous float64."""
    c = np.ascontiguousarray(c, dtype=np.float64)
    if c.ndim != 2 or c.shape[1] == 0:
        raise ValueError(f"coefficients: expected shape (n, k) with k >= 1, got {c.shape}")
    return c


def per_row(x: Array | float, n: int) -> Array:
    """Broadcast one number to ``n`` rows, or check that there is one per row."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 0:
        return np.full(n, x)
    if x.shape != (n,):
        raise ValueError(f"expected one number or one per polynomial ({n}), got shape {x.shape}")
    return np.ascontiguousarray(x)


def _same_length(a: Array, b: Array) -> tuple[Array, Array]:
    a, b = as_batch(a), as_batch(b)
    if len(a) != len(b):
        raise ValueError(f"expected two batches of one length, got {len(a)} and {len(b)}")
    return a, b
