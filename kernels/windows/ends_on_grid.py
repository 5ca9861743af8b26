"""Evaluate a piecewise function where sliding windows open and close, at regular closing times.

The window that closes at ``t`` covers ``[t - size, t)``. Its first value is that of the piece that contains ``t - size``; its
last is the limit from the left at ``t``, so that a piece that begins just as the window closes has no part in it. A window that
is not covered by one run (a stretch of one group without a hole) has no result. Points have no part in either value.

Ends between pieces are accurate to the tolerance of instants (:mod:`pulse.kernels.instants`). Where an instant lies that near to
an end, any of the pieces around it may be the one that counts: the bound covers the values of all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import BOOL, IN1, IN2, IN_INT1, INT, OUT1, OUT_INT1, device, kernel
from pulse.kernels.instants import GRAIN, MICROSECONDS, meets
from pulse.kernels.pieces.arguments import floats_of, offsets_of, table_of
from pulse.kernels.polynomial.arithmetic import horner
from pulse.kernels.windows.walk import next_piece

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TABLE = types.Tuple((IN_INT1, IN1, IN1, IN2))
_STRETCHES = types.Tuple((OUT_INT1, OUT_INT1, OUT_INT1))
_RESULTS = types.Tuple((OUT1, OUT1, OUT_INT1, OUT_INT1))

_ULPS = 4.0 * 2.220446049250313e-16


class WindowEnds(NamedTuple):
    """Values at one end of each window: stretch ``s`` of ``group[s]`` has those at ``offsets[s]:offsets[s + 1]``.

    They close at ``first[s] + i * advance``. Window ``i`` covers parts of the pieces ``tail[i]`` to ``head[i]``.
    """

    group: Ints
    first: Ints
    offsets: Ints
    values: Array
    err: Array
    tail: Ints
    head: Ints


@device
def _dust(lo, hi):
    """Return the microseconds that rounding alone may move the ends of a piece."""
    return MICROSECONDS * _ULPS * max(abs(lo), abs(hi))


@device
def _since_start(table, p, t):
    """Return the microseconds from the start of piece ``p`` to the instant ``t``."""
    return (t - table[0][p]) - table[1][p] * MICROSECONDS


@device
def _value(table, p, t):
    ref, lo, hi, c = table
    at = min(max((t - ref[p]) / MICROSECONDS, lo[p]), hi[p])
    return horner(c, p, c.shape[1], at)


@device
def _write_value(table, err, p, t, begin, end, place, values, widths):
    """Write the value at ``t`` of piece ``p`` of the run ``begin … end - 1``; its bound covers the pieces near ``t`` too."""
    _, lo, hi, _ = table
    value, wide = _value(table, p, t), err[p]
    q = p
    while q > begin:  # earlier pieces, as far as the ends between them and the instant may be equal
        slack = MICROSECONDS * GRAIN + _dust(lo[q], hi[q])
        d = abs(_since_start(table, q, t))
        if d > slack:
            break
        q -= 1
        if hi[q] > lo[q] and d > _dust(lo[q + 1], hi[q + 1]):
            wide = max(wide, abs(_value(table, q, t) - value) + err[q])
    q = p + 1
    while q < end:
        slack = MICROSECONDS * GRAIN + _dust(lo[q], hi[q])
        d = abs(_since_start(table, q, t))
        if d > slack:
            break
        if hi[q] > lo[q] and d > _dust(lo[q], hi[q]):
            wide = max(wide, abs(_value(table, q, t) - value) + err[q])
        q += 1
    values[place], widths[place] = value, wide


@device
def _end_of_run(table, p, stop):
    """Return the first piece after the run that begins with piece ``p``, and the last piece of the run that has a length."""
    ref, lo, hi, _ = table
    last = p
    while True:
        q = next_piece(lo, hi, last, stop)
        if q == stop or not meets(ref[last], hi[last], ref[q], lo[q]):
            return q, last
        last = q


@kernel(_TABLE, IN1, IN_INT1, INT, INT, BOOL, _STRETCHES, _RESULTS)
def _ends_every(table, err, offsets, size, advance, closing, stretches, out):
    """Return the numbers of stretches and of windows; without room, a negative number of stretches."""
    ref, lo, hi, _ = table
    group, first, starts = stretches
    values, widths, tails, heads = out
    m, place = 0, 0
    for g in range(offsets.shape[0] - 1):
        stop = offsets[g + 1]
        p = next_piece(lo, hi, offsets[g] - 1, stop)
        while p != stop:
            q, last = _end_of_run(table, p, stop)
            slack = MICROSECONDS * GRAIN
            begins = ref[p] + np.int64(math.ceil(lo[p] * MICROSECONDS - slack - _dust(lo[p], hi[p])))
            until = ref[last] + np.int64(
                math.floor(hi[last] * MICROSECONDS + slack + _dust(lo[last], hi[last]))
            )
            t = -(-(begins + size) // advance) * advance
            if t <= until:
                group[m], first[m], starts[m] = g, t, place
                m += 1
            tail, head = p, p
            while t <= until:
                if place == values.shape[0]:
                    return -1, place
                following = next_piece(lo, hi, tail, q)
                while following < q and _since_start(table, following, t - size) >= -_dust(
                    lo[following], hi[following]
                ):
                    tail, following = following, next_piece(lo, hi, following, q)
                following = next_piece(lo, hi, head, q)
                while following < q and _since_start(table, following, t) > _dust(
                    lo[following], hi[following]
                ):
                    head, following = following, next_piece(lo, hi, following, q)
                tails[place], heads[place] = tail, head
                if closing:
                    _write_value(table, err, head, t, p, q, place, values, widths)
                else:
                    _write_value(table, err, tail, t - size, p, q, place, values, widths)
                place += 1
                t += advance
            p = q
    starts[m] = place
    return m, place


def window_ends_every(
    table: tuple[Ints, Array, Array, Array],
    offsets: Ints,
    *,
    err: Array,
    size_us: int,
    advance_us: int,
    closing: bool,
) -> WindowEnds:
    """Return the values as windows ``[t - size, t)`` open, or with ``closing`` close, at all multiples ``t`` of ``advance``.

    ``table`` is ``(ref, lo, hi, c)``; ``err`` bounds the error of each piece.

    >>> table = np.zeros(1, np.int64), [0.0], [5.0], [[0.0, 2.0]]
    >>> options = dict(err=[0.5], size_us=2_000_000, advance_us=1_000_000)
    >>> found = window_ends_every(table, [0, 1], closing=False, **options)
    >>> found.first, found.values, found.err
    (array([2000000]), array([0., 2., 4., 6.]), array([0.5, 0.5, 0.5, 0.5]))
    >>> window_ends_every(table, [0, 1], closing=True, **options).values
    array([ 4.,  6.,  8., 10.])
    """
    table = table_of(*table)
    _, lo, hi, _ = table
    n = len(lo)
    (err,), offsets = floats_of(n, err=err), offsets_of(offsets, n)
    if size_us <= 0 or advance_us <= 0:
        raise ValueError(f"expected positive microseconds, got size {size_us!r} and advance {advance_us!r}")
    most = math.ceil(float(np.maximum(hi - lo, 0.0).sum()) * MICROSECONDS / advance_us * (1 + 1e-9)) + n + 2
    stretches = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    out = np.empty(most), np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    m, count = _ends_every(table, err, offsets, size_us, advance_us, closing, stretches, out)
    if m < 0:
        raise ValueError("ref, lo, hi: expected pieces in order of time, without overlaps")
    group, first, starts = stretches
    values, widths, tail, head = out
    return WindowEnds(
        group[:m], first[:m], starts[: m + 1], values[:count], widths[:count], tail[:count], head[:count]
    )
