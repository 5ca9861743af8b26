"""Compare the truths before and after revisions: find the time ranges on which they differ (semantics 2.2, 2.3, 7.2).

The truth of a key is a sequence of *pieces* between tuples (:mod:`pulse.kernels.fit.truth_intervals`), each a line, a constant or
silent after its first instant. The ends of the pieces before and after the revisions cut time into *cells*, on each of which both
truths are one line or undefined::

    before   |------------|------|        a tuple in the middle is deleted, one is inserted at the end
    after    |-------------------|----|
    cells    |            |      |    |   changed, changed, new
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.kernels.fit.truth_intervals import (
    FRESH,
    LINEAR,
    NO_TIME,
    POINT,
    RUN,
    SAMPLES,
    Intervals,
    intervals,
)
from pulse.operators.data.tuple_columns import values
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.apply_revisions import Corrected, dense

NONE = -1


@dataclass(frozen=True, eq=False)
class TruthPieces:
    """The truth of some tuples: pieces by key and time, and the points that no piece covers.

    ``rows[n]``: the tuples' rows in the table both truths share; ``t``, ``v`` their times and values. ``found`` are the intervals
    without the points, ``point`` the tuples that are points.
    """

    rows: IntArray
    t: IntArray
    v: FloatArray
    found: Intervals
    key: IntArray  # per piece
    begin: IntArray
    end: IntArray
    first: FloatArray  # [A, pieces]
    last: FloatArray
    point: IntArray
    point_key: IntArray

    @property
    def opener(self) -> IntArray:
        """Return the row of the shared table whose tuple opens each piece."""
        return self.rows[self.found.index[:, 0]]

    @property
    def starts(self) -> BoolArray:
        """Return whether each piece begins a run."""
        begins: BoolArray = self.found.flag == RUN
        return begins


def pieces(rows: IntArray, corrected: Corrected, v: FloatArray, spec: FitSpec) -> TruthPieces:
    """Return the truth of these rows (by key and time) of the shared table with values ``v[A, all]``."""
    key, t = corrected.key[rows], corrected.time[rows]
    own = np.ascontiguousarray(v[:, rows])
    change = np.ascontiguousarray(corrected.change[rows]) if len(corrected.change) else corrected.change
    fresh = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(rows)])
    found = intervals(
        t,
        own,
        np.append(fresh, len(rows)),
        spec.truth,
        change,
        np.full(len(fresh), NO_TIME, dtype=np.int64),
        max_gap=-1 if spec.max_gap is None else spec.max_gap,
        holes=spec.nonfinite == "hole",
        ends=None if corrected.ends is None else corrected.ends[rows],
    )
    is_point = found.flag == POINT
    index = found.index[~is_point]
    first = own[:, index[:, 0]]
    last = np.where((spec.truth == LINEAR)[:, None], own[:, index[:, 1]], first)
    point = found.index[is_point, 0]
    # The last of equal timestamps counts: a point where a piece begins is superseded.
    superseded = among(key[point], t[point], key[index[:, 0]], t[index[:, 0]])
    point = point[~superseded]
    # So is a point that another point of its instant follows.
    twin = np.append((np.diff(key[point]) == 0) & (np.diff(t[point]) == 0), False)[: len(point)]
    point = point[~twin]
    return TruthPieces(
        rows,
        t,
        own,
        Intervals(np.ascontiguousarray(index), found.flag[~is_point], found.verdict),
        key[index[:, 0]],
        t[index[:, 0]],
        t[index[:, 1]],
        first,
        last,
        point,
        key[point],
    )


def among(key: IntArray, time: IntArray, keys: IntArray, begins: IntArray) -> BoolArray:
    """Return which of the instants occur in the second set."""
    ids = dense(np.concatenate([key, keys]), np.concatenate([time, begins]))
    return np.isin(ids[: len(key)], ids[len(key) :])


@dataclass(frozen=True, eq=False)
class TruthCells:
    """Time ranges of one key on which the truth changed; ``before`` and ``after`` index pieces, or are NONE.

    ``y[4, A, c]``: the old truth at begin and end, the new truth at begin and end.
    """

    key: IntArray
    begin: IntArray
    end: IntArray
    before: IntArray
    after: IntArray
    y: FloatArray
    moves: BoolArray  # an unmodelled attribute changed, or a segment must begin: no model can stay unchanged
    differs: BoolArray  # [A, c] the attributes in which the truth changed

    @property
    def is_new(self) -> BoolArray:
        """Return where the old truth is undefined."""
        new: BoolArray = self.before == NONE
        return new

    @property
    def is_gone(self) -> BoolArray:
        """Return where the new truth is undefined."""
        gone: BoolArray = self.after == NONE
        return gone

    def take(self, which: Any) -> TruthCells:
        """Select cells."""
        return TruthCells(
            self.key[which],
            self.begin[which],
            self.end[which],
            self.before[which],
            self.after[which],
            self.y[:, :, which],
            self.moves[which],
            self.differs[:, which],
        )


@dataclass(frozen=True, eq=False)
class TruthDiff:
    """Both truths, the changed cells, and the withdrawn and added points (tuples of each).

    At ``break_time`` a run newly begins (``opened``) or no longer begins: later integrals count from another instant.
    """

    old: TruthPieces
    new: TruthPieces
    cells: TruthCells
    points_old: IntArray
    points_new: IntArray
    break_key: IntArray
    break_time: IntArray
    opened: BoolArray


def compare(corrected: Corrected, spec: FitSpec) -> TruthDiff:
    """Compare the truths of the tuples before and after the revisions."""
    v = values(corrected.both, spec.schema)
    old = pieces(corrected.before, corrected, v, spec)
    new = pieces(corrected.after, corrected, v, spec)
    m, n = len(old.key), len(new.key)
    key = np.concatenate([old.key, old.key, new.key, new.key])
    time = np.concatenate([old.begin, old.end, new.begin, new.end])
    ids = dense(key, time)
    old_begin, old_end, new_begin, new_end = np.split(ids, [m, 2 * m, 2 * m + n])
    count = int(ids.max(initial=-1)) + 1
    at_key, at = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    at_key[ids], at[ids] = key, time
    cell = np.arange(max(count - 1, 0))
    before, after = _covering(old_begin, old_end, cell), _covering(new_begin, new_end, cell)
    some = (before != NONE) | (after != NONE)
    cell, before, after = cell[some], before[some], after[some]
    cells, begins = _cells(old, new, at_key[cell], at[cell], at[cell + 1], before, after, spec, corrected)
    changed = cells.moves | cells.differs.any(axis=0) | cells.is_new | cells.is_gone
    both = ~cells.is_new & ~cells.is_gone
    starts_old = begins[0] & _at(old.starts, before)
    starts_new = begins[1] & _at(new.starts, after)
    broken = np.flatnonzero(both & (starts_old != starts_new))
    gone, came = _points(old, new, corrected)
    return TruthDiff(
        old,
        new,
        cells.take(changed),
        gone,
        came,
        cells.key[broken],
        cells.begin[broken],
        starts_new[broken],
    )


def _covering(begin: IntArray, end: IntArray, cell: IntArray) -> IntArray:
    """Return per cell the piece that covers it."""
    if not len(begin):
        return np.full(len(cell), NONE)
    at = np.searchsorted(begin, cell, side="right") - 1
    return np.where((at >= 0) & (end[np.maximum(at, 0)] > cell), at, NONE)


def _at(flags: BoolArray, which: IntArray) -> BoolArray:
    """Gather flags of pieces, False for NONE."""
    return flags[which] & (which != NONE) if len(flags) else np.zeros(len(which), dtype=bool)


def _cells(
    old: TruthPieces,
    new: TruthPieces,
    key: IntArray,
    begin: IntArray,
    end: IntArray,
    before: IntArray,
    after: IntArray,
    spec: FitSpec,
    corrected: Corrected,
) -> tuple[TruthCells, tuple[BoolArray, BoolArray]]:
    """Build all cells, and masks of those at which a piece of either truth begins."""
    y = np.concatenate([_ends(old, before, begin, end), _ends(new, after, begin, end)])
    begins_old = (before != NONE) & (_of(old.begin, before) == begin)
    begins_new = (after != NONE) & (_of(new.begin, after) == begin)
    differs = (y[0] != y[2]) | (y[1] != y[3])
    # A sample is true at its tuple only: a deleted sample constrains nothing.
    silent = ~begins_new | (begins_old & (y[0] == y[2]))
    differs = np.where((spec.truth == SAMPLES)[:, None], ~silent, differs)
    same = (before != NONE) & (after != NONE)
    differs &= same
    moves = np.zeros(len(key), dtype=bool)
    if len(corrected.change):
        moves = same & (_of(corrected.change[old.opener], before) != _of(corrected.change[new.opener], after))
    must_begin = begins_new & _at(new.found.flag == FRESH, after)
    moves |= same & must_begin & ~(begins_old & _at(old.found.flag != 0, before))
    return TruthCells(key, begin, end, before, after, y, moves, differs), (begins_old, begins_new)


def _of(column: Any, which: IntArray) -> Any:
    return column[which] if len(column) else np.zeros(len(which), dtype=np.int64)


def _ends(truth: TruthPieces, which: IntArray, begin: IntArray, end: IntArray) -> FloatArray:
    """Evaluate a truth at the ends of cells: ``[2, A, cells]``."""
    attributes = len(truth.v)
    if not len(truth.key):
        return np.zeros((2, attributes, len(which)))
    first, last = truth.first[:, which], truth.last[:, which]
    whole = truth.end[which] - truth.begin[which]
    out = []
    for at in (begin, end):
        part = (at - truth.begin[which]) / whole
        out.append(np.where(part >= 1.0, last, first + (last - first) * part))
    return np.where(which != NONE, np.array(out), 0.0)


def _points(old: TruthPieces, new: TruthPieces, corrected: Corrected) -> tuple[IntArray, IntArray]:
    """Return the tuples (of each truth) that are points only before, and only after."""
    where = [old.rows[old.point], new.rows[new.point]]
    rows = np.concatenate(where)
    ids = dense(corrected.key[rows], corrected.time[rows])
    here, there = np.split(ids, [len(where[0])])
    # One point per instant: sorted and unique on both sides.
    _, a, b = np.intersect1d(here, there, assume_unique=True, return_indices=True)
    same = (old.v[:, old.point[a]] == new.v[:, new.point[b]]).all(axis=0)
    if len(corrected.change):
        same &= corrected.change[where[0][a]] == corrected.change[where[1][b]]
    gone, came = np.ones(len(here), dtype=bool), np.ones(len(there), dtype=bool)
    gone[a[same]] = False
    came[b[same]] = False
    return old.point[gone], new.point[came]
