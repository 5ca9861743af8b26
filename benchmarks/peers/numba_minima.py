"""The smallest value of a sliding window, tuple by tuple, with the state that goes from batch to batch::

    closing   (keys,)           the next closing time of a key; NEVER before its first tuple
    complete  (keys,)           the first closing time whose window opened after the key's first tuple
    place     (keys,)           which window or pane closes next
    windows   (keys, windows)   minima of the windows that are open, or of the panes that are over

``room`` is at least as many results as the batch has. Results are keys, closing times and values, in order of closing.
"""

from __future__ import annotations

import numpy as np

from pulse.benchmarks.peers.compiled import compiled

NEVER = -(1 << 62)


@compiled
def by_panes(key, t, x, closing, complete, place, windows, low, size, advance, room):
    """A running minimum between closing times, ``low`` (keys,), so many of them to a window."""
    count = size // advance
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now, value = key[i], t[i], x[i]
        if now >= closing[g]:
            if closing[g] == NEVER:
                closing[g] = (now // advance + 1) * advance
                complete[g] = -(-now // advance) * advance + size
            while closing[g] <= now:
                windows[g, place[g]] = low[g]
                low[g] = np.inf
                place[g] = place[g] + 1 if place[g] + 1 < count else 0
                if closing[g] >= complete[g]:
                    best = np.inf
                    for w in range(count):
                        best = min(best, windows[g, w])
                    found[0][m], found[1][m], found[2][m] = g, closing[g], best
                    m += 1
                closing[g] += advance
        if value < low[g]:
            low[g] = value
    return found[0][:m], found[1][:m], found[2][:m]


@compiled
def by_open_windows(key, t, x, closing, complete, place, windows, size, advance, room):
    """The paper's: every tuple lowers each window that it falls into."""
    count = size // advance
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    m = 0
    for i in range(t.shape[0]):
        g, now = key[i], t[i]
        if closing[g] == NEVER:
            closing[g] = (now // advance + 1) * advance
            complete[g] = -(-now // advance) * advance + size
        while closing[g] <= now:
            if closing[g] >= complete[g]:
                found[0][m], found[1][m], found[2][m] = g, closing[g], windows[g, place[g]]
                m += 1
            windows[g, place[g]] = np.inf
            place[g] = place[g] + 1 if place[g] + 1 < count else 0
            closing[g] += advance
        value = x[i]
        for w in range(count):
            windows[g, w] = min(windows[g, w], value)
    return found[0][:m], found[1][:m], found[2][:m]


def fresh(keys, size, advance):
    """State before the first tuple: closing, complete, place, windows."""
    empty = np.full((keys, size // advance), np.inf)
    return np.full(keys, NEVER), np.zeros(keys, np.int64), np.zeros(keys, np.int64), empty
