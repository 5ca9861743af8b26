"""Compute central moments of one or two piecewise functions over windows, with bounds of their rounding (semantics 3.5, 4.2).

The moments of a stretch of time are its length ``n``, the mean ``m`` of each function, ``M = ∫ (x - m)²`` and
``C = ∫ (x - mx)(y - my)``. Those of two stretches ``a`` and ``b`` combine (Chan, Golub, LeVeque 1983), with ``d = mb - ma`` and
``w = na nb / n``::

    m = ma + d nb / n        M = Ma + Mb + w d²        C = Ca + Cb + w dx dy

Every term of ``M`` is positive, so nothing cancels, and means are double-doubles, so that ``d`` is accurate whatever the level of
the values. A window is a part of a tail piece, whole pieces, and a part of a head piece. The whole pieces are a queue of two
stacks: suffixes of older ones, the sum of newer ones, so that each piece is combined a bounded number of times and none is ever
subtracted.

Within a piece, about its middle and in Legendre polynomials, ``x = Σ p_l P_l``: the mean is ``p_0``, and ``M / n`` is
``Σ p_l² / (2l + 1)`` without ``p_0``.

**Rounding.** ``√M`` is the length of the vector of all ``√w d`` and ``√(n / (2l + 1)) p_l``; if these err by no more than a
vector of length ``√Q``, ``√M`` errs by at most ``√Q``. ``Q`` is summed beside ``M``, from a bound of each mean's error. Relative
roundings of the terms and sums, a few a combination, are counted by the number of pieces.

**Errors.** ``R`` bounds ``∫ (model - truth)²``, of a whole piece its energy. Pieces may be parts of a longer one, whose energy is
known as a whole (after a join): the last of them has it, the others nothing, and a window that closes in one of them counts it
there. Of a part of a piece it is at most ``err²`` times the length; so it is of the whole window, which is summed beside it.

A drift bounds the integral ``D`` of ``r = model - truth`` at every instant of a piece, from an instant that is the same
for all pieces of a run. By parts, ``∫ (x - m) r = [(x - m) D] - ∫ D dx``: at most the centred values at the window's ends and all
that ``x`` rises and falls, each times the drift there. This **coupling** is small where a model follows the truth on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import BOOL, IN1, IN2, IN_INT1, INT, OUT2, kernel, routine
from pulse.kernels.double_double import fast_two_sum, two_sum
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.kernels.polynomial.arithmetic import horner, magnitude
from pulse.kernels.rounding import SMALL, UNIT
from pulse.kernels.windows.walk import instant

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A state: length in microseconds, number of pieces, product moment, and for each function a block.
_N, _COUNT, _C, _X = range(4)
_HIGH, _LOW, _SHIFT, _SQUARES, _ROUNDED, _ENERGY, _LARGEST, _OWN, _OTHER, _BLOCK = range(10)
_Y = _X + _BLOCK
_STATE = _Y + _BLOCK
_FURTHER = 8  # columns after a state: energies of the pieces between tail and head, couplings without those of the ends
_WHOLE, _OPENS, _CLOSES, _WITHIN = range(4)  # parts of a window
_DOUBLE = 2.0**-103  # roundings of a double-double
_LEAST_ROUNDED = 2.0**-960  # exceeds squares that underflow
_EPSILON = 2.0 * UNIT

_COLUMN = types.Tuple((IN2, IN1, IN1, IN1, IN1, IN1, IN1))
_PLACES = types.Tuple((IN_INT1, IN1, IN_INT1, IN_INT1))


class Column(NamedTuple):
    """A function on the pieces: coefficients, bounds of its error, energies of whole pieces, and of the end of each, and drifts.

    Energies are in value² seconds. That of an end is what a misplacement of it within the tolerance of instants may contribute.
    A drift is infinite where it is unknown. ``head`` is the energy that a window counts for the piece in which it closes,
    ``head_err`` the bound there, infinite where the window may hold other parts of the same longer piece.
    """

    c: Array
    err: Array
    energy: Array
    ends: Array
    drift: Array
    head: Array
    head_err: Array


class Moments(NamedTuple):
    """Moments of windows of one function: mean (high and low part), deviation, the bounds of their roundings, and energies.

    ``energy`` bounds that of the model's error in the window, ``between`` in the pieces between tail and head (value² seconds),
    ``largest_between`` the same by ``err`` alone.
    ``coupling`` bounds the integral of the centred function times its own error, ``other_coupling`` times the error of the other
    function; ``variation`` and ``other_variation`` are the same without the values at the ends of the window.
    """

    mean: Array
    mean_low: Array
    mean_rounding: Array
    deviation: Array
    rounding: Array
    energy: Array
    between: Array
    largest_between: Array
    coupling: Array
    other_coupling: Array
    variation: Array
    other_variation: Array


@routine
def _clear(s, i):
    for j in range(_STATE):
        s[i, j] = 0.0


@routine
def _copy(a, i, out, k):
    for j in range(_STATE):
        out[k, j] = a[i, j]


@routine
def _combine_block(a, i, b, j, out, k, at, share, w, grow):
    """Combine the blocks at ``at`` of two states; return the difference of the means."""
    ah, al, bh, bl = a[i, at + _HIGH], a[i, at + _LOW], b[j, at + _HIGH], b[j, at + _LOW]
    d = (bh - ah) + (bl - al)
    shift_a, shift_b = a[i, at + _SHIFT], b[j, at + _SHIFT]
    size = _DOUBLE * (abs(ah) + abs(bh))
    off = shift_a + shift_b + 4.0 * UNIT * abs(d) + (size if d != 0.0 else 0.0)
    square = w * d * d
    rounded = a[i, at + _ROUNDED] + b[j, at + _ROUNDED] + w * off * off
    if d != 0.0 and square < SMALL:
        rounded += _LEAST_ROUNDED * (1.0 + w)
    high, low = two_sum(ah, d * share)
    high, low = fast_two_sum(high, low + al)
    out[k, at + _SQUARES] = a[i, at + _SQUARES] + b[j, at + _SQUARES] + square
    for part in (_ENERGY, _LARGEST, _OWN, _OTHER):
        out[k, at + part] = a[i, at + part] + b[j, at + part]
    out[k, at + _ROUNDED] = rounded
    out[k, at + _SHIFT] = max(shift_a, shift_b) + grow * abs(d) + (size if d != 0.0 else 0.0)
    out[k, at + _HIGH], out[k, at + _LOW] = high, low
    return d


@routine
def _combine(a, i, b, j, out, k, pair):
    """Write the moments of state ``i`` of ``a`` followed by state ``j`` of ``b`` to ``out[k]``, which may be either."""
    na, nb = a[i, _N], b[j, _N]
    if not (na > 0.0 and nb > 0.0):  # a stretch without length may still count the energy of others
        of_x = a[i, _X + _ENERGY] + b[j, _X + _ENERGY]
        of_y = a[i, _Y + _ENERGY] + b[j, _Y + _ENERGY]
        most_x = a[i, _X + _LARGEST] + b[j, _X + _LARGEST]
        most_y = a[i, _Y + _LARGEST] + b[j, _Y + _LARGEST]
        if na > 0.0:
            _copy(a, i, out, k)
        else:
            _copy(b, j, out, k)
        out[k, _X + _ENERGY], out[k, _Y + _ENERGY] = of_x, of_y
        out[k, _X + _LARGEST], out[k, _Y + _LARGEST] = most_x, most_y
    else:
        n, count, product = na + nb, a[i, _COUNT] + b[j, _COUNT], a[i, _C] + b[j, _C]
        share = nb / n
        w, grow = na * share, 4.0 * UNIT * (count + 4.0)
        dx = _combine_block(a, i, b, j, out, k, _X, share, w, grow)
        if pair:
            dy = _combine_block(a, i, b, j, out, k, _Y, share, w, grow)
            out[k, _C] = product + w * dx * dy
        out[k, _N], out[k, _COUNT] = n, count


@routine
def _legendre(c, p, a, b, work, row):
    """Write ``x - c0`` on ``[a, b]`` (from the reference) by Legendre polynomials to ``work[row]``; return the rounding."""
    k = c.shape[1]
    mid, half = 0.5 * (a + b), 0.5 * (b - a)
    far = max(abs(a), abs(b))
    size, power = 0.0, 1.0
    work[row, 0] = 0.0
    for j in range(1, k):
        power *= far
        size += abs(c[p, j]) * power
        work[row, j] = c[p, j]
    for i in range(k - 1):  # shift to the middle
        for j in range(k - 2, i - 1, -1):
            work[row, j] += mid * work[row, j + 1]
    power = 1.0
    for j in range(k):
        work[row, j] *= power
        power *= half
    # Horner's rule: q <- z q + g_j, with z P_l = ((l + 1) P_(l+1) + l P_(l-1)) / (2l + 1).
    q = row + 1
    for j in range(k):
        work[q, j] = 0.0
    for j in range(k - 1, -1, -1):
        below = 0.0  # the coefficient of P_(l-1) before it was replaced
        for m in range(k):
            own = work[q, m]
            above = work[q, m + 1] if m + 1 < k else 0.0
            work[q, m] = below * m / (2.0 * m - 1.0) + above * (m + 1.0) / (2.0 * m + 3.0)
            below = own
        work[q, 0] += work[row, j]
    for j in range(k):
        work[row, j] = work[q, j]
    return 16.0 * k * UNIT * size


@routine
def _leaf_block(column, other, p, length, a, b, work, row, out, i, at):
    """Write the block of a part of piece ``p``."""
    c, drift = column[0], column[4]
    k = c.shape[1]
    squares, rounding, low, high = 0.0, 0.0, 0.0, c[p, 0]
    if k > 1:
        rounding = _legendre(c, p, a, b, work, row)
        for j in range(1, k):
            squares += work[row, j] * work[row, j] / (2.0 * j + 1.0)
        high, low = two_sum(c[p, 0], work[row, 0])
        rise = 0.0  # a Legendre polynomial of degree l rises and falls by at most 2 l
        for j in range(1, k):
            rise += 2.0 * j * (abs(work[row, j]) + rounding)
        if rise > 0.0:
            out[i, at + _OWN], out[i, at + _OTHER] = rise * drift[p], rise * other[4][p]
    rounded = length * k * rounding * rounding
    if rounding > 0.0 and squares * length < SMALL:
        rounded += _LEAST_ROUNDED * (1.0 + length)
    out[i, at + _HIGH], out[i, at + _LOW], out[i, at + _SHIFT] = high, low, rounding
    out[i, at + _SQUARES], out[i, at + _ROUNDED] = squares * length, rounded


@routine
def _leaf(ref, x, y, pair, p, begin, begin_rest, end, end_rest, work, out, i):
    """Write the moments of piece ``p`` from one instant to another to ``out[i]``; nothing where it has no length."""
    _clear(out, i)
    length = (end - begin) + (end_rest - begin_rest)
    if not length > 0.0:
        return
    a = ((begin - ref[p]) + begin_rest) / MICROSECONDS
    b = ((end - ref[p]) + end_rest) / MICROSECONDS
    out[i, _N], out[i, _COUNT] = length, 1.0
    _leaf_block(x, y, p, length, a, b, work, 0, out, i, _X)
    if pair:
        _leaf_block(y, x, p, length, a, b, work, 2, out, i, _Y)
        product = 0.0
        for j in range(1, min(x[0].shape[1], y[0].shape[1])):
            product += work[0, j] * work[2, j] / (2.0 * j + 1.0)
        out[i, _C] = product * length


@routine
def _end_of(ref, lo, hi, p, last):
    """Return the instant at which piece ``p`` ends: where the next of the window begins."""
    if p < last:
        return instant(ref[p + 1], lo[p + 1])
    return instant(ref[p], hi[p])


@routine
def _charge(x, y, pair, p, length, place, out, i):
    """Count the energy of piece ``p``, or of a part with this ``length``: its end, its begin, or one between two instants."""
    for number in range(2 if pair else 1):
        column = x if number == 0 else y
        err, found = column[1][p], column[2][p] * MICROSECONDS
        out[i, _X + number * _BLOCK + _LARGEST] += err * err * length
        if place >= _CLOSES:
            found = column[5][p] * MICROSECONDS
            err = column[6][p] if place == _CLOSES else err
        if place != _WHOLE and err * err * length < found:
            found = err * err * length
        out[i, _X + number * _BLOCK + _ENERGY] += found


@routine
def _add_end(x, y, pair, p, out, i):
    """Count the energy of the end of piece ``p``."""
    out[i, _X + _ENERGY] += x[3][p] * MICROSECONDS
    out[i, _X + _LARGEST] += x[3][p] * MICROSECONDS
    if pair:
        out[i, _Y + _ENERGY] += y[3][p] * MICROSECONDS
        out[i, _Y + _LARGEST] += y[3][p] * MICROSECONDS


@routine
def _jump(column, other, lo, hi, p, out, i, at):
    """Count the step from piece ``p`` to the next, times the drifts there."""
    c, k = column[0], column[0].shape[1]
    height = abs(horner(c, p + 1, k, lo[p + 1]) - horner(c, p, k, hi[p]))
    if k > 1:
        height += 4.0 * UNIT * k * (magnitude(c, p, k, hi[p]) + magnitude(c, p + 1, k, lo[p + 1]))
    if height > 0.0:
        out[i, at + _OWN] += height * min(column[4][p], column[4][p + 1])
        out[i, at + _OTHER] += height * min(other[4][p], other[4][p + 1])


@routine
def _jumps(x, y, pair, lo, hi, p, out, i):
    _jump(x, y, lo, hi, p, out, i, _X)
    if pair:
        _jump(y, x, lo, hi, p, out, i, _Y)


@routine
def _couple_end(column, other, ref, p, t, t_rest, out, i, at):
    """Count the centred value of piece ``p`` at an end of the window, times the drifts there."""
    c, k = column[0], column[0].shape[1]
    seconds = ((t - ref[p]) + t_rest) / MICROSECONDS
    value = abs((horner(c, p, k, seconds) - out[i, at + _HIGH]) - out[i, at + _LOW]) + out[i, at + _SHIFT]
    if value > 0.0:
        value += 4.0 * UNIT * k * (magnitude(c, p, k, seconds) + abs(out[i, at + _HIGH]))
        out[i, at + _OWN] += value * column[4][p]
        out[i, at + _OTHER] += value * other[4][p]


@routine
def _whole(ref, lo, hi, x, y, pair, p, last, work, out, i):
    begin, begin_rest = instant(ref[p], lo[p])
    end, end_rest = _end_of(ref, lo, hi, p, last)
    _leaf(ref, x, y, pair, p, begin, begin_rest, end, end_rest, work, out, i)
    _charge(x, y, pair, p, max((end - begin) + (end_rest - begin_rest), 0.0), _WHOLE, out, i)
    _add_end(x, y, pair, p, out, i)
    if p < last:
        _jumps(x, y, pair, lo, hi, p, out, i)


@kernel(IN_INT1, IN1, IN1, _COLUMN, _COLUMN, BOOL, _PLACES, INT, INT, OUT2)
def _window_moments(ref, lo, hi, x, y, pair, places, size, span, out):
    closing, rest, tail, head = places
    work = np.zeros((4, max(x[0].shape[1], y[0].shape[1]) + 1))
    suffix = np.zeros(
        (span + 2, _STATE)
    )  # moments from piece `base + i` to the last that was new when they were formed
    own = np.zeros((3, _STATE))  # the newer pieces, a part, all together
    base, middle, after = 0, 0, 0  # older pieces are `base … middle - 1`, newer ones `middle … after - 1`
    for i in range(closing.shape[0]):
        q, h = tail[i], head[i]
        close, close_rest = closing[i], rest[i]
        opening = close - size
        if q + 1 > after or q + 1 < base:
            base, middle, after = q + 1, q + 1, q + 1
            _clear(own, 0)
        while after < h:
            _whole(ref, lo, hi, x, y, pair, after, h, work, own, 1)
            _combine(own, 0, own, 1, own, 0, pair)
            after += 1
        if q + 1 >= middle and after > middle:  # no older pieces are left
            base, middle = q + 1, after
            _clear(suffix, middle - base)
            for p in range(middle - 1, base - 1, -1):
                _whole(ref, lo, hi, x, y, pair, p, h, work, own, 1)
                _combine(own, 1, suffix, p + 1 - base, suffix, p - base, pair)
            _clear(own, 0)
        _clear(own, 2)
        if q < h:
            end, end_rest = _end_of(ref, lo, hi, q, h)
            if q + 1 < middle:
                _combine(suffix, q + 1 - base, own, 0, own, 2, pair)
            else:
                _copy(own, 0, own, 2)
        else:
            end, end_rest = close, close_rest
        out[i, _STATE], out[i, _STATE + 1] = own[2, _X + _ENERGY], own[2, _Y + _ENERGY]
        out[i, _STATE + 6], out[i, _STATE + 7] = own[2, _X + _LARGEST], own[2, _Y + _LARGEST]
        _leaf(ref, x, y, pair, q, opening, close_rest, end, end_rest, work, own, 1)
        length = max((end - opening) + (end_rest - close_rest), 0.0)
        _charge(x, y, pair, q, length, _OPENS if q < h else _WITHIN, own, 1)
        if q < h:
            _add_end(x, y, pair, q, own, 1)
            _jumps(x, y, pair, lo, hi, q, own, 1)
        begin, begin_rest = instant(ref[q], lo[q])
        slack = MICROSECONDS * (GRAIN + 4.0 * _EPSILON * max(abs(lo[q]), abs(hi[q])))
        if q > 0 and (opening - begin) + (close_rest - begin_rest) <= slack:
            _add_end(x, y, pair, q - 1, own, 1)
        _combine(own, 1, own, 2, own, 2, pair)
        if q < h:
            begin, begin_rest = instant(ref[h], lo[h])
            _leaf(ref, x, y, pair, h, begin, begin_rest, close, close_rest, work, own, 1)
            _combine(own, 2, own, 1, own, 2, pair)
            length = max((close - begin) + (close_rest - begin_rest), 0.0)
            _charge(x, y, pair, h, length, _CLOSES, own, 2)
        end, end_rest = instant(ref[h], hi[h])
        slack = MICROSECONDS * (GRAIN + 4.0 * _EPSILON * max(abs(lo[h]), abs(hi[h])))
        if (end - close) + (end_rest - close_rest) <= slack:
            _add_end(x, y, pair, h, own, 2)
        for number in range(2):
            out[i, _STATE + 2 + number] = own[2, _X + number * _BLOCK + _OWN]
            out[i, _STATE + 4 + number] = own[2, _X + number * _BLOCK + _OTHER]
        for p, at, at_rest in ((q, opening, close_rest), (h, close, close_rest)):
            _couple_end(x, y, ref, p, at, at_rest, own, 2, _X)
            if pair:
                _couple_end(y, x, ref, p, at, at_rest, own, 2, _Y)
        _copy(own, 2, out, i)


def window_moments(
    ref: Ints,
    lo: Array,
    hi: Array,
    x: Column,
    y: Column | None,
    places: tuple[Ints, Array, Ints, Ints],
    *,
    size_us: int,
) -> tuple[Moments, Moments, Array, Array]:
    """Return the moments of ``x``, of ``y``, their covariance and the bound of its rounding, for windows ``[t - size, t)``.

    ``places`` are ``(t, rest, tail, head)``: the closing time as whole microseconds and a rest of microseconds, and the pieces in
    which the window opens and closes; tails and heads ascend. All pieces have a length, those of a window meet. Without ``y`` its
    moments and the covariance are those of nothing, 0.

    >>> flat = Column(np.array([[1.0], [3.0]]), *np.zeros((6, 2)))
    >>> at = np.array([2_000_000]), np.zeros(1), np.array([0]), np.array([1])
    >>> found, *_ = window_moments(np.array([0, 10**6]), np.zeros(2), np.ones(2), flat, None, at, size_us=2_000_000)
    >>> found.mean.tolist(), found.deviation.tolist()
    ([2.0], [1.0])
    """
    n, count = len(ref), len(places[0])
    columns = [_checked(one, n) for one in (x, x if y is None else y)]
    whole, first, last = (np.ascontiguousarray(places[i], dtype=np.int64) for i in (0, 2, 3))
    rest = np.ascontiguousarray(places[1], dtype=np.float64)
    if any(len(one) != count for one in (rest, first, last)) or (last < first).any():
        raise ValueError(
            "places: expected as many rests, tails and heads as closing times, no tail after its head"
        )
    if size_us <= 0:
        raise ValueError(f"size_us: expected a positive number of microseconds, got {size_us!r}")
    out = np.zeros((count, _STATE + _FURTHER))
    span = int((last - first).max(initial=0))
    ref = np.ascontiguousarray(ref, dtype=np.int64)
    lo, hi = (np.ascontiguousarray(one, dtype=np.float64) for one in (lo, hi))
    _window_moments(ref, lo, hi, *columns, y is not None, (whole, rest, first, last), int(size_us), span, out)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = 8.0 * UNIT * (out[:, _COUNT] + 8.0)
        length = np.maximum(out[:, _N], 1e-300)
        made = [_moments(out, at, length, steps, number) for number, at in enumerate((_X, _Y))]
        covariance = out[:, _C] / length
        (dx, qx), (dy, qy) = ((one.deviation, one.rounding) for one in made)
        rounding = dx * qy + dy * qx + qx * qy + 2.0 * steps * dx * dy
    return made[0], made[1], covariance, rounding


def _moments(out: Array, at: int, length: Array, steps: Array, number: int) -> Moments:
    deviation = np.sqrt(out[:, at + _SQUARES] / length)
    rounding = np.sqrt(out[:, at + _ROUNDED] / length) * (1.0 + steps) + steps * deviation
    whole = np.minimum(out[:, at + _ENERGY], out[:, at + _LARGEST])
    sums = whole, out[:, _STATE + number], out[:, _STATE + 6 + number]
    energies = ((one * (1.0 + steps)) / MICROSECONDS for one in sums)
    places = at + _OWN, at + _OTHER, _STATE + 2 + number, _STATE + 4 + number
    couplings = (out[:, place] * (1.0 + steps) for place in places)
    mean = out[:, at + _HIGH], out[:, at + _LOW], out[:, at + _SHIFT]
    return Moments(*mean, deviation, rounding, *energies, *couplings)


def _checked(column: Column, n: int) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    c, err, energy, ends, drift, head, head_err = (
        np.ascontiguousarray(one, dtype=np.float64) for one in column
    )
    if (
        c.ndim != 2
        or len(c) != n
        or c.shape[1] == 0
        or any(one.shape != (n,) for one in (err, energy, ends, drift, head, head_err))
    ):
        raise ValueError(
            f"expected {n} coefficients (n, k >= 1), errors, energies, ends and drifts, one per ref"
        )
    return c, err, energy, ends, drift, head, head_err
