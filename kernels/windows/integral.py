"""Integrate piecewise polynomials over sliding windows (semantics 3.5; Pulse paper, III-B).

A piecewise function is a sequence of pieces ``(ref, lo, hi, c)``, grouped by ``offsets`` (``int64[G + 1]``),
per group sorted in time and without overlaps. A **run** is a stretch of one group without a hole; a gap
within :func:`pulse.kernels.instants.tolerance` is none. The integral over ``[t - w, t)`` as a function of the
closing time ``t`` is one polynomial per cell of the walk in :mod:`pulse.kernels.windows.walk`; this module writes it
out, or samples it.

Accuracy: every instant is held as whole microseconds and a rest, every polynomial is shifted to where its
part of the window begins, and the sum is a double-double; so the error is a few units in the last place of
``w`` times the largest ``sum(|c[j]| * |t|**j)`` of the pieces touched, whatever the epoch and however long or
short the pieces. Pieces with ``hi <= lo`` (points too) have measure zero and are skipped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import (
    IN1,
    IN2,
    IN_INT1,
    INT,
    OUT1,
    OUT2,
    OUT_BYTE1,
    OUT_INT1,
    OUT_INT2,
    device,
    kernel,
)
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import horner1
from pulse.kernels.status import NOT_FINITE, OK, UNCOVERED
from pulse.kernels.windows.walk import (
    BEGIN,
    BEGIN_REST,
    BLOCK,
    END,
    END_REST,
    FLOATS,
    HEAD,
    LARGEST,
    RESTS,
    SLACK,
    STATES,
    TAIL,
    W0,
    W1,
    W2,
    WHOLES,
    cell_polynomial,
    first_closing,
    last_closing,
    next_cells,
    start_walk,
)

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_FARTHEST = 4e12  # seconds: a larger offset could overflow int64 microseconds


@device
def _keep(value, values, status, p):
    """Store a sample; one that is not finite is reported and stored as zero."""
    fine = abs(value) <= LARGEST
    values[p] = value if fine else 0.0
    status[p] = OK if fine else NOT_FINITE


@kernel(IN_INT1, IN1, IN1, IN2, IN_INT1, INT, OUT_INT1, OUT_INT2, OUT2, OUT2)
def _window_integral(ref, lo, hi, c, offsets, size, out_offsets, out_at, out_span, out_c):
    at, x = np.zeros(STATES, np.int64), np.zeros(FLOATS)
    whole, rest = np.empty((BLOCK, WHOLES), np.int64), np.empty((BLOCK, RESTS))
    work = np.empty((4, c.shape[1]))
    m = 0
    out_offsets[0] = 0
    for g in range(offsets.shape[0] - 1):
        start_walk(offsets[g], offsets[g + 1], at)
        cells = next_cells(ref, lo, hi, c, size, at, x, whole, rest)
        while cells > 0:
            for i in range(cells):
                end = (whole[i, END] - whole[i, BEGIN]) + rest[i, END_REST]
                if end - rest[i, BEGIN_REST] > rest[i, SLACK]:
                    cell_polynomial(ref, lo, hi, c, size, whole, rest, i, work, out_c[m])
                    out_at[m, 0] = whole[i, BEGIN]
                    out_at[m, 1], out_at[m, 2] = whole[i, HEAD], whole[i, TAIL]
                    out_span[m, 0], out_span[m, 1] = rest[i, BEGIN_REST] / MICROSECONDS, end / MICROSECONDS
                    m += 1
            cells = next_cells(ref, lo, hi, c, size, at, x, whole, rest)
        out_offsets[g + 1] = m


@kernel(IN_INT1, IN1, IN1, IN2, IN_INT1, INT, IN_INT1, IN_INT1, OUT1, OUT_BYTE1)
def _window_integral_at(ref, lo, hi, c, offsets, size, closing, closing_offsets, values, status):
    k = c.shape[1]
    at, x = np.zeros(STATES, np.int64), np.zeros(FLOATS)
    whole, rest = np.empty((BLOCK, WHOLES), np.int64), np.empty((BLOCK, RESTS))
    work, w = np.empty((4, k)), np.empty(k + 1)
    for g in range(offsets.shape[0] - 1):
        p, stop = closing_offsets[g], closing_offsets[g + 1]
        start_walk(offsets[g], offsets[g + 1], at)
        cells = 1
        while p < stop and cells > 0:
            cells = next_cells(ref, lo, hi, c, size, at, x, whole, rest)
            for i in range(cells):
                base = whole[i, BEGIN]
                first = first_closing(base, rest[i, BEGIN_REST], rest[i, SLACK])
                last = last_closing(whole[i, END], rest[i, END_REST], rest[i, SLACK])
                while p < stop and closing[p] < first:
                    p += 1
                if k <= 2:
                    w0, w1, w2 = rest[i, W0], rest[i, W1], rest[i, W2]
                    while p < stop and closing[p] <= last:
                        s = (closing[p] - base) / MICROSECONDS
                        _keep(w0 + s * (w1 + s * w2), values, status, p)
                        p += 1
                elif p < stop and closing[p] <= last:
                    cell_polynomial(ref, lo, hi, c, size, whole, rest, i, work, w)
                    while p < stop and closing[p] <= last:
                        _keep(horner1(w, k + 1, (closing[p] - base) / MICROSECONDS), values, status, p)
                        p += 1


@kernel(IN_INT1, IN_INT1)
def _first_descent(times, offsets):
    for g in range(offsets.shape[0] - 1):
        for i in range(offsets[g] + 1, offsets[g + 1]):
            if times[i] < times[i - 1]:
                return i
    return -1


def window_integral(
    ref: Ints, lo: Array, hi: Array, c: Array, offsets: Ints, size_us: int
) -> tuple[Ints, Ints, Array, Array, Array, Ints, Ints]:
    """Return ``W(t)``, the integral over ``[t - size, t)``, as pieces in the closing time ``t``.

    Returns ``(offsets, ref, lo, hi, c[m, k + 1], head, tail)``. Each piece is written about the whole microsecond
    nearest its own start, which keeps it well conditioned wherever the inputs' references lie. Its lineage is the
    input pieces ``tail … head``. There are pieces only where the whole window lies in one run. A coefficient that is
    not finite makes all pieces that depend on it not finite.

    >>> W = window_integral([0], [0.0], [5.0], [[0.0, 2.0]], [0, 1], 2_000_000)
    >>> W[1], W[3], W[4]
    (array([2000000]), array([3.]), array([[4., 4., 0.]]))
    """
    ref, lo, hi, c, offsets = _pieces(ref, lo, hi, c, offsets)
    size = _duration(size_us, "size_us")
    most = 2 * len(ref)  # every cell ends where the head or the tail advances
    out_offsets = np.empty(len(offsets), np.int64)
    at, span, out = np.empty((most, 3), np.int64), np.empty((most, 2)), np.empty((most, c.shape[1] + 1))
    _window_integral(ref, lo, hi, c, offsets, size, out_offsets, at, span, out)
    m = out_offsets[-1]
    begin, head, tail = (at[:m, j].copy() for j in range(3))
    return out_offsets, begin, span[:m, 0].copy(), span[:m, 1].copy(), out[:m].copy(), head, tail


def window_integral_at(
    ref: Ints,
    lo: Array,
    hi: Array,
    c: Array,
    offsets: Ints,
    size_us: int,
    closing: Ints,
    closing_offsets: Ints,
) -> tuple[Array, npt.NDArray[np.uint8]]:
    """Return ``(values, status)`` of ``W`` at given closing times (microseconds, ascending per group), in one pass.

    Status is ``UNCOVERED`` where the window touches a hole or extends outside, ``NOT_FINITE`` where a piece it touches,
    even only at an end, is not finite; there the value is zero. A window that closes exactly where the data ends has a
    result: it covers ``[t - size, t)``.
    """
    ref, lo, hi, c, offsets = _pieces(ref, lo, hi, c, offsets)
    size = _duration(size_us, "size_us")
    closing = _integers(closing, "closing")
    closing_offsets = _offsets(closing_offsets, len(closing), "closing_offsets")
    if len(closing_offsets) != len(offsets):
        raise ValueError(
            f"closing_offsets: expected {len(offsets)} entries, like offsets, got {len(closing_offsets)}"
        )
    descent = _first_descent(closing, closing_offsets)
    if descent >= 0:
        raise ValueError(f"closing: expected ascending times per group, got a smaller one at index {descent}")
    values, status = np.zeros(len(closing)), np.full(len(closing), UNCOVERED, np.uint8)
    _window_integral_at(ref, lo, hi, c, offsets, size, closing, closing_offsets, values, status)
    return values, status


def _pieces(
    ref: Ints, lo: Array, hi: Array, c: Array, offsets: Ints
) -> tuple[Ints, Array, Array, Array, Ints]:
    ref = _integers(ref, "ref")
    lo, hi, c = (np.ascontiguousarray(a, dtype=np.float64) for a in (lo, hi, c))
    n = len(ref)
    if lo.shape != (n,) or hi.shape != (n,):
        raise ValueError(f"lo, hi: expected shape ({n},), like ref, got {lo.shape} and {hi.shape}")
    if c.ndim != 2 or len(c) != n or c.shape[1] == 0:
        raise ValueError(f"coefficients: expected shape ({n}, k) with k >= 1, got {c.shape}")
    if n and not max(-lo.min(), lo.max(), -hi.min(), hi.max()) <= _FARTHEST:
        raise ValueError(f"lo, hi: expected finite seconds, at most {_FARTHEST:g} from their reference")
    return ref, lo, hi, c, _offsets(offsets, n, "offsets")


def _integers(x: Ints, name: str) -> Ints:
    x = np.asarray(x)
    if x.ndim != 1 or (x.size and x.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected a vector of integers, got shape {x.shape} of {x.dtype}")
    return np.ascontiguousarray(x, dtype=np.int64)


def _offsets(offsets: Ints, n: int, name: str) -> Ints:
    offsets = _integers(offsets, name)
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
        raise ValueError(f"{name}: expected ascending offsets from 0 to {n}")
    return offsets


def _duration(microseconds: int, name: str) -> int:
    if int(microseconds) != microseconds or microseconds <= 0:
        raise ValueError(f"{name}: expected a positive whole number of microseconds, got {microseconds!r}")
    return int(microseconds)
