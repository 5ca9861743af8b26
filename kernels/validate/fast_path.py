"""Tuples that keep to the models of their keys, one after the other (semantics 6.2): nearly all that validation sees.

:func:`consume_valid` goes over tuples in order of arrival for as long as each comes after its key's newest, before its key's
model expires, without a change of what is watched, and within the tolerance, at its own instant and since the newest tuple; it
takes note of each in the key's state (:mod:`pulse.kernels.validate.key_state`). A model that is about to expire counts as expired
here, so that it is extended in time. It stops at the first that does anything else, and leaves that to
:mod:`pulse.kernels.validate.validate`, which says what all this means.

Of one or two attributes with models of one or two coefficients the numbers of both are written into the code, so that nothing
is a loop. Indices are unsigned, which Numba need not make positive.
"""

from __future__ import annotations

import numpy as np

from pulse.kernels._jit import step
from pulse.kernels.fit.truth_intervals import LINEAR, STEP
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.validate.fading_line import remember
from pulse.kernels.validate.key_state import CHANGE, EXPIRY, LAST, REF, STARTED

FADE = 1.0 - 1.0 / 64.0  # of the restlessness, per tuple: about the last 64 count
_MOST = 1.7976931348623157e308  # a value that is infinite is not within an infinite bound

_ZERO, _ONE, _TWO, _THREE = (np.uint64(i) for i in range(4))
# The blocks of :mod:`pulse.kernels.validate.key_state`, and how many there are.
_ERR, _SEEN, _RESIDUAL, _BOUND, _OWN, _SQUARES = (np.uint64(i) for i in range(6))
_PER_ATTRIBUTE = np.uint64(8)


@step
def model_at(real, g, at, k, x):
    """Value at ``x`` of the ``k`` coefficients from column ``at`` on."""
    row, top = np.uint64(g), np.uint64(at + k) - _ONE
    value = real[row, top]
    for j in range(_ONE, np.uint64(k)):
        value = value * x + real[row, top - j]
    return value


@step
def sag(real, g, at, k, x, length):
    """How far the model can leave its chord over the ``length`` seconds up to ``x``: ``h**2 / 8 * max|M''|``."""
    bend, power = 0.0, 1.0
    for j in range(_TWO, np.uint64(k)):
        bend += float(j * (j - _ONE)) * abs(real[np.uint64(g), np.uint64(at) + j]) * power
        power *= x
    return bend * length * length * 0.125


@step
def tolerance(real, g, base, n, limit, size):
    """What an attribute may be off by where the truth is ``size`` or larger; ``base``: column of its ``err`` among ``n``.

    ``limit`` is the stream's own bound, share of the truth and floor.
    """
    row, at, by = np.uint64(g), np.uint64(base), np.uint64(n)
    stated, allotted = real[row, at], real[row, at + _BOUND * by]
    own = max(limit[0] * size, limit[1]) if real[row, at + _OWN * by] != 0.0 else np.inf
    # Of noisy values now this and now that is the smaller: `min` is no jump, which would be foretold wrongly half of the time.
    return min(min(stated, allotted), own)


@step
def least(a, b):
    """The smallest size on the straight line between two values."""
    return 0.0 if a * b < 0.0 or (a < 0.0) != (b < 0.0) else min(abs(a), abs(b))


@step
def _kept(real, g, a, size, value, x, seconds, rule):
    """Whether ``value`` of attribute ``a`` at ``x``, and the truth of the ``seconds`` before, are within; what the model misses.

    ``size`` is ``(n, k)``, ``rule`` the attribute's truth, share and floor.
    """
    n, k = size
    truth, limit = rule[0], (rule[1], rule[2])
    base = n * k + a
    model = model_at(real, g, a * k, k, x)
    off = value - model
    old, before = real[g, base + _SEEN * n], abs(real[g, base + _RESIDUAL * n])
    bent = sag(real, g, a * k, k, x, seconds) if k > _TWO else 0.0
    # Where the truth is smallest the tolerance is too, so that what holds there holds at the tuple.
    if truth == LINEAR:
        apart = max(before, abs(off)) + bent
        kept = apart <= tolerance(real, g, base, n, limit, least(old, value))
    else:
        kept = abs(off) <= tolerance(real, g, base, n, limit, abs(value))
    if truth == STEP:
        apart = max(before, abs(old - model)) + bent
        kept &= apart <= tolerance(real, g, base, n, limit, abs(old))
    kept &= abs(off) <= _MOST
    return kept, off


@step
def _note(real, g, a, size, value, off):
    """Restlessness, residual and value of attribute ``a``."""
    n, k = size
    base = n * k + a
    jump = off - real[g, base + _RESIDUAL * n]
    real[g, base + _SQUARES * n] = FADE * real[g, base + _SQUARES * n] + jump * jump
    real[g, base + _RESIDUAL * n] = off
    real[g, base + _SEEN * n] = value


@step
def _note_time(real, g, size, seconds):
    """The fading sum of seconds, and of tuples."""
    n, k = size
    span = n * (k + _PER_ATTRIBUTE) + _THREE
    real[g, span] = FADE * real[g, span] + seconds
    real[g, span + _ONE] = FADE * real[g, span + _ONE] + 1.0


@step
def _is_next(now, early, who, whole, i, g):
    """Whether tuple ``i`` comes after its key's newest, with the model in force for ``early`` longer, and changes nothing."""
    timely = (whole[g, LAST] < now) & (now + early < whole[g, EXPIRY]) & (whole[g, STARTED] != 0)
    return timely and (who.shape[0] == 1 or who[_ONE, i] == whole[g, CHANGE])


@step
def _finite_from(v, row, i):
    """Whether the columns of tuple ``i`` from ``row`` on are numbers."""
    total = 0.0
    for r in range(row, np.uint64(v.shape[0])):
        total += v[r, i] * 0.0  # 0, or NaN if the value is NaN or infinite
    return total == 0.0


@step
def _one_or_two(data, state, who, start, early, size):
    """As :func:`consume_valid`, for one or two attributes, to neither of which a line is fitted."""
    t, v, rules, bounds = data
    whole, real = state
    n, _ = size
    b = n - _ONE  # the second, or the only one again
    rule = rules[0, 0], bounds[0, 0], bounds[0, 1]
    rule_b = rules[b, _ZERO], bounds[b, _ZERO], bounds[b, _ONE]
    i, stop = np.uint64(start), np.uint64(t.shape[0])
    while i < stop:
        g, now = np.uint64(who[_ZERO, i]), t[i]
        if not _is_next(now, early, who, whole, i, g):
            break
        x, seconds = (now - whole[g, REF]) / MICROSECONDS, (now - whole[g, LAST]) / MICROSECONDS
        value, value_b = v[_ZERO, i], v[b, i]
        kept, off = _kept(real, g, _ZERO, size, value, x, seconds, rule)
        off_b = off
        if n == _TWO:
            kept_b, off_b = _kept(real, g, b, size, value_b, x, seconds, rule_b)
            kept &= kept_b
        if not (kept and _finite_from(v, n, i)):
            break
        _note(real, g, _ZERO, size, value, off)
        if n == _TWO:
            _note(real, g, b, size, value_b, off_b)
        _note_time(real, g, size, seconds)
        whole[g, LAST] = now
        i += _ONE
    return np.int64(i)


@step
def _any_number(data, state, who, start, early, size, keep, off):
    """As :func:`consume_valid`, for any number of attributes; ``off[n]`` is room for what the model misses."""
    t, v, rules, bounds = data
    whole, real = state
    n, k = size
    i, stop = np.uint64(start), np.uint64(t.shape[0])
    while i < stop:
        g, now = np.uint64(who[_ZERO, i]), t[i]
        if not _is_next(now, early, who, whole, i, g):
            break
        x, seconds = (now - whole[g, REF]) / MICROSECONDS, (now - whole[g, LAST]) / MICROSECONDS
        kept = _finite_from(v, n, i)
        for a in range(n):
            rule = rules[a, _ZERO], bounds[a, _ZERO], bounds[a, _ONE]
            kept_a, off[a] = _kept(real, g, a, size, v[a, i], x, seconds, rule)
            kept &= kept_a
        if not kept:
            break
        if keep > 0.0:
            remember(real, np.int64(g), rules, v, np.int64(i), np.int64(k), seconds, keep)
        for a in range(n):
            _note(real, g, a, size, v[a, i], off[a])
        _note_time(real, g, size, seconds)
        whole[g, LAST] = now
        i += _ONE
    return np.int64(i)


@step
def consume_valid(data, state, who, start, early, k, keep, off):
    """The first tuple from ``start`` on that does not merely keep to its key's model; those before it are taken note of.

    ``data`` is ``(t, v, rules, bounds)``, ``state`` ``(whole, real)``; ``early``: how many microseconds before its end a model is
    to be extended; ``keep`` as in :func:`.trend.remember`, 0 where no line is fitted; ``off`` has room for a number per
    attribute.
    """
    n = data[2].shape[0]
    if keep > 0.0 or n > 2 or k > 2:
        return _any_number(data, state, who, start, early, (np.uint64(n), np.uint64(k)), keep, off)
    if n == 1:
        if k == 1:
            return _one_or_two(data, state, who, start, early, (_ONE, _ONE))
        return _one_or_two(data, state, who, start, early, (_ONE, _TWO))
    if k == 1:
        return _one_or_two(data, state, who, start, early, (_TWO, _ONE))
    return _one_or_two(data, state, who, start, early, (_TWO, _TWO))
