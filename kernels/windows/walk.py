"""Walk a window over a piecewise function, cell by cell (semantics 3.5; Pulse paper, III-B).

A piecewise function is a sequence of pieces ``(ref, lo, hi, c)``, grouped by ``offsets`` (``int64[G + 1]``),
per group sorted in time and without overlaps. A **run** is a stretch of one group without a hole. With ``w``
the window's size, the integral over ``[t - w, t)`` as a function of the closing time ``t`` is::

      tail piece q              pieces between            head piece h
    |-------[=====)|[==============================)|[======)---------|
          t - w    E_q                                S_h    t

    W(t) = integral of q from t - w to E_q  +  sum  +  integral of h from S_h to t

As long as ``t`` stays within ``h`` and ``t - w`` within ``q``, that is one polynomial: a **cell**.
:func:`next_cells` walks the cells of a group with two pointers; window aggregates differ only in their use of
a cell.

Every instant is held as whole microseconds and a rest, every polynomial is shifted to where its part of the
window begins, and the sum is compensated. Pieces with ``hi <= lo`` (points too) have measure zero and are
skipped.
"""

import math

import numpy as np

from pulse.kernels._jit import device
from pulse.kernels.double_double import dd_add, dd_quotient, two_product, two_sum
from pulse.kernels.instants import MICROSECONDS, meets, tolerance
from pulse.kernels.polynomial.arithmetic import integral_row, shift_exact

LARGEST = 1.7976931348623157e308
BLOCK = 256  # cells per call of next_cells

# Columns of the cells: integers, and floats. Rests and slack are in microseconds.
HEAD, TAIL, BEGIN, END, WHOLES = range(5)
BEGIN_REST, END_REST, SLACK, SUM, W0, W1, W2, RESTS = range(8)
# State of a walk: integers (in addition to the columns of the current cell), and floats.
STOP, HEAD_START, HEAD_END, TAIL_END, BROKEN, MOVES, FRESH, STATES = range(4, 12)
HEAD_START_REST, HEAD_END_REST, TAIL_END_REST, SUM_LOW, FLOATS = range(4, 9)


@device
def instant(ref, offset):
    """Split an instant into ``(whole, rest)``: the nearest whole microsecond and the remaining microseconds, to 1e-16 of them."""
    if offset == 0.0:
        return ref, 0.0
    p, e = two_product(offset, MICROSECONDS)
    whole = np.int64(math.floor(p + 0.5))
    return ref + whole, (p - whole) + e


@device
def next_piece(lo, hi, i, stop):
    """Return the first piece after ``i`` that has a length, or ``stop``."""
    i += 1
    while i < stop and not hi[i] > lo[i]:
        i += 1
    return i


@device
def start_walk(first, stop, at):
    """Place the walk ``at`` (``int64[STATES]``) before the cells of the pieces ``first … stop - 1``."""
    at[HEAD] = first - 1
    at[TAIL] = -1  # no run yet
    at[STOP] = stop
    at[MOVES] = HEAD


@device
def next_cells(ref, lo, hi, c, size, at, x, whole, rest):
    """Write the next cells, at most ``BLOCK``, and return their number, 0 at the end of the group.

    ``at`` and ``x`` (``float64[FLOATS]``) are the state of the walk. Row ``m`` of ``whole`` and ``rest`` describes a cell:
    head and tail piece; the closing times from ``BEGIN`` to ``END``, which may be stretched by ``SLACK``; the
    sum of the pieces strictly between, NaN when one is not finite; and for ``k <= 2`` the polynomial ``W0 +
    W1 s + W2 s**2``, ``s`` in seconds from the whole microsecond ``BEGIN``. A run just as long as the window
    gives one cell of length zero; other such cells are omitted, as their one closing time is the end of another cell.

    One long function, because passing arrays to a call counts references, which costs more than a step.
    """
    k = c.shape[1]
    h, q, end, stop = at[HEAD], at[TAIL], at[END], at[STOP]
    head_start, head_end, tail_end = at[HEAD_START], at[HEAD_END], at[TAIL_END]
    broken, moves, fresh = at[BROKEN], at[MOVES], at[FRESH]
    end_rest, slack, total, lost = x[END_REST], x[SLACK], x[SUM], x[SUM_LOW]
    head_start_rest, head_end_rest, tail_end_rest = x[HEAD_START_REST], x[HEAD_END_REST], x[TAIL_END_REST]
    m = 0
    while m < BLOCK:
        piece, sign = -1, 1.0  # the piece whose integral is added to the sum, or subtracted
        if moves == TAIL:
            q += 1
            while not hi[q] > lo[q]:  # terminates: the head has a length, and the tail is not ahead of it
                q += 1
            if q < h:
                i = q + 1
                while not hi[i] > lo[i]:
                    i += 1
                tail_end, tail_end_rest = instant(ref[i], lo[i])
                piece, sign = q, -1.0
            else:
                tail_end, tail_end_rest = head_end, head_end_rest
            tail_end += size
        else:
            j = h + 1
            while j < stop and not hi[j] > lo[j]:
                j += 1
            if j == stop:
                break
            head_start, head_start_rest = instant(ref[j], lo[j])
            goes_on = q >= 0 and head_start == head_end and head_start_rest == head_end_rest
            i = j + 1
            while i < stop and not hi[i] > lo[i]:
                i += 1
            if i < stop and meets(ref[j], hi[j], ref[i], lo[i]):
                head_end, head_end_rest = instant(ref[i], lo[i])
            else:
                head_end, head_end_rest = instant(ref[j], hi[j])
            if goes_on:
                if h > q:
                    piece = h
            else:
                q, fresh = j, 1
                end, end_rest = head_start + size, head_start_rest
                tail_end, tail_end_rest = head_end + size, head_end_rest
            h = j
            slack = MICROSECONDS * tolerance(ref[j], hi[j], ref[j], hi[q])
        if piece >= 0:
            value = _piece_integral(c, piece, k, lo[piece], hi[piece])
            if abs(value) <= LARGEST:
                total, error = two_sum(total, sign * value)
                lost += error
            else:
                broken += np.int64(sign)  # a non-finite term could not be subtracted again
        elif q == h:
            total, lost, broken = 0.0, 0.0, 0
        begin, begin_rest = end, end_rest
        moves, until, until_rest = HEAD, head_end, head_end_rest
        if (tail_end - head_end) + (tail_end_rest - head_end_rest) < 0.0:
            moves, until, until_rest = TAIL, tail_end, tail_end_rest
        length = (until - begin) + (until_rest - begin_rest)
        if length > slack or (fresh == 1 and length >= -slack):
            end, end_rest, fresh = until, until_rest, 0
            between = total + lost if broken == 0 else np.nan
            whole[m, HEAD], whole[m, TAIL], whole[m, BEGIN], whole[m, END] = h, q, begin, end
            rest[m, BEGIN_REST], rest[m, END_REST] = begin_rest, end_rest
            rest[m, SLACK], rest[m, SUM] = slack, between
            if k <= 2:
                head = (c[h, 0], c[h, k - 1], (begin - ref[h]) / MICROSECONDS)
                tail = (c[q, 0], c[q, k - 1], (begin - size - ref[q]) / MICROSECONDS)
                since = ((head_start - begin) + head_start_rest) / MICROSECONDS
                left = ((tail_end - begin) + tail_end_rest) / MICROSECONDS
                w = size / MICROSECONDS if h == q else 0.0
                rest[m, W0], rest[m, W1], rest[m, W2] = _short_cell(k, head, tail, since, left, between, w)
            m += 1
    at[HEAD], at[TAIL], at[END] = h, q, end
    at[HEAD_START], at[HEAD_END], at[TAIL_END] = head_start, head_end, tail_end
    at[BROKEN], at[MOVES], at[FRESH] = broken, moves, fresh
    x[END_REST], x[SLACK], x[SUM], x[SUM_LOW] = end_rest, slack, total, lost
    x[HEAD_START_REST], x[HEAD_END_REST], x[TAIL_END_REST] = head_start_rest, head_end_rest, tail_end_rest
    return m


@device
def _piece_integral(c, i, k, a, b):
    """Run :func:`integral_row`; short polynomials avoid the loop, so that the function is inlined."""
    if k == 1:
        return c[i, 0] * (b - a)
    if k == 2:
        return (c[i, 0] + 0.5 * c[i, 1] * (a + b)) * (b - a)
    return integral_row(c, i, k, a, b)


@device
def _short_cell(k, head, tail, since, left, between, w):
    """Return ``W`` on a cell for constants and lines, ``(constant, slope, time of the cell's begin)`` each.

    ``since`` is the start of the head piece and ``left`` the end of the tail piece plus the window's size, both
    from the cell's begin. ``w > 0``: head and tail are one piece, and ``f(t) - f(t - w)`` would cancel: ``W =
    w f(t - w / 2)``.
    """
    c0, c1, s = head
    if k == 1:
        if w > 0.0:
            return w * c0, 0.0, 0.0
        return between + (tail[0] * left - c0 * since), c0 - tail[0], 0.0
    if w > 0.0:
        return w * (c0 + c1 * (s - 0.5 * w)), w * c1, 0.0
    q1 = tail[1]
    opening = c0 + c1 * s
    closing = tail[0] + q1 * tail[2]
    ends = (closing + 0.5 * q1 * left) * left - (opening + 0.5 * c1 * since) * since
    return between + ends, opening - closing, 0.5 * (c1 - q1)


@device
def cell_polynomial(ref, lo, hi, c, size, whole, rest, m, work, out):
    """Write ``W`` on cell ``m``, about its ``BEGIN``, to ``out[: k + 1]``. ``work`` is ``(4, k)``.

    Head and tail in one piece: ``W' = f(t) - f(t - w)`` would cancel, and the cell may be long, so it is formed in
    double-double. Otherwise the cell is no longer than the window, and plain arithmetic suffices.
    """
    k = c.shape[1]
    if k <= 2:
        for j in range(k + 1):
            out[j] = rest[m, W0 + j]
        return
    h, q, base = whole[m, HEAD], whole[m, TAIL], whole[m, BEGIN]
    w = size / MICROSECONDS
    _recentre(c, h, base - ref[h], work, 0)
    if h == q:
        for j in range(k):
            work[2, j], work[3, j] = work[0, j], work[1, j]
        shift_exact(work[2], work[3], k, -w, 0.0)
        out[0] = integral_row(work, 0, k, -w, 0.0)
    else:
        _recentre(c, q, base - size - ref[q], work, 2)
        start, start_rest = instant(ref[h], lo[h])
        i = q + 1
        while not hi[i] > lo[i]:  # the rows of a window follow each other, up to the head
            i += 1
        end, end_rest = instant(ref[i], lo[i])
        head = integral_row(work, 0, k, ((start - base) + start_rest) / MICROSECONDS, 0.0)
        tail = integral_row(work, 2, k, 0.0, ((end + size - base) + end_rest) / MICROSECONDS)
        out[0] = rest[m, SUM] + (head + tail)
    for j in range(k):
        high, _ = dd_add(work[0, j], work[1, j], -work[2, j], -work[3, j])
        out[j + 1] = high / (j + 1)


@device
def _recentre(c, i, microseconds, work, row):
    """Write piece ``i`` about an instant ``microseconds`` from its reference to rows ``row`` and ``row + 1`` of ``work``."""
    k = c.shape[1]
    for j in range(k):
        work[row, j] = c[i, j]
        work[row + 1, j] = 0.0
    high, low = dd_quotient(float(microseconds), MICROSECONDS)
    shift_exact(work[row], work[row + 1], k, high, low)


@device
def first_closing(begin, rest, slack):
    """Return the first whole microsecond at which a window of the cell closes."""
    return begin + np.int64(math.ceil(rest - slack))
