"""Pairs of moving things by hand, compiled: who is near whom at the instants of a grid, and how far apart on average.

Positions lie in arrays ``(instants, vessels)``, not a number where a vessel is silent.
"""

from __future__ import annotations

import numpy as np

from pulse.benchmarks.peers.compiled import compiled
from pulse.benchmarks.peers.numba_squares import cell, square

_SQUARES = 1 << 12


@compiled
def positions(begin, t, x, y, vessels, grid, gap, first, out_x, out_y):
    """Where each of ``vessels``, a range, is at the instants ``first · grid`` on: on straight lines between its reports.

    A silence longer than ``gap`` has no line; a run's last instant counts, and so does the first after equal instants.
    """
    for g in range(vessels[0], vessels[1]):
        for i in range(begin[g], begin[g + 1] - 1):
            way = t[i + 1] - t[i]
            if way <= 0 or way > gap:
                continue
            ends = i + 2 == begin[g + 1] or t[i + 2] - t[i + 1] > gap
            k = -(-t[i] // grid)
            while k * grid < t[i + 1] or (ends and k * grid == t[i + 1]):
                part = (k * grid - t[i]) / way
                out_x[k - first, g] = x[i] + (x[i + 1] - x[i]) * part
                out_y[k - first, g] = y[i] + (y[i + 1] - y[i]) * part
                k += 1


@compiled
def close_pairs(x, y, first, reach):
    """Arrays a, b, k: vessels ``a < b`` nearer than ``reach`` at each instant, of which row 0 is ``first``."""
    instants, vessels = x.shape
    head, stamp = np.empty(_SQUARES, np.int64), np.full(_SQUARES, -1, np.int64)
    before, cx, cy = np.empty(vessels, np.int64), np.empty(vessels, np.int64), np.empty(vessels, np.int64)
    found, m = np.empty((1024, 3), np.int64), 0
    limit = reach * reach
    for k in range(instants):
        for g in range(vessels):
            here, there = x[k, g], y[k, g]
            if np.isnan(here):
                continue
            cx[g], cy[g] = cell(here, reach), cell(there, reach)
            if found.shape[0] < m + vessels:
                larger = np.empty((2 * found.shape[0] + vessels, 3), np.int64)
                larger[:m] = found[:m]
                found = larger
            for ix in range(cx[g] - 1, cx[g] + 2):
                for iy in range(cy[g] - 1, cy[g] + 2):
                    place = square(ix, iy, _SQUARES - 1)
                    other = head[place] if stamp[place] == k else -1
                    while other >= 0:
                        # Squares may share a list: a pair is found in the square that is the other's own.
                        if cx[other] == ix and cy[other] == iy:
                            dx, dy = x[k, other] - here, y[k, other] - there
                            if dx * dx + dy * dy < limit:
                                found[m, 0], found[m, 1], found[m, 2] = other, g, first + k
                                m += 1
                        other = before[other]
            place = square(cx[g], cy[g], _SQUARES - 1)
            before[g] = head[place] if stamp[place] == k else -1
            head[place], stamp[place] = g, k
    return found[:m, 0].copy(), found[:m, 1].copy(), found[:m, 2].copy()


@compiled
def mean_distances(codes, x, y, n, reach):
    """Arrays a, b, k, mean: where the mean of the distances over the last ``n`` steps, by trapezoids, is below ``reach``.

    ``codes`` are ``(a · vessels + b) · instants + k``, ascending: every instant at which a pair is nearer than ``reach``. A
    window whose mean is that small holds one, so it closes at most ``n`` instants later.
    """
    instants, vessels = x.shape
    keys, found, m = np.empty((1024, 3), np.int64), np.empty(1024), 0
    d = np.empty(instants + 1)
    i = 0
    while i < codes.shape[0]:
        pair, c0 = codes[i] // instants, codes[i] % instants
        c1 = min(c0 + n, instants - 1)
        i += 1
        # Instants so near to each other that their windows meet are looked at together.
        while i < codes.shape[0] and codes[i] // instants == pair and codes[i] % instants <= c1 + 1:
            c1 = min(codes[i] % instants + n, instants - 1)
            i += 1
        a, b = pair // vessels, pair % vessels
        if keys.shape[0] < m + c1 - c0 + 1:
            larger, values = (
                np.empty((2 * keys.shape[0] + instants, 3), np.int64),
                np.empty(2 * keys.shape[0] + instants),
            )
            larger[:m], values[:m] = keys[:m], found[:m]
            keys, found = larger, values
        total, run = 0.0, 0
        for k in range(max(c0 - n, 0), c1 + 1):
            dx, dy = x[k, a] - x[k, b], y[k, a] - y[k, b]
            d[k] = np.sqrt(dx * dx + dy * dy)
            if np.isnan(d[k]):
                total, run = 0.0, 0
                continue
            total += d[k]
            run += 1
            if run > n + 1:
                total -= d[k - n - 1]
            if run > n and k >= c0:
                mean = (total - (d[k] + d[k - n]) / 2) / n
                if mean < reach:
                    keys[m, 0], keys[m, 1], keys[m, 2], found[m] = a, b, k, mean
                    m += 1
    return keys[:m, 0].copy(), keys[:m, 1].copy(), keys[:m, 2].copy(), found[:m].copy()
