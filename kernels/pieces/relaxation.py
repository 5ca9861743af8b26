"""Follow a piecewise polynomial with exponential memory: the solution of ``y' = (x - y) / tau`` at the start of each piece.

On a piece ``x`` is a polynomial, and so is the particular solution ``p = x - tau x' + tau^2 x'' - …``, with coefficients
``p_j = c_j - tau (j + 1) p_(j+1)``. The solution is ``y(t) = p(t) + (y(lo) - p(lo)) exp(-(t - lo) / tau)``, which is a mean of
all earlier values of ``x``: where these err by at most ``err`` per piece, the error of ``y`` follows ``e' = (err - e) / tau``.

Each piece is solved from the same earlier piece wherever the pieces given begin: time is divided into blocks, at multiples of
their length, and the pieces that start in a block are solved from the first that ends in one of the few blocks before it, or
later. So all results are functions of the pieces within reach alone, bit by bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import FLOAT, IN1, IN2, IN_BYTE1, IN_INT1, INT, OUT1, OUT2, OUT_INT1, device, kernel
from pulse.kernels.rounding import UNIT

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_VALUE, _TRANSIENT, _ERROR, _ROUNDING, _KEPT, _DRIFT, _LEAST = range(7)
_GROWN = 1.0 + 16.0 * UNIT


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


@kernel(IN1, IN1, IN2, FLOAT, OUT2, OUT1)
def _particulars(lo, hi, c, tau, p, own):
    k = c.shape[1]
    for i in range(len(lo)):
        own[i] = 8.0 * k * UNIT * _particular(c, i, k, tau, max(abs(lo[i]), abs(hi[i])), p)


@device
def _follow(first, at, stop, lo, hi, c, limits, fresh, tau, p, own, out):
    """Solve from piece ``first`` on; write the results of pieces ``at`` up to ``stop``."""
    k = c.shape[1]
    value, error, rounding, kept, drift, least = 0.0, 0.0, 0.0, 0.0, 0.0, np.inf
    for i in range(first, stop):
        begin, last = _horner(p, i, k, lo[i]), _horner(p, i, k, hi[i])
        err = limits[i, 0]
        if i == first or fresh[i]:
            value = begin if fresh[i] else _horner(c, i, k, lo[i])
            error, rounding, kept, drift, least = err, own[i], err, 0.0, np.inf
        transient = value - begin
        drift, least = max(drift, limits[i, 1]), min(least, limits[i, 2])
        if i >= at:
            out[i, 0], out[i, 1], out[i, 2] = value, transient, error
            out[i, 3], out[i, 4], out[i, 5], out[i, 6] = rounding + 2.0 * own[i], kept, drift, least
        by = -(hi[i] - lo[i]) / tau
        fade = math.exp(by)
        rounding = (rounding * fade + 3.0 * own[i] + 8.0 * UNIT * (abs(transient) + abs(last))) * _GROWN
        value = last + transient * fade
        # Two positive terms: as err + (error - err) * fade it would lose the digits of an error far below err.
        error = (error * fade - err * math.expm1(by)) * _GROWN
        kept = kept * fade * _GROWN


@kernel(IN_INT1, IN_INT1, IN1, IN1, IN2, IN2, IN_BYTE1, FLOAT, IN2, IN1, OUT2)
def _relax(runs, since, lo, hi, c, limits, fresh, tau, p, own, out):
    for r in range(runs.shape[0] - 1):
        i = runs[r]
        while i < runs[r + 1]:
            stop = i + 1
            while stop < runs[r + 1] and since[stop] == since[i]:
                stop += 1
            _follow(since[i], i, stop, lo, hi, c, limits, fresh, tau, p, own, out)
            i = stop


@kernel(IN_INT1, IN_INT1, IN_INT1, INT, INT, OUT_INT1)
def _since(runs, start, end, block, blocks, since):
    for r in range(runs.shape[0] - 1):
        first = runs[r]
        for i in range(runs[r], runs[r + 1]):
            opened = (start[i] // block - blocks) * block
            while first < i and end[first] <= opened:
                first += 1
            since[i] = first


def first_counted(runs: Integers, start: Integers, end: Integers, block: int, blocks: int) -> Integers:
    """Return per piece the first of its run that ends in one of the ``blocks`` blocks before its own, or later.

    ``start`` and ``end`` are the microseconds of the pieces, ``block`` the length of a block, at whose multiples blocks start.

    >>> first_counted(np.array([0, 4]), np.array([0, 5, 20, 31]), np.array([5, 20, 31, 40]), 10, 1).tolist()
    [0, 0, 1, 2]
    """
    if block < 1 or blocks < 0:
        raise ValueError(
            f"expected a block of at least 1 microsecond and no negative number of them, got {block} and {blocks}"
        )
    since = np.empty(len(start), np.int64)
    columns = [np.ascontiguousarray(one, np.int64) for one in (runs, start, end)]
    _since(*columns, block, blocks, since)
    return since


class Relaxed(NamedTuple):
    """Per piece: the particular solution's coefficients, and where the piece starts the value, its distance from the
    particular solution, the bound of the error that ``err`` causes, the bound of the rounding of all of them, what the bound of
    the first piece that counts still contributes, and the largest drift and the least mark since.
    """

    particular: Array
    value: Array
    transient: Array
    error: Array
    rounding: Array
    kept: Array
    drift: Array
    least: Array


def relax(
    runs: Integers,
    since: Integers,
    lo: Array,
    hi: Array,
    c: Array,
    limits: tuple[Array, Array, Array],
    fresh: Booleans,
    tau: float,
) -> Relaxed:
    """Solve ``y' = (x - y) / tau`` over runs of pieces without holes, each piece from ``y = x`` at the start of piece ``since``.

    ``runs`` are the offsets of the runs, ``since`` as :func:`first_counted` has it, ``c`` of shape ``(n, k)`` coefficients about
    each piece's own reference, ``lo`` and ``hi`` seconds from it, ``limits`` the bounds ``err`` and ``drift`` and a mark, ``tau``
    seconds above zero. A piece that is ``fresh`` starts on its particular solution. No pieces, no result.

    >>> zero, two = np.zeros(2), np.array([[1.0], [3.0]])
    >>> made = relax(
    ...     np.array([0, 2]), zero.astype(int), zero, zero + 1.0, two, (np.array([0.5, 0.0]), zero, zero), zero > 0.0, 1.0
    ... )
    >>> made.value.tolist(), made.transient.tolist(), made.error.tolist()
    ([1.0, 1.0], [0.0, -2.0], [0.5, 0.5000000000000009])
    """
    if not tau > 0.0 or not math.isfinite(tau):
        raise ValueError(f"tau: expected a number of seconds above 0, got {tau!r}")
    lo, hi, c = (np.ascontiguousarray(one, np.float64) for one in (lo, hi, c))
    bounds = np.stack(limits, axis=1) if len(lo) else np.zeros((0, 3))
    p, own, out = np.empty(c.shape), np.empty(len(lo)), np.empty((len(lo), 7))
    _particulars(lo, hi, c, float(tau), p, own)
    offsets = [np.ascontiguousarray(one, np.int64) for one in (runs, since)]
    _relax(*offsets, lo, hi, c, bounds, np.ascontiguousarray(fresh, np.uint8), float(tau), p, own, out)
    found = (_VALUE, _TRANSIENT, _ERROR, _ROUNDING, _KEPT, _DRIFT, _LEAST)
    return Relaxed(p, *(np.ascontiguousarray(out[:, j]) for j in found))
