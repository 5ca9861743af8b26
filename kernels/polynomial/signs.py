"""Solve ``p(t) R 0`` for the sets of intervals on which it holds (semantics 3.2).

The roots cut the range; between two of them the sign is taken from a value in between, never from a count of
roots, so touching and crossing roots need no distinction. At a root the value is zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN1, IN2, INT, OUT2, OUT_BYTE1, OUT_INT1, device, inlined, kernel
from pulse.kernels.polynomial.arithmetic import as_batch, per_row
from pulse.kernels.polynomial.interval_sets import IntervalSets, append, trim
from pulse.kernels.polynomial.roots import root_work, roots_row, value_row
from pulse.kernels.status import OK, ZERO_POLYNOMIAL

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A relation is the set of signs that satisfy it: bit 0 negative, bit 1 zero, bit 2 positive.
LT, EQ, GT = 1, 2, 4
LE, NE, GE = LT | EQ, LT | GT, EQ | GT
RELATIONS = {"<": LT, "<=": LE, "=": EQ, "!=": NE, ">=": GE, ">": GT}

_PROBES = 8  # where a value is within the noise, the largest of this many values in between decides the sign


@device
def sign_work(k):
    """Allocate scratch for :func:`sign_row`."""
    return root_work(k), np.empty(k)


@inlined
def sign_row(c, i, k, span, relation, noise, work, out):
    """Find the instants of the half-open ``span = (lo, hi)`` at which row ``i`` satisfies ``relation`` to zero.

    ``out = (bounds, ends, at)``: intervals are written from ``at`` on, at most ``k`` of them. Returns
    ``(next, status)``. Touching roots are instants of ``<=``, gaps of ``<``. Degenerate: a polynomial
    that is zero on the whole range (ZERO_POLYNOMIAL) satisfies ``= <= >=`` throughout; nothing is written
    for EMPTY_RANGE, NOT_FINITE and ``lo == hi``.
    """
    lo, hi = span
    bounds, ends, first = out
    roots, found = work[0], work[1]
    count, status = roots_row(c, i, k, lo, hi, noise, roots, found)
    target = (bounds, ends)
    at = first
    zero_holds = relation & EQ != 0
    if status == ZERO_POLYNOMIAL:
        if zero_holds:
            at = append((lo, 0), (hi, 0), target, first, at)
        return at, status
    if status != OK or lo == hi:
        return at, status
    cut = (lo, 0)
    for j in range(count + 1):
        last = j == count
        x = hi if last else found[j]
        if cut[0] < x and _holds_between(c, i, k, cut[0], x, relation, noise):
            at = append(cut, (x, 0), target, first, at)
        if not last and x < hi:
            if zero_holds:
                at = append((x, 0), (x, 1), target, first, at)
            cut = (x, 1)
    return at, status


@inlined
def _holds_between(c, i, k, a, b, relation, noise):
    """Test whether the relation holds in the open ``(a, b)``, which has no root."""
    if relation == EQ or relation == NE:
        return relation == NE
    value = value_row(c, i, k, a + 0.5 * (b - a))
    if not abs(value) > noise:
        for j in range(1, _PROBES):
            other = value_row(c, i, k, a + (j / _PROBES) * (b - a))
            if abs(other) > abs(value):
                value = other
    sign = LT if value < 0.0 else (GT if value > 0.0 else EQ)
    return relation & sign != 0


@kernel(IN2, IN1, IN1, INT, IN1, OUT_INT1, OUT2, OUT_BYTE1, OUT_INT1)
def _sign_ranges(c, lo, hi, relation, noise, offsets, bounds, ends, status):
    n, k = c.shape
    work = sign_work(k)
    at = 0
    offsets[0] = 0
    for i in range(n):
        at, status[i] = sign_row(c, i, k, (lo[i], hi[i]), relation, noise[i], work, (bounds, ends, at))
        offsets[i + 1] = at


def sign_ranges(
    c: Array, lo: Array | float, hi: Array | float, relation: int, noise: Array | float = 0.0
) -> tuple[IntervalSets, Integers]:
    """Find where in its half-open ``[lo, hi)`` each polynomial satisfies ``relation`` (LT … GT) to zero; also return the status.

    >>> sets, status = sign_ranges(np.array([[0.25, -1.0, 1.0]]), 0.0, 2.0, RELATIONS["<="])
    >>> sets.bounds, sets.ends, status
    (array([[0.5, 0.5]]), array([3], dtype=uint8), array([0]))
    """
    if relation not in RELATIONS.values():
        raise ValueError(f"relation: expected one of {RELATIONS}, got {relation!r}")
    c = as_batch(c)
    n, k = c.shape
    offsets = np.empty(n + 1, dtype=np.int64)
    status = np.empty(n, dtype=np.int64)
    bounds, ends = np.empty((n * k, 2)), np.empty(n * k, dtype=np.uint8)
    _sign_ranges(
        c, per_row(lo, n), per_row(hi, n), relation, per_row(noise, n), offsets, bounds, ends, status
    )
    return trim(offsets, bounds, ends), status
