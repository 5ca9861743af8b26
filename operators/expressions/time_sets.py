"""Compare the time attribute with an instant or a set of a calendar, on segments and at samples: exactly, in microseconds."""

from __future__ import annotations

import numpy as np

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.calendar import TimeSet
from pulse.core.expression import HOLDS, Comparison, Instant
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets, complement, intersect
from pulse.operators.data.relation import Relation
from pulse.operators.errors import OperandError
from pulse.operators.expressions.solution_sets import whole


def times_that_hold(rows: Relation, comparison: Comparison) -> IntervalSets:
    """Return each row's times at which a comparison holds whose left side is the time attribute."""
    relation, operand = comparison.relation, comparison.right
    if isinstance(operand, TimeSet):
        line = _members(rows, operand)
        if relation == "!=":
            line = complement(line, -np.inf, np.inf)
    elif isinstance(operand, Instant):
        line = _beside(rows, relation, operand.microseconds)
    else:
        raise _not_a_time(comparison)
    return intersect(line, whole(rows))


def holds_at(times: IntArray, comparison: Comparison) -> BoolArray:
    """Find the instants, in microseconds, at which a comparison holds whose left side is the time attribute."""
    operand = comparison.right
    if isinstance(operand, TimeSet):
        inside = operand.contains(times)
        return inside if comparison.relation == "=" else ~inside
    if isinstance(operand, Instant):
        holds: BoolArray = HOLDS[comparison.relation](times, operand.microseconds)
        return holds
    raise _not_a_time(comparison)


def _not_a_time(comparison: Comparison) -> OperandError:
    return OperandError(
        f"filter: {comparison}: expected an instant beside a time, such as '2024-05-01 12:00'; got {comparison.right}"
    )


def _beside(rows: Relation, relation: str, instant: int) -> IntervalSets:
    x = (instant - rows.ref) / 1e6
    infinity = np.full(len(x), np.inf)
    before, at, after = (-infinity, x, 0), (x, x, LOWER | UPPER), (x, infinity, 0)
    sides = {
        "<": [before],
        "<=": [(*before[:2], UPPER)],
        "=": [at],
        "!=": [before, after],
        ">=": [(*after[:2], LOWER)],
        ">": [after],
    }[relation]
    bounds = np.stack([np.stack(side[:2], axis=1) for side in sides], axis=1).reshape(-1, 2)
    ends = np.tile(np.array([side[2] for side in sides], np.uint8), len(x))
    return IntervalSets(np.arange(len(x) + 1) * len(sides), bounds, ends)


def _members(rows: Relation, members: TimeSet) -> IntervalSets:
    """Return for each row the ranges of the set that its own may meet."""
    if not len(rows):
        return IntervalSets(np.zeros(1, np.int64), np.empty((0, 2)), np.empty(0, np.uint8))
    begin = rows.ref + np.floor(rows.lo * 1e6).astype(np.int64) - 1
    end = rows.ref + np.ceil(rows.hi * 1e6).astype(np.int64) + 1
    bounds, closed = members.ranges(int(begin.min()), int(end.max()))
    first = np.searchsorted(bounds[:, 1], begin, side="left")
    count = np.maximum(np.searchsorted(bounds[:, 0], end, side="right") - first, 0)
    offsets = np.concatenate(([0], np.cumsum(count)))
    row = np.repeat(np.arange(len(rows)), count)
    chosen = np.arange(offsets[-1]) - offsets[row] + first[row]
    ends = np.where(closed[chosen], LOWER | UPPER, LOWER).astype(np.uint8)
    return IntervalSets(offsets, (bounds[chosen] - rows.ref[row, None]) / 1e6, ends)
