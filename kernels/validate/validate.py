"""Validate tuples against the models of their keys in one pass, in order of arrival (semantics 6.2; Pulse paper, IV).

A key's state is a row of :mod:`pulse.kernels.validate.key_state`. A tuple is checked against its key's current model
``M``:

* its value at its own instant, ``|v - M(t)| <= tolerance``;
* for ``step`` and ``linear`` truths also the truth between the key's newest tuple and this one: the old value, or the straight
  line between the two. The residual at both ends plus ``h**2 / 8 * max|M''|`` bounds it on the full interval, exactly for
  models of degree 0 and 1, conservatively above.

The tolerance is the smallest of the model's stated ``err``, the allotted ``bound``, and, while ``own`` is set,
the stream's own bound ``max(share * |truth|, floor)`` with the least ``|truth|`` of the interval.

A model begins at the first tuple and at one that fails; its coefficients are columns of the tuple (``rules``), or a line by least
squares. A model that misses its own tuple is shifted onto it. Where the truth since the newest tuple had already left the model,
a REPAIR precedes the new model: the truth itself over that interval, which is known by now.

A model extends a horizon beyond the tuple it began with. A valid tuple less than half a horizon before the model's end, or after
it, extends the model to a horizon beyond that tuple (EXTENDED). So a model always covers at least half a horizon beyond its key's
newest tuple, and most tuples change nothing. An invalid tuple after the model's end begins a new model (EXPIRED), and a REPAIR
fills the time between that end and the tuple: the truth between two tuples is known. Only where tuples are further apart
than ``gap``, the silence is a hole, and the prediction there is retracted (VOID).

Tuples at one instant are checked in order, so the last one wins; there is no interval between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN2, IN_INT1, IN_INT2, INT, OUT2, OUT_INT2, kernel, step
from pulse.kernels.fit.truth_intervals import LINEAR, SAMPLES, STEP
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.validate.fading_line import add_tuple, line, line_misses, reset_line
from pulse.kernels.validate.fast_path import (
    FADE,
    chord_deviation,
    consume_valid,
    model_at,
    smallest_size,
    tolerance,
)
from pulse.kernels.validate.key_state import (
    BOUND,
    CHANGE,
    EXPIRY,
    INTS,
    LAST,
    OWN,
    PER_ATTRIBUTE,
    REF,
    RESIDUAL,
    SEEN,
    SQUARES,
    STARTED,
    StateLayout,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

VALIDATED, FIRST, EXPIRED, VIOLATED, CHANGED, EXTENDED, REPAIR, VOID, LATE, NOT_FINITE = range(10)
KINDS = 10
NO_GAP = 1 << 62
"""The gap of streams without holes: longer than any silence."""

# Columns of `rules[A, 2 + K]`: the truth, how many tuples a line is fitted to (0: none), the columns of the coefficients.
TRUTH, MEMORY, COLUMNS = 0, 1, 2
ROW, KEY, BEGIN, END, KIND, ABOUT = range(6)  # columns of an event; ABOUT: the reference of its coefficients
EVENT = 6

_ULPS = 8 * 2.220446049250313e-16
_LOOSE = 1.0 + 1e-9  # relative margin by which a model's error must exceed its bound


@step
def _truth_within(data, state, i, g, k, until):
    """Test whether the truth from the key's newest tuple until ``until`` is within the model, given tuple ``i``."""
    t, v, rules, bounds = data
    ints, floats = state
    n, last = rules.shape[0], ints[g, LAST]
    x, length = (until - ints[g, REF]) / MICROSECONDS, (until - last) / MICROSECONDS
    for a in range(n):
        truth, base = rules[a, TRUTH], n * k + a
        if truth == SAMPLES:
            continue
        old = floats[g, base + SEEN * n]
        end = old
        if truth == LINEAR:
            end = v[a, i] if until == t[i] else old + (v[a, i] - old) * ((until - last) / (t[i] - last))
        allowed = tolerance(floats, g, base, n, (bounds[a, 0], bounds[a, 1]), smallest_size(old, end))
        residual = max(abs(floats[g, base + RESIDUAL * n]), abs(end - model_at(floats, g, a * k, k, x)))
        if k > 2:
            residual += chord_deviation(floats, g, a * k, k, x, length)
        if not residual <= allowed:
            return False
    return True


@step
def _values_within(data, state, i, g, k):
    """Test whether the values of tuple ``i`` themselves are within the tolerance."""
    t, v, rules, bounds = data
    ints, floats = state
    n, x = rules.shape[0], (t[i] - ints[g, REF]) / MICROSECONDS
    for a in range(n):
        residual = abs(v[a, i] - model_at(floats, g, a * k, k, x))
        if not residual <= tolerance(floats, g, n * k + a, n, (bounds[a, 0], bounds[a, 1]), abs(v[a, i])):
            return False
    return True


@step
def _begin(data, state, i, g, k, horizon):
    """Begin the model of tuple ``i``; shift it onto the tuple if it misses it by more than its bound."""
    t, v, rules, bounds = data
    ints, floats = state
    n = rules.shape[0]
    ints[g, REF], ints[g, EXPIRY], ints[g, STARTED] = t[i], t[i] + horizon, 1
    for a in range(n):
        value, base = v[a, i], n * k + a
        for j in range(k):
            column = rules[a, COLUMNS + j]
            floats[g, a * k + j] = v[column, i] if column >= 0 else 0.0
        if rules[a, MEMORY] > 0:
            offset, slope = line(floats, g, n, k, a)
            floats[g, a * k], floats[g, a * k + 1] = value + offset, slope
        allowed = floats[g, base + BOUND * n]
        if floats[g, base + OWN * n] != 0.0:
            allowed = min(allowed, max(bounds[a, 0] * abs(value), bounds[a, 1]))
        if not abs(value - floats[g, a * k]) <= allowed:
            floats[g, a * k] = value
        floats[g, base] = allowed
        floats[g, base + RESIDUAL * n] = value - floats[g, a * k]


@step
def _update_state(data, state, i, g, k, keep, kind):
    """Update the key's state with tuple ``i``: volatility, the fading line, and, where the model continues, the residual."""
    t, v, rules, _ = data
    ints, floats = state
    n = rules.shape[0]
    known = kind != FIRST and kind != EXPIRED
    seconds = (t[i] - ints[g, LAST]) / MICROSECONDS if known else -1.0
    if keep > 0.0:
        if kind == VIOLATED and line_misses(floats, g, v, i, n, k, seconds):
            reset_line(floats, g, n, k)  # a turn: earlier tuples no longer predict later ones
        add_tuple(floats, g, rules, v, i, k, seconds, keep)
    if known:
        x = (t[i] - ints[g, REF]) / MICROSECONDS
        span = n * (k + PER_ATTRIBUTE) + 3
        floats[g, span] = FADE * floats[g, span] + seconds
        floats[g, span + 1] = FADE * floats[g, span + 1] + 1.0
        for a in range(n):
            base = n * k + a
            residual = v[a, i] - model_at(floats, g, a * k, k, x)
            jump = residual - floats[g, base + RESIDUAL * n]
            floats[g, base + SQUARES * n] = FADE * floats[g, base + SQUARES * n] + jump * jump
            floats[g, base + RESIDUAL * n] = residual
    for a in range(n):
        floats[g, n * k + a + SEEN * n] = v[a, i]
    ints[g, LAST] = t[i]


@step
def _put(events, m, i, g, begin, end, kind, about):
    """Write event ``m``; return the number of events."""
    events[m, ROW], events[m, KEY], events[m, BEGIN] = i, g, begin
    events[m, END], events[m, KIND], events[m, ABOUT] = end, kind, about
    return m + 1


@step
def _put_model(state, i, g, k, n, begin, out, m, kind):
    """Write the key's model from ``begin`` to its end as event ``m``; return the number of events."""
    ints, floats = state
    events, pieces = out
    for j in range(n * k + n):
        pieces[m, j] = floats[g, j]
    return _put(events, m, i, g, begin, ints[g, EXPIRY], kind, ints[g, REF])


@step
def _put_repair(data, state, i, g, k, begin, out, m):
    """Write the truth from ``begin``, the newest tuple or later, to tuple ``i`` as an event: exact up to a slope's rounding."""
    t, v, rules, _ = data
    ints, floats = state
    events, pieces = out
    n, last = rules.shape[0], ints[g, LAST]
    for a in range(n):
        base = n * k + a
        old, new = floats[g, base + SEEN * n], v[a, i]
        for j in range(k):
            pieces[m, a * k + j] = 0.0
        pieces[m, a * k], pieces[m, base] = old, 0.0
        if k > 1 and rules[a, TRUTH] != STEP:
            slope = (new - old) / ((t[i] - last) / MICROSECONDS)
            if np.isfinite(slope):
                pieces[m, a * k + 1] = slope
                pieces[m, base] = _ULPS * max(abs(old), abs(new))
            else:
                pieces[m, base] = abs(new - old)
        if rules[a, TRUTH] == SAMPLES:  # the truth between samples is undefined: keep the model's bound
            pieces[m, base] = max(pieces[m, base], floats[g, base])
    return _put(events, m, i, g, begin, t[i], REPAIR, last)


@step
def _finite(v, i):
    total = 0.0
    for r in range(v.shape[0]):
        total += v[r, i] * 0.0  # 0, or NaN if the value is NaN or infinite
    return total == 0.0


@step
def _keep(rules):
    """Return the decay of the fading line per tuple; 0 where no line is fitted."""
    longest = 0
    for a in range(rules.shape[0]):
        longest = max(longest, rules[a, MEMORY])
    return 1.0 - 1.0 / longest if longest > 0 else 0.0


@step
def _kind(data, state, who, i, g, k, early, gap):
    """Return the kind of tuple ``i``, and whether the truth stayed within the model up to its end, and up to the tuple."""
    ints, floats = state
    n, now = data[2].shape[0], data[0][i]
    if now - ints[g, LAST] > gap:
        return EXPIRED, True, True
    last, end = ints[g, LAST], ints[g, EXPIRY]
    expired = now >= end
    within = now <= last or _truth_within(data, state, i, g, k, now)
    within_model = within or end <= last or (expired and _truth_within(data, state, i, g, k, end))
    if who.shape[0] > 1 and who[1, i] != ints[g, CHANGE]:
        return EXPIRED if expired else CHANGED, within_model, within
    if not within or not _values_within(data, state, i, g, k):
        return EXPIRED if expired else VIOLATED, within_model, within
    if now + early < end:
        return VALIDATED, within_model, within
    for a in range(n):  # the allotted bound has shrunk since: begin a model with the new bound
        base = n * k + a
        if floats[g, base] > floats[g, base + BOUND * n] * _LOOSE:
            return EXPIRED, within_model, within
    return EXTENDED, within_model, within


@kernel(IN_INT1, IN2, IN_INT2, IN_INT2, IN2, INT, INT, OUT_INT2, OUT2, OUT_INT2, OUT2)
def _validate(t, v, who, rules, bounds, horizon, gap, ints, floats, events, pieces):
    data, state, out = (t, v, rules, bounds), (ints, floats), (events, pieces)
    n, k, m = rules.shape[0], rules.shape[1] - COLUMNS, 0
    keep, early = _keep(rules), horizon // 2
    residuals = np.empty(n)
    i = -1
    while True:
        i = consume_valid(data, state, who, i + 1, early, k, keep, residuals)  # the fast path of most tuples
        if i == t.shape[0]:
            return m
        g, now = who[0, i], t[i]
        if not _finite(v, i):
            m = _put(events, m, i, g, now, now, NOT_FINITE, now)
            continue
        last, end = ints[g, LAST], ints[g, EXPIRY]
        if now < last:
            m = _put(events, m, i, g, now, now, LATE, now)
            continue
        kind = FIRST
        if ints[g, STARTED] != 0:
            kind, within_model, within = _kind(data, state, who, i, g, k, early, gap)
            if now - last > gap:
                if last < end:  # a hole: retract the prediction
                    for j in range(n * k + n):
                        pieces[m, j] = floats[g, j]
                    m = _put(events, m, i, g, last, end, VOID, ints[g, REF])
            elif not within_model:
                m = _put_repair(data, state, i, g, k, last, out, m)
            elif kind != EXTENDED and (end < now or not within):
                m = _put_repair(data, state, i, g, k, end if end < now else last, out, m)
        _update_state(data, state, i, g, k, keep, kind)
        if kind == EXTENDED:
            ints[g, EXPIRY] = now + horizon
            m = _put_model(state, i, g, k, n, end, out, m, kind)
        elif kind != VALIDATED:
            _begin(data, state, i, g, k, horizon)
            if who.shape[0] > 1:
                ints[g, CHANGE] = who[1, i]
            m = _put_model(state, i, g, k, n, now, out, m, kind)


class Events(NamedTuple):
    """The events of a validation, in order of arrival: ``event[m, EVENT]``, ``c[m, A, K]`` and ``err[m, A]``.

    An event is (ROW, KEY, BEGIN, END, KIND, ABOUT): a model, a part of one or a REPAIR that is valid from BEGIN to END with
    coefficients about ABOUT; a VOID, a range without a model; or a rejected tuple (LATE, NOT_FINITE; its ``c``
    and ``err`` are undefined). Tuples that only confirm a model have no event.
    """

    event: IntArray
    c: FloatArray
    err: FloatArray

    def counts(self, tuples: int) -> IntArray:
        """Count tuples by kind, and repairs: ``[KINDS]``."""
        counts = np.bincount(self.event[:, KIND], minlength=KINDS)
        counts[VALIDATED] = tuples - len(self.event) + counts[REPAIR] + counts[VOID]
        return counts


def validate(
    t: IntArray,
    v: FloatArray,
    who: IntArray,
    rules: IntArray,
    bounds: FloatArray,
    horizon: int,
    state: tuple[IntArray, FloatArray],
    gap: int = NO_GAP,
) -> Events:
    """Validate tuples in order of arrival; ``state`` (:func:`pulse.kernels.validate.key_state.fresh`) is updated in place.

    Parameters
    ----------
    t : ``[n]``, event times in microseconds
    v : ``[F, n]``, the ``A`` modelled attributes, then further columns that coefficients are taken from
    who : ``[1 or 2, n]``, row of each tuple's key in ``state`` and, if unmodelled attributes are watched, a code of their values
    rules : ``[A, 2 + K]``, truth, memory, and the row of ``v`` for each coefficient (-1: zero)
    bounds : ``[A, 2]``, share of the truth and floor
    horizon : microseconds that a model extends beyond its tuple
    state : tables of int64 and float64, a row per key
    gap : microseconds, at least the horizon, that a silence may last without being a hole; default: no holes

    >>> from pulse.kernels.validate.key_state import fresh
    >>> rules, bounds = np.array([[STEP, 0, 0]]), np.array([[0.0, 0.5]])
    >>> t, v, who = np.array([0, 1, 2, 3]), np.array([[7.0, 7.25, 9.0, 9.0]]), np.zeros((1, 4), np.int64)
    >>> found = validate(t, v, who, rules, bounds, 10, fresh(1, StateLayout(1, 1)))
    >>> found.event[:, [ROW, KIND]].tolist(), found.c[:, 0, 0].tolist()
    ([[0, 1], [2, 3]], [7.0, 9.0])
    """
    n, (attributes, columns) = len(t), rules.shape
    layout = StateLayout(attributes, columns - COLUMNS)
    ints, floats = state
    if v.ndim != 2 or v.shape[1] != n or v.shape[0] < attributes or who.ndim != 2 or who.shape[1] != n:
        raise ValueError(
            f"validate: expected v of shape ({attributes} or more, {n}) and who of (1 or 2, {n}), got {v.shape} and {who.shape}"
        )
    if bounds.shape != (attributes, 2) or layout.width < 1 or rules[:, COLUMNS:].max() >= len(v):
        raise ValueError(
            f"validate: expected bounds of shape ({attributes}, 2) and columns below {len(v)}, got {bounds.shape} and {rules!r}"
        )
    if ints.shape != (len(floats), INTS) or floats.shape[1] != layout.size:
        raise ValueError(
            f"validate: expected state of shapes (G, {INTS}) and (G, {layout.size}), got {ints.shape} and {floats.shape}"
        )
    if n and (who[0].min() < 0 or who[0].max() >= len(ints)):
        raise ValueError(
            f"validate: expected keys from 0 to {len(ints) - 1}, got {who[0].min()} to {who[0].max()}"
        )
    if rules[:, MEMORY].max() > 0 and layout.width < 2:
        raise ValueError("validate: a fitted line needs models of two coefficients, got one")
    size = layout.attributes * layout.width
    events = np.empty((2 * n, EVENT), np.int64)  # a tuple yields at most a repair or a void, and a model
    pieces = np.empty((2 * n, size + attributes))
    m = _validate(t, v, who, rules, bounds, horizon, gap, ints, floats, events, pieces)
    c = pieces[:m, :size].reshape(m, attributes, layout.width)
    return Events(events[:m].copy(), c, pieces[:m, size:].copy())
