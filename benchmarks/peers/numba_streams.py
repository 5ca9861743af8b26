"""Tuple operators written by hand that keep their state between batches: a sliding minimum, MACD, and who follows whom.

As :mod:`.numba_peer`, one pass in order of arrival with state per key; what closes is emitted by the batch that closes it::

    min         open windows   the paper's: every tuple lowers each window it falls into
                panes          a running minimum between closing times, so many of them to a window
    macd        open windows   the paper's: every step of a price is added to the five and the thirty windows it falls into
                integrals      of a key's price up to each closing time, in a ring: two differences a closing time
    following   a vessel's place every ten seconds, between its reports; a new place is held against those in the squares around
                it then, and pairs that have been within reach within the window are averaged over their places

Keys are the numbers ``0 … keys - 1``, times are microseconds, in order per key. The questions, and what exactly counts, are those
of :mod:`.questions`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.benchmarks.peers.compiled import compiled
from pulse.benchmarks.peers.numba_minima import NEVER, by_open_windows, by_panes, fresh
from pulse.benchmarks.peers.numba_squares import cell, square
from pulse.benchmarks.peers.questions import SECOND, Following, Macd, Minimum
from pulse.core.arrays import FloatArray, IntArray

EQUAL = 1e-9
"""Averages no further apart are equal but for rounding: prices are whole cents, and times whole milliseconds."""
_RING = 128  # places that are kept of a vessel: those of a window, and of the longest silence
_SQUARES = 1 << 10  # lists of squares at a step


class Emitted(NamedTuple):
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
    """How many multiples of the advance lie between the tuples of a key, ends included: no batch emits more. And the newest
    tuple's time of each key."""
    newest = last.copy()
    count = 0
    for i in range(t.shape[0]):
        g = key[i]
        if newest[g] != NEVER:
            count += t[i] // advance - newest[g] // advance + 1
        newest[g] = t[i]
    return count, newest


# -- the smallest value of a sliding window ----------------------------------------------------------------------


class StreamMinimum:
    """The smallest value of each key's tuples in ``[t - size, t)``; ``way`` is "open windows" or "panes"."""

    def __init__(self, keys: int, asked: Minimum | None = None, *, way: str = "panes") -> None:
        asked = asked or Minimum()
        self.size, self.advance = asked.size * SECOND, asked.advance * SECOND
        if way not in ("open windows", "panes"):
            raise ValueError(f"expected open windows or panes, got {way!r}")
        self.way = way
        self.last, self.low = np.full(keys, NEVER), np.full(keys, np.inf)
        self.state = fresh(keys, self.size, self.advance)

    def push(self, key: IntArray, t: IntArray, x: FloatArray) -> Emitted:
        """The windows that these tuples close."""
        room, self.last = _closings(key, t, self.last, self.advance)
        asked = self.size, self.advance, int(room)
        if self.way == "panes":
            return Emitted(*by_panes(key, t, x, *self.state, self.low, *asked))
        return Emitted(*by_open_windows(key, t, x, *self.state, *asked))


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
        if last[g] == NEVER:
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
        if last[g] == NEVER:
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
        self.last, self.held, self.area = np.full(keys, NEVER), np.zeros(keys), np.zeros(keys)
        self.following, self.known = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        self.ring = np.zeros((keys, self.long + 1))
        self.sums = np.zeros((keys, self.short + self.long))

    def push(self, key: IntArray, t: IntArray, price: FloatArray) -> Emitted:
        """The closing times that these tuples reach and at which it holds."""
        room = int(_closings(key, t, self.last, self.advance)[0])
        windows = self.short, self.long, self.advance, room
        if self.way == "open windows":
            state = self.last, self.held, self.following, self.known, self.sums
            return Emitted(*_by_windows(key, t, price, *state, *windows))
        whole = self.last, self.held, self.area, self.following, self.known, self.ring
        return Emitted(*_by_integrals(key, t, price, *whole, *windows))


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
def _met(g, k, x, y, reach, places, at, near, partners, count, heads, nexts):
    """Enter a vessel's place at step ``k``, and note all others that are within reach there, in the nine squares around it."""
    slot = k & (_RING - 1)
    places[g, slot, 0], places[g, slot, 1], at[g, slot] = x, y, k
    limit, mask = reach * reach, heads.shape[1] - 1
    cx, cy = cell(x, reach), cell(y, reach)
    for ix in range(cx - 1, cx + 2):
        for iy in range(cy - 1, cy + 2):
            place = square(ix, iy, mask)
            b = heads[slot, place, 0] if heads[slot, place, 1] == k else -1
            while b >= 0:  # once or, where squares share a list, twice
                dx, dy = places[b, slot, 0] - x, places[b, slot, 1] - y
                if dx * dx + dy * dy < limit:
                    for one, other in ((g, b), (b, g)):
                        if near[one, other] == NEVER:
                            partners[one, count[one]] = other
                            count[one] += 1
                        near[one, other] = k
                b = nexts[b, slot]
    place = square(cx, cy, mask)
    nexts[g, slot] = heads[slot, place, 0] if heads[slot, place, 1] == k else -1
    heads[slot, place, 0], heads[slot, place, 1] = g, k


@compiled
def _placed(g, k, x, y, lists, size, reach, pairs, means, m):
    """A vessel's place at step ``k``: averaged with the partners that have one there, while they met within the window."""
    places, at, near, partners, count, heads, nexts = lists
    _met(g, k, x, y, reach, places, at, near, partners, count, heads, nexts)
    slot = k & (_RING - 1)
    while m + count[g] > pairs.shape[0]:
        larger, more = np.empty((2 * pairs.shape[0], 3), np.int64), np.empty(2 * means.shape[0])
        larger[:m], more[:m] = pairs[:m], means[:m]
        pairs, means = larger, more
    i = 0
    while i < count[g]:
        b = partners[g, i]
        if near[g, b] < k - size:  # met too long ago: the last of the list takes its place
            near[g, b] = NEVER
            count[g] -= 1
            partners[g, i] = partners[g, count[g]]
            continue
        i += 1
        if at[b, slot] == k:
            mean = _mean(places, at, g, b, k, size)
            if 0.0 <= mean < reach:
                pairs[m, 0], pairs[m, 1], pairs[m, 2], means[m] = g, b, k, mean
                m += 1
    return pairs, means, m


@compiled
def _followed(key, t, x, y, last, held, lists, size, advance, gap, reach):
    """``held`` (keys, 2): the newest report. ``lists`` are those of :class:`StreamFollowing`."""
    pairs, means = np.empty((1024, 3), np.int64), np.empty(1024)
    at = lists[1]
    m = 0
    for i in range(t.shape[0]):
        g, now, before = key[i], t[i], last[key[i]]
        if before != NEVER and now > before:
            k = -(-before // advance)
            # What lies at an instant itself is known when the next one is: another report may replace it.
            if now - before <= gap:
                sx, sy = (x[i] - held[g, 0]) / (now - before), (y[i] - held[g, 1]) / (now - before)
                while k * advance < now:
                    since = k * advance - before
                    here, there = held[g, 0] + sx * since, held[g, 1] + sy * since
                    pairs, means, m = _placed(g, k, here, there, lists, size, reach, pairs, means, m)
                    k += 1
            elif k * advance == before and at[g, (k - 1) & (_RING - 1)] == k - 1:
                pairs, means, m = _placed(g, k, held[g, 0], held[g, 1], lists, size, reach, pairs, means, m)
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
        self.last, self.held = np.full(keys, NEVER), np.zeros((keys, 2))
        places, at = np.zeros((keys, _RING, 2)), np.full((keys, _RING), NEVER)
        near = np.full((keys, keys), NEVER)  # [a, b]: the last step at which a partner of a was within reach
        partners, count = np.zeros((keys, keys), np.int32), np.zeros(keys, np.int64)
        # By step: the newest vessel of a square, and whose step it is; from each the next one of its square.
        heads, nexts = np.full((_RING, _SQUARES, 2), NEVER), np.full((keys, _RING), -1)
        self.lists = places, at, near, partners, count, heads, nexts

    def push(self, key: IntArray, t: IntArray, x: FloatArray, y: FloatArray) -> Pairs:
        """The closing times that are known by these reports, of pairs that are near enough."""
        asked = self.size, self.advance, self.gap, self.reach
        pairs, means = _followed(key, t, x, y, self.last, self.held, self.lists, *asked)
        a, b, at = pairs[:, 0], pairs[:, 1], pairs[:, 2] * self.advance
        return Pairs(
            np.concatenate([a, b]), np.concatenate([b, a]), np.tile(at, 2), np.concatenate([means, means])
        )
