"""Overlay two relations: each instant of a key has the row of the first, or where that has none the row of the second.

A row may be in doubt (semantics 3.9): where the first's is not certain, in some truths it is absent and the second's counts. With
values ``a ± ea`` of the first and ``b ± eb`` of the second::

    first      second              row       its error                  its certainty
    certain    any, none           a         ea                         certain
    likely     none                a         ea                         likely
    likely     any                 a         max(ea, |a - b| + eb)      the larger of both
    possible   none, possible      a         ea, or as above            possible
    possible   certain, likely     b         max(eb, |a - b| + ea)      that of the second
    none       any                 b         eb                         that of the second

A truth has ``a`` or ``b`` there, so the row's error covers both; it exists where either does. Rows are cut where the other side's
begin and end if that matters, and keep their references, so that nothing is rounded.

Points of streams of tuples count tuple by tuple. A tuple of each side at one instant is one row, as above. Several are rows of
their own: those of the second are then ``possible`` at most where the model has one of the first, and absent where one of these
is certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.instants import split, tolerances
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.align import align
from pulse.kernels.polynomial.arithmetic import subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import GROWN, evaluation, sum_rounding
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError

_HELD_BACK = np.array([CERTAIN, LIKELY, POSSIBLE, ABSENT], np.uint8)
"""The largest certainty of the second's tuples beside several at one instant, by that of the first's most certain one."""


class _Cells(NamedTuple):
    """Ranges and instants in which neither side changes its row: group ``g`` has the cells ``offsets[g]:offsets[g + 1]``.

    ``first`` and ``second`` are rows, -1 for none; ``most`` is the largest certainty that the second's may have.
    """

    offsets: IntArray
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    first: IntArray
    second: IntArray
    most: CertaintyArray


class _Runs(NamedTuple):
    """Rows of the result: ``row`` counts from ``lo`` to ``hi``, or ``other`` in some truths (-1 for none)."""

    offsets: IntArray
    row: IntArray
    lo: FloatArray
    hi: FloatArray
    other: IntArray
    certainty: CertaintyArray
    of_first: BoolArray


def overlay(
    rows: Relation, pairs: IntArray, keys: tuple[pa.Array, ...], *, tuples: bool, apart: bool = False
) -> Relation:
    """Overlay groups: group ``pairs[g, 0]`` of ``rows`` by ``pairs[g, 1]`` (-1 for none) is group ``g`` of the result.

    ``tuples``: all rows are points at whole microseconds, which count one by one. The drift of a group is known where all of its
    rows are of one side; with ``apart``, for parts of groups, it is not known at all.
    """
    cells = _tuple_cells(rows, pairs) if tuples else _range_cells(rows, pairs)
    runs = _runs(rows, cells, merge=not tuples)
    made = rows._pick(runs.row, keys, runs.offsets, lo=runs.lo, hi=runs.hi)
    drift = {} if apart else _drifts(made, runs)
    err, squares = dict(made.err), dict(made.squares)
    doubt = np.flatnonzero(runs.other >= 0)
    if len(doubt):
        some, other = made.take(doubt), _others(rows, made, runs, doubt)
        for name in err:
            err[name][doubt] = _covering(some, other, name)
        unknown = {name: np.where(runs.other >= 0, np.inf, one.total) for name, one in squares.items()}
        squares = {name: one._replace(total=unknown[name]) for name, one in squares.items()}
    lineage = None if rows.lineage is None else _causes(rows.lineage, runs)
    made = replace(made, err=err, drift=drift, certainty=runs.certainty, lineage=lineage)
    return made.with_squares(squares)


def _range_cells(rows: Relation, pairs: IntArray) -> _Cells:
    spans, offsets = _side_by_side(rows, pairs)
    cells = align(rows.ref[spans], rows.lo[spans], rows.hi[spans], offsets, outer=True)
    place = np.append(spans, -1)  # the last for index -1
    first, second = (place[cells.index[:, side]] for side in (0, 1))
    most = np.full(len(first), CERTAIN, np.uint8)
    return _Cells(cells.offsets, cells.ref, cells.lo, cells.hi, first, second, most)


def _tuple_cells(rows: Relation, pairs: IntArray) -> _Cells:
    spans, offsets = _side_by_side(rows, pairs)
    of = np.repeat(np.arange(2 * len(pairs)), np.diff(offsets, axis=1).reshape(-1))
    group, side = of // 2, of % 2
    at = split(rows.ref[spans], rows.lo[spans])[0]
    order = np.lexsort((side, at, group))
    spans, group, side, at = spans[order], group[order], side[order], at[order]
    fresh = np.ones(len(at), bool)
    fresh[1:] = (group[1:] != group[:-1]) | (at[1:] != at[:-1])
    instant = np.cumsum(fresh) - 1
    instants = int(fresh.sum())
    best = np.zeros(instants, np.uint8)
    np.maximum.at(best, instant[side == 0], rows.certainty[spans[side == 0]])
    counts = np.stack([np.bincount(instant[side == s], minlength=instants) for s in (0, 1)])
    alone = (counts == 1).all(axis=0)[instant]  # one tuple of each side
    kept = ~(alone & (side == 1))
    first = np.where(side == 0, spans, -1)[kept]
    second = np.where(side == 1, spans, -1)
    second[:-1] = np.where(alone[:-1] & (side[:-1] == 0), spans[1:], second[:-1])
    most = np.where(alone, CERTAIN, _HELD_BACK[best[instant]]).astype(np.uint8)[kept]
    second = second[kept]
    lasting = (first >= 0) | (most != ABSENT)
    taken = np.where(first >= 0, first, second)[lasting]
    ends = np.searchsorted(group[kept][lasting], np.arange(len(pairs) + 1))
    return _Cells(
        ends, rows.ref[taken], rows.lo[taken], rows.hi[taken], first[lasting], second[lasting], most[lasting]
    )


def _side_by_side(rows: Relation, pairs: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of each pair, the first's before the second's, and where each side begins and ends: ``(G, 3)``."""
    flat = pairs.reshape(-1)
    starts = np.where(flat >= 0, rows.offsets[flat], 0)
    counts = np.where(flat >= 0, rows.offsets[flat + 1] - rows.offsets[flat], 0)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    spans = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
    return spans, np.stack([offsets[:-1:2], offsets[1::2], offsets[2::2]], axis=1)


def _runs(rows: Relation, cells: _Cells, *, merge: bool) -> _Runs:
    """Decide the row of each cell, and unite consecutive cells of a row to which the other side does not matter."""
    codes = np.append(rows.certainty, ABSENT).astype(np.uint8)  # the last for row -1
    first, second = codes[cells.first], np.minimum(codes[cells.second], cells.most)
    of_first = (first >= LIKELY) | ((first == POSSIBLE) & (second < LIKELY))
    doubt = (first != ABSENT) & (first != CERTAIN) & (second != ABSENT)
    row = np.where(of_first, cells.first, cells.second)
    begin = np.ones(len(row), bool)
    if merge:
        begin[1:] = (row[1:] != row[:-1]) | doubt[1:] | doubt[:-1]
        begin[cells.offsets[:-1][cells.offsets[:-1] < len(row)]] = True
    start = np.flatnonzero(begin)
    last = np.append(start, len(row))[1:] - 1
    row, ref = row[start], rows.ref[row[start]]
    lo = _snapped(ref, (cells.ref[start] - ref) / MICROSECONDS + cells.lo[start], rows.lo[row])
    hi = _snapped(ref, (cells.ref[last] - ref) / MICROSECONDS + cells.hi[last], rows.hi[row])
    # A run has either a range among its cells or one instant.
    instant = np.maximum.reduceat(cells.hi - cells.lo, start) == 0.0 if len(start) else np.zeros(0, bool)
    doubted = doubt[start]
    return _Runs(
        offsets=np.searchsorted(start, cells.offsets),
        row=row,
        lo=lo,
        hi=np.where(instant, lo, hi),
        other=np.where(doubted, np.where(of_first, cells.second, cells.first)[start], -1),
        certainty=np.maximum(first, second)[start],
        of_first=of_first[start],
    )


def _snapped(ref: IntArray, at: FloatArray, end: FloatArray) -> FloatArray:
    """Return the row's own end where a cell's is the same instant, up to rounding."""
    found: FloatArray = np.where(np.abs(at - end) <= tolerances(ref, at, ref, end), end, at)
    return found


def _drifts(made: Relation, runs: _Runs) -> dict[str, FloatArray]:
    """Return the drifts, unknown for groups that have rows of both sides, as each side counts from its own start."""
    mixed = np.zeros(made.groups, bool)
    mixed[made.group[runs.other >= 0]] = True
    some = np.bincount(made.group[runs.of_first], minlength=made.groups)
    mixed |= (some > 0) & (some < np.diff(made.offsets))
    of_row = mixed[made.group]
    return {name: np.where(of_row, np.inf, values) for name, values in made.drift.items()}


def _others(rows: Relation, made: Relation, runs: _Runs, doubt: IntArray) -> Relation:
    """Return the other side's rows in doubtful runs, about the references of their own."""
    offsets = np.searchsorted(doubt, made.offsets)
    lo, hi = made.lo[doubt], made.hi[doubt]
    taken = rows._pick(runs.other[doubt], made.keys, offsets, lo=lo, hi=hi)
    return taken.take(np.arange(len(doubt)), lo=lo, hi=hi, ref=made.ref[doubt])


def _covering(own: Relation, other: Relation, name: str) -> FloatArray:
    """Bound the distance from a row's value to that of either side's truth."""
    a, b = own.models[name], other.models[name]
    with np.errstate(over="ignore", invalid="ignore"):
        apart = subtract(a, b)
        low, high, _ = bounds(apart, own.lo, own.hi)
        rounding = evaluation(apart, own.lo, own.hi) + sum_rounding(apart, a, -b[:, :1], own.lo, own.hi)
        size = np.maximum(np.abs(low), np.abs(high)) + rounding
        covering: FloatArray = np.maximum(own.err[name], (size + other.err[name]) * GROWN)
    if not np.isfinite(covering).all():
        raise DomainError(
            f"coalesce: the difference of both sides' '{name}' at {own.where(int(np.isfinite(covering).argmin()))} is beyond the "
            "range of floating-point numbers; scale the attributes down first"
        )
    return covering


def _causes(lineage: Lineage, runs: _Runs) -> Lineage:
    """Return the causes of the rows, in doubt those of both sides."""
    both = np.stack([runs.row, runs.other], axis=1).reshape(-1)
    counts = 1 + (runs.other >= 0)
    return lineage.gather(np.concatenate(([0], np.cumsum(counts))), both[both >= 0])
