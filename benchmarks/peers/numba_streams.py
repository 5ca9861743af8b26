"""Tuple operators written by hand that keep their state between batches: a sliding minimum, MACD, and who follows whom.

As :mod:`.numba_peer`, one pass in order of arrival with state per key; what closes is told by the batch that closes it::

    min         open windows   the paper's: every tuple lowers each window it falls into
                panes          a running minimum between closing times, so many of them to a window
    macd        open windows   the paper's: every step of a price is added to the five and the thirty windows it falls into
                integrals      of a key's price up to each closing time, in a ring: two differences a closing time
    following   a vessel's place every ten seconds, between its reports; a new place is held against those of all other vessels
                then, and pairs that have been within reach within the window are averaged over their places

Keys are the numbers ``0 … keys - 1``, times are microseconds, in order per key. The questions, and what exactly counts, are those
of :mod:`.questions`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.benchmarks.peers.compiled import compiled
from pulse.benchmarks.peers.questions import SECOND, Following, Macd, Minimum
from pulse.core.arrays import FloatArray, IntArray

EQUAL = 1e-9
"""Averages no further apart are equal but for rounding: prices are whole cents, and times whole milliseconds."""
_NEVER = -(1 << 62)
_RING = 128  # places that are kept of a vessel: those of a window, and of the longest silence


class Told(NamedTuple):
    """Closing times in the order they were reached: keys, microseconds, values."""

    key: IntArray
    t: IntArray
    value: FloatArray


class Pairs(NamedTuple):
    """The same of two keys."""

    key: IntArray
    other: IntArray
    t: IntArray
    value: FloatArray


@compiled
def _closings(key, t, last, advance):
    """How many multiples of the advance lie between the tuples of a key, ends included: no batch tells more."""
    newest = last.copy()
    count = 0
    for i in range(t.shape[0]):
        g = key[i]
        if newest[g] != _NEVER:
            count += t[i] // advance - newest[g] // advance + 1
        newest[g] = t[i]
    return count


# -- the smallest value of a sliding window ----------------------------------------------------------------------


@compiled
def _lowest(key, t, x, last, closing, complete, low, place, panes, size, advance, room):
    """``panes`` (keys, windows) hold the minima of panes, ``low`` (keys,) that of the pane under way."""
    windows = size // advance
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now, value = key[i], t[i], x[i]
        if now >= closing[g]:
            if last[g] == _NEVER:
                closing[g] = (now // advance + 1) * advance
                complete[g] = -(-now // advance) * advance + size
            while closing[g] <= now:
                panes[g, place[g]] = low[g]
                low[g] = np.inf
                place[g] = place[g] + 1 if place[g] + 1 < windows else 0
                if closing[g] >= complete[g]:
                    best = np.inf
                    for w in range(windows):
                        best = min(best, panes[g, w])
                    found[0][m], found[1][m], found[2][m] = g, closing[g], best
                    m += 1
                closing[g] += advance
        low[g] = min(low[g], value)
        last[g] = now
    return found[0][:m], found[1][:m], found[2][:m]


@compiled
def _lowered(key, t, x, last, closing, complete, place, windows_low, size, advance, room):
    """``windows_low`` (keys, windows): of the windows that are open."""
    windows = size // advance
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now, value = key[i], t[i], x[i]
        if last[g] == _NEVER:
            closing[g] = (now // advance + 1) * advance
            complete[g] = -(-now // advance) * advance + size
        while closing[g] <= now:
            if closing[g] >= complete[g]:
                found[0][m], found[1][m], found[2][m] = g, closing[g], windows_low[g, place[g]]
                m += 1
            windows_low[g, place[g]] = np.inf
            place[g] = place[g] + 1 if place[g] + 1 < windows else 0
            closing[g] += advance
        for w in range(windows):
            windows_low[g, w] = min(windows_low[g, w], value)
        last[g] = now
    return found[0][:m], found[1][:m], found[2][:m]


class StreamMinimum:
    """The smallest value of each key's tuples in ``[t - size, t)``; ``way`` is "open windows" or "panes"."""

    def __init__(self, keys: int, asked: Minimum | None = None, *, way: str = "panes") -> None:
        asked = asked or Minimum()
        self.size, self.advance = asked.size * SECOND, asked.advance * SECOND
        if way not in ("open windows", "panes"):
            raise ValueError(f"expected open windows or panes, got {way!r}")
        self.way = way
        self.last = np.full(keys, _NEVER)
        self.closing, self.complete = np.full(keys, _NEVER), np.zeros(keys, np.int64)
        self.low, self.place = np.full(keys, np.inf), np.zeros(keys, np.int64)
        self.windows = np.full((keys, self.size // self.advance), np.inf)

    def push(self, key: IntArray, t: IntArray, x: FloatArray) -> Told:
        """The windows that these tuples close."""
        room = int(_closings(key, t, self.last, self.advance))
        state = self.last, self.closing, self.complete
        if self.way == "panes":
            return Told(
                *_lowest(key, t, x, *state, self.low, self.place, self.windows, self.size, self.advance, room)
            )
        return Told(*_lowered(key, t, x, *state, self.place, self.windows, self.size, self.advance, room))


# -- MACD ---------------------------------------------------------------------------------------------------------


@compiled
def _by_integrals(key, t, price, last, held, area, following, known, ring, short, long, advance, room):
    """``ring[g, k % (long + 1)]`` is the integral of a key's price up to the multiple ``k``, in seconds."""
    around = long + 1
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    per_short, per_long = 1e6 / (short * advance), 1e6 / (long * advance)
    for i in range(t.shape[0]):
        g, now = key[i], t[i]
        if last[g] == _NEVER:
            following[g] = -(-now // advance)
        else:
            k = following[g]
            while k * advance <= now:
                whole = area[g] + held[g] * ((k * advance - last[g]) * 1e-6)
                ring[g, k % around] = whole
                known[g] += 1
                if known[g] > long:
                    diff = (whole - ring[g, (k - short) % around]) * per_short - (
                        whole - ring[g, (k - long) % around]
                    ) * per_long
                    if diff > EQUAL:
                        found[0][m], found[1][m], found[2][m] = g, k * advance, diff
                        m += 1
                k += 1
            following[g] = k
            area[g] += held[g] * ((now - last[g]) * 1e-6)
        last[g], held[g] = now, price[i]
    return found[0][:m], found[1][:m], found[2][:m]


@compiled
def _by_windows(key, t, price, last, held, following, first, sums, short, long, advance, room):
    """``sums[g]``: the integrals of the short windows that are open, then of the long ones, each at ``k % count``."""
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    per_short, per_long = 1e6 / (short * advance), 1e6 / (long * advance)
    for i in range(t.shape[0]):
        g, now = key[i], t[i]
        if last[g] == _NEVER:
            following[g] = -(-now // advance)
            first[g] = following[g]
            last[g] = now
        while following[g] * advance <= now:
            k = following[g]
            part = held[g] * ((k * advance - last[g]) * 1e-6)
            for w in range(short + long):
                sums[g, w] += part
            last[g] = k * advance
            if k - first[g] >= long:
                diff = sums[g, k % short] * per_short - sums[g, short + k % long] * per_long
                if diff > EQUAL:
                    found[0][m], found[1][m], found[2][m] = g, k * advance, diff
                    m += 1
            sums[g, k % short], sums[g, short + k % long] = 0.0, 0.0
            following[g] = k + 1
        part = held[g] * ((now - last[g]) * 1e-6)
        for w in range(short + long):
            sums[g, w] += part
        last[g], held[g] = now, price[i]
    return found[0][:m], found[1][:m], found[2][:m]


class StreamMacd:
    """Where a key's short average is above its long one; ``way`` is "open windows" or "integrals"."""

    def __init__(self, keys: int, asked: Macd | None = None, *, way: str = "integrals") -> None:
        asked = asked or Macd()
        self.advance = asked.advance * SECOND
        self.short, self.long = asked.short // asked.advance, asked.long // asked.advance
        if way not in ("open windows", "integrals"):
            raise ValueError(f"expected open windows or integrals, got {way!r}")
        self.way = way
        self.last, self.held, self.area = np.full(keys, _NEVER), np.zeros(keys), np.zeros(keys)
        self.following, self.known = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        self.ring = np.zeros((keys, self.long + 1))
        self.sums = np.zeros((keys, self.short + self.long))

    def push(self, key: IntArray, t: IntArray, price: FloatArray) -> Told:
        """The closing times that these tuples reach and at which it holds."""
        room = int(_closings(key, t, self.last, self.advance))
        windows = self.short, self.long, self.advance, room
        if self.way == "open windows":
            state = self.last, self.held, self.following, self.known, self.sums
            return Told(*_by_windows(key, t, price, *state, *windows))
        whole = self.last, self.held, self.area, self.following, self.known, self.ring
        return Told(*_by_integrals(key, t, price, *whole, *windows))


# -- following ----------------------------------------------------------------------------------------------------


@compiled
def _mean(places, at, a, b, k, size):
    """Of the distance over the ``size`` steps up to ``k``, by the trapezoidal rule; below zero where a place is missing."""
    total = 0.0
    for j in range(k - size, k + 1):
        slot = j & (_RING - 1)
        if at[a, slot] != j or at[b, slot] != j:
            return -1.0
        dx, dy = places[a, slot, 0] - places[b, slot, 0], places[a, slot, 1] - places[b, slot, 1]
        d = np.sqrt(dx * dx + dy * dy)
        total += d if k - size < j < k else 0.5 * d
    return total / size


@compiled
def _placed(g, k, x, y, places, at, near, size, reach, pairs, means, m):
    """A vessel's place at step ``k``: held against all others that have one there."""
    slot = k & (_RING - 1)
    places[g, slot, 0], places[g, slot, 1], at[g, slot] = x, y, k
    limit = reach * reach
    while m + places.shape[0] > pairs.shape[0]:
        larger, more = np.empty((2 * pairs.shape[0], 3), np.int64), np.empty(2 * means.shape[0])
        larger[:m], more[:m] = pairs[:m], means[:m]
        pairs, means = larger, more
    for b in range(places.shape[0]):
        if b == g or at[b, slot] != k:
            continue
        dx, dy = places[b, slot, 0] - x, places[b, slot, 1] - y
        if dx * dx + dy * dy < limit:
            near[g, b] = near[b, g] = k
        if near[g, b] >= k - size:
            mean = _mean(places, at, g, b, k, size)
            if 0.0 <= mean < reach:
                pairs[m, 0], pairs[m, 1], pairs[m, 2], means[m] = g, b, k, mean
                m += 1
    return pairs, means, m


@compiled
def _followed(key, t, x, y, last, held, places, at, near, size, advance, gap, reach):
    """``held`` (keys, 2): the newest report; ``near[a, b]``: the last step at which they were within reach."""
    pairs, means = np.empty((1024, 3), np.int64), np.empty(1024)
    m = 0
    for i in range(t.shape[0]):
        g, now, before = key[i], t[i], last[key[i]]
        if before != _NEVER and now > before:
            k = -(-before // advance)
            # What lies at an instant itself is known when the next one is: another report may replace it.
            if now - before <= gap:
                sx, sy = (x[i] - held[g, 0]) / (now - before), (y[i] - held[g, 1]) / (now - before)
                while k * advance < now:
                    since = k * advance - before
                    pairs, means, m = _placed(
                        g,
                        k,
                        held[g, 0] + sx * since,
                        held[g, 1] + sy * since,
                        places,
                        at,
                        near,
                        size,
                        reach,
                        pairs,
                        means,
                        m,
                    )
                    k += 1
            elif k * advance == before and at[g, (k - 1) & (_RING - 1)] == k - 1:
                pairs, means, m = _placed(
                    g, k, held[g, 0], held[g, 1], places, at, near, size, reach, pairs, means, m
                )
        last[g], held[g, 0], held[g, 1] = now, x[i], y[i]
    return pairs[:m], means[:m]


class StreamFollowing:
    """Pairs whose distance averages less than the reach over a window, both ways round."""

    def __init__(self, keys: int, asked: Following | None = None) -> None:
        asked = asked or Following()
        self.size, self.advance = asked.size // asked.every, asked.every * SECOND
        self.gap, self.reach = asked.max_gap * SECOND, asked.reach
        if self.size + asked.max_gap // asked.every + 2 > _RING:
            raise ValueError(f"expected a window and a gap of at most {_RING} steps together, got {asked}")
        self.last, self.held = np.full(keys, _NEVER), np.zeros((keys, 2))
        self.places, self.at = np.zeros((keys, _RING, 2)), np.full((keys, _RING), _NEVER)
        self.near = np.full((keys, keys), _NEVER)

    def push(self, key: IntArray, t: IntArray, x: FloatArray, y: FloatArray) -> Pairs:
        """The closing times that are known by these reports, of pairs that are near enough."""
        state = self.last, self.held, self.places, self.at, self.near
        pairs, means = _followed(key, t, x, y, *state, self.size, self.advance, self.gap, self.reach)
        a, b, at = pairs[:, 0], pairs[:, 1], pairs[:, 2] * self.advance
        return Pairs(
            np.concatenate([a, b]), np.concatenate([b, a]), np.tile(at, 2), np.concatenate([means, means])
        )
