"""Fit piecewise constants and lines greedily, with certified bounds (semantics 2, 1.5).

A segment is extended interval by interval (:mod:`pulse.kernels.fit.truth_intervals`) while some model satisfies every
constraint (:mod:`pulse.kernels.fit.constraints`). Any part of a feasible stretch is feasible, so reaching as far as
possible every time gives the fewest segments. Then one model is chosen and measured against the truth, exactly,
before it is emitted: the achieved bounds are stored, not the requested ones, with the rounding of evaluation added.
Should a bound not hold (the integral may swell between the instants at which it is checked), the segment is cut
back to the part that holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import (
    IN2,
    IN_BYTE1,
    IN_INT1,
    IN_INT2,
    OUT2,
    OUT_INT1,
    OUT_INT2,
    kernel,
    routine,
    step,
)
from pulse.kernels.fit.constraints import (
    C0,
    C1,
    COLUMNS,
    DELTA,
    DEVIATION,
    DRIFT,
    DRIFT_FLOOR,
    DRIFT_REL,
    EXCEEDS,
    FLOOR,
    KNOWN,
    LEAST,
    LONGEST,
    MAGNITUDE,
    REL,
    ROUNDING,
    SPARE,
    SQUARES,
    TRIAL,
    TRUTH,
    WEIGHT,
    choose,
    evens_out,
    least_magnitude,
    reach,
    start_value,
    tolerance,
)
from pulse.kernels.fit.slide_hulls import ORDERED
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
from pulse.kernels.status import BOUND_MISSED, NOT_CONVERGED, NOT_FINITE, OK

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

AUTO = -1  # degree chosen per segment
# Constants that would cut an interval into more parts than this follow its slope in name only.
_SHORTEST_PART = 2.0**-20
_SUMS = 1.0 + 2.0**-30  # the rounding of sums over all intervals of a segment
_INSTANT = 2.0**-48  # four squared steps of twice the rounding of an instant
_LEAST_SQUARES = 2.0**-900  # per second: exceeds squares that underflow
SEGMENT, POINT_SEGMENT, OPEN_START, OPEN_SEGMENT = range(4)  # kinds of emitted rows


@step
def _measure(t, v, index, w, a, j, offset, x0, x1, at_end):
    """Deviation and drift of the chosen line on one interval, exactly, into the TRIAL columns; False when a
    requested bound does not hold.

    ``at_end``: x1 is the interval's own end, where the truth is known without interpolation.
    """
    straight = w[a, TRUTH] == LINEAR
    y0 = start_value(t, v, index, j, a, offset, straight)
    y1 = y0
    magnitude = abs(y0)
    slopes = False
    if straight:
        y1 = v[a, index[j, 1]]
        slopes = y1 != v[a, index[j, 0]]
        whole = (t[index[j, 1]] - t[index[j, 0]]) / MICROSECONDS
        # Inside the interval the truth is an interpolation, and as exact as that and its instant are.
        slope = (y1 - v[a, index[j, 0]]) / whole
        magnitude = max(abs(v[a, index[j, 0]]), abs(y1)) + abs(slope) * max(abs(x0), abs(x1))
        if not at_end:
            y1 = y0 + (y1 - y0) * ((x1 - x0) / (whole - offset))
    c0, c1 = w[a, C0], w[a, C1]
    d0 = (c0 + c1 * x0) - y0
    d1 = d0 if w[a, TRUTH] == SAMPLES else (c0 + c1 * x1) - y1
    magnitude += abs(c0) + abs(c1) * max(abs(x0), abs(x1)) + LEAST
    delta = w[a, DELTA]
    after = delta + (0.5 * d0 + 0.5 * d1) * (x1 - x0)
    swell = max(abs(delta), abs(after))
    if (d0 < 0.0) != (d1 < 0.0):
        swell = max(swell, abs(delta + 0.5 * d0 * (x1 - x0) * (d0 / (d0 - d1))))
    weight, largest = w[a, WEIGHT], w[a, MAGNITUDE]
    if d0 != 0.0 or d1 != 0.0 or c1 != 0.0 or slopes:  # a constant that is the truth adds no rounding
        weight += magnitude * (x1 - x0) + 0.125 * abs(after) + LEAST
        largest = max(largest, magnitude)
    rounding = ROUNDING * (weight + swell)
    w[a, TRIAL] = max(w[a, DEVIATION], max(abs(d0), abs(d1)))
    w[a, TRIAL + 1] = max(w[a, DRIFT], swell + rounding)
    w[a, TRIAL + 2] = after
    w[a, TRIAL + 3] = weight
    w[a, TRIAL + 4] = largest
    w[a, TRIAL + 6] = w[a, SQUARES] + (d0 * d0 + d0 * d1 + d1 * d1) * (x1 - x0)
    holds, exceeds = True, False
    rel, floor = w[a, REL], w[a, FLOOR]
    if rel >= 0.0:
        slack = ROUNDING * magnitude
        holds = abs(d0) <= tolerance(y0, rel, floor) + slack and abs(d1) <= tolerance(y1, rel, floor) + slack
        exceeds = not holds
    if w[a, DRIFT_REL] >= 0.0:
        requested = tolerance(least_magnitude(y0, y1), w[a, DRIFT_REL], w[a, DRIFT_FLOOR])
        exceeds = exceeds or not swell + rounding <= requested
        # Where rounding alone is about as large as the requested bound, shorter segments would not help.
        kept = swell + rounding <= (1.0 - SPARE) * requested
        holds = holds and (kept or (rounding > 0.25 * requested and swell <= requested + rounding))
    w[a, TRIAL + 5] = max(w[a, EXCEEDS], 1.0 if exceeds else 0.0)
    return holds


@step
def _verify(t, v, index, w, j, offset, cut, strict):
    """Measure the chosen model from ``offset`` in interval ``j`` up to ``cut``: ``(interval, offset)`` up to
    which it holds.

    Not ``strict``: all the way, whatever was requested.
    """
    ref = t[index[j, 0]]
    x1 = offset
    m = j
    while x1 < cut:
        x0 = x1
        end = (t[index[m, 1]] - ref) / MICROSECONDS
        x1 = end if end < cut else cut
        for a in range(v.shape[0]):
            holds = _measure(t, v, index, w, a, m, offset if m == j else 0.0, x0, x1, x1 == end)
            if strict and not holds:
                return m, x0
        for a in range(v.shape[0]):
            for s in range(KNOWN):
                w[a, DEVIATION + s] = w[a, TRIAL + s]
        if x1 == end:
            m += 1
    return m, x1


@step
def _parallel_start(t, v, index, w, j, offset, lines, evens):
    """The truth itself on interval ``j``, as a line; with ``evens`` moved aside, so that bounded integrals are
    equal at its end.

    Returns its end, or ``offset`` where constants cannot follow it.
    """
    x1 = (t[index[j, 1]] - t[index[j, 0]]) / MICROSECONDS
    for a in range(v.shape[0]):
        straight = w[a, TRUTH] == LINEAR
        y0 = start_value(t, v, index, j, a, offset, straight)
        w[a, C0], w[a, C1] = y0, 0.0
        if straight and v[a, index[j, 1]] != y0:
            slope = (v[a, index[j, 1]] - y0) / (x1 - offset)
            w[a, C0], w[a, C1] = y0 - slope * offset, slope
            if not lines:
                return offset
        if evens and w[a, DRIFT_REL] >= 0.0:
            w[a, C0] -= w[a, DELTA] / (x1 - offset)
    return x1


@routine
def _halve_until_it_holds(t, v, index, w, j, offset):
    """Constants on a slope: the longest of the halvings of interval ``j`` on which the mean keeps the
    bounds; its end.
    """
    cut = (t[index[j, 1]] - t[index[j, 0]]) / MICROSECONDS
    while cut > offset + GRAIN:
        for a in range(v.shape[0]):
            straight = w[a, TRUTH] == LINEAR
            y0 = start_value(t, v, index, j, a, offset, straight)
            w[a, C0] = 0.5 * (y0 + start_value(t, v, index, j, a, cut, straight))
            w[a, C1] = 0.0
        if _verify(t, v, index, w, j, offset, cut, True)[1] == cut:
            return cut
        cut = offset + 0.5 * (cut - offset)
    return offset


@step
def squares_bound(squares, deviation, rounding, lo, hi, intervals):
    """Bound the integral of the squared deviation from its computed value, the rounding of deviations and of instants.

    By the triangle inequality its root errs by at most the rounding of a deviation times the root of the length. At the instant
    of each interval's end, known to a few units in the last place, the truth may step by twice the largest deviation.
    """
    if not (deviation > 0.0 or rounding > 0.0):
        return 0.0
    steps = intervals * deviation * deviation * _INSTANT * max(abs(lo), abs(hi))
    root = np.sqrt(squares + steps) * _SUMS + np.sqrt(hi - lo) * rounding
    return root * root * _SUMS + _LEAST_SQUARES * (1.0 + (hi - lo))


@routine
def _emit(w, row, out_index, out_value, lo, hi, count, intervals):
    """Write a segment's range, models and achieved bounds; ``count`` coefficients per attribute."""
    out_index[row, 4] = count
    out_value[row, 0], out_value[row, 1] = lo, hi
    width = (out_value.shape[1] - 2) // w.shape[0]
    for a in range(w.shape[0]):
        at = 2 + a * width
        for i in range(width - 4):
            out_value[row, at + i] = w[a, C0 + i] if i < count else 0.0
        err, drift, rounding = w[a, DEVIATION], w[a, DRIFT], 0.0
        if w[a, MAGNITUDE] > 0.0:
            err += ROUNDING * w[a, MAGNITUDE]
            rounding = ROUNDING * w[a, MAGNITUDE] + GRAIN * abs(w[a, C1])
            loose = err + GRAIN * abs(w[a, C1])  # instants are known to a grain; but no more than requested
            err = max(err, min(loose, w[a, FLOOR])) if w[a, REL] == 0.0 else loose
        out_value[row, at + width - 4], out_value[row, at + width - 3] = err, drift
        out_value[row, at + width - 2] = w[a, DELTA]
        squares = w[a, SQUARES] / 3.0
        out_value[row, at + width - 1] = squares_bound(squares, w[a, DEVIATION], rounding, lo, hi, intervals)


@step
def _emit_open(w, row, out_index, out_value, offset):
    """Write what is still open: where it begins, and the weight and delta it begins with."""
    out_index[row, 4] = 0
    out_value[row, 0], out_value[row, 1] = offset, offset
    width = (out_value.shape[1] - 2) // w.shape[0]
    for a in range(w.shape[0]):
        at = 2 + a * width
        for i in range(width):
            out_value[row, at + i] = 0.0
        out_value[row, at + width - 3], out_value[row, at + width - 2] = w[a, WEIGHT], w[a, DELTA]


@step
def _enter(t, index, flag, resume, w, j):
    """Load the state that element ``j`` begins with; returns its offset.

    A key's first element goes on from what was open; a run, and a tuple that nothing led to, begins anew.
    """
    k = index[j, 2]
    first = j == 0 or index[j - 1, 2] != k
    anew = flag[j] == RUN or flag[j] == OPEN_RUN
    if flag[j] == POINT and not first:
        anew = flag[j - 1] >= POINT or t[index[j - 1, 1]] != t[index[j, 0]]
    for a in range(w.shape[0]):
        if anew:
            w[a, DELTA], w[a, WEIGHT] = 0.0, 0.0
        elif first:
            w[a, DELTA], w[a, WEIGHT] = resume[k, 1 + 2 * a], resume[k, 2 + 2 * a]
    return resume[k, 0] if first and not anew else 0.0


@step
def _is_keys_end(t, index, flag, j, end):
    """Whether nothing but a closing point follows the intervals before ``end`` for their key."""
    k, last = index[j, 2], end
    if last < flag.shape[0] and flag[last] == POINT and index[last, 2] == k:
        if t[index[last, 0]] == t[index[last - 1, 1]]:  # else a lone tuple after a hole
            last += 1
    return last == flag.shape[0] or index[last, 2] != k


@step
def _reach_and_choose(t, v, index, flag, w, j, offset, degree):
    """The requested degree, or the cheaper of constants and lines: ``(end, cut, lines)``.

    :func:`reach` is called at one place, in a loop, so that it can be inlined without being compiled several times.
    """
    lines, auto, longest = degree > 0, degree == AUTO, LONGEST
    end, cut, end_flat = j, offset, -1
    while True:
        end, cut = reach(t, v, index, flag, w, j, offset, lines, longest)
        if auto and not lines:
            end_flat, lines = end, True
            continue
        if auto and end_flat >= 0:
            auto = False
            # A segment stores its range and bounds besides its coefficients: six numbers against seven.
            lines = end_flat == j or (end_flat - j + 1) * 7 < (end - j + 1) * 6
            lines = lines or (end < flag.shape[0] and flag[end] == OPEN)  # undecided: more is to come
            if not lines:
                continue
        choose(w, offset, cut)
        if (
            longest < LONGEST
            or end <= j + 1
            or not _is_keys_end(t, index, flag, j, end)
            or evens_out(w, offset, cut)
        ):
            return end, cut, lines
        # What goes on elsewhere should not inherit a difference: go half the way, and try again with fewer
        # constraints from there.
        longest = (end - j) // 2


@step
def _settle(t, v, index, w, j, offset, cut, lines):
    """Verify the chosen model, or fall back on simpler ones: ``(end, cut)``; no progress: constants cannot
    follow the slope.

    On its first interval a line can always follow the truth, and lose what difference of the integrals there
    is, unless a bound on the value forbids it while the bound on the integral shrinks with the truth: then
    EXCEEDS is set, as it is where rounding alone exceeds the bound on the integral.
    """
    # The chosen model, the truth moved aside, the truth itself, and that whatever the bounds.
    for attempt in range(4):
        if attempt == 1 or attempt == 2:
            cut = _parallel_start(t, v, index, w, j, offset, lines, attempt == 1)
        if attempt == 0 or cut > offset:
            end, reached = _verify(t, v, index, w, j, offset, cut, attempt < 3)
            if attempt == 3 or (reached > offset if attempt == 0 else reached == cut):
                return end, reached
    return j, _halve_until_it_holds(t, v, index, w, j, offset)


@kernel(IN_INT1, IN2, IN_INT2, IN_BYTE1, IN2, OUT2, OUT_INT1, OUT_INT2, OUT2)
def _fit(t, v, index, flag, resume, w, cursor, out_index, out_value):
    j, row, degree, inside = cursor[0], 0, cursor[3], cursor[4] != 0
    offset = w[0, COLUMNS]
    while j < flag.shape[0] and row < out_index.shape[0]:
        p = index[j, 0]
        if not inside:
            offset = _enter(t, index, flag, resume, w, j)
        inside = False
        for a in range(v.shape[0]):
            w[a, DEVIATION], w[a, MAGNITUDE], w[a, EXCEEDS], w[a, SQUARES] = 0.0, 0.0, 0.0, 0.0
            w[a, DRIFT] = abs(w[a, DELTA]) + ROUNDING * (w[a, WEIGHT] + abs(w[a, DELTA]))
        out_index[row, 0], out_index[row, 1], out_index[row, 3], out_index[row, 5] = p, 1, index[j, 2], 0
        if flag[j] == POINT:
            for a in range(v.shape[0]):
                w[a, C0], w[a, C1] = v[a, p], 0.0
            _emit(w, row, out_index, out_value, 0.0, 0.0, 1, 0)
            out_index[row, 2] = POINT_SEGMENT
            row, j = row + 1, j + 1
            continue
        end, cut, lines = j, offset, True
        if flag[j] < POINT:
            end, cut, lines = _reach_and_choose(t, v, index, flag, w, j, offset, degree)
        stays_open = end > j and end < flag.shape[0] and flag[end] == OPEN and index[end, 2] == index[j, 2]
        if flag[j] > POINT or (stays_open and end - j < LONGEST):
            _emit_open(w, row, out_index, out_value, offset)
            out_index[row, 2] = OPEN_START if flag[j] == RUN or flag[j] == OPEN_RUN else OPEN_SEGMENT
            row, j = row + 1, end + 1
            continue
        end, cut = _settle(t, v, index, w, j, offset, cut, lines or degree == AUTO)
        missed = False
        for a in range(v.shape[0]):
            lines = lines or w[a, C1] != 0.0
            missed = missed or w[a, EXCEEDS] != 0.0
        whole = (t[index[j, 1]] - t[p]) / MICROSECONDS
        if cut <= offset or (not lines and end == j and cut - offset < _SHORTEST_PART * whole):
            cursor[2] = NOT_CONVERGED
            break
        _emit(w, row, out_index, out_value, offset, cut, 2 if lines else 1, end - j + 1)
        out_index[row, 1] = index[end - 1, 1] - p if end > j else 1
        out_index[row, 2], out_index[row, 5] = SEGMENT, missed
        row += 1
        begun = cut - (t[index[end, 0]] - t[p]) / MICROSECONDS if end < flag.shape[0] else 0.0
        inside = end == j or (end < flag.shape[0] and flag[end] == CONTINUES and begun > GRAIN)
        j, offset = end, begun if inside else 0.0
    cursor[0], cursor[1], cursor[4] = j, row, inside
    w[0, COLUMNS] = offset


class Fitted(NamedTuple):
    """Rows of segments, points and open starts: ``tuple`` is the index of the tuple each begins with."""

    tuple: IntArray
    tuples: IntArray
    kind: IntArray
    key: IntArray
    count: IntArray  # type: ignore[assignment]  # coefficients per attribute
    lo: Array
    hi: Array
    coefficients: Array  # [m, A, degree + 1]
    err: Array  # [m, A]: largest deviation
    drift: Array  # [m, A]: largest difference of the integrals; of an open start: the weight it begins with
    delta: Array  # [m, A]: the difference of the integrals (model less truth) at the end; of an open start, at its begin
    err2: Array  # [m, A]: a bound of the integral of the squared deviation
    missed: IntArray  # 1 where a requested bound could not be kept


def fit(
    t: IntArray, v: Array, found: Intervals, bounds: Array, truth: IntArray, resume: Array, *, degree: int = 1
) -> tuple[Fitted, int]:
    """Fit intervals; ``(segments, status)``.

    ``bounds[A, 4]``: REL, FLOOR, DRIFT_REL, DRIFT_FLOOR, a pair being NOT_ASKED when there is no such bound.
    ``resume[K, 1 + 2A]``: offset, and per attribute drift and weight, of what was open before. Status
    NOT_CONVERGED: constants cannot keep the bound on a slope; NOT_FINITE: so do values that change by more than
    floats can hold; BOUND_MISSED: see ``missed``. A drift is not finite where an integral is beyond floats: unknown.
    """
    if degree not in (AUTO, 0, 1):
        raise ValueError(f"degree: expected 0, 1 or AUTO, got {degree}")
    attributes = len(truth)
    if (
        bounds.shape != (attributes, 4)
        or v.shape != (attributes, len(t))
        or resume.shape[1:] != (1 + 2 * attributes,)
    ):
        raise ValueError(
            f"expected bounds ({attributes}, 4), v ({attributes}, {len(t)}), resume (K, {1 + 2 * attributes})"
        )
    width = 1 if degree == 0 else 2
    cursor = np.array([0, 0, OK, degree, 0], dtype=np.int64)
    w = np.zeros((attributes, COLUMNS + 1))
    w[:, REL : REL + 4] = bounds
    w[:, TRUTH] = truth
    # One kind of bound adds its constraints in the order of time.
    w[:, ORDERED] = (bounds[:, 0] < 0.0) | (bounds[:, 2] < 0.0)
    room = max(1024, min(len(found.flag), 1 << 16))
    parts: list[tuple[IntArray, Array]] = []
    while cursor[0] < len(found.flag) and cursor[2] == OK:
        out_index = np.empty((room, 6), dtype=np.int64)
        out_value = np.empty((room, 2 + attributes * (width + 4)))
        _fit(t, v, found.index, found.flag, resume, w, cursor, out_index, out_value)
        parts.append((out_index[: cursor[1]], out_value[: cursor[1]]))
    index = np.concatenate([i for i, _ in parts]) if parts else np.empty((0, 6), dtype=np.int64)
    value = np.concatenate([x for _, x in parts]) if parts else np.empty((0, 2 + attributes * (width + 4)))
    fitted = fitted_rows(index, value, attributes, np.ascontiguousarray(index[:, 5]))
    status = int(cursor[2])
    if status == OK:
        status = NOT_FINITE if unbounded(fitted).any() else BOUND_MISSED if fitted.missed.any() else OK
    return fitted, status


def fitted_rows(index: IntArray, value: Array, attributes: int, missed: IntArray) -> Fitted:
    """Split the rows that a fit kernel wrote into columns.

    ``index[:, :5]`` holds tuple, tuples, kind, key and count; ``value`` the range, then per attribute the coefficients, err,
    drift, delta and err2.
    """
    width = (value.shape[1] - 2) // attributes - 4
    per = value[:, 2:].reshape(len(value), attributes, width + 4)
    tuple_, tuples, kind, key, count = (np.ascontiguousarray(index[:, i]) for i in range(5))
    return Fitted(
        tuple=tuple_,
        tuples=tuples,
        kind=kind,
        key=key,
        count=count,
        lo=np.ascontiguousarray(value[:, 0]),
        hi=np.ascontiguousarray(value[:, 1]),
        coefficients=np.ascontiguousarray(per[:, :, :width]),
        err=np.ascontiguousarray(per[:, :, width]),
        drift=np.ascontiguousarray(per[:, :, width + 1]),
        delta=np.ascontiguousarray(per[:, :, width + 2]),
        err2=np.ascontiguousarray(per[:, :, width + 3]),
        missed=missed,
    )


def unbounded(fitted: Fitted) -> npt.NDArray[np.bool_]:
    """Which rows have a model or an error that is not finite: the truth changes by more than floats can hold."""
    finite = np.isfinite(fitted.coefficients).all(axis=(1, 2)) & np.isfinite(fitted.err).all(axis=1)
    return np.logical_not(finite)
