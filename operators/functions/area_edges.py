"""Find when a moving position is near an edge of an area, and on which side it is otherwise.

A position ``p(t)`` within ``(ex, ey)`` of the truth is near an edge from ``a`` to ``b`` where the box ``p ± (ex, ey)`` meets it.
Box and edge are convex, so they meet exactly where they overlap along the normals of their sides (separating axes), with
``d = b - a``::

    |x - (ax + bx) / 2| <= |dx| / 2 + ex
    |y - (ay + by) / 2| <= |dy| / 2 + ey
    |dx (y - ay) - dy (x - ax)| <= |dx| ey + |dy| ex

Each is an inequality of a polynomial in ``t``, solved by roots and signs. Where no edge is near, the whole box lies inside of the
area, or outside: the box is connected and meets no edge. One exact test of a point decides (GEOS, whose orientation tests are
exact). Bounds are widened by the rounding of the polynomials and of deciding their signs, and by the tolerance of the area.

Pairs of rows and edges whose bounding boxes are apart are never looked at (an R-tree of the edges).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pulse.core.area import Area
from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.interval_sets import IntervalSets, intersect
from pulse.kernels.polynomial.signs import RELATIONS, sign_ranges
from pulse.kernels.rounding import magnitudes

_ROWS = 4096  # rows whose pairs with edges are solved at once
# Coefficients of the three polynomials are rounded a few times, evaluating them and deciding a sign 2 k times each.
_ROUNDED = 16 * float(np.finfo(np.float64).eps)


class Tracks(NamedTuple):
    """Positions in rows of time ``[lo, hi)``: coefficients and bounds of both coordinates."""

    x: FloatArray
    y: FloatArray
    ex: FloatArray
    ey: FloatArray
    lo: FloatArray
    hi: FloatArray

    def take(self, rows: IntArray) -> Tracks:
        """Return these rows, which may repeat."""
        return Tracks(*(one[rows] for one in self))

    def without_errors(self) -> Tracks:
        """Return the models as if they were the truth."""
        zero = np.zeros(len(self.lo))
        return self._replace(ex=zero, ey=zero)


class Pieces(NamedTuple):
    """Rows cut so that each piece is on one side, or near an edge: certainties of being inside, and of being outside."""

    row: IntArray
    lo: FloatArray
    hi: FloatArray
    inside: CertaintyArray
    outside: CertaintyArray


class _Shape(NamedTuple):
    polygons: Any
    a: FloatArray  # (edges, 2)
    b: FloatArray
    index: Any


@functools.lru_cache(maxsize=32)
def _shape(wkb: bytes) -> _Shape:
    """Return the polygons of an area, prepared, with their edges and an index of these."""
    import shapely

    polygons = shapely.from_wkb(wkb)
    shapely.prepare(polygons)
    rings = shapely.get_rings(shapely.get_parts(polygons))
    points, ring = shapely.get_coordinates(rings, return_index=True)
    within = (ring[1:] == ring[:-1]) & (points[1:] != points[:-1]).any(axis=1)
    a, b = points[:-1][within], points[1:][within]
    low, high = np.minimum(a, b), np.maximum(a, b)
    return _Shape(polygons, a, b, shapely.STRtree(shapely.box(*low.T, *high.T)))


def cut_pieces(tracks: Tracks, area: Area) -> Pieces:
    """Cut each row where it comes near an edge, leaves its neighbourhood or crosses it; rows of one instant stay whole."""
    near = _near(tracks, area)
    on_edge = _near(tracks.without_errors(), area)
    n = len(tracks.lo)
    rows = np.arange(n)
    row = np.concatenate((rows, rows, *(one.row for one in (near, near, on_edge, on_edge))))
    at = np.concatenate((tracks.lo, tracks.hi, near.begin, near.end, on_edge.begin, on_edge.end))
    steps = np.zeros((len(at), 2), np.int64)
    bounds_of = np.cumsum([2 * n, len(near.row), len(near.row), len(on_edge.row), len(on_edge.row)])
    for place, (kind, step) in enumerate(((0, 1), (0, -1), (1, 1), (1, -1))):
        steps[bounds_of[place] : bounds_of[place + 1], kind] = step
    order = np.lexsort((at, row))
    row, at, depth = row[order], at[order], np.cumsum(steps[order], axis=0)
    same = row[1:] == row[:-1]
    kept = np.flatnonzero(same & (at[1:] > at[:-1]))  # between two different cuts of one row
    instants = np.flatnonzero(tracks.lo == tracks.hi)
    piece = np.concatenate((row[kept], instants))
    lo, hi = (
        np.concatenate((at[kept], tracks.lo[instants])),
        np.concatenate((at[kept + 1], tracks.hi[instants])),
    )
    close = np.concatenate((depth[kept, 0] > 0, near.instant[instants]))
    touched = np.concatenate((depth[kept, 1] > 0, on_edge.instant[instants]))
    order = np.lexsort((lo, piece))
    piece, lo, hi = piece[order], lo[order], hi[order]
    close, touched = close[order], touched[order]
    middle = lo + (hi - lo) / 2
    held = touched | _contains(area, evaluate(tracks.x[piece], middle), evaluate(tracks.y[piece], middle))
    return Pieces(piece, lo, hi, *_certainties(held, close | touched))


def certainties_at(
    x: FloatArray, y: FloatArray, ex: FloatArray, ey: FloatArray, area: Area
) -> tuple[CertaintyArray, CertaintyArray]:
    """Return how certainly each position is inside, and outside."""
    zero = np.zeros(len(x))
    tracks = Tracks(x[:, None], y[:, None], ex, ey, zero, zero)
    near, on_edge = _near(tracks, area).instant, _near(tracks.without_errors(), area).instant
    return _certainties(on_edge | _contains(area, x, y), near | on_edge)


def _certainties(inside: BoolArray, near: BoolArray) -> tuple[CertaintyArray, CertaintyArray]:
    """Return the certainties of inside and outside: certain away from edges."""
    holds = np.where(near, np.uint8(LIKELY), np.uint8(CERTAIN))
    fails = np.where(near, np.uint8(POSSIBLE), np.uint8(ABSENT))
    return np.where(inside, holds, fails), np.where(inside, fails, holds)


def _contains(area: Area, x: FloatArray, y: FloatArray) -> BoolArray:
    import shapely

    found: BoolArray = shapely.contains_xy(_shape(area.wkb).polygons, x, y)
    return found


class _Near(NamedTuple):
    """Ranges of rows, by row and time and disjoint, near an edge; ``instant``: which rows of one instant are."""

    row: IntArray
    begin: FloatArray
    end: FloatArray
    instant: BoolArray


def _near(tracks: Tracks, area: Area) -> _Near:
    instant = np.zeros(len(tracks.lo), bool)
    parts: list[tuple[IntArray, FloatArray, FloatArray]] = []
    for row, edge in _pairs(tracks, area):
        pairs = tracks.take(row)
        point = pairs.lo == pairs.hi
        q, reach = _axes(pairs, area, edge)
        if point.any():
            met = np.all(
                [np.abs(evaluate(one, pairs.lo)) <= r for one, r in zip(q, reach, strict=True)], axis=0
            )
            instant[row[point & met]] = True
            if point.all():
                continue
        sets = _within(q[0], reach[0], pairs)
        for one, r in zip(q[1:], reach[1:], strict=True):
            sets = intersect(sets, _within(one, r, pairs))
        of = np.repeat(row, np.diff(sets.offsets))
        parts.append(_merged(of, sets.bounds[:, 0], sets.bounds[:, 1]))
    if not parts:
        none = np.zeros(0)
        return _Near(np.zeros(0, np.int64), none, none, instant)
    rows, begins, ends = (np.concatenate(one) for one in zip(*parts, strict=True))
    return _Near(rows, begins, ends, instant)


def _pairs(tracks: Tracks, area: Area) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows and the edges whose boxes they meet, rows in order, some rows at a time."""
    import shapely

    low, high = [], []
    for c, err in ((tracks.x, tracks.ex), (tracks.y, tracks.ey)):
        least, most, _ = bounds(c, tracks.lo, tracks.hi)
        room = err + area.tolerance
        room = room + _ROUNDED * (c.shape[1] + 2) * (magnitudes(c, tracks.lo, tracks.hi) + room)
        low.append(least - room)
        high.append(most + room)
    shape = _shape(area.wkb)
    meets = np.ones(
        len(tracks.lo), bool
    )  # the box of all edges: most rows are far from it, and need no box of their own
    for axis in (0, 1):
        meets &= high[axis] >= min(shape.a[:, axis].min(), shape.b[:, axis].min())
        meets &= low[axis] <= max(shape.a[:, axis].max(), shape.b[:, axis].max())
    rows = np.flatnonzero(meets)
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        row, edge = shape.index.query(shapely.box(low[0][part], low[1][part], high[0][part], high[1][part]))
        if len(row):
            order = np.argsort(row, kind="stable")
            yield part[row[order]], edge[order]


def _axes(pairs: Tracks, area: Area, edge: IntArray) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the three polynomials of each pair, and how large they may be where box and edge meet."""
    shape = _shape(area.wkb)
    a, b = shape.a[edge], shape.b[edge]
    d = b - a
    ex, ey = pairs.ex + area.tolerance, pairs.ey + area.tolerance
    x, y = _same_width(pairs.x, pairs.y)
    size_x = magnitudes(x, pairs.lo, pairs.hi) + np.abs(a).max(axis=1) + np.abs(b).max(axis=1) + ex
    size_y = magnitudes(y, pairs.lo, pairs.hi) + np.abs(a).max(axis=1) + np.abs(b).max(axis=1) + ey
    rounded = _ROUNDED * (x.shape[1] + 2)
    across = _lowered(x, (a[:, 0] + b[:, 0]) / 2)
    up = _lowered(y, (a[:, 1] + b[:, 1]) / 2)
    length = np.abs(d[:, 0]) + np.abs(d[:, 1])
    ux, uy = (
        d[:, 0] / length,
        d[:, 1] / length,
    )  # the unit does not matter; this one keeps numbers of their size
    turned = ux[:, None] * _lowered(y, a[:, 1]) - uy[:, None] * _lowered(x, a[:, 0])
    reach = [
        np.abs(d[:, 0]) / 2 + ex + rounded * size_x,
        np.abs(d[:, 1]) / 2 + ey + rounded * size_y,
        np.abs(ux) * (ey + rounded * size_y) + np.abs(uy) * (ex + rounded * size_x),
    ]
    return [across, up, turned], reach


def _within(q: FloatArray, reach: FloatArray, pairs: Tracks) -> IntervalSets:
    """Return the times at which ``|q| <= reach``."""
    below, _ = sign_ranges(_lowered(q, reach), pairs.lo, pairs.hi, RELATIONS["<="])
    above, _ = sign_ranges(_lowered(q, -reach), pairs.lo, pairs.hi, RELATIONS[">="])
    return intersect(below, above)


def _lowered(c: FloatArray, by: FloatArray) -> FloatArray:
    made = c.copy()
    made[:, 0] -= by
    return made


def _same_width(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    width = max(x.shape[1], y.shape[1])
    wide = [np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in (x, y)]
    return wide[0], wide[1]


def _merged(row: IntArray, begin: FloatArray, end: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Merge ranges of a row that overlap or touch."""
    order = np.lexsort((begin, row))
    row, begin, end = row[order], begin[order], end[order]
    if not len(row):
        return row, begin, end
    # The latest end so far in each row: ends by rank, so that rows, which are in order, outweigh them.
    rank = np.empty(len(end), np.int64)
    by_end = np.argsort(end, kind="stable")
    rank[by_end] = np.arange(len(end))
    latest = np.maximum.accumulate(row * len(end) + rank) - row * len(end)
    reached = end[by_end[latest]]
    fresh = np.append(True, (row[1:] != row[:-1]) | (begin[1:] > reached[:-1]))
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(row) - 1)
    return row[fresh], begin[fresh], reached[last]
