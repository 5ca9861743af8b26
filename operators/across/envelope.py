"""Compute the smallest or largest value across keys, at each instant (semantics 3.6).

1 Transforms: the lower or upper envelope of the models of all keys that share ``by``: pieces of the inputs, cut where
  another wins, at the roots of differences. It uses the rows on the model (certain and likely ones); where
  there are only possible rows, those, and the result is possible. A row of the result is certain where some row is,
  else likely (:mod:`pulse.operators.across.membership`). Points take part.
2 Bounds: the true envelope lies between those of ``m - e`` and of ``m + e``; the bound is the largest distance of the
  model's envelope from either on the piece. If all bounds of a group are equal, it is that bound. Where rows take part
  only possibly, a largest value lies between the largest ``m - e`` of certain rows (without any, the smallest
  of all) and the largest ``m + e`` of all; a smallest value likewise. Lines that differ by no more than rounding
  count as equal, so that much is added; constants are compared exactly.
3 Inverts: passes the bound itself to each row that could be the extremum (semantics 4.3); these rows are the lineage.
4 Revises: upstream, by all keys of the group where one of them changed.
5 Accents: aggregate by ``by`` (semantics 8.2): an alteration whose description stays within it acts on results, else
  accumulates.

Envelopes of parts merge into the envelope of the whole, so the same operation merges partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY
from pulse.core.instants import tolerances
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.align import Cells, align, coefficients_at
from pulse.kernels.pieces.envelope import NOISE, envelope
from pulse.kernels.pieces.envelope import EnvelopePieces as Pieces
from pulse.kernels.polynomial.arithmetic import subtract, taylor_shift
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.rounding import magnitudes
from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.membership import presence
from pulse.operators.data.grouping import Regrouped, about_own_start, regroup
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation


@dataclass(frozen=True)
class Envelope(AcrossKeys):
    """The aggregate ``min`` or ``max`` across keys."""

    needs_whole_rows: ClassVar[bool] = True

    @property
    def equations(self) -> tuple[str, ...]:
        sign, kind = ("<", "lower") if self.function == "min" else (">", "upper")
        x, out = self.argument, self.output
        return (
            f"{self.of_keys}: {out}(t) = {kind} envelope of {x}(t)",
            f"{x}(t) - {out}(t) {sign} 0 decides, segment by segment, where a key takes over",
        )

    def segments(self, relation: Relation) -> Relation:
        """Compute the envelope of each group."""
        bare = replace(
            relation,
            models={self.output: relation.models[self.source]},
            err={self.output: relation.err[self.source]},
            drift={},
            unmodelled={},
        )
        if (bare.certainty == CERTAIN).all():
            return self._envelope(bare)
        return self._in_doubt(bare)

    def _envelope(self, relation: Relation) -> Relation:
        """Compute the envelope of rows that are all present and certain."""
        inputs = _functions(regroup(relation, self.by))
        rows = inputs.relation
        c, err = rows.models[self.output], rows.err[self.output]
        upper = self.function == "max"
        found = envelope(rows.ref, rows.lo, rows.hi, c, rows.offsets, inputs.groups, upper=upper)
        made = replace(
            rows,
            columns=self.columns(relation.columns),
            keys=inputs.keys,
            offsets=found.offsets,
            ref=rows.ref[found.source],
            lo=found.lo,
            hi=found.hi,
            models={self.output: c[found.source]},
            err={self.output: err[found.source]},
            certainty=np.full(len(found.source), CERTAIN, np.uint8),
            lineage=None,
        )
        offsets, winners = np.arange(len(made) + 1), found.source
        if not _equal_within(err, _group_of_rows(inputs), len(inputs.groups) - 1):
            made_err, offsets, winners = self._errors(inputs, found)
            made = replace(made, err={self.output: made_err})
        ties = np.repeat(self._ties(inputs), np.diff(found.offsets))
        made = replace(made, err={self.output: made.err[self.output] + ties})
        if rows.lineage is None:
            return made
        return replace(made, lineage=rows.lineage.gather(offsets, winners))

    def _ties(self, inputs: Regrouped) -> FloatArray:
        """Return per group how much two models may differ and still count as equal; constants are compared exactly."""
        rows = inputs.relation
        c = rows.models[self.output]
        ties = np.zeros(len(inputs.groups) - 1)
        if c[:, 1:].any():
            sizes = 4.0 * NOISE * c.shape[1] * magnitudes(c, rows.lo, rows.hi)
            np.maximum.at(ties, _group_of_rows(inputs), sizes)
        return ties

    def _errors(self, inputs: Regrouped, found: Pieces) -> tuple[FloatArray, IntArray, IntArray]:
        """Bound each piece by the envelopes of ``m - e`` and ``m + e``; also return the rows extreme in any of the three."""
        rows, upper = inputs.relation, self.function == "max"
        c, err = rows.models[self.output], rows.err[self.output]
        every = np.arange(len(rows))
        low, high = (_shifted(inputs, self.output, every, sign, upper) for sign in (-1.0, 1.0))
        table = _side_by_side(rows, [_Found(found, c), low, high])
        cells = align(table.ref, table.lo, table.hi, table.offsets)
        near, first, last = about_own_start(cells.ref, cells.lo, cells.hi)
        cells = cells._replace(ref=near, lo=first, hi=last)
        model, below, above = (coefficients_at(cells, f, table.ref, table.c) for f in range(3))
        _, under = _difference_range(model, below, cells.lo, cells.hi)
        _, over = _difference_range(above, model, cells.lo, cells.hi)
        piece = table.place[cells.index[:, 0]]
        # A piece too short for a cell keeps the bound of its source.
        out = np.zeros(len(found.source))
        met = np.zeros(len(out), bool)
        np.maximum.at(out, piece, np.maximum(under, over))
        met[piece] = True
        out = np.where(met, out, err[found.source])
        causes = np.concatenate([np.arange(len(out)), np.repeat(piece, 3)])
        winners = np.concatenate([found.source, table.source[cells.index].ravel()])
        order = np.argsort(causes, kind="stable")
        return out, np.searchsorted(causes[order], np.arange(len(out) + 1)), winners[order]

    def _in_doubt(self, relation: Relation) -> Relation:
        """Compute the envelope of the rows on the model, else of all, with bounds for every choice of members."""
        inputs = _functions(regroup(relation, self.by))
        rows, upper = inputs.relation, self.function == "max"
        sign = 1.0 if upper else -1.0
        sure, held = rows.certainty == CERTAIN, rows.certainty >= LIKELY
        every = np.arange(len(rows))
        functions = [
            _shifted(inputs, self.output, np.flatnonzero(held), 0.0, upper),
            _shifted(inputs, self.output, every, sign, upper),  # outer limit of any truth
            _shifted(inputs, self.output, np.flatnonzero(sure), -sign, upper),  # inner limit
            _shifted(inputs, self.output, every, -sign, not upper),  # inner limit without certain rows
        ]
        table = _side_by_side(rows, functions)
        cells = align(table.ref, table.lo, table.hi, table.offsets, outer=True)
        source = np.append(table.source, -1)[cells.index]
        row = np.where(
            source[:, 0] >= 0, source[:, 0], np.where(source[:, 1] >= 0, source[:, 1], source.max(axis=1))
        )
        err = self._reach(rows, table, cells, row)
        err += np.repeat(self._ties(inputs), np.diff(cells.offsets))
        by = (cells.ref - rows.ref[row]) / MICROSECONDS
        made = replace(
            rows._pick(row, inputs.keys, cells.offsets, lo=cells.lo + by, hi=cells.hi + by),
            columns=self.columns(relation.columns),
            err={self.output: err},
            certainty=presence(source[:, 2] >= 0, source[:, 0] >= 0),
            lineage=None,
        )
        unaffected = sure[row] & sure[source[:, 1]] & (source.min(axis=1) >= 0)
        return _merge_parts(made, row, unaffected, None if rows.lineage is None else (rows.lineage, source))

    def _reach(self, rows: Relation, table: _Table, cells: Cells, row: IntArray) -> FloatArray:
        """Bound the distance of a truth from the model on each cell."""
        sign = 1.0 if self.function == "max" else -1.0
        near, first, last = about_own_start(cells.ref, cells.lo, cells.hi)
        moved = cells._replace(ref=near, lo=first, hi=last)
        model = taylor_shift(rows.models[self.output][row], (near - rows.ref[row]) / MICROSECONDS)
        off = np.zeros(len(row))
        # Outwards to the second function; inwards to the third or, where no row is certain, to the fourth.
        for f, there in ((1, True), (2, True), (3, cells.index[:, 2] < 0)):
            low, high = _difference_range(coefficients_at(moved, f, table.ref, table.c), model, first, last)
            far = sign * (high if sign > 0.0 else low) if f == 1 else -sign * (low if sign > 0.0 else high)
            off = np.maximum(off, np.where((cells.index[:, f] >= 0) & there, far, 0.0))
        return off


class _Found(NamedTuple):
    """An envelope, whose ``source`` are input rows, and the coefficients of all input rows."""

    pieces: Pieces
    c: FloatArray


class _Table(NamedTuple):
    """Pieces of several envelopes, group by group: ``offsets[g, f]`` is where function ``f`` of group ``g`` begins."""

    source: IntArray
    place: IntArray  # within its own envelope
    ref: IntArray
    lo: FloatArray
    hi: FloatArray
    c: FloatArray
    offsets: IntArray


def _shifted(inputs: Regrouped, name: str, chosen: IntArray, sign: float, upper: bool) -> _Found:
    """Compute the envelope of rows shifted by ``sign`` times their bounds, rounded outwards where the sum is not exact."""
    rows = inputs.relation
    c = rows.models[name].copy()
    c[:, 0] = _moved_outwards(c[:, 0], sign * rows.err[name])
    some = rows if len(chosen) == len(rows) else rows.take(chosen)
    found = envelope(some.ref, some.lo, some.hi, c[chosen], some.offsets, inputs.groups, upper=upper)
    return _Found(found._replace(source=chosen[found.source]), c)


def _moved_outwards(values: FloatArray, by: FloatArray) -> FloatArray:
    """Return ``values + by``, or the next number in the direction of ``by`` where rounding fell short of the exact sum."""
    moved, lost = two_sum(values, by)
    return np.where(lost * np.sign(by) > 0.0, np.nextafter(moved, np.copysign(np.inf, by)), moved)


def _difference_range(
    a: FloatArray, b: FloatArray, lo: FloatArray, hi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest value of ``a - b`` on each range; for constants, rounded outwards.

    The ties cover the rounding of other differences.
    """
    low, high, _ = bounds(subtract(a, b), lo, hi)
    _, lost = two_sum(a[:, 0], -b[:, 0])
    low = np.where(lost < 0.0, np.nextafter(low, -np.inf), low)
    return low, np.where(lost > 0.0, np.nextafter(high, np.inf), high)


def two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``a + b`` and its rounding error, the exact sum minus the result (Knuth's two-sum)."""
    total: FloatArray = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _group_of_rows(inputs: Regrouped) -> IntArray:
    """Return the output group of each row."""
    of_input: IntArray = np.repeat(np.arange(len(inputs.groups) - 1), np.diff(inputs.groups))
    return of_input[inputs.relation.group]


def _side_by_side(rows: Relation, functions: Sequence[_Found]) -> _Table:
    """Collect the envelopes' pieces in one table."""
    F = len(functions)
    spans = [one.pieces for one in functions]
    group = np.concatenate([np.repeat(np.arange(len(s.offsets) - 1), np.diff(s.offsets)) for s in spans])
    which = np.repeat(np.arange(F), [len(s.source) for s in spans])
    order = np.lexsort((which, group))
    source, lo, hi = (
        np.concatenate([getattr(s, name) for s in spans])[order] for name in ("source", "lo", "hi")
    )
    place = np.concatenate([np.arange(len(s.source)) for s in spans])[order]
    c = np.concatenate([one.c[one.pieces.source] for one in functions])[order]
    counts = np.zeros((len(spans[0].offsets) - 1, F), np.int64)
    np.add.at(counts, (group, which), 1)
    ends = np.concatenate(([0], np.cumsum(counts.ravel())))
    offsets = np.concatenate([ends[:-1].reshape(-1, F), ends[F::F, None]], axis=1)
    return _Table(source, place, rows.ref[source], lo, hi, c, offsets)


def _merge_parts(
    made: Relation, row: IntArray, unaffected: BoolArray, causes: tuple[Lineage, IntArray] | None
) -> Relation:
    """Merge neighbouring parts of one row that no doubtful row touches, with the larger bound."""
    n = len(made)
    continues = np.zeros(n, bool)
    continues[1:] = unaffected[1:] & unaffected[:-1] & (row[1:] == row[:-1])
    continues[1:] &= made.group[1:] == made.group[:-1]
    continues[1:] &= (made.hi[:-1] > made.lo[:-1]) & (made.hi[1:] > made.lo[1:])
    gap = made.lo[1:] - made.hi[:-1]
    continues[1:] &= np.abs(gap) <= tolerances(made.ref[1:], made.lo[1:], made.ref[1:], made.hi[:-1])
    first = np.flatnonzero(~continues)
    last = np.append(first[1:], n)[: len(first)] - 1
    lineage = None
    if causes is not None:
        known, source = causes
        some = source >= 0
        of_cell = np.concatenate(([0], np.cumsum(some.sum(axis=1))))
        lineage = known.gather(np.append(of_cell[first], of_cell[-1]), source[some])
    name = made.columns.modelled[0]
    err = np.maximum.reduceat(made.err[name], first) if n else made.err[name]
    merged = made.take(first, hi=made.hi[last])
    return replace(merged, err={name: err}, lineage=lineage)


def _functions(inputs: Regrouped) -> Regrouped:
    """Split each group into functions with one value per instant: its ranges and its points, if any."""
    rows = inputs.relation
    point = rows.is_point
    if not point.any():
        return inputs
    order = np.lexsort((point, rows.group))
    counts = np.zeros((rows.groups, 2), np.int64)
    np.add.at(counts, (rows.group, point.astype(np.int64)), 1)
    offsets = np.concatenate(([0], np.cumsum(counts.ravel())))
    return Regrouped(rows._pick(order, (), offsets), inputs.keys, 2 * inputs.groups)


def _equal_within(values: FloatArray, group: IntArray, groups: int) -> bool:
    """Test whether the values of each group are all equal."""
    if not len(values) or (values == values[0]).all():
        return True
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    return bool((low >= high).all())
