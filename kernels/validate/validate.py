"""Validation of tuples against the models of their keys: one pass in order of arrival (semantics 6.2; Pulse paper, IV).

What is known of a key is a row of :mod:`pulse.kernels.validate.key_state`. A tuple is checked against its key's current model
``M``:

* its value at its own instant, ``|v - M(t)| <= tolerance``;
* for ``step`` and ``linear`` truths also the truth between the key's newest tuple and this one: the old value, or the straight
  line between the two. The residual at both ends plus ``h**2 / 8 * max|M''|`` bounds it on the whole interval, exactly for
  models of degree 0 and 1, with something to spare above.

The tolerance is the smallest of the model's stated ``err``, the allotted ``bound``, and, while ``own`` is set,
the stream's own bound ``max(share * |truth|, floor)`` with the least ``|truth|`` of the interval.

A model begins at the first tuple and at one that fails; its coefficients are columns of the tuple (``rules``), or a line by least
squares. A model that misses its own tuple is moved onto it. Where the truth since the newest tuple had already left the model, a
REPAIR goes before: the truth itself over that interval, since by now it is known.

A model reaches a horizon beyond the tuple it began with. One that its tuples agree with goes on: the first tuple less than half a
horizon before its end, or after it, extends it to a horizon beyond that tuple (EXTENDED). So a model always reaches half a
horizon or more beyond its key's newest tuple, and most tuples change nothing. A tuple after its end that does not agree begins a
model (EXPIRED), and a REPAIR fills what lies between that end and the tuple: what is between two tuples is known. Only where
these are further apart than ``gap`` nothing is: the silence is a hole, and what was predicted there is taken back (VOID).

Tuples at one instant are checked one after the other, so the last one wins; there is no interval between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pulse.kernels._jit import IN2, IN_INT1, IN_INT2, INT, OUT2, OUT_INT2, kernel, step
from pulse.kernels.fit.truth_intervals import LINEAR, SAMPLES, STEP
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.validate.fading_line import broken, forget, line, remember
from pulse.kernels.validate.fast_path import FADE, consume_valid, least, model_at, sag, tolerance
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
"""For streams without holes: no silence is longer."""

# Of `rules[A, 2 + K]`: the truth, how many tuples a line is fitted to (0: none), the columns of the coefficients.
TRUTH, MEMORY, COLUMNS = 0, 1, 2
ROW, KEY, BEGIN, END, KIND, ABOUT = range(
    6
)  # of an event; ABOUT: the instant that its coefficients are about
EVENT = 6

_ULPS = 8 * 2.220446049250313e-16
_LOOSE = 1.0 + 1e-9  # by what part of itself a model's error must exceed its bound to be above it


@step
def _held(data, state, i, g, k, until):
    """Whether the truth from the key's newest tuple until ``until`` kept to the model, given tuple ``i``."""
    t, v, rules, bounds = data
    whole, real = state
    n, last = rules.shape[0], whole[g, LAST]
    x, length = (until - whole[g, REF]) / MICROSECONDS, (until - last) / MICROSECONDS
    for a in range(n):
        truth, base = rules[a, TRUTH], n * k + a
        if truth == SAMPLES:
            continue
        old = real[g, base + SEEN * n]
        end = old
        if truth == LINEAR:
            end = v[a, i] if until == t[i] else old + (v[a, i] - old) * ((until - last) / (t[i] - last))
        allowed = tolerance(real, g, base, n, (bounds[a, 0], bounds[a, 1]), least(old, end))
        off = max(abs(real[g, base + RESIDUAL * n]), abs(end - model_at(real, g, a * k, k, x)))
        if k > 2:
            off += sag(real, g, a * k, k, x, length)
        if not off <= allowed:
            return False
    return True


@step
def _near(data, state, i, g, k):
    """Whether the values of tuple ``i`` themselves are within the tolerance."""
    t, v, rules, bounds = data
    whole, real = state
    n, x = rules.shape[0], (t[i] - whole[g, REF]) / MICROSECONDS
    for a in range(n):
        off = abs(v[a, i] - model_at(real, g, a * k, k, x))
        if not off <= tolerance(real, g, n * k + a, n, (bounds[a, 0], bounds[a, 1]), abs(v[a, i])):
            return False
    return True


@step
def _begin(data, state, i, g, k, horizon):
    """Begin the model of tuple ``i``; one that misses its own tuple by more than its bound is moved onto it."""
    t, v, rules, bounds = data
    whole, real = state
    n = rules.shape[0]
    whole[g, REF], whole[g, EXPIRY], whole[g, STARTED] = t[i], t[i] + horizon, 1
    for a in range(n):
        value, base = v[a, i], n * k + a
        for j in range(k):
            column = rules[a, COLUMNS + j]
            real[g, a * k + j] = v[column, i] if column >= 0 else 0.0
        if rules[a, MEMORY] > 0:
            offset, slope = line(real, g, n, k, a)
            real[g, a * k], real[g, a * k + 1] = value + offset, slope
        allowed = real[g, base + BOUND * n]
        if real[g, base + OWN * n] != 0.0:
            allowed = min(allowed, max(bounds[a, 0] * abs(value), bounds[a, 1]))
        if not abs(value - real[g, a * k]) <= allowed:
            real[g, a * k] = value
        real[g, base] = allowed
        real[g, base + RESIDUAL * n] = value - real[g, a * k]


@step
def _see(data, state, i, g, k, keep, kind):
    """Take note of tuple ``i``: restlessness, the fading line, and, where the model goes on, the residual."""
    t, v, rules, _ = data
    whole, real = state
    n = rules.shape[0]
    known = kind != FIRST and kind != EXPIRED
    seconds = (t[i] - whole[g, LAST]) / MICROSECONDS if known else -1.0
    if keep > 0.0:
        if kind == VIOLATED and broken(real, g, v, i, n, k, seconds):
            forget(real, g, n, k)  # a turn: what was before the newest tuple says nothing of what comes
        remember(real, g, rules, v, i, k, seconds, keep)
    if known:
        x = (t[i] - whole[g, REF]) / MICROSECONDS
        span = n * (k + PER_ATTRIBUTE) + 3
        real[g, span] = FADE * real[g, span] + seconds
        real[g, span + 1] = FADE * real[g, span + 1] + 1.0
        for a in range(n):
            base = n * k + a
            residual = v[a, i] - model_at(real, g, a * k, k, x)
            jump = residual - real[g, base + RESIDUAL * n]
            real[g, base + SQUARES * n] = FADE * real[g, base + SQUARES * n] + jump * jump
            real[g, base + RESIDUAL * n] = residual
    for a in range(n):
        real[g, n * k + a + SEEN * n] = v[a, i]
    whole[g, LAST] = t[i]


@step
def _put(events, m, i, g, begin, end, kind, about):
    """Write event ``m``; returns the number of events."""
    events[m, ROW], events[m, KEY], events[m, BEGIN] = i, g, begin
    events[m, END], events[m, KIND], events[m, ABOUT] = end, kind, about
    return m + 1


@step
def _put_model(state, i, g, k, n, begin, out, m, kind):
    """The key's model from ``begin`` to its end as a row."""
    whole, real = state
    events, pieces = out
    for j in range(n * k + n):
        pieces[m, j] = real[g, j]
    return _put(events, m, i, g, begin, whole[g, EXPIRY], kind, whole[g, REF])


@step
def _put_repair(data, state, i, g, k, begin, out, m):
    """The truth from ``begin``, the newest tuple or later, to tuple ``i`` as a row: exact but for the rounding of a slope."""
    t, v, rules, _ = data
    whole, real = state
    events, pieces = out
    n, last = rules.shape[0], whole[g, LAST]
    for a in range(n):
        base = n * k + a
        old, new = real[g, base + SEEN * n], v[a, i]
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
        if rules[a, TRUTH] == SAMPLES:  # between tuples anything may be, so nothing better is stated
            pieces[m, base] = max(pieces[m, base], real[g, base])
    return _put(events, m, i, g, begin, t[i], REPAIR, last)


@step
def _finite(v, i):
    total = 0.0
    for r in range(v.shape[0]):
        total += v[r, i] * 0.0  # 0, or NaN if the value is NaN or infinite
    return total == 0.0


@step
def _keep(rules):
    """The share of the fading line that a new tuple leaves; 0 where no line is fitted."""
    longest = 0
    for a in range(rules.shape[0]):
        longest = max(longest, rules[a, MEMORY])
    return 1.0 - 1.0 / longest if longest > 0 else 0.0


@step
def _kind(data, state, who, i, g, k, early, gap):
    """What tuple ``i`` of a key with a model is; whether the truth kept to that as far as it reaches, and up to the tuple."""
    whole, real = state
    n, now = data[2].shape[0], data[0][i]
    if now - whole[g, LAST] > gap:
        return EXPIRED, True, True
    last, end = whole[g, LAST], whole[g, EXPIRY]
    expired = now >= end
    kept = now <= last or _held(data, state, i, g, k, now)
    held = kept or end <= last or (expired and _held(data, state, i, g, k, end))
    if who.shape[0] > 1 and who[1, i] != whole[g, CHANGE]:
        return EXPIRED if expired else CHANGED, held, kept
    if not kept or not _near(data, state, i, g, k):
        return EXPIRED if expired else VIOLATED, held, kept
    if now + early < end:
        return VALIDATED, held, kept
    for a in range(n):  # what is allotted by now is less: a model that states that begins
        base = n * k + a
        if real[g, base] > real[g, base + BOUND * n] * _LOOSE:
            return EXPIRED, held, kept
    return EXTENDED, held, kept


@kernel(IN_INT1, IN2, IN_INT2, IN_INT2, IN2, INT, INT, OUT_INT2, OUT2, OUT_INT2, OUT2)
def _validate(t, v, who, rules, bounds, horizon, gap, whole, real, events, pieces):
    data, state, out = (t, v, rules, bounds), (whole, real), (events, pieces)
    n, k, m = rules.shape[0], rules.shape[1] - COLUMNS, 0
    keep, early = _keep(rules), horizon // 2
    off = np.empty(n)
    i = -1
    while True:
        i = consume_valid(
            data, state, who, i + 1, early, k, keep, off
        )  # most tuples, and the short way for them
        if i == t.shape[0]:
            return m
        g, now = who[0, i], t[i]
        if not _finite(v, i):
            m = _put(events, m, i, g, now, now, NOT_FINITE, now)
            continue
        last, end = whole[g, LAST], whole[g, EXPIRY]
        if now < last:
            m = _put(events, m, i, g, now, now, LATE, now)
            continue
        kind = FIRST
        if whole[g, STARTED] != 0:
            kind, held, kept = _kind(data, state, who, i, g, k, early, gap)
            if now - last > gap:
                if last < end:  # a hole: what was predicted of it is not there
                    for j in range(n * k + n):
                        pieces[m, j] = real[g, j]
                    m = _put(events, m, i, g, last, end, VOID, whole[g, REF])
            elif not held:
                m = _put_repair(data, state, i, g, k, last, out, m)
            elif kind != EXTENDED and (end < now or not kept):
                m = _put_repair(data, state, i, g, k, end if end < now else last, out, m)
        _see(data, state, i, g, k, keep, kind)
        if kind == EXTENDED:
            whole[g, EXPIRY] = now + horizon
            m = _put_model(state, i, g, k, n, end, out, m, kind)
        elif kind != VALIDATED:
            _begin(data, state, i, g, k, horizon)
            if who.shape[0] > 1:
                whole[g, CHANGE] = who[1, i]
            m = _put_model(state, i, g, k, n, now, out, m, kind)


class Events(NamedTuple):
    """What is not merely validated, in order of arrival: ``event[m, EVENT]``, ``c[m, A, K]`` and ``err[m, A]``.

    An event is (ROW, KEY, BEGIN, END, KIND, ABOUT): a model, a part of one or a REPAIR that rules from BEGIN to END and whose
    coefficients are about ABOUT; a VOID, of which nothing rules there; or a tuple that has no place (LATE, NOT_FINITE; its ``c``
    and ``err`` mean nothing).
    """

    event: IntArray
    c: FloatArray
    err: FloatArray

    def counts(self, tuples: int) -> IntArray:
        """Tuples by kind, and repairs: ``[KINDS]``."""
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

    ``t[n]`` microseconds; ``v[F, n]``: the ``A`` modelled attributes, then further columns that coefficients are taken from;
    ``who[1 or 2, n]``: row of each tuple's key in ``state`` and, if unmodelled attributes are watched, a code of their values;
    ``rules[A, 2 + K]``: truth, memory, and the row of ``v`` for each coefficient (-1: zero); ``bounds[A, 2]``: share of the
    truth and floor; ``gap``: microseconds, the horizon or more, that a silence may last without being a hole.

    >>> from pulse.kernels.validate.key_state import fresh
    >>> rules, bounds = np.array([[STEP, 0, 0]]), np.array([[0.0, 0.5]])
    >>> t, v, who = np.array([0, 1, 2, 3]), np.array([[7.0, 7.25, 9.0, 9.0]]), np.zeros((1, 4), np.int64)
    >>> found = validate(t, v, who, rules, bounds, 10, fresh(1, StateLayout(1, 1)))
    >>> found.event[:, [ROW, KIND]].tolist(), found.c[:, 0, 0].tolist()
    ([[0, 1], [2, 3]], [7.0, 9.0])
    """
    n, (attributes, columns) = len(t), rules.shape
    layout = StateLayout(attributes, columns - COLUMNS)
    whole, real = state
    if v.ndim != 2 or v.shape[1] != n or v.shape[0] < attributes or who.ndim != 2 or who.shape[1] != n:
        raise ValueError(
            f"validate: expected v of shape ({attributes} or more, {n}) and who of (1 or 2, {n}), got {v.shape} and {who.shape}"
        )
    if bounds.shape != (attributes, 2) or layout.width < 1 or rules[:, COLUMNS:].max() >= len(v):
        raise ValueError(
            f"validate: expected bounds of shape ({attributes}, 2) and columns below {len(v)}, got {bounds.shape} and {rules!r}"
        )
    if whole.shape != (len(real), INTS) or real.shape[1] != layout.size:
        raise ValueError(
            f"validate: expected state of shapes (G, {INTS}) and (G, {layout.size}), got {whole.shape} and {real.shape}"
        )
    if n and (who[0].min() < 0 or who[0].max() >= len(whole)):
        raise ValueError(
            f"validate: expected keys from 0 to {len(whole) - 1}, got {who[0].min()} to {who[0].max()}"
        )
    if rules[:, MEMORY].max() > 0 and layout.width < 2:
        raise ValueError("validate: a fitted line needs models of two coefficients, got one")
    size = layout.attributes * layout.width
    events = np.empty((2 * n, EVENT), np.int64)  # a tuple gives at most a repair or a void, and a model
    pieces = np.empty((2 * n, size + attributes))
    m = _validate(t, v, who, rules, bounds, horizon, gap, whole, real, events, pieces)
    c = pieces[:m, :size].reshape(m, attributes, layout.width)
    return Events(events[:m].copy(), c, pieces[:m, size:].copy())
