"""Join groups by a condition other than equal keys: for :class:`~pulse.operators.relational.join.Join`.

1 Transforms: as :mod:`~pulse.operators.relational.equi_join`, with fewer pairs and fewer rows. Where a predicate above bounds the
  distance of two positions, groups are paired only if hulls of a few of their segments come within reach at a common instant
  (:mod:`pulse.kernels.pieces.proximity_sweep`). For a pair, with ``q(t) = (x1 - x2)^2 + (y1 - y2)^2`` and ``e`` the bound of the
  distance's error, only rows in which ``q <= (reach + e)^2`` somewhere are emitted: in no other can the predicate hold, not even
  possibly. Where it bounds the average over a window of size ``w``, some instant of the window must be within ``reach + e``; rows
  within ``w`` of such instants are emitted, so that those windows are complete; incomplete windows could not satisfy it.
2 Bounds: emitted rows are unchanged. ``e = hypot(ex1 + ex2, ey1 + ey2)``. Pruned rows cause nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.expression import TRUE, Expression
from pulse.kernels.pieces.align import Cells, Pieces, align_pair, coefficients_at
from pulse.kernels.pieces.coarse_tracks import hulls
from pulse.kernels.pieces.neighbourhoods import around
from pulse.kernels.pieces.proximity_sweep import Tracks, near_pairs
from pulse.kernels.polynomial.arithmetic import add, multiply, subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets
from pulse.kernels.polynomial.signs import LE, sign_ranges
from pulse.kernels.rounding import magnitudes
from pulse.kernels.status import NOT_FINITE, ZERO_POLYNOMIAL
from pulse.operators.data.relation import Relation
from pulse.operators.relational.equi_join import (
    all_pairs,
    common_cells,
    joined,
    matching_pairs,
    named,
    split_condition,
)

_ROWS = 1 << 18  # rows that are joined before they are pruned
_HULL = 32  # segments in a hull: the sweep is that much shorter, and that many of either side are aligned
_FEW = 3  # segments in a hull for pairs of groups: a third of the sweep, for a quarter more candidate pairs
_ROUNDING = 64 * 2.0**-52  # of a value, relative to the sum of magnitudes it was computed from
_FARTHEST = 1e300  # boxes are clipped there, which separates none
APPROXIMATED = 0.05  # of the reach: the error allowed to approximated distances where positions are exact
_GRACE = 1e-6  # seconds around a window, so that rounding of an instant never makes it incomplete


class Nearness(NamedTuple):
    """A condition that positions are within ``reach`` of each other: at the instant, or on average over ``window`` microseconds.

    ``left`` and ``right`` are the columns (x, y) of each side. ``slack`` is added to the reach where the query compares
    an approximation of the distance: twice the bound of the approximation's error.
    """

    left: tuple[str, str]
    right: tuple[str, str]
    reach: float
    window: int = 0
    slack: float = 0.0


@dataclass(frozen=True)
class PairJoin:
    """A join of near pairs: ``columns`` are the plan node's, as in a join; only key conditions of ``condition`` apply here."""

    near: Nearness | None
    condition: Expression
    columns: Columns

    def pairs(self, left: Relation, right: Relation) -> IntArray:
        """Return the pairs of groups ``(P, 2)`` that may satisfy the condition and come near, ascending."""
        left, right = named(left, right, self.columns)
        keys, _ = split_condition(self.condition, left.columns, right.columns)
        if self.near is None:
            pairs = all_pairs(left, right)
        elif self.near.reach + self.near.slack < 0.0:
            pairs = np.empty((0, 2), np.int64)
        else:
            own = _coarse(tracks(left, self.near.left))
            same = _same_positions(left, right, self.near)
            others = None if same else _coarse(tracks(right, self.near.right))
            pairs = near_pairs(own, others, self.near.reach + self.near.slack)
        return pairs if keys == TRUE else matching_pairs(left, right, pairs, keys)

    def segments(self, left: Relation, right: Relation, pairs: IntArray | None = None) -> Relation:
        """Join ``pairs`` (default :meth:`pairs`), keeping rows that can affect the predicate on the distance."""
        left, right = named(left, right, self.columns)
        instantly = self.near is not None and self.near.window == 0
        # Which of two rows that begin at one instant contains a point depends on all rows beside it.
        if pairs is None and instantly and not (left.is_point.any() or right.is_point.any()):
            pairs, cells = self._met(left, right)
        else:
            pairs = self.pairs(left, right) if pairs is None else pairs
            cells = self.cells(left, right, pairs)
        return joined(left, right, pairs, cells, self.columns)

    def _met(self, left: Relation, right: Relation) -> tuple[IntArray, Cells]:
        """Compute :meth:`pairs` and :meth:`cells` in one pass, for nearness at an instant.

        The sweep finds hulls of many segments that come near, and only segments of those hulls are aligned.
        """
        near = self.near
        assert near is not None
        reach = near.reach + near.slack
        keys, _ = split_condition(self.condition, left.columns, right.columns)
        if reach < 0.0:
            return np.empty((0, 2), np.int64), _side_by_side(left, right, np.empty((0, 2, 2), np.int64))
        own = tracks(left, near.left)
        same = _same_positions(left, right, near)
        others = own if same else tracks(right, near.right)
        hull, spans, group = hulls(own, _HULL)
        other_hull, other_spans, other_group = (hull, spans, group) if same else hulls(others, _HULL)
        met = near_pairs(hull, None if same else other_hull, reach)
        of_groups = group[met[:, 0]] * max(right.groups, 1) + other_group[met[:, 1]]
        order = np.argsort(of_groups, kind="stable")
        met, of_groups = met[order], of_groups[order]
        codes, counts = np.unique(of_groups, return_counts=True)
        pairs = np.stack(np.divmod(codes, max(right.groups, 1)), axis=1)
        if keys != TRUE:
            matching = matching_pairs(left, right, pairs, keys)
            chosen = np.isin(codes, matching[:, 0] * max(right.groups, 1) + matching[:, 1])
            met, pairs, counts = met[np.repeat(chosen, counts)], matching, counts[chosen]
        sides = np.stack((spans[met[:, 0]], other_spans[met[:, 1]]), axis=1)
        sizes = (sides[:, :, 1] - sides[:, :, 0]).sum(axis=1)
        parts = [
            _relevant(left, right, _side_by_side(left, right, chunk), near, (own.box, others.box))
            for chunk in _stretches(sides, sizes, _ROWS)
        ]
        cells = _concatenated(parts)
        ends = np.concatenate(([0], np.cumsum(counts)))
        return pairs, cells._replace(offsets=cells.offsets[ends])

    def cells(self, left: Relation, right: Relation, pairs: IntArray) -> Cells:
        """Align ``pairs`` and keep the cells that can matter; both sides use the names of the join's columns."""
        if self.near is None:
            return common_cells(left, right, pairs)
        own = position_boxes(left, self.near.left)
        same = _same_positions(left, right, self.near)
        boxes = own, own if same else position_boxes(right, self.near.right)
        parts = [
            _relevant(left, right, common_cells(left, right, chunk), self.near, boxes)
            for chunk in chunks(left, right, pairs, _ROWS)
        ]
        return _concatenated(parts)


def tracks(relation: Relation, position: tuple[str, str]) -> Tracks:
    """Return the relation's pieces with the boxes of their positions, grown by the bound of the distance's error."""
    boxes = position_boxes(relation, position)
    return Tracks(relation.ref, relation.lo, relation.hi, relation.offsets, boxes)


def _coarse(track: Tracks) -> Tracks:
    """Merge a track into hulls of a few segments; tracks that come near have hulls that do."""
    hull, _, group = hulls(track, _FEW)
    return hull._replace(offsets=np.searchsorted(group, np.arange(len(track.offsets))))


def position_boxes(relation: Relation, position: tuple[str, str]) -> FloatArray:
    """Return ``(x0, x1, y0, y1)`` per row: all its positions, grown on every side by ``hypot(ex, ey)`` and by rounding.

    Each axis grows by both errors, because the hypotenuse bounds a distance's error in any direction.
    """
    grow = np.hypot(*(relation.err[name] for name in position))
    box = np.empty((len(relation), 4))
    with np.errstate(over="ignore", invalid="ignore"):
        for a, name in enumerate(position):
            c = relation.models[name]
            low, high, _ = bounds(c, relation.lo, relation.hi)
            room = grow + _ROUNDING * magnitudes(c, relation.lo, relation.hi)
            box[:, 2 * a], box[:, 2 * a + 1] = low - room, high + room
    # A position that is not finite could be anywhere.
    unknown = np.isnan(box)
    box[unknown] = np.broadcast_to((-np.inf, np.inf) * 2, box.shape)[unknown]
    return box.clip(-_FARTHEST, _FARTHEST)


def _same_positions(left: Relation, right: Relation, near: Nearness) -> bool:
    """Test whether both sides are one relation under two names: then a pair is near whenever its reverse is."""
    return (
        left.ref is right.ref
        and left.offsets is right.offsets
        and all(
            left.models[a] is right.models[b] and left.err[a] is right.err[b]
            for a, b in zip(near.left, near.right, strict=True)
        )
    )


def chunks(left: Relation, right: Relation, pairs: IntArray, rows: int) -> list[IntArray]:
    """Split pairs into chunks of about this many rows; without pairs, one empty chunk."""
    sizes = np.diff(left.offsets)[pairs[:, 0]] + np.diff(right.offsets)[pairs[:, 1]]
    return _stretches(pairs, sizes, rows)


def _stretches(pairs: IntArray, sizes: IntArray, rows: int) -> list[IntArray]:
    chunk = np.cumsum(sizes) // rows
    return np.split(pairs, np.flatnonzero(np.diff(chunk)) + 1)


def _side_by_side(left: Relation, right: Relation, spans: IntArray) -> Cells:
    """Align runs of rows: ``spans[i]`` are the begin and end of a run of left, and of one of right."""
    mine, others = Pieces(left.ref, left.lo, left.hi), Pieces(right.ref, right.lo, right.hi)
    return align_pair(mine, others, spans[:, 0], spans[:, 1])


def _concatenated(parts: list[Cells]) -> Cells:
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate(([0], np.cumsum(counts)))
    ref, lo, hi, index = (
        np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)
    )
    return Cells(offsets, ref, lo, hi, index)


def _relevant(
    left: Relation, right: Relation, cells: Cells, near: Nearness, boxes: tuple[FloatArray, FloatArray]
) -> Cells:
    """Keep the cells, whole or in part, that can affect a predicate on the distance.

    The boxes of their segments rule most cells out; distances are computed only for the others.
    """
    some = np.flatnonzero(_boxes_within(boxes, cells.index, near.reach + near.slack))
    closer = Cells(cells.offsets, cells.ref[some], cells.lo[some], cells.hi[some], cells.index[some])
    q, limit = _squared(left, right, closer, near)
    within = _comes_within(q, limit, closer)
    if near.window == 0:
        rows = some[within]
        lo, hi = cells.lo[rows], cells.hi[rows]
    else:
        times = _times_within(q, limit, closer, within)
        counts = np.zeros(len(cells.ref), np.int64)
        counts[some] = np.diff(times.offsets)
        chosen = np.concatenate(([0], np.cumsum(counts))), times.bounds
        pieces = Pieces(cells.ref, cells.lo, cells.hi)
        rows, ranges = around(pieces, cells.offsets, chosen, near.window / 1e6 + _GRACE)
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
    return Cells(np.searchsorted(rows, cells.offsets), cells.ref[rows], lo, hi, cells.index[rows])


def _boxes_within(boxes: tuple[FloatArray, FloatArray], index: IntArray, reach: float) -> BoolArray:
    """Test whether the boxes of a cell's two segments are at most ``reach`` apart on both axes, up to rounding."""
    a, b = boxes[0].take(index[:, 0], axis=0), boxes[1].take(index[:, 1], axis=0)
    reach *= 1.0 + _ROUNDING
    gap = np.maximum(a[:, 0::2] - b[:, 1::2], b[:, 0::2] - a[:, 1::2])
    within: BoolArray = (gap[:, 0] <= reach) & (gap[:, 1] <= reach)
    return within


def _squared(left: Relation, right: Relation, cells: Cells, near: Nearness) -> tuple[FloatArray, FloatArray]:
    """Return ``q`` of each cell, and ``(reach + e)^2`` plus the rounding that ``q`` may have lost."""
    squares, errors = [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for a, b in zip(near.left, near.right, strict=True):
            d = subtract(
                coefficients_at(cells, 0, left.ref, left.models[a]),
                coefficients_at(cells, 1, right.ref, right.models[b]),
            )
            squares.append(multiply(d, d))
            errors.append(left.err[a][cells.index[:, 0]] + right.err[b][cells.index[:, 1]])
        q = add(*squares)
        reach = near.reach + near.slack + np.hypot(*errors)
        limit = reach * reach * (1.0 + _ROUNDING) + _ROUNDING * magnitudes(q, cells.lo, cells.hi)
    return q, limit


def _comes_within(q: FloatArray, limit: FloatArray, cells: Cells) -> BoolArray:
    """Test whether ``q <= limit`` somewhere in the cell; values that are not finite count as near."""
    least, _, _ = bounds(q, cells.lo, cells.hi)
    near: BoolArray = ~(least > limit)
    return near


def _times_within(q: FloatArray, limit: FloatArray, cells: Cells, within: BoolArray) -> IntervalSets:
    """Solve ``q <= limit`` for the cells that come ``within``; points and unsolvable cells stay whole."""
    rows = np.flatnonzero(within)
    lo, hi = cells.lo[rows], cells.hi[rows]
    difference = q[rows]
    with np.errstate(over="ignore", invalid="ignore"):
        difference[:, 0] -= limit[rows]
    sets, status = sign_ranges(difference, lo, hi, LE)
    counts = np.diff(sets.offsets)
    whole = (status == NOT_FINITE) | (status == ZERO_POLYNOMIAL) | (counts == 0)
    counts = np.where(whole, 1, counts)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    ranges, ends = np.empty((offsets[-1], 2)), np.full(offsets[-1], LOWER, np.uint8)
    at = offsets[:-1][whole]
    ranges[at, 0], ranges[at, 1] = lo[whole], hi[whole]
    ends[at[lo[whole] == hi[whole]]] = LOWER | UPPER
    solved = np.repeat(~whole, counts)
    used = np.repeat(~whole, np.diff(sets.offsets))
    ranges[solved], ends[solved] = sets.bounds[used], sets.ends[used]
    of_cell = np.zeros(len(within), np.int64)
    of_cell[rows] = counts
    return IntervalSets(np.concatenate(([0], np.cumsum(of_cell))), ranges, ends)
