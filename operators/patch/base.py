"""Share the steps of all patches, which correct results from stored results without the input around them (semantics 7.5).

A patch aligns old and new rows of a window's input per changed range (a group each), cut where either changes; fills the time
around them with a neutral value; and cuts the stored results where the patch changes::

    old      [--a--)[----b----)              changes      fill[a→c)[a→d)[b→d)fill
    new      [-c-)[-----d-----)              window of it    (closing times)
                                             results      [----)[--------)[------)     + , or the larger of both

Results may exist at closing times only (semantics 3.8). A window that closes at ``t`` covers ``[t - size, t)``: it excludes a
step that begins at ``t`` and one that ended at ``t - size``, so the result at ``t`` may differ from that at every instant nearby.
There the effect of changes is evaluated directly at the closing time, under the same conditions and with the same bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.instants import gaps, nearest_microsecond, tolerances
from pulse.kernels.pieces.align import Cells, Pieces, align, align_pair
from pulse.kernels.windows.average_on_grid import GridWindows
from pulse.operators.data.relation import Relation

Count = Callable[[IntArray, IntArray], IntArray]
"""A function that counts the tuples of a group (first argument) in the window closing at an instant (second), for each pair."""


class PatchInput(NamedTuple):
    """The rows that ``new`` replaces, and the results to patch; ``around`` contains all windows of the rows.

    ``count_of`` returns how many tuples windows hold.
    """

    old: Relation
    new: Relation
    results: Relation
    around: tuple[IntArray, IntArray]
    count_of: Count | None = None


@dataclass(frozen=True)
class Patch:
    """The patch of a window function. ``every``: results are those at its multiples; 0: at all closing times."""

    function: str
    argument: str
    output: str
    size: int
    every: int = 0

    def check(self, old: Relation, new: Relation, results: Relation) -> BoolArray:
        """Return which groups can be patched."""
        raise NotImplementedError

    def patched(self, given: PatchInput) -> Relation:
        """Replace the old by the new rows in the results, all patchable."""
        raise NotImplementedError


class PatchFunction(NamedTuple):
    """A piecewise polynomial for each group: pieces ``offsets[g]:offsets[g + 1]``."""

    offsets: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    c: FloatArray


class Compared(NamedTuple):
    """The cells of each group's old and new rows; ``index[:, 0]`` are rows of the old, ``index[:, 1]`` of the new, or -1.

    ``alike`` marks groups whose old and new rows cover the same time with the same certainty and, up to :data:`SLIGHT`, the same
    bounds; ``more_err`` and ``more_drift`` are the largest increases of the bounds.
    """

    cells: Cells
    alike: BoolArray
    more_err: FloatArray
    more_drift: FloatArray


SLIGHT = 1e-6
"""The relative difference at which bounds still count as equal: correcting a model adds its rounding to them."""


def compared(old: Relation, new: Relation, argument: str, *, bounds: bool) -> Compared:
    """Align old and new rows; without ``bounds``, err and drift may differ."""
    both = Relation.concat([_with_drift(one, argument) for one in (old, new)])
    n = old.groups
    both = both.select_groups(np.arange(2 * n).reshape(2, n).T.ravel())
    offsets = np.stack([both.offsets[:-1:2], both.offsets[1::2], both.offsets[2::2]], axis=1)
    cells = align(both.ref, both.lo, both.hi, offsets, outer=True)
    a, b = cells.index[:, 0], cells.index[:, 1]
    good = (a >= 0) & (b >= 0) & (both.certainty[a] == both.certainty[b])
    more = [np.zeros(n), np.zeros(n)]
    if bounds:
        group = np.repeat(np.arange(n), np.diff(cells.offsets))
        for largest, limits in zip(more, (both.err[argument], both.drift[argument]), strict=True):
            grown = _grown(limits[a], limits[b])
            good &= np.abs(grown) <= SLIGHT * np.minimum(limits[a], limits[b])
            np.maximum.at(largest, group, np.where(good, grown, 0.0))
    bad = np.concatenate(([0], np.cumsum(~good)))[cells.offsets]
    # Translate to rows of the two relations: each group's old rows precede its new ones.
    ahead_old = np.concatenate(([0], np.cumsum(np.diff(new.offsets))))[:-1]
    group = np.repeat(np.arange(n), np.diff(cells.offsets))
    index = np.stack(
        [
            np.where(a >= 0, a - ahead_old[group], -1),
            np.where(b >= 0, b - old.offsets[group + 1], -1),
        ],
        axis=1,
    )
    return Compared(cells._replace(index=index), np.diff(bad) == 0, *more)


def _grown(old: FloatArray, new: FloatArray) -> FloatArray:
    """Return the increase of the bounds; zero where they are equal, also where both are infinite."""
    same = old == new
    found: FloatArray = np.subtract(new, old, out=np.zeros(len(old)), where=~same)
    return found


def _with_drift(relation: Relation, argument: str) -> Relation:
    """Keep only the attribute's drift, infinite where it is unknown."""
    drift = relation.drift.get(argument)
    return replace(
        relation, drift={argument: np.full(len(relation), np.inf) if drift is None else drift}, lineage=None
    )


def filled(cells: Cells, c: FloatArray, around: tuple[IntArray, IntArray], fill: FloatArray) -> PatchFunction:
    """Extend the cells' polynomials to ``[around[0][g], around[1][g])`` (microseconds) by the constant ``fill[g]``.

    Every group has a cell, and its time extends beyond its cells.
    """
    n = len(cells.offsets) - 1
    m = len(cells.ref)
    first, last = cells.offsets[:-1], cells.offsets[1:] - 1
    group = np.repeat(np.arange(n), np.diff(cells.offsets))
    gap = gaps(cells.ref[:-1], cells.hi[:-1], cells.ref[1:], cells.lo[1:])
    slack = tolerances(cells.ref[:-1], cells.hi[:-1], cells.ref[1:], cells.lo[1:])
    holes = np.flatnonzero((gap > slack) & (group[1:] == group[:-1]))
    begin = (around[0] - cells.ref[first]) / 1e6
    end = (around[1] - cells.ref[last]) / 1e6
    ref = np.concatenate([cells.ref, cells.ref[first], cells.ref[last], cells.ref[holes]])
    lo = np.concatenate([cells.lo, begin, cells.hi[last], cells.hi[holes]])
    hi = np.concatenate([cells.hi, cells.lo[first], end, cells.hi[holes] + gap[holes]])
    made = np.zeros((len(ref), c.shape[1]))
    made[:m] = c
    made[m:, 0] = np.concatenate([fill, fill, fill[group[holes]]])
    place = np.concatenate([2 * np.arange(m), 2 * first - 1, 2 * last + 1, 2 * holes + 1])
    of = np.concatenate([group, np.arange(n), np.arange(n), group[holes]])
    order = np.lexsort((place, of))
    offsets = np.searchsorted(of[order], np.arange(n + 1))
    return PatchFunction(offsets, ref[order], lo[order], hi[order], made[order])


def common(results: Relation, function: PatchFunction) -> Cells:
    """Align a group's results and its function: the cells where both are defined."""
    return align_pair(
        Pieces(results.ref, results.lo, results.hi),
        Pieces(function.ref, function.lo, function.hi),
        results.offsets,
        function.offsets,
    )


def recut(
    results: Relation, cells: Cells, models: Mapping[str, FloatArray], err: Mapping[str, FloatArray]
) -> Relation:
    """Cut results to the cells of :func:`common`, with new values."""
    rows = np.ascontiguousarray(cells.index[:, 0])
    return replace(
        results,
        offsets=cells.offsets,
        ref=cells.ref,
        lo=cells.lo,
        hi=cells.hi,
        models=models,
        err=err,
        drift={},
        certainty=results.certainty[rows],
        unmodelled={},
        lineage=None,
    )


def closings(results: Relation) -> IntArray:
    """Return the closing times of results that exist there only."""
    return nearest_microsecond(results.ref, results.lo)


def places(found: GridWindows, results: Relation, every: int) -> IntArray:
    """Locate the results' windows among all that close around them; the time around a group has no hole."""
    stretch = np.searchsorted(found.group, results.group)
    at: IntArray = found.offsets[stretch] + (closings(results) - found.first[stretch]) // every
    return at


def revalued(results: Relation, output: str, value: FloatArray, err: FloatArray) -> Relation:
    """Replace values and bounds of results at closing times."""
    return replace(
        results, models={output: value[:, None]}, err={output: err}, drift={}, unmodelled={}, lineage=None
    )
