"""Sample piecewise functions at regular instants: multiples of a step since the epoch (semantics 3.8).

Pieces ``(ref, lo, hi)`` are grouped by ``offsets`` (``int64[G + 1]``), per group sorted in time and without overlaps. A
piece covers the instants ``start <= t < end``; an instant within the tolerance of :mod:`pulse.kernels.instants` of an end
is at that end. A point covers its instant if that is on the grid, and takes precedence over a range that starts there.

Instants are whole microseconds, so an offset is ``(t - ref) / 1e6`` with one rounding, whatever the epoch.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import (
    IN1,
    IN2,
    IN_BYTE1,
    IN_INT1,
    INT,
    OUT1,
    OUT_BYTE1,
    OUT_INT1,
    kernel,
)
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.instants import MICROSECONDS, meets, tolerance
from pulse.kernels.pieces.arguments import check_near, floats_of, integers_of, offsets_of
from pulse.kernels.polynomial.arithmetic import horner
from pulse.kernels.windows.walk import first_closing, instant

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
V = TypeVar("V", npt.NDArray[np.float64], npt.NDArray[np.uint8])


@kernel(IN_INT1, IN1, IN1, IN_INT1, INT, INT, OUT_INT1, OUT_INT1)
def _count(ref, lo, hi, offsets, every, longest, begin, count):
    """Write the first instant and the number of instants of each piece; return the numbers of stretches and of samples."""
    stretches, samples = 0, 0
    share = 1.0 / every
    for g in range(offsets.shape[0] - 1):
        due, last, expected = (
            0,
            -1,
            0,
        )  # the next instant of the grid; the last piece; the next one of the stretch
        fresh = True
        for i in range(offsets[g], offsets[g + 1]):
            whole, rest = instant(ref[i], lo[i])
            slack = MICROSECONDS * tolerance(ref[i], lo[i], ref[i], hi[i])
            first = first_closing(whole, rest, slack)
            if last < 0:
                due = -(-first // every) * every
            elif first > due and not meets(ref[last], hi[last], ref[i], lo[i]):
                due += -(-(first - due) // every) * every
            begin[i], count[i] = due, 0
            if lo[i] == hi[i]:
                if whole == due and abs(rest) <= slack:
                    count[i] = 1
            elif hi[i] > lo[i]:
                whole, rest = instant(ref[i], hi[i])
                wait = first_closing(whole, rest, slack) - due
                if wait > 0:
                    n = max(int(wait * share), 1)  # a division up to rounding
                    while n * every < wait:
                        n += 1
                    while (n - 1) * every >= wait:
                        n -= 1
                    count[i] = n
                last = i
            if last < 0:
                last = i
            if count[i] > 0:
                if fresh or due - expected > longest * every:
                    stretches += 1
                else:
                    samples += (due - expected) // every
                samples += count[i]
                due += count[i] * every
                expected, fresh = due, False
    return stretches, samples


@kernel(IN_INT1, IN_INT1, IN_INT1, INT, INT, OUT_INT1, OUT_INT1, OUT_INT1, OUT_INT1)
def _fill(begin, count, offsets, every, longest, out_group, out_first, out_offsets, row):
    s, p = 0, 0
    for g in range(offsets.shape[0] - 1):
        expected, fresh = 0, True
        for i in range(offsets[g], offsets[g + 1]):
            if count[i] == 0:
                continue
            if fresh or begin[i] - expected > longest * every:
                out_group[s], out_first[s], out_offsets[s] = g, begin[i], p
                s += 1
            else:
                while expected < begin[i]:
                    row[p] = -1
                    p += 1
                    expected += every
            for _ in range(count[i]):
                row[p] = i
                p += 1
            expected, fresh = begin[i] + count[i] * every, False
    out_offsets[s] = p


@kernel(IN_INT1, IN2, IN_INT1, IN_INT1, IN_INT1, INT, OUT1)
def _evaluate_rows(ref, c, row, first, offsets, every, values):
    k = c.shape[1]
    for s in range(first.shape[0]):
        t = first[s]
        for p in range(offsets[s], offsets[s + 1]):
            i = row[p]
            if i < 0:
                values[p] = 0.0
            elif k == 1:
                values[p] = c[i, 0]
            elif k == 2:
                values[p] = c[i, 0] + (t - ref[i]) / MICROSECONDS * c[i, 1]
            else:
                values[p] = horner(c, i, k, (t - ref[i]) / MICROSECONDS)
            t += every


@kernel(IN1, IN_INT1, OUT1)
def _spread(values, row, out):
    for p in range(row.shape[0]):
        i = row[p]
        out[p] = values[i] if i >= 0 else 0.0


@kernel(IN_BYTE1, IN_INT1, OUT_BYTE1)
def _spread_codes(codes, row, out):
    for p in range(row.shape[0]):
        i = row[p]
        out[p] = codes[i] if i >= 0 else 0


def sample_every(
    ref: Ints, lo: Array, hi: Array, offsets: Ints, every_us: int, longest_hole: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return ``(group[S], first[S], offsets[S + 1], row[N])``: the pieces' instants, as stretches of one group each.

    Stretch ``s`` has the samples ``offsets[s]:offsets[s + 1]`` at ``first[s] + i * every``; ``row`` is the piece that covers
    the instant, or -1. More than ``longest_hole`` consecutive instants without a piece begin a new stretch.

    >>> two = np.array([0, 0])
    >>> sample_every(two, np.array([0.5, 4.0]), np.array([2.0, 5.5]), np.array([0, 2]), 1_000_000, 2)
    (array([0]), array([1000000]), array([0, 5]), array([ 0, -1, -1,  1,  1]))
    """
    ref = integers_of(ref, "ref")
    n = len(ref)
    lo, hi = floats_of(n, lo=lo, hi=hi)
    check_near(lo, hi)
    offsets = offsets_of(offsets, n)
    if every_us <= 0 or longest_hole < 0:
        raise ValueError(
            f"expected every_us > 0 and longest_hole >= 0, got {every_us!r} and {longest_hole!r}"
        )
    longest = min(longest_hole, math.floor(2**62 / every_us))
    begin, count = np.empty(n, np.int64), np.empty(n, np.int64)
    stretches, samples = _count(ref, lo, hi, offsets, every_us, longest, begin, count)
    group, first = np.empty(stretches, np.int64), np.empty(stretches, np.int64)
    out_offsets, row = np.zeros(stretches + 1, np.int64), recycled(samples, np.int64)
    _fill(begin, count, offsets, every_us, longest, group, first, out_offsets, row)
    return group, first, out_offsets, row


def evaluate_rows(ref: Ints, c: Array, row: Ints, first: Ints, offsets: Ints, every_us: int) -> Array:
    """Evaluate each sample on the piece that :func:`sample_every` found; 0 where there is none."""
    values = recycled(len(row))
    c = np.ascontiguousarray(c, dtype=np.float64)
    _evaluate_rows(np.ascontiguousarray(ref), c, row, first, offsets, every_us, values)
    return values


def spread(values: V, row: Ints) -> V:
    """Repeat each piece's value, a number or a code of one byte, for its samples; 0 where there is no piece.

    >>> spread(np.array([0.5, 2.0]), np.array([0, 0, -1, 1]))
    array([0.5, 0.5, 0. , 2. ])
    """
    out = recycled(len(row), values.dtype)
    (_spread_codes if values.dtype == np.uint8 else _spread)(np.ascontiguousarray(values), row, out)
    return out
