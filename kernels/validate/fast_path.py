"""Fast path: consume consecutive tuples that stay within their key's model (semantics 6.2), the vast majority.

:func:`consume_valid` processes tuples in order of arrival as long as each comes after its key's newest, before its key's
model expires, without a change of a watched attribute, and within the tolerance, at its own instant and since the newest
tuple; it updates the key's state (:mod:`pulse.kernels.validate.key_state`) with each. A model that is about to expire counts as
expired here, so that it is extended in time. The fast path stops at the first other tuple and leaves it to
:mod:`pulse.kernels.validate.validate`, which defines the rules.

For one or two attributes with models of one or two coefficients both numbers are compile-time constants, so that no loop
remains. Indices are unsigned, which saves Numba's handling of negative indices.
"""

from __future__ import annotations

import numpy as np

from pulse.kernels._jit import step
from pulse.kernels.fit.truth_intervals import LINEAR, STEP
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.validate.fading_line import add_tuple
from pulse.kernels.validate.key_state import CHANGE, EXPIRY, LAST, REF, STARTED

FADE = 1.0 - 1.0 / 64.0  # decay of the volatility per tuple: about the last 64 count
_MOST = 1.7976931348623157e308  # an infinite residual is not within an infinite bound

_ZERO, _ONE, _TWO, _THREE = (np.uint64(i) for i in range(4))
# The blocks of :mod:`pulse.kernels.validate.key_state`, and how many there are.
_ERR, _SEEN, _RESIDUAL, _BOUND, _OWN, _SQUARES = (np.uint64(i) for i in range(6))
_PER_ATTRIBUTE = np.uint64(8)


@step
def model_at(floats, g, at, k, x):
    """Evaluate the ``k`` coefficients from column ``at`` on at ``x``."""
    row, top = np.uint64(g), np.uint64(at + k) - _ONE
    value = floats[row, top]
    for j in range(_ONE, np.uint64(k)):
        value = value * x + floats[row, top - j]
    return value


@step
def chord_deviation(floats, g, at, k, x, length):
    """Bound the model's deviation from its chord over the ``length`` seconds up to ``x``: ``h**2 / 8 * max|M''|``."""
    bend, power = 0.0, 1.0
    for j in range(_TWO, np.uint64(k)):
        bend += float(j * (j - _ONE)) * abs(floats[np.uint64(g), np.uint64(at) + j]) * power
        power *= x
    return bend * length * length * 0.125


@step
def tolerance(floats, g, base, n, limit, size):
    """Return an attribute's tolerance where the truth is ``size`` or larger; ``base``: column of its ``err`` among ``n``.

    ``limit`` is the stream's own bound, share of the truth and floor.
    """
    row, at, by = np.uint64(g), np.uint64(base), np.uint64(n)
    stated, allotted = floats[row, at], floats[row, at + _BOUND * by]
    own = max(limit[0] * size, limit[1]) if floats[row, at + _OWN * by] != 0.0 else np.inf
    # `min` compiles without a branch; with noisy values a branch would be mispredicted half of the time.
    return min(min(stated, allotted), own)


@step
def smallest_size(a, b):
    """Return the smallest absolute value on the straight line between two values."""
    return 0.0 if a * b < 0.0 or (a < 0.0) != (b < 0.0) else min(abs(a), abs(b))


@step
def _stays_within(floats, g, a, size, value, x, seconds, rule):
    """Test whether ``value`` of attribute ``a`` at ``x``, and the truth of the ``seconds`` before, are within tolerance.

    Also returns the residual.

    ``size`` is ``(n, k)``, ``rule`` the attribute's truth, share and floor.
    """
    n, k = size
    truth, limit = rule[0], (rule[1], rule[2])
    base = n * k + a
    model = model_at(floats, g, a * k, k, x)
    residual = value - model
    old, before = floats[g, base + _SEEN * n], abs(floats[g, base + _RESIDUAL * n])
    curvature = chord_deviation(floats, g, a * k, k, x, seconds) if k > _TWO else 0.0
    # The tolerance is smallest where the truth is smallest: a check there implies the one at the tuple.
    if truth == LINEAR:
        deviation = max(before, abs(residual)) + curvature
        within = deviation <= tolerance(floats, g, base, n, limit, smallest_size(old, value))
    else:
        within = abs(residual) <= tolerance(floats, g, base, n, limit, abs(value))
    if truth == STEP:
        deviation = max(before, abs(old - model)) + curvature
        within &= deviation <= tolerance(floats, g, base, n, limit, abs(old))
    within &= abs(residual) <= _MOST
    return within, residual


@step
def _update_attribute(floats, g, a, size, value, residual):
    """Update volatility, residual and newest value of attribute ``a``."""
    n, k = size
    base = n * k + a
    jump = residual - floats[g, base + _RESIDUAL * n]
    floats[g, base + _SQUARES * n] = FADE * floats[g, base + _SQUARES * n] + jump * jump
    floats[g, base + _RESIDUAL * n] = residual
    floats[g, base + _SEEN * n] = value


@step
def _update_time(floats, g, size, seconds):
    """Update the decaying sums of seconds and of tuples."""
    n, k = size
    span = n * (k + _PER_ATTRIBUTE) + _THREE
    floats[g, span] = FADE * floats[g, span] + seconds
    floats[g, span + _ONE] = FADE * floats[g, span + _ONE] + 1.0


@step
def _is_next(now, early, who, ints, i, g):
    """Test whether tuple ``i`` is newer than its key's newest, at least ``early`` before expiry, without a watched change."""
    timely = (ints[g, LAST] < now) & (now + early < ints[g, EXPIRY]) & (ints[g, STARTED] != 0)
    return timely and (who.shape[0] == 1 or who[_ONE, i] == ints[g, CHANGE])


@step
def _finite_from(v, row, i):
    """Test whether the columns of tuple ``i`` from ``row`` on are finite."""
    total = 0.0
    for r in range(row, np.uint64(v.shape[0])):
        total += v[r, i] * 0.0  # 0, or NaN if the value is NaN or infinite
    return total == 0.0


@step
def _one_or_two(data, state, who, start, early, size):
    """Run :func:`consume_valid` for one or two attributes without fitted lines."""
    t, v, rules, bounds = data
    ints, floats = state
    n, _ = size
    b = n - _ONE  # the second, or the only one again
    rule = rules[0, 0], bounds[0, 0], bounds[0, 1]
    rule_b = rules[b, _ZERO], bounds[b, _ZERO], bounds[b, _ONE]
    i, stop = np.uint64(start), np.uint64(t.shape[0])
    while i < stop:
        g, now = np.uint64(who[_ZERO, i]), t[i]
        if not _is_next(now, early, who, ints, i, g):
            break
        x, seconds = (now - ints[g, REF]) / MICROSECONDS, (now - ints[g, LAST]) / MICROSECONDS
        value, value_b = v[_ZERO, i], v[b, i]
        within, residual = _stays_within(floats, g, _ZERO, size, value, x, seconds, rule)
        residual_b = residual
        if n == _TWO:
            within_b, residual_b = _stays_within(floats, g, b, size, value_b, x, seconds, rule_b)
            within &= within_b
        if not (within and _finite_from(v, n, i)):
            break
        _update_attribute(floats, g, _ZERO, size, value, residual)
        if n == _TWO:
            _update_attribute(floats, g, b, size, value_b, residual_b)
        _update_time(floats, g, size, seconds)
        ints[g, LAST] = now
        i += _ONE
    return np.int64(i)


@step
def _any_number(data, state, who, start, early, size, keep, residuals):
    """Run :func:`consume_valid` for any number of attributes; ``residuals[n]`` is scratch for the residuals."""
    t, v, rules, bounds = data
    ints, floats = state
    n, k = size
    i, stop = np.uint64(start), np.uint64(t.shape[0])
    while i < stop:
        g, now = np.uint64(who[_ZERO, i]), t[i]
        if not _is_next(now, early, who, ints, i, g):
            break
        x, seconds = (now - ints[g, REF]) / MICROSECONDS, (now - ints[g, LAST]) / MICROSECONDS
        within = _finite_from(v, n, i)
        for a in range(n):
            rule = rules[a, _ZERO], bounds[a, _ZERO], bounds[a, _ONE]
            within_a, residuals[a] = _stays_within(floats, g, a, size, v[a, i], x, seconds, rule)
            within &= within_a
        if not within:
            break
        if keep > 0.0:
            add_tuple(floats, np.int64(g), rules, v, np.int64(i), np.int64(k), seconds, keep)
        for a in range(n):
            _update_attribute(floats, g, a, size, v[a, i], residuals[a])
        _update_time(floats, g, size, seconds)
        ints[g, LAST] = now
        i += _ONE
    return np.int64(i)


@step
def consume_valid(data, state, who, start, early, k, keep, residuals):
    """Consume valid tuples from ``start`` on, updating their keys' state; return the first tuple that is not plainly valid.

    ``data`` is ``(t, v, rules, bounds)``, ``state`` ``(ints, floats)``; ``early``: how many microseconds before its end a model
    is extended; ``keep`` as in :func:`.fading_line.add_tuple`, 0 where no line is fitted; ``residuals`` is scratch, one per
    attribute.
    """
    n = data[2].shape[0]
    if keep > 0.0 or n > 2 or k > 2:
        return _any_number(data, state, who, start, early, (np.uint64(n), np.uint64(k)), keep, residuals)
    if n == 1:
        if k == 1:
            return _one_or_two(data, state, who, start, early, (_ONE, _ONE))
        return _one_or_two(data, state, who, start, early, (_ONE, _TWO))
    if k == 1:
        return _one_or_two(data, state, who, start, early, (_TWO, _ONE))
    return _one_or_two(data, state, who, start, early, (_TWO, _TWO))
