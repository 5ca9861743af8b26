"""Find the real roots of batches of polynomials on closed ranges (semantics 3.2).

Row ``i`` is moved to the centre of its range and scaled, ``q(u) = p(mid + half * u)`` with ``u`` in [-1, 1],
so that a range far from the reference, of a microsecond or of a year, is the same problem. The move is done
in double-double where plain arithmetic would lose digits. Linear and quadratic pieces have closed forms;
above, the roots of the derivative split the range into monotone pieces (the *knots* are the two ends and
those roots), and a safeguarded Newton finishes each piece whose ends differ in sign. A double root is a knot
at which the value vanishes. Where Descartes' rule shows at most one root, that chain is skipped.

The tolerance for zero: Horner's rule on [-1, 1] errs by at most ``k * eps * S`` with ``S = sum(|q_j|)``; scaling
and rounding the moved coefficients adds as much again; a plain move errs by ``k * eps`` times the magnitude
before the move, which then replaces ``S``. So ``tolerance = 2 * k * eps * S + noise``. At the two ends
the value may also be off by the effect of one rounding of the end itself. Neighbouring knots that are both
zero bound a piece that is zero, and count as one root.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, OUT1, OUT_INT1, device, kernel, step
from pulse.kernels.double_double import dd_add_float, dd_multiply_float, two_product
from pulse.kernels.polynomial.arithmetic import as_batch, horner, magnitude, per_row, shift_row_exact
from pulse.kernels.status import EMPTY_RANGE, NOT_FINITE, OK, ZERO_POLYNOMIAL

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

EPS = 2.220446049250313e-16
TOLERANCE = 2 * EPS  # times k * S: see the module's text
PLAIN_SHIFT_LOSS = 8.0  # a plain move may lose this factor before it is redone in double-double
NEGLIGIBLE = EPS / 4  # leading coefficients that together change no value by more are dropped
KNOT_STEP = 1e-9  # last Newton step of a critical point: the value changes by its square, far below eps
_ROOM = 2.0**-16
_LARGEST = 1.7976931348623157e308
# Coefficients and times within these, of at most _PLAIN_K coefficients, need no scaling: squares stay
# within 1e+-260.
_PLAIN_C = 1e40
_PLAIN_T = 1e10
_PLAIN_K = 10
_TABLE_K = 10  # up to this many coefficients Descartes' rule is tried first


def _bernstein_table():
    """Return a table with entry ``[d, j, i]``: Bernstein coefficient ``i``, of degree ``d`` on [-1, 1], of ``u**j``.

    ``u**j = (s - r)**j * (s + r)**(d - j)`` with ``s = (1 + u) / 2``, ``r = 1 - s``; coefficient ``i`` is
    that of ``s**i * r**(d - i)`` over ``comb(d, i)``. None exceeds 1, so rounding stays that of the sum.
    """
    table = np.zeros((_TABLE_K, _TABLE_K, _TABLE_K))
    for d in range(_TABLE_K):
        for j in range(d + 1):
            product = np.poly1d([1, -1]) ** j * np.poly1d([1, 1]) ** (d - j)
            table[d, j, : d + 1] = [product[i] / math.comb(d, i) for i in range(d + 1)]
    return table


_BERNSTEIN = _bernstein_table()


@device
def root_work(k):
    """Allocate scratch for :func:`roots_row` on polynomials of up to ``k`` coefficients."""
    return np.empty((k + 4, k + 1))


@step
def roots_row(c, i, k, lo, hi, noise, work, out):
    """Find the distinct real roots, ascending, of ``k`` coefficients of row ``i`` in the closed ``[lo, hi]``.

    Written to ``out[0:count]`` (room for ``k``); returns ``(count, status)``. Values of at most ``noise
    >= 0``, an absolute level, count as zero, as do those within the rounding. Degenerate: a polynomial
    that is zero, or within the noise, on the whole range is ZERO_POLYNOMIAL without roots; ``lo == hi``
    has a root where the value vanishes but for the rounding of ``lo`` and the coefficients; ``hi < lo``
    is EMPTY_RANGE; NaN and infinities are NOT_FINITE.
    """
    if not (abs(lo) <= _LARGEST and abs(hi) <= _LARGEST and 0.0 <= noise <= _LARGEST):
        return 0, NOT_FINITE
    reach = max(abs(lo), abs(hi))
    n, time_exponent, exponent = _load(c, i, k, reach, work)
    if n < 0:
        return 0, NOT_FINITE
    if hi < lo:
        return 0, EMPTY_RANGE
    if n == 0:
        return 0, ZERO_POLYNOMIAL
    if exponent != 0 and noise > 0.0:
        if math.frexp(noise)[1] - exponent > 60:  # far above every value; scaling would overflow
            return 0, ZERO_POLYNOMIAL
        noise = math.ldexp(noise, -exponent)
    if time_exponent != 0:
        lo_scaled, hi_scaled = math.ldexp(lo, -time_exponent), math.ldexp(hi, -time_exponent)
    else:
        lo_scaled, hi_scaled = lo, hi
    if lo == hi:
        out[0] = lo
        limit = TOLERANCE * n * magnitude(work, k + 3, n, lo_scaled) + noise
        return 1 if abs(horner(work, k + 3, n, lo_scaled)) <= limit else 0, OK
    count = _scaled_roots(work, k, n, lo_scaled, hi_scaled, noise)
    if count < 0:
        return 0, ZERO_POLYNOMIAL
    kept = 0
    for j in range(count):
        t = work[k + 1, j]
        if time_exponent != 0:
            t = math.ldexp(t, time_exponent)
        if kept == 0 or t > out[kept - 1]:  # merge roots that round to one instant
            out[kept] = t
            kept += 1
    return kept, OK


@step
def _load(c, i, k, reach, work):
    """Copy row ``i`` to row ``k + 3`` of ``work``, scaled where powers would overflow.

    Returns ``(n, e, f)``: ``n`` coefficients, the last not 0, of ``p(2**e * t) / 2**f``; ``n = -1`` when one
    is not finite.
    """
    largest = 0.0
    for j in range(k):
        x = abs(c[i, j])
        work[k + 3, j] = c[i, j]
        if not x <= largest:  # larger, or NaN
            if not x <= _LARGEST:
                return -1, 0, 0
            largest = x
    n = k
    while n > 0 and work[k + 3, n - 1] == 0.0:
        n -= 1
    if n <= _PLAIN_K and 1 / _PLAIN_C < largest < _PLAIN_C and 1 / _PLAIN_T < reach < _PLAIN_T:
        return n, 0, 0
    if n == 0:
        return 0, 0, 0
    e = math.frexp(reach)[1]
    f = -10000000
    for j in range(n):
        if work[k + 3, j] != 0.0:
            f = max(f, math.frexp(work[k + 3, j])[1] + j * e)
    for j in range(n):
        work[k + 3, j] = math.ldexp(work[k + 3, j], j * e - f)
    return n, e, f


@step
def _scaled_roots(work, k, n, lo, hi, noise):
    """Find the roots of the ``n`` coefficients in row ``k + 3``, ascending in row ``k + 1``; -1 when all is zero."""
    mid = 0.5 * (lo + hi)
    half = max(hi - mid, mid - lo)
    reach = max(abs(lo), abs(hi))
    total, before = _centre(work, k, n, mid, half, reach)
    tolerance = TOLERANCE * n * before + noise
    if total <= tolerance:
        return -1
    dropped = 0.0
    while n > 1 and dropped + abs(work[0, n - 1]) <= NEGLIGIBLE * total:
        dropped += abs(work[0, n - 1])
        n -= 1
    rest = 0.0
    for j in range(1, n):
        rest += abs(work[0, j])
    jitter = EPS * reach / half  # one rounding of an end, in u
    if abs(work[0, 0]) - rest > tolerance + jitter * n * rest:
        return 0
    a, b = (lo - mid) / half, (hi - mid) / half
    count = -1
    if 3 < n <= _TABLE_K:
        margin = tolerance + (jitter + EPS) * n * total
        count = _at_most_one(work, k, n, a, b, (margin, EPS / 2 * total))
    if count < 0:
        knots = _critical(work, k, n, a, b)
        count = _between(work, 0, n, knots, a, b, (k, tolerance, jitter, EPS, EPS / 2 * total))
    for j in range(count):
        u = work[k + 1, j]
        if u <= a:
            work[k + 1, j] = lo
        elif u >= b:
            work[k + 1, j] = hi
        else:
            work[k + 1, j] = min(max(mid + half * u, lo), hi)
    return count


@step
def _centre(work, k, n, mid, half, reach):
    """Write ``u -> p(mid + half * u)`` to row 0 of ``work``.

    Returns the sum of magnitudes, and the sum that bounds rounding: the one before the move if it was a plain move.
    """
    before = 0.0
    for j in range(n - 1, -1, -1):
        x = work[k + 3, j]
        before = before * reach + abs(x)
        work[0, j] = x
    for j in range(n - 1):
        x = work[0, n - 1]
        for m in range(n - 2, j - 1, -1):
            x = work[0, m] + mid * x
            work[0, m] = x
    total = _stretch(work, n, half)
    if before <= PLAIN_SHIFT_LOSS * total:
        return total, max(before, total)
    shift_row_exact(work, k + 3, n, mid, work[0], work[k])
    total = _stretch(work, n, half)
    return total, total


@step
def _stretch(work, n, half):
    """Multiply coefficient ``j`` of row 0 by ``half**j``; return the sum of magnitudes."""
    total = abs(work[0, 0])
    power = 1.0
    for j in range(1, n):
        power *= half
        work[0, j] *= power
        total += abs(work[0, j])
    return total


@step
def _at_most_one(work, k, n, a, b, settings):
    """Find the roots of row 0 in [a, b] if Descartes' rule shows at most one, into row ``k + 1``; else return -1.

    Descartes' rule: in Bernstein form on [-1, 1] there are no more roots, double ones counted twice, than
    changes of sign. With all coefficients beyond ``margin`` that also holds for any perturbation within the
    tolerance, so no touching root within it is missed. ``settings`` is ``(margin, floor)``.
    """
    margin, floor = settings
    for i in range(n):
        work[k, i] = work[0, 0]
    for j in range(1, n):
        x = work[0, j]
        for i in range(n):
            work[k, i] += x * _BERNSTEIN[n - 1, j, i]
    changes = 0
    for i in range(n):
        if abs(work[k, i]) <= margin:
            return -1
        if i > 0 and (work[k, i] > 0.0) != (work[k, i - 1] > 0.0):
            changes += 1
    if changes == 0:
        return 0
    left, right = _value(work, 0, n, a), _value(work, 0, n, b)
    if changes > 1 or min(abs(left), abs(right)) <= margin or (left > 0.0) == (right > 0.0):
        return -1
    work[k + 1, 0] = _newton(work, 0, n, (a, left), (b, right), EPS, floor)
    return 1


@step
def _critical(work, k, n, a, b):
    """Find the critical points of row 0 in ``(a, b)``, ascending in row ``k + 2`` of ``work``; return how many.

    Derivatives go to rows 1, 2, … until one clearly has no root in [-1, 1], or is linear; then back up.
    """
    level = 0
    knots = 0
    while n - level > 2:
        level += 1
        size = n - level
        rest = 0.0
        for j in range(size):
            x = (j + 1) * work[level - 1, j + 1]
            work[level, j] = x
            rest += abs(x)
        if 2.0 * abs(work[level, 0]) > rest:
            break
        if size == 2:
            work[k + 2, 0] = -work[level, 0] / work[level, 1]
            knots = 1 if a < work[k + 2, 0] < b else 0
            break
        if size == 3:
            knots = _quadratic_knots(work, level, k + 2, a, b)
            break
    for upper in range(level - 1, 0, -1):
        size = n - upper
        total = 0.0
        for j in range(size):
            total += abs(work[upper, j])
        count = _between(work, upper, size, knots, a, b, (k, 0.0, 0.0, KNOT_STEP, EPS / 2 * total))
        knots = 0
        for j in range(count):
            if a < work[k + 1, j] < b:
                work[k + 2, knots] = work[k + 1, j]
                knots += 1
    return knots


@step
def _quadratic_knots(work, row, into, a, b):
    """Find the roots of a quadratic ``row`` in ``(a, b)``, ascending in row ``into``; return how many.

    Near a double root they are accurate to sqrt(eps), which suffices because the function they split is flat there.
    """
    c0, c1, c2 = work[row, 0], work[row, 1], work[row, 2]
    discriminant = c1 * c1 - 4.0 * c2 * c0
    if discriminant < 0.0:
        return 0
    q = -0.5 * (c1 + math.copysign(math.sqrt(discriminant), c1))
    x = q / c2 if abs(q) < abs(c2) else 2.0  # outside, without overflow
    y = c0 / q if abs(c0) < abs(q) else 2.0
    count = 0
    if a < min(x, y) < b:
        work[into, 0] = min(x, y)
        count = 1
    if a < max(x, y) < b and x != y:
        work[into, count] = max(x, y)
        count += 1
    return count


@step
def _between(work, row, n, knots, a, b, settings):
    """Find the roots of ``row`` in [a, b], ascending in row ``k + 1``, given its critical points in row ``k + 2``.

    ``settings`` is ``(k, tolerance, jitter of the ends, last step, smallest value worth a step)``.
    Returns how many, or -1 when every knot, and so every value between, is within the tolerance.
    """
    k, tolerance, jitter, step, floor = settings
    slack = jitter * n * (floor / (EPS / 2))  # no slope is larger than n times the sum of magnitudes
    count = 0
    zeros = 0
    x0, v0, s0 = a, 0.0, 1
    smallest = 0.0
    for j in range(knots + 2):
        is_end = j == 0 or j == knots + 1
        x = a if j == 0 else (b if j == knots + 1 else work[k + 2, j - 1])
        v = _value(work, row, n, x)
        limit = tolerance
        if is_end and tolerance < abs(v) <= tolerance + slack:
            limit += jitter * abs(_slope(work, row, n, x))
        s = 0 if abs(v) <= limit else (1 if v > 0.0 else -1)
        if s == 0:
            zeros += 1
            if j == 0 or s0 != 0:
                work[k + 1, count] = x
                count += 1
                smallest = 0.0 if is_end else abs(v)
            elif (
                is_end or abs(v) < smallest
            ):  # one cluster with the previous knot: the end, or the smallest, represents it
                work[k + 1, count - 1] = x
                smallest = abs(v)
        elif j > 0 and s * s0 < 0:
            work[k + 1, count] = _inside(work, row, n, (x0, v0), (x, v), step, floor)
            count += 1
        x0, v0, s0 = x, v, s
    if zeros == knots + 2:
        return -1
    return count


@step
def _value(work, row, n, x):
    """Evaluate ``row`` at ``x``."""
    value = work[row, n - 1]
    for j in range(n - 2, -1, -1):
        value = value * x + work[row, j]
    return value


@step
def _slope(work, row, n, x):
    """Evaluate the derivative of ``row`` at ``x``."""
    slope = (n - 1) * work[row, n - 1]
    for j in range(n - 2, 0, -1):
        slope = slope * x + j * work[row, j]
    return slope


@step
def _inside(work, row, n, left, right, step, floor):
    """Find the root of ``row`` in a monotone piece, given (x, value) at its two ends, of opposite signs."""
    if n == 2:
        x = -work[row, 0] / work[row, 1]
    elif n == 3:
        x = _quadratic(work[row, 0], work[row, 1], work[row, 2], left[1] < 0.0)
    else:
        return _newton(work, row, n, left, right, step, floor)
    return min(max(x, left[0]), right[0])


@step
def _quadratic(c0, c1, c2, rising):
    """Find the root of ``c0 + c1 x + c2 x**2`` at which it rises (or falls), without cancellation.

    With ``q = -(c1 + sign(c1) sqrt(D)) / 2`` the roots are ``q / c2``, where the slope has the sign of
    ``-c1``, and ``c0 / q``. The discriminant is the rounded sum of two exact products.
    """
    square, square_low = two_product(c1, c1)
    product, product_low = two_product(4.0 * c2, c0)
    root = math.sqrt(max((square - product) + (square_low - product_low), 0.0))
    if c1 >= 0.0:
        q = -0.5 * (c1 + root)
        far = not rising
    else:
        q = -0.5 * (c1 - root)
        far = rising
    return q / c2 if far else c0 / q


@step
def _newton(work, row, n, left, right, step, floor):
    """Run Newton's method from the secant's point, bisecting where a step leaves the bracket or is slow.

    Ends when a step is at most ``step`` or a value at most ``floor``: below it, signs are only rounding.
    """
    a, va = left
    b, vb = right
    x = a - va * ((b - a) / (vb - va))
    before = b - a
    for _ in range(200):
        v = work[row, n - 1]
        dv = 0.0
        for j in range(n - 2, -1, -1):
            dv = dv * x + v
            v = v * x + work[row, j]
        if abs(v) <= floor:
            return x
        if (v < 0.0) == (va < 0.0):
            a = x
        else:
            b = x
        halved = True
        if abs(v) <= 0.5 * before * abs(
            dv
        ):  # at most half the step before last … or the division could overflow
            moved = x - v / dv
            halved = not (a < moved < b)
        if halved:
            moved = 0.5 * (a + b)
        before = abs(moved - x)
        x = moved
        if before <= step:
            break
    return x


@step
def value_row(c, i, k, t):
    """Evaluate row ``i`` at ``t``, in double-double where cancellation would lose digits.

    So the sign is right, and the value accurate to a few ulps, also far from the reference. (Magnitudes near
    overflow use plain arithmetic: double-double products would overflow first.)
    """
    value = c[i, k - 1]
    reach = abs(t)
    size = _ROOM * abs(value)  # the sum of magnitudes, scaled so that it overflows only where the value does
    for j in range(k - 2, -1, -1):
        value = value * t + c[i, j]
        size = size * reach + _ROOM * abs(c[i, j])
    if size <= _ROOM * PLAIN_SHIFT_LOSS * abs(value) or size >= _ROOM * 1e290:
        return value
    high, low = c[i, k - 1], 0.0
    for j in range(k - 2, -1, -1):
        high, low = dd_multiply_float(high, low, t)
        high, low = dd_add_float(high, low, c[i, j])
    return high


class Roots(NamedTuple):
    """The roots of a batch: row ``i`` has ``roots[offsets[i]:offsets[i + 1]]``, ascending."""

    offsets: Integers
    roots: Array
    status: Integers


@kernel(IN2, IN1, IN1, IN1, OUT1, OUT_INT1, OUT_INT1)
def _real_roots(c, lo, hi, noise, flat, offsets, status):
    n, k = c.shape
    work = root_work(k)
    found = np.empty(k)
    total = 0
    offsets[0] = 0
    for i in range(n):
        count, status[i] = roots_row(c, i, k, lo[i], hi[i], noise[i], work, found)
        for j in range(count):
            flat[total + j] = found[j]
        total += count
        offsets[i + 1] = total


def real_roots(c: Array, lo: Array | float, hi: Array | float, noise: Array | float = 0.0) -> Roots:
    """Find the distinct real roots of each polynomial in its closed range; degenerate cases as :func:`roots_row`.

    >>> real_roots(np.array([[-2.0, 0.0, 1.0], [0.25, -1.0, 1.0]]), 0.0, 2.0)
    Roots(offsets=array([0, 1, 2]), roots=array([1.41421356, 0.5       ]), status=array([0, 0]))
    """
    c = as_batch(c)
    n, k = c.shape
    flat = np.empty(n * (k - 1) + 1)
    offsets = np.empty(n + 1, dtype=np.int64)
    status = np.empty(n, dtype=np.int64)
    _real_roots(c, per_row(lo, n), per_row(hi, n), per_row(noise, n), flat, offsets, status)
    return Roots(offsets, flat[: offsets[-1]].copy(), status)
