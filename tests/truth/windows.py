"""Windows over the truth: sums, averages, extrema, per key and over all keys, at closing times.

A window closing at ``t`` covers ``[t - size, t)``; it has a result where that lies within one run (semantics 3.5). Closing
times are multiples of ``advance`` since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tests.truth.pieces import SECOND, Long, Track


def closing_times(track: Track, size: int, advance: int) -> Any:
    """The closing times of a track's windows, microseconds."""
    return _closings(*track.runs, size, advance)


def _closings(begins: Any, ends: Any, size: int, advance: int) -> Any:
    parts = [
        np.arange(-(-(int(b) + size) // advance) * advance, int(e) + 1, advance, dtype=np.int64)
        for b, e in zip(begins, ends, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


class Integral:
    """The integral of one attribute from its key's first instant on, constant in holes; value times microseconds.

    Kept as the integral of the difference to one value, so that sums do not grow with time and small differences survive.
    """

    def __init__(self, track: Track, name: str) -> None:
        self.track, self.name = track, name
        first, last = track.first[name].astype(Long), track.last[name].astype(Long)
        self.base = first[0] if len(first) else Long(0)
        length = (track.end - track.begin).astype(Long)
        self.before = np.append(Long(0), np.cumsum(((first - self.base) + (last - self.base)) / 2 * length))
        self.covered = np.append(0, np.cumsum(track.end - track.begin))

    def to(self, t: Any) -> tuple[Any, Any]:
        """Up to each instant: integral of value minus base, and microseconds covered."""
        track = self.track
        i = np.searchsorted(track.begin, t, side="right") - 1
        inside = i >= 0
        j = np.maximum(i, 0)
        stop = np.minimum(t, track.end[j])
        length = (stop - track.begin[j]).astype(Long)
        first = track.first[self.name][j].astype(Long)
        here = track.inside(self.name, j, stop)
        area = ((first - self.base) + (here - self.base)) / 2 * length
        return np.where(inside, self.before[j] + area, 0), np.where(
            inside, self.covered[j] + (stop - track.begin[j]), 0
        )

    def over(self, t: Any, size: int) -> Any:
        """Sums over ``[t - size, t)``, value times seconds, of what of it is covered."""
        area, covered = self.to(t)
        area_before, covered_before = self.to(t - size)
        return ((area - area_before) + self.base * (covered - covered_before)) / SECOND


def window_sums(track: Track, name: str, size: int, advance: int) -> tuple[Any, Any]:
    """Closing times and ``∫ x dt`` over each window, in value times seconds."""
    t = closing_times(track, size, advance)
    return t, Integral(track, name).over(t, size) if len(t) else np.zeros(0, dtype=Long)


def window_averages(track: Track, name: str, size: int, advance: int) -> tuple[Any, Any]:
    """Closing times and the time-weighted averages."""
    t, total = window_sums(track, name, size, advance)
    return t, total * SECOND / size


def macd(track: Track, name: str, short: int, long: int, advance: int) -> tuple[Any, Any]:
    """Closing times that both windows have, and average over the short one minus average over the long one."""
    t = closing_times(track, max(short, long), advance)
    if not len(t):
        return t, np.zeros(0, dtype=Long)
    integral = Integral(track, name)
    return t, integral.over(t, short) * SECOND / short - integral.over(t, long) * SECOND / long


def window_extrema(track: Track, name: str, size: int, advance: int, function: str) -> tuple[Any, Any]:
    """Closing times and the least or greatest value in each window: infimum or supremum over ``[t - size, t)``."""
    t = closing_times(track, size, advance)
    return t, _extrema_over(track, name, t - size, t, function)


def _extrema_over(track: Track, name: str, start: Any, stop: Any, function: str) -> Any:
    """Extrema over ``[start, stop)``, each within one run."""
    if not len(start):
        return np.zeros(0)
    best = np.minimum if function == "min" else np.maximum
    first, last = track.first[name], track.last[name]
    i = np.searchsorted(track.begin, start, side="right") - 1
    j = np.searchsorted(track.begin, stop, side="left") - 1  # the last piece that the window touches
    left = track.inside(name, i, start)
    right = track.inside(name, j, stop)
    result = best(left, right).astype(Long)
    # Ends of pieces i … j-1 and begins of i+1 … j lie inside the window.
    inner = i < j
    corners = best(last, np.append(first[1:], last[-1])) if len(last) else last
    if inner.any():
        pairs = np.stack([i[inner], j[inner]], axis=1).ravel()
        result[inner] = best(result[inner], best.reduceat(corners, pairs)[::2])
    return result


def window_ends(track: Track, name: str, size: int, advance: int, function: str) -> tuple[Any, Any]:
    """Closing times, and the value as each window opens (``first``), or its limit as it closes (``last``)."""
    t = closing_times(track, size, advance)
    return t, ends_over(track, name, t - size, t, function)


def ends_over(track: Track, name: str, start: Any, stop: Any, function: str) -> Any:
    """Values at ``start``, or limits from the left at ``stop``, each within one run."""
    if not len(start):
        return np.zeros(0)
    if function == "first":
        return track.inside(name, np.searchsorted(track.begin, start, side="right") - 1, start)
    return track.inside(name, np.searchsorted(track.begin, stop, side="left") - 1, stop)


def window_instants(track: Track, name: str, size: int, advance: int, function: str) -> tuple[Any, Any]:
    """Closing times, and the first and last instant at which each window reaches its extremum, in seconds from its closing."""
    t = closing_times(track, size, advance)
    return t, instants_over(track, name, t - size, t, function)


def instants_over(track: Track, name: str, start: Any, stop: Any, function: str) -> Any:
    """First and last instant (w, 2) of the least (``min_at``) or greatest value, in seconds from ``stop``, ends included."""
    sign = 1 if function == "min_at" else -1
    found = np.zeros((len(start), 2), dtype=Long)
    for place, (a, b) in enumerate(zip(start, stop, strict=True)):
        rows = np.arange(
            np.searchsorted(track.begin, a, side="right") - 1, np.searchsorted(track.begin, b, side="left")
        )
        begin, end = np.maximum(track.begin[rows], a), np.minimum(track.end[rows], b)
        value = sign * np.concatenate([track.inside(name, rows, one) for one in (begin, end)])
        at = np.concatenate((begin, end))[value == value.min()]
        found[place] = (at.min() - b) / Long(SECOND), (at.max() - b) / Long(SECOND)
    return found


def moments_over(tracks: Sequence[tuple[Track, str]], start: Any, stop: Any) -> tuple[Any, Any]:
    """Means (n, w) and covariances (n, n, w) of attributes over ``[start, stop)``, each within one run of every track.

    Piece by piece about the value that the first has as the window opens, in long doubles.
    """
    n, w = len(tracks), len(start)
    means, both = np.zeros((n, w), Long), np.zeros((n, n, w), Long)
    for place in range(w):
        a, b = Long(start[place]), Long(stop[place])
        cuts = np.unique(
            np.concatenate([[a, b], *(one.begin[(one.begin > a) & (one.begin < b)] for one, _ in tracks)])
        )
        at, length = cuts[:-1], np.diff(cuts).astype(Long)
        first, last = [], []
        for track, name in tracks:
            row = np.searchsorted(track.begin, at, side="right") - 1
            first.append(track.inside(name, row, at).astype(Long))
            last.append(track.inside(name, row, cuts[1:]).astype(Long))
        centre = [one[0] for one in first]
        u, v = ([x - c for x, c in zip(side, centre, strict=True)] for side in (first, last))
        mean = [((x + y) / 2 * length).sum() / (b - a) for x, y in zip(u, v, strict=True)]
        for i in range(n):
            means[i, place] = mean[i] + centre[i]
            for j in range(n):
                p, q, r, s = u[i] - mean[i], v[i] - mean[i], u[j] - mean[j], v[j] - mean[j]
                both[i, j, place] = ((2 * p * r + p * s + q * r + 2 * q * s) / 6 * length).sum() / (b - a)
    return means, both


def statistic_of(function: str, means: Any, both: Any) -> Any:
    """A statistic of moments, NaN where it is undefined; of a regression the dependent attribute comes first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if function in ("stddev", "variance"):
            return np.sqrt(both[0, 0]) if function == "stddev" else both[0, 0]
        if function == "covar":
            return both[0, 1]
        if function == "corr":
            return both[0, 1] / np.sqrt(both[0, 0] * both[1, 1])
        slope = both[0, 1] / both[1, 1]
        return slope if function == "regr_slope" else means[0] - slope * means[1]


def window_statistics(
    track: Track, names: Sequence[str], size: int, advance: int, function: str
) -> tuple[Any, Any]:
    """Closing times, and a statistic of attributes over each window."""
    t = closing_times(track, size, advance)
    return t, statistic_of(function, *moments_over([(track, name) for name in names], t - size, t))


def union_runs(all_tracks: Iterable[Track]) -> tuple[Any, Any]:
    """Stretches of time in which some key has a value."""
    parts = [one.runs for one in all_tracks]
    begin, end = np.concatenate([b for b, _ in parts]), np.concatenate([e for _, e in parts])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    opens = np.flatnonzero(np.append(True, begin[1:] > end[:-1]))
    return begin[opens], end[np.append(opens[1:], len(end)) - 1]


def window_sums_of_all(all_tracks: list[Track], name: str, size: int, advance: int) -> tuple[Any, Any]:
    """The sum over the keys that are there, summed over each window."""
    t = _closings(*union_runs(all_tracks), size, advance)
    total = np.zeros(len(t), dtype=Long)
    for track in all_tracks:
        if len(track.begin) and len(t):
            total += Integral(track, name).over(t, size)
    return t, total


def window_extrema_of_all(
    all_tracks: list[Track], name: str, size: int, advance: int, function: str
) -> tuple[Any, Any]:
    """The extremum over the keys that are there (the envelope's) in each window."""
    t = _closings(*union_runs(all_tracks), size, advance)
    worst = Long(np.inf if function == "min" else -np.inf)
    best = np.minimum if function == "min" else np.maximum
    result = np.full(len(t), worst)
    for track in all_tracks:
        for begin, end in zip(*track.runs, strict=True):
            # Of a window that a run only partly covers, the part counts.
            some = np.flatnonzero((t > begin) & (t - size < end))
            if len(some):
                start, stop = np.maximum(t[some] - size, begin), np.minimum(t[some], end)
                result[some] = best(result[some], _extrema_over(track, name, start, stop, function))
    return t, result


def table(parts: Iterable[tuple[Any, Any, Any]], key: str) -> pd.DataFrame:
    """One frame of (key, closing times, values): columns key, t (microseconds), value."""
    frames = [pd.DataFrame({key: name, "t": t, "value": value.astype(float)}) for name, t, value in parts]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({key: [], "t": [], "value": []})
