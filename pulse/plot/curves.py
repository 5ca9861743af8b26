"""Convert segments and tuples of one key to drawable curves: exact while they are few, else thinned per column of pixels.

Few pieces are drawn exactly: each its own stroke, so that a jump between two is a jump and a hole is a hole. Of many only the
envelope is visible, so the smallest and the largest value of all pieces in each column of the picture are drawn; the renderer's
input is bounded for any size of model, and no peak is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.extrema import bounds
from pulse.plot.style import COLUMNS

EXACT = 1000  # at most so many pieces are drawn one by one
_PER_CURVE = 24  # instants of a piece that is not a line
_AT_A_TIME = 1 << 19  # pieces per step of thinning, which bounds its memory
_TOUCHING = 2e-6  # seconds between two consecutive pieces, for rounding


class DrawnPieces(NamedTuple):
    """Segments of one key by their start: references (µs), ranges, coefficients ``(n, k)`` and bounds."""

    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    c: FloatArray
    err: FloatArray

    @property
    def origin(self) -> int:
        """Return the instant that seconds are counted from."""
        return int(self.ref[0]) if len(self.ref) else 0

    @property
    def offset(self) -> FloatArray:
        """Return the seconds from the origin to each reference."""
        return (self.ref - self.origin) / 1e6

    def chosen(self, rows: Any) -> DrawnPieces:
        return DrawnPieces(*(column[rows] for column in self))


NO_POINTS: tuple[Any, FloatArray, FloatArray] = (np.zeros(0, "datetime64[us]"), np.zeros(0), np.zeros(0))


class Curve(NamedTuple):
    """A drawable curve: instants, the smallest and largest value there, and the tube around them; NaN ends a stroke.

    ``low`` and ``high`` differ where pieces were thinned. ``jumps`` are (instant, before, after), ``holes`` (begin, end),
    ``points`` (instant, value, err) of segments that are single instants.
    """

    at: Any
    low: FloatArray
    high: FloatArray
    tube_low: FloatArray
    tube_high: FloatArray
    thinned: bool
    jumps: tuple[Any, FloatArray, FloatArray] = NO_POINTS
    holes: Sequence[tuple[Any, Any]] = ()
    points: tuple[Any, FloatArray, FloatArray] = NO_POINTS


def instants(origin: int, seconds: Any) -> Any:
    """Convert seconds since an origin to ``datetime64[us]``."""
    moved: Any = origin + np.round(np.asarray(seconds, float) * 1e6).astype(np.int64)
    return moved.astype("datetime64[us]")


def curve(pieces: DrawnPieces, *, columns: int = COLUMNS, exact: int = EXACT) -> Curve:
    """Convert segments of one key to a curve; more than ``exact`` of them are thinned to at most ``columns`` columns."""
    order = np.argsort(pieces.offset + pieces.lo, kind="stable")
    pieces = pieces.chosen(order)
    is_point = pieces.lo == pieces.hi
    points, pieces = pieces.chosen(is_point), pieces.chosen(~is_point)
    dots = _points(points, columns)
    if not len(pieces.ref):
        empty, none, _ = NO_POINTS
        return Curve(empty, none, none, none, none, False, holes=[], points=dots)
    if len(pieces.ref) > exact:
        return _thinned(pieces, columns, dots)
    return _exact(pieces, dots)


def _exact(pieces: DrawnPieces, points: tuple[Any, FloatArray, FloatArray]) -> Curve:
    n, k = pieces.c.shape
    count = 2 if k <= 2 else _PER_CURVE
    local = pieces.lo[:, None] + (pieces.hi - pieces.lo)[:, None] * np.linspace(0.0, 1.0, count)
    values = evaluate(np.repeat(pieces.c, count, axis=0), local.ravel()).reshape(n, count)
    seconds = pieces.offset[:, None] + local
    ended = np.full((n, 1), np.nan)  # one stroke per piece, so that none crosses a jump or a hole
    at = instants(pieces.origin, np.hstack([seconds, seconds[:, -1:]]).ravel())
    value = np.hstack([values, ended]).ravel()
    err = np.repeat(pieces.err, count + 1)
    end, begin = seconds[:-1, -1], seconds[1:, 0]
    touching = begin - end <= _TOUCHING
    before, after = values[:-1, -1], values[1:, 0]
    scale = 1e-9 * np.maximum(np.abs(before), np.abs(after))
    jumps = touching & (np.abs(before - after) > scale)
    holes = list(
        zip(instants(pieces.origin, end[~touching]), instants(pieces.origin, begin[~touching]), strict=True)
    )
    return Curve(
        at,
        value,
        value,
        value - err,
        value + err,
        False,
        (instants(pieces.origin, begin[jumps]), before[jumps], after[jumps]),
        holes,
        points,
    )


def _thinned(pieces: DrawnPieces, columns: int, points: tuple[Any, FloatArray, FloatArray]) -> Curve:
    start, end = pieces.offset + pieces.lo, pieces.offset + pieces.hi
    first, last = float(start.min()), float(end.max())
    width = (last - first) / columns
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    tube_low, tube_high = low.copy(), high.copy()
    for begin in range(0, len(start), _AT_A_TIME):
        some = pieces.chosen(slice(begin, begin + _AT_A_TIME))
        rows, column, lo, hi = _cut(some, pieces.origin, first, width, columns)
        smallest, largest, _ = bounds(np.ascontiguousarray(some.c[rows]), lo, hi)
        for into, of, take in ((low, smallest, np.minimum), (high, largest, np.maximum)):
            take.at(into, column, of)
        np.minimum.at(tube_low, column, smallest - some.err[rows])
        np.maximum.at(tube_high, column, largest + some.err[rows])
    held = low <= high
    at = instants(pieces.origin, first + width * (np.arange(columns) + 0.5))
    low, high, tube_low, tube_high = (np.where(held, one, np.nan) for one in (low, high, tube_low, tube_high))
    edges = instants(pieces.origin, first + width * np.arange(columns + 1))
    holes = [(edges[i], edges[j]) for i, j in runs(~held)]
    return Curve(at, low, high, tube_low, tube_high, True, holes=holes, points=points)


def _cut(
    pieces: DrawnPieces, origin: int, first: float, width: float, columns: int
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Cut the pieces at the columns' edges: row, column and range, relative to the row's reference, of each part."""
    offset = (pieces.ref - origin) / 1e6
    start, end = offset + pieces.lo, offset + pieces.hi
    left = np.clip(np.floor((start - first) / width), 0, columns - 1).astype(np.int64)
    right = np.clip(np.ceil((end - first) / width) - 1, left, columns - 1).astype(np.int64)
    count = right - left + 1
    rows = np.repeat(np.arange(len(start)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    column = left[rows] + within
    lo = np.maximum(pieces.lo[rows], first + width * column - offset[rows])
    hi = np.minimum(pieces.hi[rows], first + width * (column + 1) - offset[rows])
    return rows, column, lo, np.maximum(lo, hi)


def _points(points: DrawnPieces, columns: int) -> tuple[Any, FloatArray, FloatArray]:
    value = evaluate(points.c, points.lo) if len(points.ref) else np.zeros(0)
    kept = thin(points.offset + points.lo, value, columns)
    at = instants(points.origin, (points.offset + points.lo)[kept])
    return at, value[kept], points.err[kept]


def thin(seconds: FloatArray, values: FloatArray, columns: int = COLUMNS) -> IntArray:
    """Choose the tuples to draw: of each column the first, the last, the smallest and the largest, in the order of time.

    >>> thin(np.arange(8.0), np.array([0.0, 5, 1, 2, 3, 9, 4, 0]), 1).tolist()
    [0, 5, 7]
    """
    n = len(seconds)
    if n <= 4 * columns:
        return np.argsort(seconds, kind="stable")
    order = np.argsort(seconds, kind="stable")
    s, v = seconds[order], values[order]
    width = (s[-1] - s[0]) / columns or 1.0
    column = np.minimum((s - s[0]) // width, columns - 1).astype(np.int64)
    begins = np.flatnonzero(np.r_[True, np.diff(column) > 0])
    ends = np.r_[begins[1:], n] - 1
    ranked = np.lexsort((v, column))
    kept = np.unique(np.r_[begins, ends, ranked[begins], ranked[ends]])
    chosen: IntArray = order[kept]
    return chosen


def runs(held: BoolArray) -> list[tuple[int, int]]:
    """Return the stretches ``[begin, end)`` in which the mask holds.

    >>> runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.r_[False, held, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
