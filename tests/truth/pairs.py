"""The truth of two moving keys: when they are within a distance, and their average distance over windows.

On a common piece the vector between them is a straight line, so its length is the root of a quadratic: ranges come from its
roots, averages from its integral in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tests.truth.pieces import Long, Track
from tests.truth.windows import _closings


@dataclass(frozen=True)
class Common:
    """Common pieces of two tracks: the vector between them goes from ``start`` to ``stop`` (each [2, n])."""

    begin: Any
    end: Any
    start: Any
    stop: Any


def near_pairs(all_tracks: list[Track], reach: float, bucket: int = 600_000_000) -> list[tuple[int, int]]:
    """Pairs (i < j) whose boxes come within ``reach`` in some bucket of time: all that ever do, and some more."""
    low = min(int(one.begin.min()) for one in all_tracks if len(one.begin))
    high = max(int(one.end.max()) for one in all_tracks if len(one.begin))
    buckets = (high - low) // bucket + 1
    box = np.full((4, len(all_tracks), buckets), np.inf)  # min x, min y, -max x, -max y
    for k, one in enumerate(all_tracks):
        first, last = (one.begin - low) // bucket, (one.end - low) // bucket
        edges = [np.minimum(s * one.first[a], s * one.last[a]) for s in (1, -1) for a in ("x", "y")]
        for more in range(int((last - first).max()) + 1 if len(first) else 0):
            some = first + more <= last
            for side, edge in enumerate(edges):
                np.minimum.at(box[side, k], (first + more)[some], edge[some])
    near = np.zeros((len(all_tracks), len(all_tracks)), dtype=bool)
    for b in range(buckets):
        there = np.flatnonzero(np.isfinite(box[0, :, b]))
        x0, y0, x1, y1 = box[:, there, b]
        dx = np.maximum(np.maximum(x0[:, None] + x1[None, :], x0[None, :] + x1[:, None]), 0)
        dy = np.maximum(np.maximum(y0[:, None] + y1[None, :], y0[None, :] + y1[:, None]), 0)
        near[np.ix_(there, there)] |= np.hypot(dx, dy) <= reach
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1))]


def common(a: Track, b: Track) -> Common:
    """Time cut at all ends of both, where both are."""
    cuts = np.unique(np.concatenate([a.begin, a.end, b.begin, b.end]))
    begin, end = cuts[:-1], cuts[1:]
    i, j = (np.maximum(np.searchsorted(one.begin, begin, side="right") - 1, 0) for one in (a, b))
    both = (begin >= a.begin[i]) & (begin < a.end[i]) & (begin >= b.begin[j]) & (begin < b.end[j])
    begin, end, i, j = begin[both], end[both], i[both], j[both]
    start = np.array([a.inside(n, i, begin) - b.inside(n, j, begin) for n in ("x", "y")])
    stop = np.array([a.inside(n, i, end) - b.inside(n, j, end) for n in ("x", "y")])
    return Common(begin, end, start, stop)


def within(a: Track, b: Track, reach: float) -> tuple[Any, Any]:
    """Begins and ends of the parts of common pieces on which the two are nearer than ``reach``."""
    both = common(a, b)
    move = both.stop - both.start
    qa = (move**2).sum(axis=0)
    half = (both.start * move).sum(axis=0)
    qc = (both.start**2).sum(axis=0) - Long(reach) ** 2
    disc = half**2 - qa * qc
    some = np.where(qa > 0, disc > 0, qc < 0)
    # The root of greater size first, the other by the product of both: no cancellation.
    far = -(half + np.where(half >= 0, 1, -1) * np.sqrt(np.maximum(disc, 0)))
    one = far / np.where(qa > 0, qa, 1)
    two = np.where(far != 0, qc / np.where(far != 0, far, 1), 0)
    lo = np.where(qa > 0, np.clip(np.minimum(one, two), 0, 1), 0)
    hi = np.where(qa > 0, np.clip(np.maximum(one, two), 0, 1), 1)
    length = (both.end - both.begin).astype(Long)
    keep = some & (hi > lo)
    return (both.begin + lo * length)[keep], (both.begin + hi * length)[keep]


def distance_at(a: Track, b: Track, t: Any) -> tuple[Any, Any]:
    """The distance at instants, and whether both are there."""
    (ax, there_a), (ay, _) = a.at("x", t), a.at("y", t)
    (bx, there_b), (by, _) = b.at("x", t), b.at("y", t)
    return np.hypot(ax - bx, ay - by), there_a & there_b


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def length_integral(start: Any, stop: Any) -> Any:
    """``∫ |p(s)| ds`` for ``p`` going straight from ``start`` to ``stop`` ([2, n]) while s goes from 0 to 1.

    With ``u`` along the way and ``d`` the distance of the line from the origin it is ``∫ √(u² + d²) du`` over the way's
    length, whose closed form cancels when the way is short against the distance; there the integrand is analytic far
    beyond the piece, and Gauss's rule on 24 points is exact to rounding.
    """
    move = stop - start
    way = np.sqrt((move**2).sum(axis=0))
    safe = np.where(way > 0, way, 1)
    u0, u1 = (start * move).sum(axis=0) / safe, (stop * move).sum(axis=0) / safe
    d = np.abs(start[0] * move[1] - start[1] * move[0]) / safe
    nearest = np.hypot(d, np.where((u0 < 0) & (u1 > 0), 0, np.minimum(np.abs(u0), np.abs(u1))))
    gauss = way <= nearest
    result = np.zeros(start.shape[1], dtype=Long)
    result[~gauss] = ((_primitive(u1, d) - _primitive(u0, d)) / safe)[~gauss]
    if gauss.any():
        p, m = start[:, gauss], move[:, gauss]
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            here = p + m * Long((1 + node) / 2)
            result[gauss] += Long(weight / 2) * np.sqrt((here**2).sum(axis=0))
    return result


def _primitive(u: Any, d: Any) -> Any:
    """``∫₀ᵘ √(v² + d²) dv``."""
    some = d > 0
    ratio = np.where(some, u / np.where(some, d, 1), 0)
    return (u * np.hypot(u, d) + d * d * np.arcsinh(ratio)) / 2


def average_distances(a: Track, b: Track, size: int, advance: int, near: float = np.inf) -> tuple[Any, Any]:
    """Closing times of windows in which both are all the time, and the averages of their distance.

    With ``near`` only of windows in which they come nearer than that: no other average can be below it.
    """
    both = common(a, b)
    times, averages = [], []
    opens = np.flatnonzero(np.append(True, both.begin[1:] != both.end[:-1])) if len(both.begin) else []
    close = within(a, b, near) if near < np.inf else None
    for i, j in pairwise(np.append(opens, len(both.begin)).astype(np.int64)):
        t = _closings(both.begin[i : i + 1], both.end[j - 1 : j], size, advance)
        t = t if close is None else t[_touched(t, size, *close)]
        if len(t):
            run = Common(both.begin[i:j], both.end[i:j], both.start[:, i:j], both.stop[:, i:j])
            upto = _upto(run)
            times.append(t)
            averages.append((upto(t) - upto(t - size)) / size)
    if not times:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=Long)
    return np.concatenate(times), np.concatenate(averages)


def _touched(t: Any, size: int, begin: Any, end: Any) -> Any:
    """Which windows ``[t - size, t)`` meet one of the ascending ranges."""
    i = np.searchsorted(begin, t) - 1  # the last that begins before t
    return (i >= 0) & (end[np.maximum(i, 0)] > t - size) if len(begin) else np.zeros(len(t), dtype=bool)


def _upto(run: Common) -> Any:
    length = (run.end - run.begin).astype(Long)
    before = np.append(Long(0), np.cumsum(length_integral(run.start, run.stop) * length))

    def integral(t: Any) -> Any:
        i = np.clip(np.searchsorted(run.begin, t, side="right") - 1, 0, None)
        part = (t - run.begin[i]).astype(Long)
        start = run.start[:, i]
        here = start + (run.stop[:, i] - start) * (part / length[i])
        return before[i] + length_integral(start, here) * part

    return integral


def all_pairs(all_tracks: list[Track], reach: float) -> Iterator[tuple[tuple[Any, Any], Track, Track]]:
    """The pairs that may come within reach: their keys and tracks, each pair once."""
    for i, j in near_pairs(all_tracks, reach):
        yield (all_tracks[i].key, all_tracks[j].key), all_tracks[i], all_tracks[j]
