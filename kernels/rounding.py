"""Bound the rounding errors of floating-point arithmetic: the part of ``err`` that every model has (semantics 1.5, 4.2).

The rule of every operator: ``err`` bounds the distance of the truth from the model both taken exactly **and** evaluated in
float64 at any instant of the row. A row that is passed on keeps its bound, and an operation adds its own rounding, with
``u = UNIT = 2^-53`` one relative rounding (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.1 and 5.1):

================================  =====================================================================================
evaluation, ``k`` coefficients    Horner's rule ``2 (k - 1) u M``, and ``(k - 1) u M`` for the rounding of the instant, with
                                  ``M = sum(|c_j| T^j)`` and ``T`` the farthest time from the reference
a sum                             one rounding of each coefficient: ``u M``; for constants the exact error of the addition
a product, a quotient             ``k`` roundings of ``M_a M_b``; by a number, one rounding of each coefficient
a shift by ``d``                  ``2 (k - 1) u M``, ``M`` with ``T + |d|`` (each step of the synthetic division)
================================  =====================================================================================

All of them are within ``TERM * k * M`` with ``TERM = 4 u``, evaluation of the result included. A constant (all higher
coefficients zero) is evaluated and shifted without any rounding. Bounds are themselves computed: ``GROWN`` covers the roundings
of a few sums and products of them. ``M`` is taken before terms cancel, so that a cancelled sum keeps the rounding of its parts.

Relative rounding bounds fail for subnormal numbers: a product or quotient below ``2^-1022`` is off by up to ``2^-1075``, possibly
its whole value. Where ``M`` is below ``SMALL``, and not zero, ``TINY`` is added: result, bound and ``u M`` may underflow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, IN_INT1, INT, OUT1, device, kernel, step
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.double_double import two_sum

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

UNIT = 2.0**-53
TERM = 4 * UNIT
GROWN = 1.0 + 16 * UNIT
SMALL = 2.0**-960  # for larger numbers a unit in the last place is a normal number
TINY = 2.0**-1072  # exceeds the underflow of a few results
FUNCTION = 8 * UNIT  # a library's exp, log, sin, cos: the least accurate in use has 4 ulp
_SUM, _DIFFERENCE, _PRODUCT, _QUOTIENT = range(4)
_TILE = 1 << 14  # samples per tile when a scalar is expanded to an array
_CODES = {"+": _SUM, "-": _DIFFERENCE, "*": _PRODUCT, "/": _QUOTIENT}


@kernel(IN2, IN1, IN1, OUT1)
def _magnitudes(c, lo, hi, out):
    n, k = c.shape
    for i in range(n):
        t = max(abs(lo[i]), abs(hi[i]))
        value = abs(c[i, k - 1])
        for j in range(k - 2, -1, -1):
            value = value * t + abs(c[i, j])
        out[i] = value


@step
def _of_terms(k, higher, constant, t):
    """Bound the rounding of a non-constant polynomial's terms for ``|time| <= t``."""
    size = higher + constant
    return TERM * k * size + (TINY * k * max(t, 1.0) ** (k - 1) if size < SMALL else 0.0)


@kernel(IN2, IN1, IN1, OUT1)
def _evaluation(c, lo, hi, out):
    n, k = c.shape
    for i in range(n):
        t = max(abs(lo[i]), abs(hi[i]))
        value, highest = 0.0, 0.0
        for j in range(k - 1, 0, -1):
            value = (value + abs(c[i, j])) * t
            highest = max(highest, abs(c[i, j]))
        out[i] = _of_terms(k, value, abs(c[i, 0]), t) if highest > 0.0 and t > 0.0 else 0.0


@kernel(IN2, IN_INT1, IN1, IN1, IN1, OUT1)
def _shifts(c, piece, by, lo, hi, out):
    k = c.shape[1]
    for i in range(piece.shape[0]):
        p, d = piece[i], abs(by[i])
        out[i] = 0.0
        if p >= 0 and d > 0.0:
            t = max(abs(lo[i]), abs(hi[i])) + d
            value, highest = 0.0, 0.0
            for j in range(k - 1, 0, -1):
                value = (value + abs(c[p, j])) * t
                highest = max(highest, abs(c[p, j]))
            if highest > 0.0:
                out[i] = _of_terms(k, value, abs(c[p, 0]), t)


@step
def lost(x, y):
    """Return the exact rounding error of ``x + y``: 0 where the sum is exact."""
    _, e = two_sum(x, y)
    return abs(e)


@device
def sum_errors(x, ex, y, ey, sign, out):
    """Write the bounds of ``x + sign * y``, sample by sample."""
    for i in range(out.shape[0]):
        out[i] = (ex[i] + ey[i]) * GROWN + lost(x[i], sign * y[i])


@device
def product_errors(x, ex, y, ey, out):
    """Write the bounds of ``x y``."""
    for i in range(out.shape[0]):
        a, b, product = abs(x[i]), abs(y[i]), abs(x[i] * y[i])
        size = a * ey[i] + b * ex[i] + ex[i] * ey[i]
        some = (product < SMALL) & (a + ex[i] > 0.0) & (b + ey[i] > 0.0)
        out[i] = size * GROWN + UNIT * product + (TINY if some else 0.0)


@device
def quotient_errors(x, ex, y, ey, out):
    """Write the bounds of ``x / y``; ``|y| > ey``."""
    for i in range(out.shape[0]):
        quotient, e = abs(x[i] / y[i]), ey[i]
        moved = quotient * e
        lost_in_moved = TINY + TINY * e if (moved < SMALL) & (e > 0.0) & (x[i] != 0.0) else 0.0
        share = (moved + ex[i] + lost_in_moved) / (abs(y[i]) - e)
        some = (quotient < SMALL) & (abs(x[i]) + ex[i] > 0.0)
        out[i] = share * GROWN + UNIT * quotient + (TINY if some else 0.0)


@kernel(INT, IN1, IN1, IN1, IN1, OUT1)
def _errors(op, x, ex, y, ey, out):
    if op == _SUM:
        sum_errors(x, ex, y, ey, 1.0, out)
    elif op == _DIFFERENCE:
        sum_errors(x, ex, y, ey, -1.0, out)
    elif op == _PRODUCT:
        product_errors(x, ex, y, ey, out)
    else:
        quotient_errors(x, ex, y, ey, out)


def errors_of(
    op: str, x: Array | float, ex: Array | float, y: Array | float, ey: Array | float, n: int
) -> Array:
    """Return the bounds of ``x op y`` at ``n`` samples; each operand and each bound is a scalar or one per sample.

    >>> errors_of("+", np.array([0.25, 0.1]), 0.0, 0.5, 0.0, 2) > 0.0
    array([False,  True])
    >>> errors_of("-", np.array([4.0]), 0.5, 4.0, 0.25, 1).round(12).tolist()
    [0.75]
    """
    out, code, tile = recycled(n), _CODES[op], min(n, _TILE)
    if all(map(np.ndim, (x, ex, y, ey))):
        tile = n
    given = [
        np.ascontiguousarray(one, dtype=np.float64) if np.ndim(one) else np.full(tile, one, np.float64)
        for one in (x, ex, y, ey)
    ]
    for begin in range(0, n, max(tile, 1)):
        end = min(begin + tile, n)
        parts = [one[begin:end] if len(one) == n else one[: end - begin] for one in given]
        _errors(code, *parts, out[begin:end])
    return out


def magnitudes(c: Array, lo: Array, hi: Array) -> Array:
    """Return per row ``sum(|c_j| T^j)`` with ``T = max(|lo|, |hi|)``: the magnitude that roundings are proportional to.

    >>> magnitudes(np.array([[1.0, -2.0]]), np.array([-3.0]), np.array([1.0])).tolist()
    [7.0]
    """
    out = np.empty(len(c))
    _magnitudes(*_rows(c, lo, hi), out)
    return out


def evaluation(c: Array, lo: Array, hi: Array) -> Array:
    """Bound per row the error of forming the coefficients, each rounded once, and evaluating them; 0 for a constant.

    >>> evaluation(np.array([[1.0, 0.0], [1.0, 1.0]]), np.zeros(2), np.ones(2)).tolist() == [0.0, 2 * TERM * 2.0]
    True
    """
    out = np.empty(len(c))
    _evaluation(*_rows(c, lo, hi), out)
    return out


def underflow(size: Array, some: npt.NDArray[np.bool_], k: int, lo: Array, hi: Array) -> Array:
    """Bound per row the underflow of ``k`` coefficients of a product or quotient of magnitude ``size``, where ``some`` is true.

    >>> underflow(np.array([0.0, 1.0, 0.0]), np.array([True, True, False]), 1, np.zeros(3), np.ones(3)) > 0.0
    array([ True, False, False])
    """
    lost: Array = np.zeros(len(size))
    found = np.flatnonzero(some & (size < SMALL))
    if len(found):
        reach = np.maximum(np.abs(lo[found]), np.abs(hi[found]))
        lost[found] = TINY * k * np.maximum(reach, 1.0) ** (k - 1)
    return lost


def shift_rounding(c: Array, piece: Integers, by: Array, lo: Array, hi: Array) -> Array:
    """Bound per row ``i`` the error of shifting polynomial ``piece[i]`` of ``c`` by ``by[i]`` seconds, for use on ``[lo, hi]``.

    0 where the shift is 0, for constants, and where there is no piece (-1).
    """
    out = np.empty(len(piece))
    c = np.ascontiguousarray(c, dtype=np.float64)
    columns = [np.ascontiguousarray(x, dtype=np.float64) for x in (by, lo, hi)]
    _shifts(c, np.ascontiguousarray(piece, dtype=np.int64), *columns, out)
    return out


def sum_rounding(c: Array, first: Array, second: Array, lo: Array, hi: Array) -> Array:
    """Bound per row the rounding of ``c = first + second`` (coefficients); for constants the exact error, possibly 0.

    >>> sum_rounding(np.array([[3.0]]), np.array([[1.0]]), np.array([[2.0]]), np.zeros(1), np.ones(1)).tolist()
    [0.0]
    """
    rounding = evaluation(c, lo, hi)
    flat = rounding == 0.0
    if flat.any():
        x, y, s = first[flat, 0], second[flat, 0], c[flat, 0]
        part = s - x
        rounding[flat] = np.abs((x - (s - part)) + (y - part))
    return rounding


def _rows(c: Array, lo: Array, hi: Array) -> tuple[Array, Array, Array]:
    arrays = [np.ascontiguousarray(x, dtype=np.float64) for x in (c, lo, hi)]
    return arrays[0], arrays[1], arrays[2]


def round_up(values: Array) -> Array:
    """Round numbers that are not negative up to six significant bits, so that they are stored in about a byte.

    >>> round_up(np.array([0.0, 1.0, 1.01, np.inf])).tolist()
    [0.0, 1.0, 1.03125, inf]
    """
    fraction, exponent = np.frexp(values)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(np.ceil(fraction * 64.0) / 64.0, exponent))
