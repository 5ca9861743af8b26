"""Approximate smooth functions of piecewise polynomials by piecewise polynomials with a certified error (semantics 3.3, 4.2).

For a piece ``p`` on a range of time, ``[m, M]`` is the range of its values. ``f`` is interpolated on ``[m,
M]``, in the *value*, at the ``d + 1`` Chebyshev nodes by ``q`` of degree ``d``, and ``q(p(t))`` is the
result, of degree ``d * deg(p)``. With ``n = d + 1`` and ``half = (M - m) / 2``::

    |f - q| <= max |f^(n)| on [m, M] * half**n / (2**d * n!)

The derivatives are monotone, or bounded by one, so their maximum is known (:func:`interpolation_error`). To
that is added a bound of all rounding (:func:`_approximate`). Where the sum exceeds the requested bound, the range
of time is halved.

``sqrt`` near zero has no bounded derivative; there ``v / sqrt(M) + sqrt(M) / 8`` is within ``sqrt(M) / 8`` of
it on ``[0, M]``, and is best among lines. ``abs`` leaves the polynomials only at roots and is exact
(:func:`absolute`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, IN_INT1, INT, OUT2, OUT_INT1, OUT_INT2, kernel, routine, step
from pulse.kernels.double_double import dd_add_float, dd_quotient
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import as_batch, magnitude, per_row, shift_exact
from pulse.kernels.polynomial.extrema import extrema_row, extrema_work
from pulse.kernels.polynomial.roots import root_work, roots_row, value_row
from pulse.kernels.status import EMPTY_RANGE, NOT_CONVERGED, NOT_FINITE, OK, OUT_OF_DOMAIN, ZERO_POLYNOMIAL
from pulse.kernels.windows.walk import instant

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SQRT, RECIPROCAL, EXP, LOG, SIN, COS, ATAN = range(7)
FUNCTIONS = {
    "sqrt": SQRT,
    "reciprocal": RECIPROCAL,
    "exp": EXP,
    "log": LOG,
    "sin": SIN,
    "cos": COS,
    "atan": ATAN,
}

UNIT = 2.0**-53  # one relative rounding
MAX_HALVINGS = 60  # nested halvings of one input piece's range
MAX_PIECES = 1 << 16  # output pieces per input piece; more indicates a mistaken bound
VALUE_UNITS = 8.0  # roundings in a library's sqrt, exp, log, sin, cos: the least accurate in use has 4 ulp
# Roundings, of the magnitude of its terms, that a square of a distance may carry from where it was computed:
# differences, products, their sum and a shift, for degrees up to 8. Below zero by no more than that is zero.
NEGATIVE_UNITS = 64.0
_FARTHEST = 4e12  # seconds: a larger offset could overflow int64 microseconds
_FULL = -1  # no room in the output


@step
def _in_domain(code, m, M):
    if code == LOG:
        return m > 0.0
    if code == RECIPROCAL:
        return m > 0.0 or M < 0.0
    return True


@step
def _function(code, v):
    if code == SQRT:
        return math.sqrt(max(v, 0.0))
    if code == RECIPROCAL:
        return 1.0 / v
    if code == EXP:
        return math.exp(v) if v < 709.0 else np.inf
    if code == LOG:
        return math.log(v)
    if code == ATAN:
        return math.atan(v)
    return math.sin(v) if code == SIN else math.cos(v)


@step
def _nearest(m, M):
    """Return the least absolute value in ``[m, M]``."""
    return m if m > 0.0 else -M if M < 0.0 else 0.0


@step
def _bounds_of(code, m, M):
    """Return ``(max |f|, max |f'| * max |v|)`` on ``[m, M]``, within the domain. Each maximum is taken at an end."""
    farthest = max(abs(m), abs(M))
    if code == SQRT:
        return math.sqrt(M), (0.5 * M / math.sqrt(m) if m > 0.0 else np.inf)
    if code == RECIPROCAL:
        nearest = min(abs(m), abs(M))
        return 1.0 / nearest, farthest / nearest / nearest
    if code == EXP:
        largest = _function(EXP, M)
        return largest, largest * farthest
    if code == LOG:
        return max(abs(math.log(m)), abs(math.log(M))), M / m
    if code == ATAN:
        nearest = _nearest(m, M)
        return math.atan(farthest), farthest / (1.0 + nearest * nearest)
    return 1.0, farthest


@step
def interpolation_error(code, d, m, M):
    """Bound the distance of ``f`` from its Chebyshev interpolant of degree ``d`` on ``[m, M]``: see the module's text.

    With ``n = d + 1``: sqrt ``|1/2 (1/2 - 1) … (1/2 - d)| m**(1/2 - n)``, decreasing in ``m``; reciprocal
    ``n! / |v|**(n + 1)``, largest at the end next to zero; exp ``exp(M)``; log ``d! / m**n``; atan ``d! / (1 + v**2)**(n/2)``;
    sin, cos ``<= 1``. As a product of ratios, so that no power overflows before its quotient does.
    """
    half = 0.5 * (M - m)
    scale, ratio = 1.0, half
    if code == SQRT:
        scale, ratio = math.sqrt(m), (half / m if m > 0.0 else np.inf)
    elif code == RECIPROCAL:
        nearest = min(abs(m), abs(M))
        scale, ratio = 1.0 / nearest, half / nearest
    elif code == LOG:
        ratio = half / m
    elif code == ATAN:
        nearest = _nearest(m, M)
        ratio = half / math.sqrt(1.0 + nearest * nearest)
    elif code == EXP:
        scale = _function(EXP, M)
    product = 2.0 * scale
    for j in range(1, d + 2):
        factor = 1.0
        if code == SQRT:
            factor = abs(1.5 - j)
        elif code == RECIPROCAL:
            factor = float(j)
        elif (code == LOG or code == ATAN) and j > 1:
            factor = j - 1.0
        product *= 0.5 * ratio * factor / j
    return product


@step
def _interpolate(code, m, M, basis, q, values):
    """Write the interpolant's coefficients in ``y = (v - centre) / half`` to ``q``; return ``(degree, certified error)``.

    Rounding: the values at the nodes err by ``VALUE_UNITS`` and by the slope times two roundings of the node;
    forming ``q`` adds ``n + 8`` roundings (the sum, and the basis itself). Both grow by at most the sum of
    the basis' magnitudes. ``values`` is room for those at the nodes.
    """
    n = basis.shape[0]
    centre, half = 0.5 * (m + M), 0.5 * (M - m)
    size, moved = _bounds_of(code, m, M)
    growth = 0.0
    for i in range(n):
        values[i] = _function(code, centre + half * basis[i, 0])
    for j in range(n):
        total = 0.0
        for i in range(n):
            total += basis[j, i + 1] * values[i]
            growth += abs(basis[j, i + 1])
        q[j] = total
    rounding = UNIT * growth * ((VALUE_UNITS + n + 8.0) * size + 2.0 * moved)
    error = interpolation_error(code, n - 1, m, M) * (1.0 + 64.0 * UNIT) + rounding
    if code == SQRT:
        root = math.sqrt(M)
        if not error <= 0.125 * root:
            for j in range(n):
                q[j] = 0.0
            q[0] = 0.125 * root + centre / root
            q[1] = half / root
            return 1, (0.125 + 16.0 * UNIT) * root
    return n - 1, error


@step
def _load(ref, c, i, origin, upper, lower):
    """Write both halves of piece ``i`` about ``origin``, in double-double, with a relative loss of ``2**-100``."""
    k = c.shape[1]
    for j in range(k):
        upper[j] = c[i, j]
        lower[j] = 0.0
    high, low = dd_quotient(float(origin - ref), MICROSECONDS)
    shift_exact(upper, lower, k, high, low)


@routine
def _value_range(code, c, i, reach, lo, hi, scratch):
    """Return ``(m, M, beyond, status)``: the range of row 0 of ``g`` on ``[lo, hi]``, widened by its rounding.

    A critical point missed or misplaced by rounding costs ``2 * k`` roundings of the derivative's terms,
    which sum to ``k`` times those of the polynomial; its value costs ``2 * k`` more. ``beyond`` is how far
    the polynomial may leave ``[m, M]``: below zero under a root.
    """
    g, work, points = scratch[0], scratch[1], scratch[2]
    k = c.shape[1]
    m, M, status = extrema_row(g, 0, k, lo, hi, work, points)
    if status != OK:
        return m, M, 0.0, status
    carried = magnitude(c, i, k, reach)
    pad = (8.0 * k * k + 16.0) * UNIT * magnitude(
        g, 0, k, max(abs(lo), abs(hi))
    ) + 2.0**-100 * k * k * carried
    beyond = 0.0
    if code == SQRT:
        if m < -(NEGATIVE_UNITS * UNIT * carried + pad):
            return m, M, 0.0, OUT_OF_DOMAIN
        beyond = max(pad - m, 0.0)
    elif not _in_domain(code, m, M):
        return m, M, 0.0, OUT_OF_DOMAIN
    m, M = m - pad, M + pad
    if code == SQRT and m < 0.0:
        m, M = 0.0, max(M, beyond, 0.0)
    return m, M, beyond, OK if abs(m) < np.inf and abs(M) < np.inf else NOT_FINITE


@routine
def _approximate(code, c, i, reach, lo, hi, basis, scratch):
    """Write ``q(p(t))`` on ``[lo, hi]`` to ``out``, from piece ``i`` in ``g``; return ``(certified error, status)``.

    Composition: coefficient by coefficient, ``y`` carries 4 roundings, and each of the ``d`` Horner steps
    adds ``k + 1`` and those of ``y``. So it errs by at most ``2 * (d * (k + 7) + 4)`` roundings of
    ``sum(|q_j| Y**j)``, where ``Y = sum(|y_j| L**j)`` and ``L`` is the farthest time.
    """
    g, _, _, q, y, out, former, _, _ = scratch
    k = c.shape[1]
    m, M, beyond, status = _value_range(code, c, i, reach, lo, hi, scratch)
    if status != OK:
        return np.inf, status
    if not _in_domain(code, m, M):
        return np.inf, OK  # only the rounding reaches zero: a shorter range may avoid it
    for j in range(len(out)):
        out[j] = 0.0
    if m == M:  # the zero polynomial: all others have some rounding
        out[0] = _function(code, m)
        return VALUE_UNITS * UNIT * abs(out[0]), OK
    d, error = _interpolate(code, m, M, basis, q, y)
    half = 0.5 * (M - m)
    high, _ = dd_add_float(g[0, 0], g[1, 0], -0.5 * (m + M))
    y[0] = high / half
    for j in range(1, k):
        y[j] = g[0, j] / half
    size = _compose(q, d, y, k, out, former)
    farthest = max(abs(lo), abs(hi))
    Y = 0.0
    for j in range(k - 1, -1, -1):
        Y = Y * farthest + abs(y[j])
    total, steep = 0.0, 0.0
    for j in range(d, -1, -1):
        total = total * Y + abs(q[j])
        steep += j * abs(q[j])
    error += 2.0 * UNIT * (d * (k + 7) + 4) * total + 2.0 * steep * beyond / half
    return error if size < np.inf else np.inf, OK


@step
def _compose(q, d, y, k, out, former):
    """Compute ``q(y(t))`` by Horner's rule on polynomials; return the sum of its coefficients' magnitudes."""
    out[0] = q[d]
    count = 1
    for degree in range(d - 1, -1, -1):
        for j in range(count):
            former[j] = out[j]
        for j in range(count + k - 1):
            out[j] = 0.0
        for j in range(count):
            for r in range(k):
                out[j + r] += former[j] * y[r]
        count += k - 1
        out[0] += q[degree]
    size = 0.0
    for j in range(count):
        size += abs(out[j])
    return size


@routine
def _lift_piece(code, ref, span, c, i, basis, scratch, ends, filled, result):
    """Lift piece ``i`` into the output from row ``filled`` on; return ``(rows filled, status)``.

    Depth first from the left: ``ends`` is the stack of the ranges' right ends, in seconds from the piece's
    first whole microsecond.
    """
    at, rows = result
    out = scratch[5]
    base, rest = instant(ref[i], span[i, 0])
    begin = rest / MICROSECONDS
    end, rest = instant(ref[i], span[i, 1])
    ends[0] = ((end - base) + rest) / MICROSECONDS
    reach = max(abs(span[i, 0]), abs(span[i, 1]))
    depth, first = 1, filled
    while depth > 0:
        middle = begin + 0.5 * (ends[depth - 1] - begin)
        origin = base + np.int64(math.floor(middle * MICROSECONDS + 0.5))
        whole, rest = instant(base, begin)
        lo = ((whole - origin) + rest) / MICROSECONDS
        whole, rest = instant(base, ends[depth - 1])
        hi = ((whole - origin) + rest) / MICROSECONDS
        _load(ref[i], c, i, origin, scratch[7], scratch[8])
        error, status = _approximate(code, c, i, reach, lo, hi, basis, scratch)
        if status != OK:
            return first, status
        if error <= span[i, 2]:
            if filled == len(rows):
                return first, _FULL
            at[filled, 0], at[filled, 1] = i, origin
            rows[filled, 0], rows[filled, 1], rows[filled, 2] = lo, hi, error
            for j in range(len(out)):
                rows[filled, 3 + j] = out[j]
            filled += 1
            depth -= 1
            begin = ends[depth]
        elif depth == MAX_HALVINGS or filled - first >= MAX_PIECES or not begin < middle < ends[depth - 1]:
            return first, NOT_CONVERGED
        else:
            ends[depth] = middle
            depth += 1
    return filled, OK


@kernel(INT, IN_INT1, IN2, IN2, IN2, OUT_INT1, OUT_INT1, OUT_INT2, OUT2)
def _lift(code, ref, span, c, basis, progress, status, at, rows):
    """Lift from piece ``progress[0]`` and row ``progress[1]`` on while there is room; ``progress`` is updated."""
    k = c.shape[1]
    wide = rows.shape[1] - 3
    small = np.empty((2, basis.shape[0] + k))
    g = np.empty((2, k))
    room = (np.empty(k), small[0], small[1], np.empty(wide), np.empty(wide))
    scratch = (g, extrema_work(k), *room, g[0], g[1])  # slice the rows of `g` once
    ends = np.empty(MAX_HALVINGS + 1)
    while progress[0] < len(ref):
        i = progress[0]
        if not max(abs(span[i, 0]), abs(span[i, 1])) <= _FARTHEST:
            status[i] = NOT_FINITE
        elif span[i, 1] < span[i, 0]:
            status[i] = EMPTY_RANGE
        else:
            filled, status[i] = _lift_piece(
                code, ref, span, c, i, basis, scratch, ends, progress[1], (at, rows)
            )
            if status[i] == _FULL:
                return
            progress[1] = filled
        progress[0] += 1


@kernel(IN1, IN1, IN2, OUT_INT1, OUT_INT1, OUT2, OUT2)
def _absolute(lo, hi, c, status, source, span, out):
    n, k = c.shape
    work, roots = root_work(k), np.empty(k)
    filled = 0
    for i in range(n):
        count, status[i] = roots_row(c, i, k, lo[i], hi[i], 0.0, work, roots)
        if status[i] == ZERO_POLYNOMIAL:
            status[i] = OK
        if status[i] != OK:
            continue
        first, begin = filled, lo[i]
        for j in range(count + 1):
            end = roots[j] if j < count else hi[i]
            if end > begin or (j == count and filled == first):
                sign = -1.0 if value_row(c, i, k, begin + 0.5 * (end - begin)) < 0.0 else 1.0
                if filled > first and sign == span[filled - 1, 2]:  # touches zero without crossing it
                    span[filled - 1, 1] = end
                else:
                    source[filled] = i
                    span[filled, 0], span[filled, 1], span[filled, 2] = begin, end, sign
                    for r in range(k):
                        out[filled, r] = sign * c[i, r]
                    filled += 1
                begin = end
    return filled


class Lifted(NamedTuple):
    """A batch of pieces that approximate a function of the pieces ``source`` within ``err``; ``status`` is per input piece."""

    source: Ints
    ref: Ints
    lo: Array
    hi: Array
    c: Array
    err: Array
    status: Ints


class AbsoluteLift(NamedTuple):
    """A batch of pieces that are the absolute values of the input pieces ``source``; ``status`` is per input piece."""

    source: Ints
    ref: Ints
    lo: Array
    hi: Array
    c: Array
    status: Ints


def lift(
    function: str | int,
    ref: Ints,
    lo: Array,
    hi: Array,
    c: Array,
    bound: Array | float,
    order: int = 2,
) -> Lifted:
    """Apply ``function`` (a name of ``FUNCTIONS``, or its code) to each piece, within ``bound`` (one, or one per piece).

    Output pieces have ``order * (k - 1) + 1`` coefficients, about the whole microsecond nearest their middle.
    ``err`` bounds, at every instant of the output's range, the distance of the output from the function of
    the input, both taken exactly. A ``sqrt`` treats values that are below zero by no more than their rounding
    as zero. An input piece without output has a status: ``OUT_OF_DOMAIN`` (negative beyond rounding under ``sqrt``,
    touching zero under ``reciprocal`` or ``log``), ``NOT_CONVERGED`` (the bound needs too many pieces, or is
    below rounding), ``NOT_FINITE``, ``EMPTY_RANGE``.

    >>> made = lift("sqrt", np.array([0]), np.array([1.0]), np.array([2.0]), np.array([[0.0, 0.0, 1.0]]), 1e-3)
    >>> bool(made.err.max() <= 1e-3), made.c.shape[1]
    (True, 5)
    """
    code = _code(function)
    if order not in (1, 2, 3, 4):
        raise ValueError(f"order: expected 1, 2, 3 or 4, got {order!r}")
    ref, lo, hi, c = _pieces(ref, lo, hi, c)
    bound = per_row(bound, len(ref))
    if not np.all(bound > 0.0):
        raise ValueError("bound: expected positive numbers")
    span = np.stack([lo, hi, bound], axis=1)
    status = np.zeros(len(ref), np.int64)
    progress = np.zeros(2, np.int64)
    at, rows = np.empty((0, 2), np.int64), np.empty((0, 3 + order * (c.shape[1] - 1) + 1))
    basis = _basis(order)
    while progress[0] < len(ref):
        at, rows = _grown(at, progress[1], len(ref)), _grown(rows, progress[1], len(ref))
        _lift(code, ref, span, c, basis, progress, status, at, rows)
    at, rows = at[: progress[1]], rows[: progress[1]]
    source, begin, low, high, err = (
        np.ascontiguousarray(x) for x in (at[:, 0], at[:, 1], rows[:, 0], rows[:, 1], rows[:, 2])
    )
    return Lifted(source, begin, low, high, rows[:, 3:].copy(), err, status)


def absolute(ref: Ints, lo: Array, hi: Array, c: Array) -> AbsoluteLift:
    """Return exact absolute values: each piece is cut where it crosses zero, and negated where it is negative.

    >>> made = absolute(np.array([0]), np.array([0.0]), np.array([3.0]), np.array([[-1.0, 1.0]]))
    >>> made.lo, made.c
    (array([0., 1.]), array([[ 1., -1.],
           [-1.,  1.]]))
    """
    ref, lo, hi, c = _pieces(ref, lo, hi, c)
    n, k = c.shape
    status, source = np.zeros(n, np.int64), np.empty(n * k, np.int64)
    span, out = np.empty((n * k, 3)), np.empty((n * k, k))
    m = _absolute(lo, hi, c, status, source, span, out)
    source = source[:m].copy()
    return AbsoluteLift(source, ref[source], span[:m, 0].copy(), span[:m, 1].copy(), out[:m].copy(), status)


def _basis(order: int) -> Array:
    """Return the Chebyshev nodes (column 0) and, in row ``j`` of the rest, the nodes' weights in coefficient ``j``."""
    n = order + 1
    angles = np.pi * (2 * np.arange(n) + 1) / (2 * n)
    weights = np.zeros((n, n))
    for m in range(
        n
    ):  # interpolant = sum over m of (T_m(y) * mean of values * T_m(node)), twice that for m > 0
        share = np.cos(m * angles) * ((1.0 if m == 0 else 2.0) / n)
        weights[: m + 1] += np.outer(np.polynomial.chebyshev.cheb2poly([0.0] * m + [1.0]), share)
    return np.ascontiguousarray(np.column_stack([np.cos(angles), weights]))


def _grown(x: npt.NDArray[Any], filled: int, least: int) -> npt.NDArray[Any]:
    room = np.empty((max(2 * len(x), 2 * least, 64), x.shape[1]), x.dtype)
    room[:filled] = x[:filled]
    return room


def _code(function: str | int) -> int:
    if function in FUNCTIONS:
        return FUNCTIONS[str(function)]
    if isinstance(function, str) or function not in FUNCTIONS.values():
        raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
    return int(function)


def _pieces(ref: Ints, lo: Array, hi: Array, c: Array) -> tuple[Ints, Array, Array, Array]:
    c = as_batch(c)
    ref = np.ascontiguousarray(ref, dtype=np.int64)
    if ref.shape != (len(c),):
        raise ValueError(f"ref: expected one per polynomial ({len(c)}), got shape {ref.shape}")
    return ref, per_row(lo, len(c)), per_row(hi, len(c)), c
