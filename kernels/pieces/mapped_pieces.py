"""Cut segments at the steps of their cell, and apply the map of its step to each part (:mod:`pulse.kernels.pieces.step_maps`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN1, IN2, IN_INT1, OUT1, OUT2, OUT_INT1, device, kernel
from pulse.kernels.pieces.map_rounding import scaled_bound, value_lost
from pulse.kernels.pieces.step_maps import check_steps
from pulse.kernels.rounding import GROWN, TERM, UNIT

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_STEPS = types.Tuple((IN_INT1, IN_INT1))
_MAPS = types.Tuple((IN1, IN1))
_ROUNDED = types.Tuple((IN1, IN1, IN1, IN1))
_PIECES = types.Tuple((IN2, IN1, IN1, IN1))
_RESTATED = types.Tuple((OUT2, OUT1, OUT1))
_RANGES = types.Tuple((IN_INT1, IN1, IN1))
_PARTS = types.Tuple((OUT_INT1, OUT1, OUT1, OUT_INT1))


class MappedParts(NamedTuple):
    """A table of rows cut at steps: ``row`` ascends, ``[lo, hi)`` lies in one step; ``step`` is -1 before the first."""

    row: Integers
    lo: Array
    hi: Array
    step: Integers


@device
def _first_after(instants, begin, stop, ref, offset):
    """Return the first step that lies after ``ref + offset`` seconds."""
    while begin < stop:
        middle = (begin + stop) >> 1
        if (instants[middle] - ref) / 1e6 > offset:
            stop = middle
        else:
            begin = middle + 1
    return begin


@kernel(_RANGES, IN_INT1, _STEPS, OUT_INT1)
def _count(ranges, cell, steps, out):
    ref, lo, hi = ranges
    offsets, instants = steps
    for i in range(ref.shape[0]):
        stop = offsets[cell[i] + 1]
        s = _first_after(instants, offsets[cell[i]], stop, ref[i], lo[i])
        out[i] = 1
        while s < stop and (instants[s] - ref[i]) / 1e6 < hi[i]:
            out[i] += 1
            s += 1


@kernel(_RANGES, IN_INT1, _STEPS, IN_INT1, _PARTS)
def _cut(ranges, cell, steps, starts, parts):
    ref, lo, hi = ranges
    offsets, instants = steps
    row, part_lo, part_hi, step = parts
    for i in range(ref.shape[0]):
        begin = offsets[cell[i]]
        s = _first_after(instants, begin, offsets[cell[i] + 1], ref[i], lo[i])
        at = lo[i]
        for p in range(starts[i], starts[i + 1]):
            row[p], part_lo[p], step[p] = i, at, s - 1 if s > begin else -1
            if p + 1 < starts[i + 1]:
                at = (instants[s] - ref[i]) / 1e6
                part_hi[p] = at
                s += 1
            else:
                part_hi[p] = hi[i]


@kernel(_PIECES, IN_INT1, _ROUNDED, _RESTATED)
def _restate(pieces, step, maps, out):
    c, lo, hi, err = pieces
    a, b, da, db = maps
    made, bound, rates = out
    n, k = c.shape
    for i in range(n):
        s = step[i]
        if s < 0:
            for j in range(k):
                made[i, j] = c[i, j]
            bound[i], rates[i] = err[i], 0.0
            continue
        t, size = max(abs(lo[i]), abs(hi[i])), 0.0
        for j in range(k - 1, -1, -1):
            made[i, j] = a[s] * c[i, j]
            if j > 0:
                size = (size + abs(made[i, j])) * t
        rate = value_lost(c[i, 0], a[s], b[s], da[s], db[s])
        if (
            size > 0.0
        ):  # degree 1 or more is evaluated anew; scaling by a power of two leaves its rounding unchanged
            whole = b[s] == 0.0 and da[s] == 0.0 and math.frexp(a[s])[0] == 0.5
            rate = 0.0 if whole else TERM * k * (size + abs(made[i, 0]) + abs(b[s])) * GROWN
        made[i, 0] += b[s]
        bound[i], rates[i] = scaled_bound(err[i], a[s], da[s]), rate
        if rate > 0.0:
            bound[i] = (bound[i] + rate) * GROWN


@kernel(IN_INT1, IN_INT1, _MAPS, IN1, OUT1)
def _drift(offsets, step, maps, drift, out):
    a, da = maps
    for g in range(offsets.shape[0] - 1):
        carried, scale, off, changes = 0.0, 1.0, 0.0, 0
        for i in range(offsets[g], offsets[g + 1]):
            now = a[step[i]] if step[i] >= 0 else 1.0
            vague = da[step[i]] if step[i] >= 0 else 0.0
            if i > offsets[g] and now != scale:
                carried += (abs(now - scale) + vague + off) * drift[i - 1]
                changes += 1
            scale, off = now, vague
            out[i] = scaled_bound(drift[i], now, vague)
            if changes > 0:
                out[i] = (out[i] + carried) * (GROWN + 4 * changes * UNIT)


def cut_at_steps(
    ref: Integers, lo: Array, hi: Array, cell: Integers, steps: tuple[Integers, Integers]
) -> MappedParts:
    """Cut ranges ``[ref + lo, ref + hi)`` where a step of their cell lies strictly inside; a point is never cut.

    Degenerate: a range that begins at a step lies in it; one that ends there does not.

    >>> steps = np.array([0, 1]), np.array([5_000_000])
    >>> [x.tolist() for x in cut_at_steps(np.array([0]), np.array([0.0]), np.array([8.0]), np.array([0]), steps)]
    [[0, 0], [0.0, 5.0], [5.0, 8.0], [-1, 0]]
    """
    check_steps(cell, steps, len(ref), len(lo), len(hi))
    ranges = ref, lo, hi
    counts = np.empty(len(ref), np.int64)
    _count(ranges, cell, steps, counts)
    starts = np.concatenate(([0], np.cumsum(counts)))
    n = int(starts[-1])
    parts = MappedParts(np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n, np.int64))
    _cut(ranges, cell, steps, starts, tuple(parts))
    return parts


class Restated(NamedTuple):
    """A batch of mapped polynomials: coefficients ``c``, bounds ``err``, and ``rounding``, the part of ``err`` the maps added."""

    c: Array
    err: Array
    rounding: Array


def restate(
    c: Array, lo: Array, hi: Array, err: Array, step: Integers, maps: tuple[Array, Array, Array, Array]
) -> Restated:
    """Map polynomials ``c[n, k]`` on ``[lo, hi]``, within ``err``, by the map of their ``step``; -1 leaves one unchanged.

    ``maps`` are ``a``, ``b`` and the uncertainty of each. A bound scales by ``a`` and grows by the rounding of forming the
    coefficients and evaluating them: for a constant the exact errors of the product and the sum, else ``4 u k (a M + |b|)``
    (:mod:`pulse.kernels.rounding`), taken before ``a c_0`` and ``b`` cancel. Scaling by a power of two without a shift adds 0.

    >>> maps = tuple(np.array([x]) for x in (0.25, 0.0, 0.0, 0.0))
    >>> found = restate(np.array([[8.0, 4.0]]), np.zeros(1), np.ones(1), np.ones(1), np.zeros(1, np.int64), maps)
    >>> found.c.tolist(), found.err.tolist(), found.rounding.tolist()
    ([[2.0, 1.0]], [0.25], [0.0])
    """
    n = len(c)
    found = Restated(np.empty(c.shape), np.empty(n), np.empty(n))
    pieces = [np.ascontiguousarray(one, np.float64) for one in (c, lo, hi, err)]
    _restate(tuple(pieces), np.ascontiguousarray(step, np.int64), tuple(maps), tuple(found))
    return found


def scaled_drift(offsets: Integers, step: Integers, maps: tuple[Array, Array], drift: Array) -> Array:
    """Bound the error of the mapped integral by that of the integral, row by row of groups ``offsets``.

    With ``E`` the integral of the error, scaled by ``a_k`` from ``T_k`` on:
    ``E'(t) = a_k E(t) + sum((a_j - a_(j+1)) E(T_(j+1)))``, so ``a_k D(t) + sum(|a_j - a_(j+1)| D(T_(j+1)))`` bounds it.
    If the scale never changes, that is ``a D``. ``maps`` are the scales and the uncertainty of each; the result is rounded up.
    """
    out = np.empty(len(drift))
    _drift(offsets, step, maps, drift, out)
    return out
