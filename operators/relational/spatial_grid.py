"""Partition segments by a space-time grid, so that pairs that come near meet, and are solved, in exactly one place.

This distributes a query; it is not an operator of one. Time is cut into *buckets*, the plane into square *cells*, which are
hashed to a fixed number of **places** a bucket: an outlying position then goes to all places, not to millions of cells. Of every
group, the *portion* in ``[B - margin, B + bucket)`` goes to the places of all cells that its bounding box touches, grown by half
the reach. Two portions that come within reach then have overlapping boxes, so overlapping ranges of cells, and one of the shared
cells is the *home* of the pair, which is solved in the place of that cell::

    iy  .---.---.---.---.
        |   | a | a |   |       cells of a: ix 1..2, iy 1..2; of b: ix 2..3, iy 0..1
        .---.---.---.---.
        |   | a |a b| b |       home: the larger of the two first cells on either axis, (2, 1)
        .---.---.---.---.
        |   |   | b | b |
        '---'---'---'---' ix

A bucket covers the times in it; the margin is the earlier time that windows above need. Results of a place are cut to
``[B, B + bucket)`` afterwards (:func:`clip`), so that each pair and time is solved exactly once.

1. Segments are cut in time and repeated. 2. Bounds stay, drift too: a portion's integrals start no later than its key's.
3. to 5. Bounds, revisions and accents pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import cut_rows, extents
from pulse.operators.relational.proximity_join import APPROXIMATED, position_boxes

_SIDE = 1 << 15  # cells lie in -_SIDE .. _SIDE - 1 on either axis; farther positions go to the outermost
_SAMPLE = 256  # groups sampled to choose a cell
_HANDFUL = 6.0  # cells that a portion touches, averaged over positions of the cells' corners; 14 in the worst position
_CROWD = 64  # cells per place; a range with more is assumed to touch all places


@dataclass(frozen=True)
class ResolvedGrid:
    """A grid with its numbers: ``bucket`` and ``margin`` in microseconds; ``position`` None: by time only.

    A margin means that the query averages over windows. The cells of a bucket are hashed to ``places`` places; place ``p``
    of bucket ``b`` has the number ``b * places + p``.
    """

    position: tuple[str, str] | None
    reach: float
    bucket: int
    margin: int
    cell: float
    places: int = 1

    def __post_init__(self) -> None:
        if self.bucket <= 0 or self.margin < 0:
            raise ValueError(
                f"grid: expected bucket > 0 and margin >= 0, got {self.bucket} and {self.margin}"
            )
        if self.places < 1:
            raise ValueError(f"grid: expected at least one place, got {self.places}")
        if not (0.0 < self.cell < np.inf and 0.0 <= self.reach < np.inf):
            raise ValueError(
                f"grid: expected finite cell > 0 and reach >= 0, got {self.cell} and {self.reach}"
            )


@dataclass(frozen=True, eq=False)
class Portions:
    """A relation with a group for each bucket and group that has rows in it, sorted by bucket, then group.

    ``bucket`` is its number (bucket ``b`` starts at ``b * size``), ``group`` the group of the original.
    """

    relation: Relation
    bucket: IntArray
    group: IntArray


@dataclass(frozen=True, eq=False)
class Scattered:
    """A relation with a group for each portion and place, sorted by place; ``ranges`` ``(G, 4)`` are the portion's cells."""

    place: IntArray
    relation: Relation
    ranges: IntArray


def portions(relation: Relation, bucket: int, margin: int) -> Portions:
    """Cut each group into ``[B - margin, B + bucket)`` for all buckets; both in microseconds."""
    begin, end = extents(relation)
    first = begin // bucket
    counts = (end + margin - 1) // bucket - first + 1
    rows = np.repeat(np.arange(len(relation)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows]
    lo, hi, keep = cut_rows(relation, rows, number * bucket - margin, (number + 1) * bucket)
    rows, number, lo, hi = rows[keep], number[keep], lo[keep], hi[keep]
    order = np.argsort(number, kind="stable")
    rows, number = rows[order], number[order]
    group = relation.group[rows]
    starts = np.ones(len(rows), bool)
    starts[1:] = (number[1:] != number[:-1]) | (group[1:] != group[:-1])
    at = np.flatnonzero(starts)
    chosen = pa.array(group[at])
    keys = tuple(column.take(chosen) for column in relation.keys)
    cut = relation._pick(rows, keys, np.append(at, len(rows)), lo=lo[order], hi=hi[order])
    return Portions(cut, number[at], group[at])


def places(portion: Relation, position: tuple[str, str], reach: float, cell: float) -> IntArray:
    """Return the cells ``(ix0, ix1, iy0, iy1)``, inclusive, that each group's box touches, grown by errors and half the reach."""
    box = _group_boxes(portion, position)
    grow = 0.5 * reach * (1.0 + 2.0**-40)
    with np.errstate(over="ignore"):
        low = np.floor((box[:, 0::2] - grow) / cell).clip(-_SIDE, _SIDE - 1)
        high = np.floor((box[:, 1::2] + grow) / cell).clip(-_SIDE, _SIDE - 1)
    return np.stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1]), axis=1).astype(np.int64)


def averaged_reach(relation: Relation, position: tuple[str, str], reach: float) -> float:
    """Return the reach for one side of a pair whose average distance is compared.

    The query averages an approximation, whose error the join adds to the reach (``Nearness.slack``).
    Half of the result grows this side's boxes, so that both sides together cover the larger of their errors.
    """
    errors = max(float(relation.err[name].max(initial=0.0)) for name in position)
    return (1.0 + APPROXIMATED) * reach + 2.0 * errors


def scattered(relation: Relation, grid: ResolvedGrid) -> Scattered:
    """Assign all portions to all their places at once."""
    cut = portions(relation, grid.bucket, grid.margin)
    if grid.position is None:
        ranges = np.zeros((len(cut.bucket), 4), np.int64)
    else:
        reach = averaged_reach(relation, grid.position, grid.reach) if grid.margin else grid.reach
        ranges = places(cut.relation, grid.position, reach, grid.cell)
    portion, dealt = _dealt(ranges, grid.places)
    place = cut.bucket[portion] * grid.places + dealt
    order = np.argsort(place, kind="stable")
    chosen = portion[order]
    return Scattered(place[order], cut.relation.select_groups(chosen), ranges[chosen])


def scatter(relation: Relation, grid: ResolvedGrid) -> Iterator[tuple[int, Relation, IntArray]]:
    """Yield ``(place, relation, ranges)`` for each place that receives rows, ascending; ``ranges`` are its groups' cells."""
    whole = scattered(relation, grid)
    distinct, cuts = np.unique(whole.place, return_index=True)
    ends = [*cuts[1:].tolist(), len(whole.place)]
    for place, begin, end in zip(distinct.tolist(), cuts.tolist(), ends, strict=False):
        yield place, whole.relation.select_groups(np.arange(begin, end)), whole.ranges[begin:end]


def cell_place(ix: IntArray, iy: IntArray, places: int) -> IntArray:
    """Hash cells to ``places`` places, neighbours usually to different ones."""
    mixed = ((ix + _SIDE) * 0x9E3779B1 + (iy + _SIDE) * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    place: IntArray = (mixed ^ (mixed >> 13)) % places
    return place


def places_of_cells(cells: tuple[int, int, int, int], places: int) -> frozenset[int]:
    """Return the places of all cells of a range ``(ix0, ix1, iy0, iy1)``."""
    return frozenset(_dealt(np.array([cells]), places)[1].tolist())


def _dealt(ranges: IntArray, places: int) -> tuple[IntArray, IntArray]:
    """Map ranges ``(ix0, ix1, iy0, iy1)`` to places, each pair once; a very large range goes to all places."""
    along = ranges[:, 3] - ranges[:, 2] + 1
    counts = (ranges[:, 1] - ranges[:, 0] + 1) * along
    large = counts > _CROWD * places
    few = np.flatnonzero(~large)
    of = np.repeat(few, counts[few])
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts[few]) - counts[few], counts[few])
    ix, iy = np.divmod(number, along[of])
    dealt = np.unique(of * places + cell_place(ix + ranges[of, 0], iy + ranges[of, 2], places))
    everywhere = (np.flatnonzero(large)[:, None] * places + np.arange(places)).ravel()
    return np.divmod(np.concatenate([dealt, everywhere]), places)


@dataclass(frozen=True, eq=False)
class PairHome:
    """One of the places that cells are hashed to, and the cells of the groups of either side."""

    place: int
    places: int
    left: IntArray
    right: IntArray

    def keep(self, pairs: IntArray) -> IntArray:
        """Keep the pairs ``(P, 2)`` of left and right groups whose home cell belongs to this place."""
        left, right = self.left[pairs[:, 0]], self.right[pairs[:, 1]]
        ix, iy = np.maximum(left[:, 0], right[:, 0]), np.maximum(left[:, 2], right[:, 2])
        own: IntArray = pairs[cell_place(ix, iy, self.places) == self.place]
        return own


def cell_size(relation: Relation, position: tuple[str, str], reach: float, bucket: int) -> float:
    """Choose a cell size, from a sample, so that a portion touches few cells: at least ``2 * reach``, and about a box's size.

    All sides of a join need the same size: take the largest of theirs.
    """
    stride = -(-relation.groups // _SAMPLE)
    sample = relation.select_groups(np.arange(0, relation.groups, max(stride, 1)))
    box = _group_boxes(portions(sample, bucket, 0).relation, position)
    if len(box) == 0:
        return max(2.0 * reach, 1.0)
    width, height = box[:, 1] - box[:, 0] + reach, box[:, 3] - box[:, 2] + reach
    # Use half of the numbered cells, in case other groups lie farther out.
    cell = max(
        2.0 * reach,
        float(np.median(np.maximum(width, height))),
        float(np.abs(box).max()) / (_SIDE // 2),
        1e-9,
    )
    with np.errstate(over="ignore"):
        while ((width / cell + 1.0) * (height / cell + 1.0)).mean() > _HANDFUL:
            cell *= 2.0
    return cell


def _group_boxes(relation: Relation, position: tuple[str, str]) -> FloatArray:
    """Return the box of each group; all groups have rows."""
    box = position_boxes(relation, position)
    if relation.groups == 0:
        return box
    low = np.minimum.reduceat(box[:, 0::2], relation.offsets[:-1])
    high = np.maximum.reduceat(box[:, 1::2], relation.offsets[:-1])
    return np.stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1]), axis=1)
