"""Compute minima and maxima over sliding windows at regular closing times (semantics 3.6, 4.2).

As in :mod:`pulse.kernels.windows.average_on_grid` the closing times, and the instants at which windows open, cut the time line
into panes. One walk over the pieces of a run (a stretch of one group without a hole) finds in each pane the extremum, the largest
``err`` and the largest doubt of the pieces it touches; a window is a fixed number of consecutive panes. The best of ``m``
neighbours is found from running bests from both ends of blocks of ``m`` (van Herk 1992, Gil and Werman 1993): three comparisons
each, whatever ``m``.

A pane ``[a, b)`` has the infimum (or supremum) of its values: those at the ends of the pieces' parts, from within, and at
critical points. Points (semantics 1.2) between pieces that meet count in the pane that contains them, ``a`` included, ``b`` not;
they cover nothing.

Ends between pieces are accurate to the tolerance of instants. So a part of a piece that lies within it of a cut may or may not
be in the pane: if the piece and its neighbour agree within their bounds at their end, it is; else it is not, and its excess over
the others is added to the bound; so is the neighbour's value at that end, for the pane on the other side of the cut.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import (
    BOOL,
    IN1,
    IN2,
    IN_BYTE1,
    IN_INT1,
    INT,
    OUT1,
    OUT_BYTE1,
    OUT_INT1,
    device,
    kernel,
    step,
)
from pulse.kernels.buffer_pool import recycled
from pulse.kernels.instants import GRAIN, MICROSECONDS, meets
from pulse.kernels.pieces.arguments import FARTHEST, TOO_FAR, check_near, floats_of, integers_of, offsets_of
from pulse.kernels.polynomial.arithmetic import as_batch, horner
from pulse.kernels.polynomial.extrema import critical_points_row, extrema_work
from pulse.kernels.windows.average_on_grid import GridWindows, cuts_of_groups, follows

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_TABLE = types.Tuple((IN_INT1, IN1, IN1, IN2))
_BOUNDS = types.Tuple((IN1, IN_BYTE1))
_STRETCHES = types.Tuple((OUT_INT1, OUT_INT1, OUT_INT1))
_RESULTS = types.Tuple((OUT1, OUT1, OUT_BYTE1))
_WINDOW = types.Tuple((INT, INT))

_EPSILON = 2.220446049250313e-16
_CERTAIN = 3
_YEARS = 1e8  # seconds
_ZERO, _ONE, _TWO, _THREE, _FOUR = (np.uint64(i) for i in range(5))
_NO_RANGE, _NO_ROOM = -1, -2  # in place of the number of stretches


@step
def _is_far(lo, hi, i):
    """Test whether the piece extends too far from its reference, or its range is not finite."""
    return not (abs(lo[i]) <= FARTHEST and abs(hi[i]) <= FARTHEST)


@step
def _next_piece(lo, hi, i, stop):
    """Run :func:`.walk.next_piece`; return -1 if that piece, or a point before it, is too far from its reference."""
    i += 1
    while i < stop and not hi[i] > lo[i]:
        if _is_far(lo, hi, i):
            return -1
        i += 1
    return -1 if i < stop and _is_far(lo, hi, i) else i


def _covered(table: tuple[Ints, Array, Array, Array], offsets: Ints, little: float) -> float:
    """Return the seconds between the ends of the groups if at most ``little``, else the seconds that the pieces cover.

    The first needs no pass over the pieces; it could be years where a group has a hole.
    """
    ref, lo, hi, _ = table
    some = np.flatnonzero(offsets[1:] > offsets[:-1])
    first, last = offsets[some], offsets[some + 1] - 1
    with np.errstate(invalid="ignore", over="ignore"):
        between = (ref[last].astype(np.float64) - ref[first]) / MICROSECONDS + (hi[last] - lo[first])
        length = float(np.sum(between))
    if length <= little:
        return length
    check_near(lo, hi)
    return float(np.sum(np.maximum(hi - lo, 0.0)))


@step
def _slack(lo, hi):
    """Return the microseconds within which an instant counts as at an end of the piece."""
    return MICROSECONDS * (GRAIN + 4.0 * _EPSILON * max(abs(lo), abs(hi)))


@step
def _line(table, i, sign, is_line):
    """Test whether piece ``i`` is near its reference and a range meets its end; also return ``sign`` times its extremum."""
    ref, lo, hi, c = table
    begin, end, j = lo[i], hi[i], i + _ONE
    sound = (begin > -_YEARS) & (end < _YEARS) & (hi[j] > lo[j]) & follows(ref[i], end, ref[j], lo[j])
    value = sign * c[i, _ZERO]
    if is_line:
        slope = sign * c[i, _ONE]
        a, b = slope * begin, slope * end
        value += a if a > b else b
    return sound, value


@step
def _larger(a, b):
    return a if a > b else b


@step
def _pass_lines(table, bounds, p, stop, cut, sign, seen):
    """Scan pieces of degree 0 and 1 before the ``cut`` that the next one meets; return ``(piece, top, wide, unsure)``.

    Nearly all pieces of nearly all panes qualify. The last before ``stop`` is left, as is one followed by the cut, a point or a
    hole. Four at a time, independent of each other: of pieces that meet only the last can contain the cut. Indices are
    unsigned, which saves Numba's handling of negative indices.
    """
    ref, _, hi, c = table
    err, codes = bounds
    top, wide, unsure = seen
    i, last = np.uint64(p), np.uint64(stop - 1)
    is_line = c.shape[1] == 2
    # A microsecond exceeds the slack of any piece within years of its reference, and the gaps of four pieces that meet.
    while i + _FOUR <= last and cut - ref[i + _THREE] > hi[i + _THREE] * MICROSECONDS + 1.0:
        sound, value = _line(table, i, sign, is_line)
        sound_1, value_1 = _line(table, i + _ONE, sign, is_line)
        sound_2, value_2 = _line(table, i + _TWO, sign, is_line)
        sound_3, value_3 = _line(table, i + _THREE, sign, is_line)
        if not (sound & sound_1 & sound_2 & sound_3):
            break
        top = _larger(_larger(_larger(value, value_1), _larger(value_2, value_3)), top)
        most = _larger(_larger(err[i], err[i + _ONE]), _larger(err[i + _TWO], err[i + _THREE]))
        wide = _larger(most, wide)
        code = min(min(codes[i], codes[i + _ONE]), min(codes[i + _TWO], codes[i + _THREE]))
        unsure = _larger(float(_CERTAIN - code), unsure)
        i += _FOUR
    while i < last and cut - ref[i] > hi[i] * MICROSECONDS + 1.0:
        sound, value = _line(table, i, sign, is_line)
        if not sound:
            break
        top, wide = _larger(value, top), _larger(err[i], wide)
        unsure = _larger(float(_CERTAIN - codes[i]), unsure)
        i += _ONE
    return np.int64(i), top, wide, unsure


@step
def _agrees(table, err, p, q):
    """Test whether the values of piece ``p`` and the next piece ``q`` at their common end agree within their bounds."""
    _, lo, hi, c = table
    k = c.shape[1]
    return abs(horner(c, p, k, hi[p]) - horner(c, q, k, lo[q])) <= err[p] + err[q]


@device
def _find_panes(table, bounds, p, stop, before, cut, steps, sign, work, panes):
    """Write extremum, error and doubt of each pane of the run that starts with piece ``p``, the first cut at ``cut``.

    ``before`` is the first point at which the run starts, or ``p``. ``sign`` is -1 for minima: panes hold ``sign`` times the
    value. Returns the first piece after the run, or a negative code if there is none, the number of cuts, and whether values that
    may be in a pane exceed those that are; pane ``i`` begins at cut ``i``. A cut just after a piece is left to the next, if that
    follows; points there are in the pane that begins, and may be in the one that ends.
    """
    ref, lo, hi, c = table
    err, codes = bounds
    best, widest, doubt, farthest = panes
    ahead, after = steps
    scratch, critical = work
    k = c.shape[1]
    n, found = 0, 0
    top, wide, unsure = -np.inf, 0.0, 0.0
    beyond, goes_beyond = -np.inf, False
    unseen, last = before, -1
    while True:
        if k <= 2 and unseen == p:
            passed = p
            p, top, wide, unsure = _pass_lines(table, bounds, p, stop, cut, sign, (top, wide, unsure))
            unseen = p
            last = p - 1 if p > passed else last
        origin, begin, end = ref[p], lo[p], hi[p]
        if _is_far(lo, hi, p):
            return _NO_RANGE, n, False
        slack = _slack(begin, end)
        dust = slack - MICROSECONDS * GRAIN
        q = _next_piece(lo, hi, p, stop)
        goes_on = q >= 0 and q != stop and meets(origin, end, ref[q], lo[q])
        until = origin + np.int64(math.floor(end * MICROSECONDS + (dust if goes_on else slack)))
        own, code = err[p], float(_CERTAIN - codes[p])
        if k > 2:
            found = critical_points_row(c, p, k, begin, end, scratch, critical)
        if n == 0 and cut <= origin + np.int64(math.floor(begin * MICROSECONDS + slack)):
            n, cut, ahead, after = 1, cut + ahead, after, ahead
        point_top, point_wide, point_unsure = -np.inf, 0.0, 0.0
        for i in range(unseen, p):  # points where the piece starts
            point_top = max(point_top, sign * horner(c, i, k, lo[i]))
            point_wide, point_unsure = max(point_wide, err[i]), max(point_unsure, float(_CERTAIN - codes[i]))
        if unseen < p and cut <= origin + np.int64(math.floor(begin * MICROSECONDS + slack)):
            beyond, wide = max(beyond, point_top), max(wide, point_wide)
        else:
            top, wide, unsure = max(top, point_top), max(wide, point_wide), max(unsure, point_unsure)
            point_top, point_wide, point_unsure = -np.inf, 0.0, 0.0
        beside, beside_wide = -np.inf, 0.0
        a = begin
        value = sign * horner(c, p, k, a)
        is_cut = True
        while is_cut:
            is_cut = cut <= until
            b = (cut - origin) / MICROSECONDS if is_cut else end
            b = b if b > a else a
            b = b if b < end else end
            next_value = sign * horner(c, p, k, b)
            length = (b - a) * MICROSECONDS
            whole = length > slack or (a == begin and b == end)
            if whole or length > dust:  # ignore a part cut off only by rounding
                higher = value if value > next_value else next_value
                for r in range(found):
                    if a < critical[r] < b:
                        higher = max(higher, sign * horner(c, p, k, critical[r]))
                wide = own if own > wide else wide
                if not whole and a == begin:
                    whole = last < 0 or _agrees(table, err, last, p)
                    if not whole:  # the previous piece may extend into the pane that begins
                        beside, beside_wide = sign * horner(c, last, k, hi[last]), err[last]
                elif not whole:
                    whole = not goes_on or _agrees(table, err, p, q)
                if whole:
                    top = higher if higher > top else top
                    unsure = code if code > unsure else unsure
                else:
                    beyond = higher if higher > beyond else beyond
            if is_cut:
                if n == best.shape[0]:
                    return _NO_ROOM, n, False
                left = (end - b) * MICROSECONDS
                if goes_on and dust < left <= slack and a < b and not _agrees(table, err, p, q):
                    beyond = max(beyond, sign * horner(c, q, k, lo[q]))  # the next may begin before the cut
                    wide = max(wide, err[q])
                if n > 0:
                    best[n - 1], widest[n - 1], doubt[n - 1] = top, wide, unsure
                    farthest[n - 1] = beyond if beyond > top else top
                    goes_beyond = goes_beyond or beyond > top
                top, wide, unsure = point_top, point_wide, point_unsure
                point_top, point_wide, point_unsure = -np.inf, 0.0, 0.0
                wide = max(wide, beside_wide)
                beyond, beside, beside_wide = beside, -np.inf, 0.0
                n, cut, ahead, after = n + 1, cut + ahead, after, ahead
            a, value = b, next_value
        last, p = p, q
        if not goes_on:
            return p, n, goes_beyond
        unseen = last + 1


@device
def _slide(panes, m, span, from_start):
    """Replace ``panes[i]`` by the maximum from ``i`` to its block's end; ``from_start[i]`` gets that from its start to ``i``."""
    place = 0
    for i in range(m):
        from_start[i] = panes[i] if place == 0 or panes[i] > from_start[i - 1] else from_start[i - 1]
        place = place + 1 if place + 1 < span else 0
    place = (m - 1) % span
    for i in range(m - 2, -1, -1):
        if place == 0:
            place = span - 1
        else:
            place -= 1
            panes[i] = panes[i] if panes[i] > panes[i + 1] else panes[i + 1]


@device
def _write(panes, from_start, first, span, stride, sign, out):
    """Write the largest of ``span`` panes up to the cuts ``first, first + stride, …``."""
    for j in range(out.shape[0]):
        i = first + j * stride
        a, b = panes[i - span], from_start[i - 1]
        out[j] = sign * (a if a > b else b)


@kernel(_TABLE, _BOUNDS, IN_INT1, _WINDOW, BOOL, INT, _STRETCHES, _RESULTS)
def _window_every(table, bounds, offsets, window, upper, room, stretches, out):
    """Return the numbers of stretches, or a negative code on failure, and of samples; ``room``: a run's panes."""
    ref, lo, hi, c = table
    size, advance = window
    group, begin, starts = stretches
    work = (extrema_work(c.shape[1]), np.empty(c.shape[1] + 1))
    panes = (np.empty(room), np.empty(room), np.empty(room), np.empty(room))
    from_start, doubts = np.empty(room), np.empty(room)
    sign = 1.0 if upper else -1.0
    odd = size % advance  # windows open this long before a closing time
    stride = 2 if odd > 0 else 1
    span = size // advance * stride + stride - 1
    m, place = 0, 0
    for g in range(offsets.shape[0] - 1):
        stop = offsets[g + 1]
        p = _next_piece(lo, hi, offsets[g] - 1, stop)
        while p != stop:
            if p < 0:
                return p, place
            start = ref[p] + np.int64(math.ceil(lo[p] * MICROSECONDS - _slack(lo[p], hi[p])))
            closing = -(-start // advance) * advance
            opens = odd > 0 and closing - odd >= start  # the first cut is where a window opens
            cut = closing - odd if opens else closing
            steps = (advance, advance)
            if odd > 0:
                steps = (odd, advance - odd) if opens else (advance - odd, odd)
            before = p
            if p > offsets[g] and lo[p - 1] == hi[p - 1] and meets(ref[p - 1], hi[p - 1], ref[p], lo[p]):
                before = p - 1  # a point at which the run starts
            p, n, goes_beyond = _find_panes(table, bounds, p, stop, before, cut, steps, sign, work, panes)
            if p < 0:
                return p, place
            shift = 1 if opens else 0  # closing times are the cuts shift, shift + stride, …
            first = span + (span - shift) % stride
            if first >= n:
                continue
            count = (n - 1 - first) // stride + 1
            if place + count > out[0].shape[0]:
                return _NO_ROOM, place
            to = slice(place, place + count)
            _slide(panes[0], n - 1, span, from_start)
            _write(panes[0], from_start, first, span, stride, sign, out[0][to])
            _slide(panes[1], n - 1, span, from_start)
            _write(panes[1], from_start, first, span, stride, 1.0, out[1][to])
            _slide(panes[2], n - 1, span, from_start)
            _write(panes[2], from_start, first, span, stride, 1.0, doubts[:count])
            for j in range(count):
                out[2][place + j] = np.uint8(_CERTAIN - doubts[j])
            if goes_beyond:
                _slide(panes[3], n - 1, span, from_start)
                _write(panes[3], from_start, first, span, stride, 1.0, doubts[:count])
                for j in range(count):
                    out[1][place + j] += (doubts[j] - sign * out[0][place + j]) * (1.0 + 8.0 * _EPSILON)
            group[m], starts[m] = g, place
            begin[m] = closing + (first - shift) // stride * advance
            m += 1
            place += count
    starts[m] = place
    return m, place


def window_extremum_every(
    table: tuple[Ints, Array, Array, Array],
    offsets: Ints,
    *,
    err: Array,
    certainty: Bytes,
    size_us: int,
    advance_us: int,
    upper: bool = False,
) -> GridWindows:
    """Return the infimum, or with ``upper`` supremum, over ``[t - size, t)`` at all multiples ``t`` of ``advance``.

    ``table`` is ``(ref, lo, hi, c)``. The bound of a window is the largest, and its certainty the smallest, of the pieces and
    points that it touches. A window that is not covered by one run has no result; each run is a stretch of its own.

    >>> table = np.zeros(1, np.int64), [0.0], [5.0], [[0.0, 2.0]]
    >>> codes = np.full(1, 3, np.uint8)
    >>> found = window_extremum_every(table, [0, 1], err=[0.5], certainty=codes, size_us=2_000_000, advance_us=1_000_000)
    >>> found.first, found.values, found.err
    (array([2000000]), array([0., 2., 4., 6.]), array([0.5, 0.5, 0.5, 0.5]))
    """
    ref, c = integers_of(table[0], "ref"), as_batch(table[3])
    n = len(ref)
    lo, hi, err = floats_of(n, lo=table[1], hi=table[2], err=err)
    codes, offsets = np.ascontiguousarray(certainty, np.uint8), offsets_of(offsets, n)
    if codes.shape != (n,) or len(c) != n:
        raise ValueError(
            f"expected {n} of certainty and rows of c, one per ref, got {codes.shape} and {len(c)}"
        )
    if size_us <= 0 or advance_us <= 0:
        raise ValueError(f"expected positive microseconds, got size {size_us!r} and advance {advance_us!r}")
    cuts = (2 if size_us % advance_us else 1) * MICROSECONDS / advance_us
    seconds = _covered((ref, lo, hi, c), offsets, (4 * n + 1000) / cuts)
    most = math.ceil(max(seconds, 0.0) * cuts * (1 + 1e-9)) + 2 * n + 2
    stretches = (np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n + 1, np.int64))
    out = (recycled(most), recycled(most), recycled(most, np.uint8))
    table, window = (ref, lo, hi, c), (size_us, advance_us)
    largest, total = cuts_of_groups(lo, hi, offsets, cuts)
    room = math.ceil(largest * (1 + 1e-9)) + 2 if largest < most and math.isfinite(total) else most
    m, count = _window_every(table, (err, codes), offsets, window, upper, room, stretches, out)
    if m == _NO_RANGE:
        raise ValueError(TOO_FAR)
    if m == _NO_ROOM:
        raise ValueError("ref, lo, hi: expected pieces in order of time, without overlaps")
    group, first, starts = stretches
    values, widths, found = out
    return GridWindows(
        group[:m].copy(),
        first[:m].copy(),
        starts[: m + 1].copy(),
        values[:count],
        widths[:count],
        found[:count],
    )
