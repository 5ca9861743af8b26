"""Fit polynomials of degree 2 to 5 greedily, with a certified bound on the value (semantics 2.1, 2.2).

From its start a segment is extended by doubling the number of intervals, then by bisection. Each trial fits every attribute
by least squares, reweighted a few times towards the smallest largest deviation (:mod:`pulse.kernels.fit.lawson`), and is
accepted only after it has been verified *exactly*: on an interval the deviation is a polynomial, and its extremes
are found. What a fit misses costs length, never truth. Deviations are measured in units of the interval's bound, so for any
weights with sum 1 their weighted root mean square is a lower bound of the best largest one: above 1 no polynomial of
this degree can do, and the trial ends at once.

The first interval alone is always possible: the truth itself, a constant or a line. Segments begin and end at tuples. The
search looks only at intervals after the segment's start, at most ``LOOK_AHEAD``, and leaves a segment open while a trial could
still need intervals that have not come, so the result does not depend on where the tuples were cut into chunks. A segment of
L intervals costs the doubling's 4 L, and ``_RESOLUTION`` bisections and one more fit of up to 2 L: 16 trials per tuple at most.
"""

from __future__ import annotations

import numpy as np

from pulse.kernels._jit import IN2, IN_BYTE1, IN_INT1, IN_INT2, OUT2, OUT_INT1, OUT_INT2, device, kernel, step
from pulse.kernels.fit.constraints import EPS, LEAST, tolerance
from pulse.kernels.fit.greedy_lines import (
    OPEN_SEGMENT,
    OPEN_START,
    POINT_SEGMENT,
    SEGMENT,
    Array,
    Fitted,
    IntArray,
    fitted_rows,
    squares_bound,
    unbounded,
)
from pulse.kernels.fit.lawson import AT, BOUND, VALUE, WEIGHT, accumulate, solve
from pulse.kernels.fit.truth_intervals import (
    CONTINUES,
    LINEAR,
    OPEN,
    OPEN_RUN,
    POINT,
    RUN,
    SAMPLES,
    Intervals,
)
from pulse.kernels.instants import GRAIN, MICROSECONDS
from pulse.kernels.polynomial.arithmetic import horner, integral_row, magnitude, shift_row
from pulse.kernels.polynomial.extrema import extrema_row, extrema_work
from pulse.kernels.status import NOT_FINITE, OK

DEGREES = range(2, 6)
LOOK_AHEAD = 4096  # intervals in one segment: bounds the scratch, and what an open segment keeps in memory
_LAWSON_STEPS = 6
_RESOLUTION = 5  # the search ends when a segment's length is known to one part in 2**5
_POINTS = 3  # instants per coefficient at which a fit on few intervals is checked

# Columns of w, a row per attribute: the requested bounds, the kind of truth, what is known of the segment, and its model.
_REL, _FLOOR, _TRUTH, _DEVIATION, _DRIFT, _DELTA, _WEIGHT, _SIZE, _SQUARES, _MODEL = range(10)
# Gauss-Legendre quadrature on [-1, 1], exact up to degree 11: that of a squared deviation is at most 10.
_NODES = (
    -0.932469514203152,
    -0.6612093864662645,
    -0.2386191860831969,
    0.2386191860831969,
    0.6612093864662645,
    0.932469514203152,
)
_WEIGHTS = (
    0.17132449237917036,
    0.3607615730481386,
    0.467913934572691,
    0.467913934572691,
    0.3607615730481386,
    0.17132449237917036,
)


@step
def _noise(k):
    """Rounding of a value over its magnitude: Horner 2 u per step, the instant u per power, truth and difference; doubled."""
    return (2 * k + 4) * EPS


@step
def _interval(t, v, index, m, a, ref, kind):
    """``(x0, x1, y0, y1)`` of attribute ``a`` on interval ``m``, ``x`` in seconds from ``ref``."""
    p, q = index[m, 0], index[m, 1]
    y0 = v[a, p]
    return (
        (t[p] - ref) / MICROSECONDS,
        (t[q] - ref) / MICROSECONDS,
        y0,
        v[a, q] if kind == LINEAR else y0,
    )


@step
def _least_bound(w, a, y0, y1):
    """The bound at its tightest between two true values."""
    least = min(abs(y0), abs(y1)) if (y0 < 0.0) == (y1 < 0.0) else 0.0
    return tolerance(least, w[a, _REL], w[a, _FLOOR])


@step
def _sample(t, v, index, w, a, j, n, points):
    """Fill ``points`` with the instants at which attribute ``a`` is fitted on ``n`` intervals: how many, and the values' unit."""
    k = w.shape[1] - _MODEL
    ref = t[index[j, 0]]
    length = (t[index[j + n - 1, 1]] - ref) / MICROSECONDS
    kind = w[a, _TRUTH]
    parts = 0 if kind == SAMPLES else max(1, (_POINTS * k) // n)
    base, count, largest = v[a, index[j, 0]], 0, 0.0
    for m in range(j, j + n):
        x0, x1, y0, y1 = _interval(t, v, index, m, a, ref, kind)
        e = _least_bound(w, a, y0, y1)
        largest = max(largest, e)
        # A line begins where the one before it ended.
        for i in range(1 if kind == LINEAR and m > j else 0, parts + 1):
            part = i / parts if parts > 0 else 0.0
            points[AT, count] = (x0 + part * (x1 - x0)) / length
            points[VALUE, count] = (y0 - base) + part * (y1 - y0)
            points[BOUND, count] = e
            count += 1
    unit = largest if largest > 0.0 else 1.0
    for i in range(count):
        points[VALUE, i] /= unit
        # Where no deviation is allowed the truth should still weigh no more than the rest can bear.
        points[BOUND, i] = max(points[BOUND, i] / unit, 1e-6)
        points[WEIGHT, i] = 1.0 / count
    return count, unit


@step
def _to_powers(solution, k, length, base, table, w, a):
    """From shifted Chebyshev polynomials on [0, length] to powers about the reference; ``table`` is scratch."""
    for i in range(k):
        for m in range(k):
            table[i, m] = 0.0
    table[0, 0] = 1.0
    table[1, 0], table[1, 1] = -1.0, 2.0
    for i in range(2, k):
        for m in range(i + 1):
            below = table[i - 1, m - 1] if m > 0 else 0.0
            table[i, m] = 4.0 * below - 2.0 * table[i - 1, m] - table[i - 2, m]
    power = 1.0
    for m in range(w.shape[1] - _MODEL):
        value = 0.0
        for i in range(m, k):
            value += solution[i] * table[i, m]
        w[a, _MODEL + m] = value / power + (base if m == 0 else 0.0)
        power *= length


@device
def _fit_attribute(t, v, index, w, a, j, n, scratch):
    """Fit attribute ``a`` on ``n`` intervals into its model; False when no polynomial of this degree can keep the bound."""
    points, gram, table, sums, solution, _, _, _ = scratch
    row = table[-1]
    count, unit = _sample(t, v, index, w, a, j, n, points)
    k = min(w.shape[1] - _MODEL, count)
    accumulate(points, count, k, row, solution, sums, False)
    solve(sums, k, gram, solution)
    for _ in range(_LAWSON_STEPS):
        mean, largest = accumulate(points, count, k, row, solution, sums, True)
        if not mean <= 1.0 + 1e-9:
            return False
        if largest <= 0.9 or mean >= 0.98 * largest:
            break
        solve(sums, k, gram, solution)
    length = (t[index[j + n - 1, 1]] - t[index[j, 0]]) / MICROSECONDS
    for i in range(k):
        solution[i] *= unit
    _to_powers(solution, k, length, v[a, index[j, 0]], table, w, a)
    return _finite(w, a, length)


@step
def _finite(w, a, length):
    """Whether attribute ``a``'s model can be evaluated up to ``length`` without overflow."""
    size = 0.0
    for i in range(w.shape[1] - 1, _MODEL - 1, -1):
        size = size * length + abs(w[a, i])
    return np.isfinite(size)


@device
def _curved(w, a):
    """Whether attribute ``a``'s model is more than a constant."""
    return np.any(w[a, _MODEL + 1 :] != 0.0)


@step
def _load_deviation(w, a, k, x0, x1, y0, y1, model, local):
    """Model less truth about ``x0``, as row 0 of ``local``; ``model`` holds the model afterwards."""
    for i in range(k):
        model[0, i] = w[a, _MODEL + i]
    shift_row(model, 0, k, x0, local, 0)
    local[0, 0] -= y0
    if y1 != y0:
        local[0, 1] -= (y1 - y0) / (x1 - x0)


@device
def _largest_deviation(w, a, x0, x1, y0, y1, known, scratch):
    """The larger of ``known`` and the largest ``|model - truth|`` on an interval.

    Between its ends a function strays from its chord by at most ``h**2 / 8 * max |f''|``; extremes are sought only
    where that matters.
    """
    k = w.shape[1] - _MODEL
    model, local, work = scratch[5], scratch[6], scratch[7]
    _load_deviation(w, a, k, x0, x1, y0, y1, model, local)
    known = max(known, abs(local[0, 0]))
    if w[a, _TRUTH] == SAMPLES:
        return known
    h = x1 - x0
    ends = max(abs(local[0, 0]), abs(horner(local, 0, k, h)))
    bulge = 0.0
    for i in range(k - 1, 0, -1):
        bulge = (bulge + 0.125 * i * (i - 1) * abs(local[0, i])) * h
    if ends + bulge <= known:
        return known
    least, most, _ = extrema_row(local, 0, k, 0.0, h, work, local[1])
    return max(known, max(abs(least), abs(most)))


@device
def _holds(t, v, index, w, a, j, n, scratch):
    """Whether attribute ``a``'s model keeps its bound on every instant of ``n`` intervals, rounding included."""
    k = w.shape[1] - _MODEL
    ref = t[index[j, 0]]
    noise = _noise(k) if _curved(w, a) else 0.0
    for m in range(j, j + n):
        x0, x1, y0, y1 = _interval(t, v, index, m, a, ref, w[a, _TRUTH])
        size = 0.0
        for i in range(k - 1, -1, -1):
            size = size * x1 + abs(w[a, _MODEL + i])
        size += max(abs(y0), abs(y1))
        limit = _least_bound(w, a, y0, y1) * (1.0 - 4 * EPS) - noise * size
        if limit < 0.0 or not _largest_deviation(w, a, x0, x1, y0, y1, limit, scratch) <= limit:
            return False
    return True


@device
def _try(t, v, index, w, j, n, scratch):
    """Fit and verify all attributes on ``n`` intervals."""
    for a in range(v.shape[0]):
        if not _fit_attribute(t, v, index, w, a, j, n, scratch):
            return False
        if not _holds(t, v, index, w, a, j, n, scratch):
            return False
    return True


@device
def _truth_itself(t, v, index, w, j):
    """The truth of interval ``j`` as the model of every attribute; whether any of them is a line."""
    lines = False
    for a in range(v.shape[0]):
        for i in range(_MODEL, w.shape[1]):
            w[a, i] = 0.0
        _, x1, y0, y1 = _interval(t, v, index, j, a, t[index[j, 0]], w[a, _TRUTH])
        w[a, _MODEL] = y0
        if y1 != y0:
            w[a, _MODEL + 1] = (y1 - y0) / x1
            lines = True
    return lines


@device
def _search(t, v, index, w, j, available, closed, scratch):
    """Count the intervals from ``j`` on that one segment covers; 0 while more of them must arrive to decide."""
    good, bad = 1, available + 1
    while good + 1 + (good >> _RESOLUTION) < bad:
        n = 2 * good
        if bad <= available:
            n = (good + bad) // 2
        elif n > available:
            if not closed:
                return 0
            n = available
        if _try(t, v, index, w, j, n, scratch):
            good = n
        else:
            bad = n
    if good == available and not closed:
        return 0
    return good


@step
def _squares(local, k, h):
    """The integral of the square of row 0 of ``local`` from 0 to ``h``."""
    total = 0.0
    for i in range(len(_NODES)):
        d = horner(local, 0, k, 0.5 * h * (1.0 + _NODES[i]))
        total += _WEIGHTS[i] * d * d
    return 0.5 * h * total


@device
def _measure(t, v, index, w, a, j, n, scratch):
    """Achieved deviations and drift of attribute ``a``'s model over ``n`` intervals, into its row of ``w``."""
    k = w.shape[1] - _MODEL
    model, local, work = scratch[5], scratch[6], scratch[7]
    ref = t[index[j, 0]]
    w[a, _DEVIATION], w[a, _SIZE], w[a, _DRIFT] = 0.0, 0.0, abs(w[a, _DELTA])
    w[a, _SQUARES] = 0.0
    exact = not _curved(w, a)
    before = v[a, index[j, 0]]  # the truth just before the interval
    for m in range(j, j + n):
        x0, x1, y0, y1 = _interval(t, v, index, m, a, ref, w[a, _TRUTH])
        h, delta = x1 - x0, w[a, _DELTA]
        w[a, _DEVIATION] = _largest_deviation(w, a, x0, x1, y0, y1, w[a, _DEVIATION], scratch)
        w[a, _SQUARES] += _squares(local, k, h)
        exact = exact and w[a, _DEVIATION] == 0.0 and y0 == y1
        size = magnitude(model, 0, k, x1) + max(abs(y0), abs(y1)) + LEAST
        w[a, _DELTA] += integral_row(model, 0, k, x0, x1) - 0.5 * (y0 + y1) * h
        # Rounding of the integral, of the sum so far, and of the instant at which the truth jumps.
        if not exact:
            w[a, _SIZE] = max(w[a, _SIZE], size)
            w[a, _WEIGHT] += size * h + abs(w[a, _DELTA]) + abs(y0 - before) * x0 + LEAST
        before = y1
        ends = max(abs(delta), abs(w[a, _DELTA]))
        # Between the ends the integral strays from the nearer one by at most half the length times the deviation.
        if ends + 0.5 * h * w[a, _DEVIATION] > w[a, _DRIFT]:
            _load_deviation(w, a, k, x0, x1, y0, y1, model, local)
            for i in range(k, 0, -1):
                local[0, i] = local[0, i - 1] / i
            local[0, 0] = delta
            least, most, _ = extrema_row(local, 0, k + 1, 0.0, h, work, local[1])
            ends = max(ends, max(abs(least), abs(most)))
        w[a, _DRIFT] = max(w[a, _DRIFT], ends)


@device
def _steepest(w, a, length, scratch):
    """The largest ``|slope|`` of attribute ``a``'s model."""
    k = w.shape[1] - _MODEL
    local = scratch[6]
    for i in range(1, k):
        local[0, i - 1] = i * w[a, _MODEL + i]
    least, most, _ = extrema_row(local, 0, k - 1, 0.0, length, scratch[7], local[1])
    return max(abs(least), abs(most))


@device
def _emit(w, row, out_index, out_value, length, count, intervals, scratch):
    """Write a segment's range, models and achieved bounds with the rounding of evaluation added."""
    k = w.shape[1] - _MODEL
    out_index[row, 4] = count
    out_value[row, 0], out_value[row, 1] = 0.0, length
    for a in range(w.shape[0]):
        at = 2 + a * (k + 4)
        for i in range(k):
            out_value[row, at + i] = w[a, _MODEL + i]
        err, drift = w[a, _DEVIATION], w[a, _DRIFT]
        slope = _steepest(w, a, length, scratch)
        rounding = 0.0
        if w[a, _SIZE] > 0.0:
            rounding = _noise(k) * w[a, _SIZE] + GRAIN * slope  # instants are known to a grain
        err += rounding
        out_value[row, at + k] = err
        out_value[row, at + k + 1] = drift + _noise(k) * (w[a, _WEIGHT] + drift)
        out_value[row, at + k + 2] = w[a, _DELTA]
        squares, deviation = w[a, _SQUARES], w[a, _DEVIATION]
        out_value[row, at + k + 3] = squares_bound(squares, deviation, rounding, 0.0, length, intervals)


@device
def _emit_open(w, row, out_index, out_value):
    """Write what is still open: the weight and delta it begins with."""
    k = w.shape[1] - _MODEL
    out_index[row, 4] = 0
    out_value[row, :] = 0.0
    for a in range(w.shape[0]):
        at = 2 + a * (k + 4) + k
        out_value[row, at + 1], out_value[row, at + 2] = w[a, _WEIGHT], w[a, _DELTA]


@device
def _enter(t, index, flag, resume, w, j):
    """Load the drift and weight that element ``j`` begins with: what was carried over, nothing, or what they are."""
    k = index[j, 2]
    first = j == 0 or index[j - 1, 2] != k
    anew = flag[j] == RUN or flag[j] == OPEN_RUN
    if flag[j] == POINT and not first:  # does it close a run, or stand alone?
        anew = flag[j - 1] == POINT or t[index[j - 1, 1]] != t[index[j, 0]]
    for a in range(w.shape[0]):
        if anew:
            w[a, _DELTA], w[a, _WEIGHT] = 0.0, 0.0
        elif first:
            w[a, _DELTA], w[a, _WEIGHT] = resume[k, 1 + 2 * a], resume[k, 2 + 2 * a]


@device
def _segment(t, v, index, flag, w, j, scratch):
    """Leave in ``w`` the segment from interval ``j`` on: ``(intervals, coefficients)``; no intervals: it is still open."""
    n = 1
    while j + n < flag.shape[0] and flag[j + n] == CONTINUES and n < LOOK_AHEAD:
        n += 1
    after = j + n
    closed = (
        n == LOOK_AHEAD or after == flag.shape[0] or flag[after] != OPEN or index[after, 2] != index[j, 2]
    )
    n = _search(t, v, index, w, j, n, closed, scratch)
    if n == 0:
        return 0, 0
    count = w.shape[1] - _MODEL
    if n == 1:
        count = 2 if _truth_itself(t, v, index, w, j) else 1
    else:
        _try(t, v, index, w, j, n, scratch)
    for a in range(v.shape[0]):
        _measure(t, v, index, w, a, j, n, scratch)
    return n, count


@kernel(IN_INT1, IN2, IN_INT2, IN_BYTE1, IN2, OUT2, OUT_INT1, OUT_INT2, OUT2)
def _fit(t, v, index, flag, resume, w, cursor, out_index, out_value):
    k = w.shape[1] - _MODEL
    scratch = (
        np.empty((4, 2 * LOOK_AHEAD + (_POINTS + 1) * k)),
        np.empty((k, k + 1)),
        np.empty((k + 1, 2 * k)),
        np.empty(3 * k),
        np.empty(k),
        np.empty((1, k)),
        np.empty((2, k + 1)),
        extrema_work(k + 1),
    )
    j, row = cursor[0], 0
    while j < flag.shape[0] and row < out_index.shape[0]:
        p = index[j, 0]
        _enter(t, index, flag, resume, w, j)
        out_index[row, 0], out_index[row, 1], out_index[row, 3] = p, 1, index[j, 2]
        if flag[j] == POINT:
            for a in range(v.shape[0]):
                for i in range(k):
                    w[a, _MODEL + i] = v[a, p] if i == 0 else 0.0
                w[a, _DEVIATION], w[a, _SIZE], w[a, _DRIFT] = 0.0, 0.0, abs(w[a, _DELTA])
                w[a, _SQUARES] = 0.0
            _emit(w, row, out_index, out_value, 0.0, 1, 0, scratch)
            out_index[row, 2] = POINT_SEGMENT
            row, j = row + 1, j + 1
            continue
        n, count = 0, 0
        if flag[j] < POINT:
            n, count = _segment(t, v, index, flag, w, j, scratch)
        if n == 0:
            _emit_open(w, row, out_index, out_value)
            out_index[row, 2] = OPEN_START if flag[j] == RUN or flag[j] == OPEN_RUN else OPEN_SEGMENT
            while flag[j] < OPEN:
                j += 1
            row, j = row + 1, j + 1
            continue
        last = index[j + n - 1, 1]
        _emit(w, row, out_index, out_value, (t[last] - t[p]) / MICROSECONDS, count, n, scratch)
        out_index[row, 1], out_index[row, 2] = last - p, SEGMENT
        row, j = row + 1, j + n
    cursor[0], cursor[1] = j, row


def fit_polynomial(
    t: IntArray, v: Array, found: Intervals, bounds: Array, truth: IntArray, resume: Array, *, degree: int
) -> tuple[Fitted, int]:
    """Fit intervals by polynomials of ``degree`` 2 to 5; arguments and result as of :func:`pulse.kernels.fit.greedy_lines.fit`.

    Every attribute needs a bound on its value, and none may have one on its drift, which is measured all the same.
    """
    attributes = len(truth)
    if degree not in DEGREES:
        raise ValueError(f"degree: expected one of {list(DEGREES)}, got {degree}")
    if (
        bounds.shape != (attributes, 4)
        or v.shape != (attributes, len(t))
        or resume.shape[1:] != (1 + 2 * attributes,)
    ):
        raise ValueError(
            f"expected bounds ({attributes}, 4), v ({attributes}, {len(t)}), resume (K, {1 + 2 * attributes}), "
            f"got {bounds.shape}, {v.shape}, {resume.shape}"
        )
    if not (np.all(bounds[:, 0] >= 0.0) and np.all(bounds[:, 2] < 0.0)):
        raise ValueError(
            f"expected for each attribute a bound on the value and none on the drift, got {bounds}"
        )
    k = degree + 1
    cursor = np.zeros(2, dtype=np.int64)
    w = np.zeros((attributes, _MODEL + k))
    w[:, _REL], w[:, _FLOOR], w[:, _TRUTH] = bounds[:, 0], bounds[:, 1], truth
    room = max(1024, min(len(found.flag), 1 << 16))
    indices, values = [np.empty((0, 5), dtype=np.int64)], [np.empty((0, 2 + attributes * (k + 4)))]
    while cursor[0] < len(found.flag):
        out_index = np.empty((room, 5), dtype=np.int64)
        out_value = np.empty((room, 2 + attributes * (k + 4)))
        _fit(t, v, found.index, found.flag, resume, w, cursor, out_index, out_value)
        indices.append(out_index[: cursor[1]])
        values.append(out_value[: cursor[1]])
    index, value = np.concatenate(indices), np.concatenate(values)
    # The truth itself keeps any bound on the value, so none is missed.
    fitted = fitted_rows(index, value, attributes, np.zeros(len(index), dtype=np.int64))
    return fitted, NOT_FINITE if unbounded(fitted).any() else OK
