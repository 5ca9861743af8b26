"""Extend one model along the truth, interval by interval, under the constraints of each bound (semantics 2.2, 2.4).

Constraints of a bound ``e`` on the value, with ``e = max(rel * |truth|, floor)``:

* ``step``: the value at both ends of the interval;
* ``linear``: the value at its ends, and where the bound's own graph has a kink (it is convex along a straight
  line, so it would otherwise be violated between the ends). When the end cannot be reached, the extreme model
  goes furthest, and the next segment begins at the very instant where the truth leaves that model's tube;
* ``samples``: the value at its first instant.

A bound ``D`` on the integral (``drift``) is one on the model's mean: with ``delta`` the difference of the
integrals at the segment's start ``s`` and ``I`` the truth's integral from there, ``|delta + mean * (x - s) - I|
<= D`` requires that a line's value at the middle of ``[s, x]`` lies within ``(I - delta -+ D) / (x - s)``. Between
the instants at which it is checked the difference swells by at most an eighth of the difference in slope times
the squared distance; long intervals are therefore checked at several instants.

The state of attribute ``a`` is row ``a`` of a 2-D array ``w``; its columns are named below.
"""

from pulse.kernels._jit import routine, step
from pulse.kernels.fit.feasible_set import (
    ABOVE,
    BELOW,
    COUNT,
    FITS,
    TUBE,
    begin,
    clear,
    constrain,
    extreme,
    middle,
    steepest,
    through,
)
from pulse.kernels.fit.truth_intervals import CONTINUES, FRESH, LINEAR, SAMPLES
from pulse.kernels.instants import GRAIN, MICROSECONDS

EPS = 2.220446049250313e-16
# A fit aims a little inside the requested bound, so that rounding (a few units in the last place in each of the
# model's value, the truth's and their difference) cannot carry the result outside.
_INSIDE = 1.0 - 1e-12
ROUNDING = 8 * EPS
# What is added to every magnitude that rounding is counted from: below it results are rounded by an amount, not by a share.
LEAST = 2.0**-1018
LONGEST = 65536  # intervals in one segment: bounds what an open segment keeps in memory
_SHARE = 1.0 / 16  # of the bound on the integral, left for swelling between the instants checked
SPARE = (
    2.0**-10
)  # of the bound on the integral, left for what a model inherits where parts of a key are put together
_MOST_INSTANTS = 16
_EVEN = 1e-6  # of the bound on the integral: what a key may hand on, out of what others spare

_NEAREST_KINK = 1e-15  # of an interval: nearer to its start is within the rounding of its values
_MOST_STOPS = 6

NOT_ASKED = -1.0
# Columns of w: the tube's own, then the requested bounds (a pair is NOT_ASKED when its first number is
# negative), …
REL, FLOOR, DRIFT_REL, DRIFT_FLOOR, TRUTH = TUBE, TUBE + 1, TUBE + 2, TUBE + 3, TUBE + 4
# … the segment being made: the truth at its start, its integral since (both relative to BASE), the side and
# place where it failed, the model, …
BASE, AREA, SIDE, SIDE_X, C0, C1 = TUBE + 5, TUBE + 6, TUBE + 7, TUBE + 8, TUBE + 9, TUBE + 10
# … and what is known of it: largest deviation, and drift with its rounding, the drift now, the integral of the magnitude since
# the run began, the largest magnitude of what is not exact, whether a requested bound is exceeded, and the integral of the
# squared deviation.
DEVIATION, DRIFT, DELTA, WEIGHT, MAGNITUDE = TUBE + 11, TUBE + 12, TUBE + 13, TUBE + 14, TUBE + 15
EXCEEDS, SQUARES = TUBE + 16, TUBE + 17
KNOWN = 7  # columns from DEVIATION on
TRIAL = DEVIATION + KNOWN  # the same, of an interval not yet accepted
# What the newest interval of a step requires at its end: whether anything, where it begins, and its value.
PENDING, PENDING_X, PENDING_Y = TRIAL + KNOWN, TRIAL + KNOWN + 1, TRIAL + KNOWN + 2
COLUMNS = TRIAL + KNOWN + 3


@step
def tolerance(y, rel, floor):
    """The bound at a true value ``y``."""
    e = rel * abs(y)
    return e if e > floor else floor


@step
def least_magnitude(y0, y1):
    """The smallest absolute value on the way from ``y0`` to ``y1``."""
    return 0.0 if (y0 < 0.0) != (y1 < 0.0) else min(abs(y0), abs(y1))


@step
def _inside(y, rel, floor):
    """The bound at a true value ``y``, less what rounding may use up."""
    e = tolerance(y, rel, floor) * _INSIDE - 4 * ROUNDING * abs(y)
    return e if e > 0.0 else 0.0


@step
def _next_kink(y0, y1, rel, floor):
    """How far along the way from ``y0`` to ``y1`` the bound's graph first has a kink: in (0, 1), else 1."""
    if rel <= 0.0 or y0 == y1:
        return 1.0
    kink = floor / rel
    first = 1.0
    for sign in range(2):
        w = ((kink if sign == 0 else -kink) - y0) / (y1 - y0)
        if _NEAREST_KINK < w < first:
            first = w
    return first


@step
def start_value(t, v, index, j, a, offset, linear):
    """Truth of attribute ``a`` at ``offset`` seconds into interval ``j``."""
    y = v[a, index[j, 0]]
    if offset == 0.0 or not linear:
        return y
    y1 = v[a, index[j, 1]]
    return y + (y1 - y) * (offset / ((t[index[j, 1]] - t[index[j, 0]]) / MICROSECONDS))


@step
def _follow_line(w, a, x0, y0, x1, y1, lines):
    """Constraints of a ``linear`` truth from (x0, y0) to (x1, y1), both relative to BASE: how far, and the
    side it fails on.
    """
    rel, floor, base = w[a, REL], w[a, FLOOR], w[a, BASE]
    x, y = x0, y0
    e = _inside(y + base, rel, floor)
    if w[a, COUNT] == 0:
        begin(w, a, x, y - e, y + e, lines)
    stops = 0
    while x < x1:
        # Two kinks, each perhaps met again by rounding, are all there can be.
        part = _next_kink(y + base, y1 + base, rel, floor) if stops < _MOST_STOPS else 1.0
        stops += 1
        xe, ye = (x1, y1) if part == 1.0 else (x + part * (x1 - x), y + part * (y1 - y))
        ee = _inside(ye + base, rel, floor)
        side, width = FITS, ee
        for _ in range(2):  # at an exact tie, which grids of cents make common, the whole bound will do
            found = constrain(w, a, xe, ye - width, ye + width, lines)
            if found == FITS:
                side = FITS
                break
            side = found if side == FITS else side
            width = tolerance(ye + base, rel, floor)
        if side != FITS:
            ca, cb = extreme(w, a, xe, side)
            sign = 1.0 if side == BELOW else -1.0  # room left at both ends of this stretch
            room = sign * (ca + cb * x - y) + e
            lack = sign * (ca + cb * xe - ye) + ee
            if room > 0.0 and room > lack:
                x += (xe - x) * min(room / (room - lack), 1.0)
            return x, side
        x, y, e = xe, ye, ee
    return x1, FITS


@step
def _follow_step(w, a, x0, x1, y, lines):
    """Constraints of a ``step`` truth ``y`` on [x0, x1]: how far it can be followed, and the side it fails on.

    What an interval requires at its end is only stored, and applied together with what the next one requires at the
    same instant: one constraint instead of two. So an interval may turn out too long when the next one comes,
    or at the end (:func:`_flush`).
    """
    before = w[a, PENDING_Y] if w[a, PENDING] != 0.0 else y
    side = _require_both(w, a, x0, before, y, lines)
    if side != FITS:
        return (x0 if _flush(w, a, x0, lines) else w[a, PENDING_X]), side
    w[a, PENDING], w[a, PENDING_X], w[a, PENDING_Y] = 1.0, x0, y
    return x1, FITS


@step
def _require_both(w, a, x, y0, y1, lines):
    """Ask at ``x`` for the bounds around two true values; at an exact tie, for the whole of them."""
    rel, floor, base = w[a, REL], w[a, FLOOR], w[a, BASE]
    e0, e1 = _inside(y0 + base, rel, floor), _inside(y1 + base, rel, floor)
    side = BELOW if y0 < y1 else ABOVE
    for _ in range(2):
        low, high = max(y0 - e0, y1 - e1), min(y0 + e0, y1 + e1)
        if low <= high:
            side = constrain(w, a, x, low, high, lines)
            if side == FITS:
                return FITS
        e0, e1 = tolerance(y0 + base, rel, floor), tolerance(y1 + base, rel, floor)
    return side


@routine
def _flush(w, a, x, lines):
    """Apply at ``x`` what the interval before it requires at its end; return whether that is feasible."""
    if w[a, PENDING] == 0.0:
        return True
    w[a, PENDING] = 0.0
    return _require_both(w, a, x, w[a, PENDING_Y], w[a, PENDING_Y], lines) == FITS


@step
def _less_rounding(requested, rounding):
    """What to aim at within a bound on the integral: less than it by what rounding may add, if that leaves anything."""
    return max(requested * (1.0 - 2.0 * SPARE) - rounding, 0.5 * requested)


@routine
def _follow_integral(w, a, start, x0, y0, x1, y1, requested, after, lines):
    """Constraints of a bound on the integral, ``requested`` over [x0, x1] and ``after`` at its end; the side it
    fails on.

    The truth goes from y0 to y1, both relative to BASE.
    """
    delta, area = w[a, DELTA], w[a, AREA]
    slope = (y1 - y0) / (x1 - x0)
    instants = 1
    size = abs(w[a, BASE]) + max(abs(y0), abs(y1))
    rounding = ROUNDING * (w[a, WEIGHT] + 4.0 * size * (x1 - start))
    d = _less_rounding(requested, rounding)
    if lines:
        d *= 1.0 - _SHARE
        if w[a, COUNT] == 0:
            length = x1 - start
            limit = (
                16.0 * requested / (length * length)
            )  # a line steeper than the truth by more swells by more than 2 D
            room = d / length + 0.5 * length * limit
            begin = (area + 0.5 * (y0 + y1) * (x1 - x0) - delta) / length - 0.5 * length * slope
            constrain(w, a, start, begin - room, begin + room, lines)
            swelling = 2.0 * requested
        else:
            swelling = steepest(w, a, slope) * (x1 - x0) ** 2 / 8.0
        while instants < _MOST_INSTANTS and swelling > _SHARE * requested * instants * instants:
            instants *= 2
    for i in range(1, instants + 1):
        part = i / instants
        xe = x1 if i == instants else x0 + part * (x1 - x0)
        so_far = area + (y0 + 0.5 * part * (y1 - y0)) * (xe - x0)
        length = xe - start
        mean = (so_far - delta) / length
        if i == instants:
            d = min(d, _less_rounding(after, rounding))
        side = constrain(w, a, 0.5 * (start + xe), mean - d / length, mean + d / length, lines)
        if side != FITS:
            return side
    w[a, AREA] = so_far
    return FITS


@step
def _extend(v, index, flag, w, a, j, start, x0, x1, lines):
    """Add interval ``j`` to attribute ``a``'s constraints: the offset up to which it can be covered; sets
    SIDE when that is not its end.
    """
    base, p = w[a, BASE], index[j, 0]
    straight = w[a, TRUTH] == LINEAR
    y0 = v[a, p] - base
    y1 = v[a, index[j, 1]] - base if straight else y0
    if straight and x0 == start:
        y0 = 0.0  # the segment may begin inside the interval
    reached, side = x1, FITS
    if w[a, REL] >= 0.0:
        if straight:
            reached, side = _follow_line(w, a, x0, y0, x1, y1, lines)
        else:
            if w[a, TRUTH] == SAMPLES:
                side = _require_both(w, a, x0, y0, y0, lines)
                reached = x1 if side == FITS else x0
            else:
                reached, side = _follow_step(w, a, x0, x1, y0, lines)
    if w[a, DRIFT_REL] >= 0.0:
        if side == FITS:
            requested = tolerance(least_magnitude(y0 + base, y1 + base), w[a, DRIFT_REL], w[a, DRIFT_FLOOR])
            after = requested
            if (
                j + 1 < flag.shape[0] and flag[j + 1] <= FRESH
            ):  # at its end the bound that rules next holds, too
                y2 = v[a, index[j + 1, 0]]
                least = least_magnitude(y2, v[a, index[j + 1, 1]]) if straight else abs(y2)
                after = min(requested, tolerance(least, w[a, DRIFT_REL], w[a, DRIFT_FLOOR]))
            side = _follow_integral(w, a, start, x0, y0, x1, y1, requested, after, lines)
        if side != FITS:
            reached = x0
    if side != FITS:
        w[a, SIDE], w[a, SIDE_X] = side, x1
    return reached


@step
def reach(t, v, index, flag, w, j, offset, lines, longest):
    """Extend a segment from ``offset`` seconds into interval ``j``: ``(end, cut)``.

    Intervals ``j`` to ``end - 1``, at most ``longest``, are covered; ``cut`` is the offset from the segment's
    reference at which it ends, which may lie inside interval ``end``. No progress (``cut == offset``) only
    where constants meet a slope they may not deviate from, or where bounds on value and integral contradict
    each other.
    """
    ref = t[index[j, 0]]
    for a in range(v.shape[0]):
        clear(w, a)
        w[a, BASE] = start_value(t, v, index, j, a, offset, w[a, TRUTH] == LINEAR)
        w[a, AREA], w[a, SIDE], w[a, PENDING] = 0.0, FITS, 0.0
    end, cut = j, offset
    x0, x1 = offset, offset
    while end < flag.shape[0] and (end == j or flag[end] == CONTINUES) and end - j < longest:
        before, x0 = x0, x1
        x1 = (t[index[end, 1]] - ref) / MICROSECONDS
        cut = x1
        for a in range(v.shape[0]):
            reached = _extend(v, index, flag, w, a, end, offset, x0, x1, lines)
            if reached < cut:
                cut = reached
        if cut < x0:  # the interval before was too long, as only this one has shown
            return end - 1, before
        if cut <= x0 + GRAIN and cut < x1:
            return end, x0
        if cut < x1:
            # What is left of the interval must not be too short to be a range.
            short = 2.0 * GRAIN + 16.0 * EPS * x1
            if lines and x1 - cut < short:
                if x1 - x0 <= 2.0 * short:
                    return end, x0
                cut = x1 - short
            break
        end += 1
    for a in range(v.shape[0]):
        if not _flush(w, a, cut, lines):
            return (end, x0) if cut < x1 else (end - 1, x0)
    return end, cut


@step
def choose(w, start, cut):
    """One model per attribute out of what is feasible, into C0 and C1."""
    for a in range(w.shape[0]):
        if w[a, DRIFT_REL] >= 0.0 and cut > start and w[a, COUNT] > 0:
            # End with the integrals as equal as can be: that leaves the next segment the most room.
            ca, cb = through(w, a, 0.5 * (start + cut), (w[a, AREA] - w[a, DELTA]) / (cut - start))
        elif w[a, SIDE] != FITS and w[a, TRUTH] == LINEAR:
            ca, cb = extreme(w, a, w[a, SIDE_X], int(w[a, SIDE]))
        else:
            ca, cb = middle(w, a, cut)
        w[a, C0], w[a, C1] = w[a, BASE] + ca, cb


@step
def evens_out(w, start, cut):
    """Whether the chosen models end with the integrals equal, for every attribute whose integral is bounded."""
    for a in range(w.shape[0]):
        if w[a, DRIFT_REL] >= 0.0:
            length = cut - start
            mean = (w[a, C0] - w[a, BASE]) + w[a, C1] * 0.5 * (start + cut)
            left = w[a, DELTA] + mean * length - w[a, AREA]
            if abs(left) > _EVEN * tolerance(w[a, BASE], w[a, DRIFT_REL], w[a, DRIFT_FLOOR]):
                return False
    return True
