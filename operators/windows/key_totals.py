"""Extend the running totals of flows to all times: zero before a key's first tuple, constant in its silences and after its last.

A stored model covers a key from its first tuple to its newest, but for holes. A silence adds nothing, so the total ``F`` of a
key is known everywhere: the pieces here are those of the model and, between them, constants::

    model       [----)  .o     [-------)o          o: the point that ends a run
    totals  0---[----)--o------[-------)o-----
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.core.instants import nearest_microsecond
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.rounding import GROWN, evaluation
from pulse.operators.data.relation import Relation

_BEFORE, _WITHIN, _AFTER = range(3)
_ROOM = 1 << 62


@dataclass(frozen=True)
class KeyTotals:
    """The totals of one attribute: ``pieces``, ranges that follow each other without a hole, per group."""

    pieces: Relation
    first: IntArray
    """The instant of each group's first tuple, in microseconds."""
    last: IntArray
    """The instant of each group's newest tuple."""

    @classmethod
    def of(cls, relation: Relation, argument: str, margin: int) -> KeyTotals:
        """Extend the totals of a stored stream, all rows of its keys, by ``margin`` microseconds before and after."""
        rows = relation.only(
            Columns(relation.columns.key, (argument,), (), relation.columns.time)
        ).without_empty_groups()
        begin, end = nearest_microsecond(rows.ref, rows.lo), nearest_microsecond(rows.ref, rows.hi)
        opens, closes = rows.offsets[:-1], rows.offsets[1:] - 1
        until = np.append(begin[1:], 0)[: len(rows)]
        until[closes] = end[closes] + margin
        # Up to three pieces a row, in order: zero before the first, the row itself unless it is a point, its last value after it.
        rank = np.concatenate([3 * opens + _BEFORE, 3 * np.flatnonzero(begin < end) + _WITHIN])
        rank = np.sort(np.concatenate([rank, 3 * np.flatnonzero(end < until) + _AFTER]))
        row, kind = rank // 3, rank % 3
        start = np.where(kind == _BEFORE, begin[row] - margin, end[row])
        stop = np.where(kind == _BEFORE, begin[row], until[row])
        taken = rows.take(row)
        c, err = taken.models[argument], taken.err[argument]
        values = np.where(kind == _BEFORE, 0.0, evaluate(c, taken.hi))
        rounded = np.where(kind == _AFTER, evaluation(c, taken.hi, taken.hi), 0.0)
        flat = kind != _WITHIN
        constant = np.zeros_like(c)
        constant[:, 0] = values
        pieces = replace(
            taken,
            ref=np.where(flat, start, taken.ref),
            lo=np.where(flat, 0.0, taken.lo),
            hi=np.where(flat, (stop - start) / MICROSECONDS, taken.hi),
            models={argument: np.where(flat[:, None], constant, c)},
            err={argument: np.where(kind == _BEFORE, 0.0, err + rounded)},
            drift={},
        )
        return cls(pieces, begin[opens], end[closes])

    @property
    def argument(self) -> str:
        """Return the attribute."""
        return self.pieces.columns.modelled[0]

    @cached_property
    def _begin(self) -> IntArray:
        return nearest_microsecond(self.pieces.ref, self.pieces.lo)

    def at(self, group: IntArray, instant: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return totals at whole microseconds, their bounds, and the pieces they are on."""
        pieces, begin = self.pieces, self._begin
        row = _latest(pieces.group, begin, group, instant, pieces.offsets)
        c = pieces.models[self.argument][row]
        x = (instant - pieces.ref[row]) / MICROSECONDS
        return evaluate(c, x), pieces.err[self.argument][row] + evaluation(c, x, x), row

    def between(
        self, group: IntArray, opens: IntArray, closes: IntArray
    ) -> tuple[FloatArray, FloatArray, tuple[IntArray, IntArray]]:
        """Return what was added by the tuples in ``[opens, closes)``, its bound, and the pieces that it is computed from."""
        high, err_high, head = self.at(group, closes - 1)
        low, err_low, tail = self.at(group, opens - 1)
        values = high - low
        part = values - high
        rounded = np.abs((high - (values - part)) + (-low - part))
        return values, (err_high + err_low + rounded) * GROWN, (tail, head)


def _latest(
    groups: IntArray, begins: IntArray, group: IntArray, instant: IntArray, offsets: IntArray
) -> IntArray:
    """Return per instant the last piece of its group that begins by then; each group has one."""
    if not len(group):
        return np.zeros(0, dtype=np.int64)
    low = min(int(begins.min()), int(instant.min()))
    span = max(int(begins.max()), int(instant.max())) - low + 1
    if (len(offsets) + 1) * span < _ROOM:  # one number per piece
        found = np.searchsorted(groups * span + (begins - low), group * span + (instant - low), side="right")
    else:
        found = np.empty(len(group), dtype=np.int64)
        for one in np.unique(group):
            mine, own = group == one, slice(offsets[one], offsets[one + 1])
            found[mine] = offsets[one] + np.searchsorted(begins[own], instant[mine], side="right")
    row: IntArray = found - 1
    return row
