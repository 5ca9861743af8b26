"""The walk of a window over a piecewise function, cell by cell (semantics 3.5; Pulse paper, III-B).

A piecewise function is a sequence of pieces ``(ref, lo, hi, c)``, grouped by ``offsets`` (``int64[G + 1]``),
per group sorted in time and without overlaps. A **run** is a stretch of one group without a hole. With ``w``
the window's size, the integral over ``[t - w, t)`` as a function of the closing time ``t`` is::

      tail piece q              pieces between            head piece h
    |-------[=====)|[==============================)|[======)---------|
          t - w    E_q                                S_h    t

    W(t) = integral of q from t - w to E_q  +  sum  +  integral of h from S_h to t

As long as ``t`` stays within ``h`` and ``t - w`` within ``q``, that is one polynomial: a **cell**.
:func:`next_cell` walks the cells of a group with two pointers; what is computed of a window differs only in
what is done with a cell.

Every instant is held as whole microseconds and a rest, every polynomial is shifted to where its part of the
window begins, and the sum is a double-double. Pieces with ``hi <= lo`` (points too) have no measure and are
passed over.
"""

import math

import numpy as np

from pulse.kernels._jit import inlined
from pulse.kernels.exact import dd_add, dd_add_float, dd_quotient, two_product
from pulse.kernels.polynomial import integral_row, shift_exact
from pulse.kernels.timeline import MICROSECONDS, meets, tolerance

LARGEST = 1.7976931348623157e308

# The walk's state: integers in ``at``, floats in ``x``.
HEAD, TAIL, STOP, BEGIN, END, HEAD_END, TAIL_END, BROKEN, MOVES, FRESH, INTEGERS = range(11)
BEGIN_REST, END_REST, HEAD_END_REST, TAIL_END_REST, SLACK, SUM, SUM_LOW, FLOATS = range(8)


@inlined
def instant(ref, offset):
    """``(whole, rest)``: the instant as the nearest whole microsecond and the microseconds left, exact to 1e-16 of them."""
    if offset == 0.0:
        return ref, 0.0
    p, e = two_product(offset, MICROSECONDS)
    whole = np.int64(math.floor(p + 0.5))
    return ref + whole, (p - whole) + e


@inlined
def next_piece(lo, hi, i, stop):
    """The first piece after ``i`` that has a length, or ``stop``."""
    i += 1
    while i < stop and not hi[i] > lo[i]:
        i += 1
    return i


@inlined
def start_walk(first, stop, at):
    """Place the walk before the cells of the pieces ``first … stop - 1``."""
    at[HEAD] = first - 1
    at[TAIL] = -1  # no run yet
    at[STOP] = stop
    at[MOVES] = HEAD


@inlined
def next_cell(ref, lo, hi, c, size, at, x):
    """Step to the next cell; False when there is none.

    A cell is in ``at`` and ``x``: head and tail piece; the sum of the pieces strictly between them, of which
    ``BROKEN`` are not finite; the closing times from ``BEGIN`` to ``END``, which may be stretched by
    ``SLACK`` microseconds. A run just as long as the window gives one cell of no length, others are left out:
    its one closing time is the end of another cell.
    """
    while True:
        if at[MOVES] == TAIL:
            _move_tail(ref, lo, hi, c, size, at, x)
        elif not _move_head(ref, lo, hi, c, size, at, x):
            return False
        end, rest = at[HEAD_END], x[HEAD_END_REST]
        at[MOVES] = HEAD
        if (at[TAIL_END] - end) + (x[TAIL_END_REST] - rest) < 0.0:
            end, rest = at[TAIL_END], x[TAIL_END_REST]
            at[MOVES] = TAIL
        length = (end - at[END]) + (rest - x[END_REST])
        if length > x[SLACK] or (at[FRESH] == 1 and length >= -x[SLACK]):
            at[BEGIN], x[BEGIN_REST] = at[END], x[END_REST]
            at[END], x[END_REST] = end, rest
            at[FRESH] = 0
            return True


@inlined
def _move_head(ref, lo, hi, c, size, at, x):
    """Let the next piece be the head; after a hole it starts a run. False at the end of the group."""
    h = at[HEAD]
    j = next_piece(lo, hi, h, at[STOP])
    if j == at[STOP]:
        return False
    start, rest = instant(ref[j], lo[j])
    same = start == at[HEAD_END] and rest == x[HEAD_END_REST]  # the usual case, and cheap
    if at[TAIL] >= 0 and (same or meets(ref[h], hi[h], ref[j], lo[j])):
        if h > at[TAIL]:
            _add_piece(lo, hi, c, h, 1, at, x)
    else:
        at[END], x[END_REST] = start + size, rest
        at[FRESH] = 1
        _set_tail(ref, hi, j, size, at, x)
        at[BROKEN] = 0
        x[SUM] = x[SUM_LOW] = 0.0
    at[HEAD] = j
    at[HEAD_END], x[HEAD_END_REST] = instant(ref[j], hi[j])
    x[SLACK] = MICROSECONDS * tolerance(ref[j], hi[j], ref[j], hi[at[TAIL]])
    return True


@inlined
def _set_tail(ref, hi, q, size, at, x):
    end, x[TAIL_END_REST] = instant(ref[q], hi[q])
    at[TAIL_END] = end + size
    at[TAIL] = q


@inlined
def _move_tail(ref, lo, hi, c, size, at, x):
    """Let the next piece be the tail. It exists: the tail is never ahead of the head."""
    q = next_piece(lo, hi, at[TAIL], at[STOP])
    _set_tail(ref, hi, q, size, at, x)
    if q == at[HEAD]:
        at[BROKEN] = 0
        x[SUM] = x[SUM_LOW] = 0.0
    else:
        _add_piece(lo, hi, c, q, -1, at, x)


@inlined
def _add_piece(lo, hi, c, i, sign, at, x):
    """Add a piece's integral to the sum, or take it away. What is not finite is counted: it could not be taken away."""
    value = integral_row(c, i, c.shape[1], lo[i], hi[i])
    if abs(value) <= LARGEST:
        x[SUM], x[SUM_LOW] = dd_add_float(x[SUM], x[SUM_LOW], sign * value)
    else:
        at[BROKEN] += sign


@inlined
def cell_polynomial(ref, lo, hi, c, size, at, x, work, out):
    """``W`` on the cell, about its ``BEGIN``, into ``out[: k + 1]``. ``work`` is ``(4, k)``.

    Head and tail in one piece: ``W' = f(t) - f(t - w)`` would cancel, and the cell may be long, so it is
    formed in double-double (degree 1: in closed form). Otherwise the cell is no longer than the window, and
    it does not matter. A broken sum gives a constant term that is not finite.
    """
    k = c.shape[1]
    h, q, base = at[HEAD], at[TAIL], at[BEGIN]
    w = size / MICROSECONDS
    if h == q and k <= 2:
        out[0] = w * c[h, 0]
        out[1] = 0.0
        if k == 2:
            out[0] = w * (c[h, 0] + c[h, 1] * ((base - ref[h]) / MICROSECONDS - 0.5 * w))
            out[1] = w * c[h, 1]
            out[2] = 0.0
        return
    _recentre(c, h, base - ref[h], work, 0)
    if h == q:
        for j in range(k):
            work[2, j], work[3, j] = work[0, j], work[1, j]
        shift_exact(work[2], work[3], k, -w, 0.0)
        out[0] = integral_row(work, 0, k, -w, 0.0)
    else:
        _recentre(c, q, base - size - ref[q], work, 2)
        start, start_rest = instant(ref[h], lo[h])
        head = integral_row(work, 0, k, ((start - base) + start_rest) / MICROSECONDS, 0.0)
        tail = integral_row(work, 2, k, 0.0, ((at[TAIL_END] - base) + x[TAIL_END_REST]) / MICROSECONDS)
        out[0] = x[SUM] + (head + tail) if at[BROKEN] == 0 else np.nan
    for j in range(k):
        high, _ = dd_add(work[0, j], work[1, j], -work[2, j], -work[3, j])
        out[j + 1] = high / (j + 1)


@inlined
def _recentre(c, i, microseconds, work, row):
    """Rows ``row`` and ``row + 1`` of ``work``: piece ``i`` about an instant that far from its reference."""
    k = c.shape[1]
    for j in range(k):
        work[row, j] = c[i, j]
        work[row + 1, j] = 0.0
    if k > 1:
        high, low = dd_quotient(float(microseconds), MICROSECONDS)
        shift_exact(work[row], work[row + 1], k, high, low)


@inlined
def first_closing(at, x):
    """The first whole microsecond at which a window of the cell closes."""
    return at[BEGIN] + np.int64(math.ceil(x[BEGIN_REST] - x[SLACK]))


@inlined
def last_closing(at, x):
    """The last one; the cell that follows begins there or before."""
    return at[END] + np.int64(math.floor(x[END_REST] + x[SLACK]))
