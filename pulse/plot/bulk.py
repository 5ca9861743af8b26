"""Find where nearly all positions of a map lie: a few outliers, far away from all others, would shrink it to a dot.

A position is an outlier if it lies beyond a gap several times as wide as the area of nearly all positions. A track that leads
far away without a gap, such as a voyage, is drawn; so are many positions far away. Outliers are few of the ends of segments,
or last a small part of the time: a straight track is one segment of any number of tuples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.core.segment.batch import SegmentBatch
from pulse.kernels.polynomial.arithmetic import evaluate

_SHARE = 0.01  # of all positions: at most so many are outliers
_LEAST = 20  # positions: with fewer, their number does not identify outliers
_TIME = 0.02  # of all time: segments to and from outliers last at most so long
_GAP = 4.0  # times the width of the area of the others


class Outside(NamedTuple):
    """The number of segments that begin or end far outside, their keys, and the ranges of all others."""

    segments: int
    keys: list[Any]
    across: tuple[float, float]
    up: tuple[float, float]

    @property
    def text(self) -> str:
        """Describe how many segments of how many tracks are not on the map."""
        one = self.segments == 1
        tracks = "1 track" if len(self.keys) == 1 else f"{len(self.keys):,} tracks"
        return f"{self.segments:,} segment{'' if one else 's'} of {tracks} lead{'s' if one else ''} outside the map"


NOTHING_OUTSIDE = Outside(0, [], (0.0, 0.0), (0.0, 0.0))


def outside_bulk(batch: SegmentBatch, across: str = "x", up: str = "y") -> Outside:
    """Return the segments of a map of tracks that lie far outside the area of nearly all positions.

    A key is its only value, or a tuple of values if it has several columns.
    """
    places = [_ends(batch, name) for name in (across, up)]
    found = _beyond(batch, places, [_usual(place.ravel()) for place in places])
    if found.segments or not (batch.hi > batch.lo).any():
        return found
    lasting = np.repeat(batch.hi - batch.lo, 2)
    return _beyond(batch, places, [_usual_in_time(place.ravel(), lasting) for place in places])


def _beyond(batch: SegmentBatch, places: list[FloatArray], usual: list[tuple[float, float]]) -> Outside:
    """Return the segments beyond wide gaps around the usual ranges."""
    width = max((high - low for low, high in usual), default=0.0)
    if not width > 0.0:
        return NOTHING_OUTSIDE
    fences = [_fences(place.ravel(), one, width) for place, one in zip(places, usual, strict=True)]
    within = [(place >= low) & (place <= high) for place, (low, high) in zip(places, fences, strict=True)]
    seen = within[0] & within[1]
    outside = ~seen.all(axis=1)
    if not outside.any():
        return NOTHING_OUTSIDE
    limits = [(float(place[seen].min()), float(place[seen].max())) for place in places]
    return Outside(int(outside.sum()), _keys(batch.filter(outside)), limits[0], limits[1])


def _ends(batch: SegmentBatch, name: str) -> FloatArray:
    """Return where each segment begins and ends, as ``(n, 2)``."""
    c = batch.coefficients(name)
    both: FloatArray = np.column_stack([evaluate(c, batch.lo), evaluate(c, batch.hi)])
    return both


def _usual(values: FloatArray) -> tuple[float, float]:
    """Return the shortest range that holds all but a few values."""
    if not len(values):
        return 0.0, 0.0
    few = max(2, int(_SHARE * len(values))) if len(values) >= _LEAST else 0
    ordered = np.sort(values)
    widths = ordered[len(ordered) - few - 1 :] - ordered[: few + 1]
    first = int(np.argmin(widths))
    return float(ordered[first]), float(ordered[len(ordered) - few - 1 + first])


def _usual_in_time(values: FloatArray, lasting: FloatArray) -> tuple[float, float]:
    """Return the shortest range that holds the ends of segments that last nearly all of the time."""
    order = np.argsort(values, kind="stable")
    ordered, until = values[order], np.cumsum(lasting[order])
    before = until - lasting[order]
    last = np.searchsorted(until, before + (1.0 - _TIME) * until[-1] * (1.0 - 1e-12))
    possible = last < len(ordered)
    first = np.flatnonzero(possible)[np.argmin(ordered[last[possible]] - ordered[possible])]
    return float(ordered[first]), float(ordered[last[first]])


def _fences(values: FloatArray, usual: tuple[float, float], width: float) -> tuple[float, float]:
    """Return the range of near values: up to the first wide gap on either side of the usual range."""
    low, high = usual
    above = np.sort(values[values >= high])
    below = -np.sort(-values[values <= low])
    found = []
    for ordered in (below, above):
        wide = np.flatnonzero(np.abs(np.diff(ordered)) > _GAP * width)
        found.append(float(ordered[wide[0]] if len(wide) else ordered[-1]))
    return found[0], found[1]


def _keys(batch: SegmentBatch) -> list[Any]:
    columns = [batch.column(name).to_pylist() for name in batch.schema.key_names]
    if len(columns) == 1:
        return list(dict.fromkeys(columns[0]))
    return list(dict.fromkeys(zip(*columns, strict=True))) if columns else [()]
