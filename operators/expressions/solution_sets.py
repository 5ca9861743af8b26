"""Build the sets of times at which ``q(t) R level`` holds, row by row: certainly, on the model, possibly (semantics 3.2, 3.9)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets, full, union
from pulse.kernels.polynomial.signs import RELATIONS, sign_ranges
from pulse.kernels.status import NOT_FINITE
from pulse.operators.data.relation import Relation
from pulse.operators.errors import DomainError

# A shift, a difference, and Horner's rule err by up to 2 * k roundings of the terms' magnitude each (as in kernels.envelope).
NOISE = 4 * float(np.finfo(np.float64).eps)


class Truths(NamedTuple):
    """The times per row at which a predicate holds for every truth within the bounds, on the model, and for some truth."""

    certain: IntervalSets
    model: IntervalSets
    possible: IntervalSets


class Problem:
    """The inequality ``q(t) R level`` on the rows of a relation: ranges by roots and signs, points by their value."""

    def __init__(self, relation: Relation, q: FloatArray, noise: FloatArray) -> None:
        self._rows, self._q, self._noise = relation, q, noise

    def sets(
        self,
        relation: str,
        level: FloatArray,
        *,
        never: BoolArray | None = None,
        always: BoolArray | None = None,
    ) -> IntervalSets:
        """Return the solution sets; ``never`` and ``always`` mark rows with a known answer, which get a matching constant."""
        rows, code = self._rows, RELATIONS[relation]
        c = self._q.copy()
        c[:, 0] -= level
        noise = np.where(self._noise > 0.0, self._noise + NOISE * np.abs(level), 0.0)
        for mask, holds in ((never, False), (always, True)):
            if mask is not None and mask.any():
                c[mask], noise[mask] = 0.0, 0.0
                c[mask, 0] = next(v for v in (-1.0, 0.0, 1.0) if bool(code & _sign(v)) is holds)
        found, status = sign_ranges(c, rows.lo, rows.hi, code, noise)
        if (status == NOT_FINITE).any():
            row = int((status == NOT_FINITE).argmax())
            raise DomainError(
                f"filter: an operand is not finite for {rows.where(row)}; scale the attributes down first"
            )
        point = rows.is_point
        if not point.any():
            return found
        value = evaluate(c, rows.lo)
        sign = np.where(np.abs(value) <= noise, 2, np.where(value < 0.0, 1, 4))
        return union(found, _instants(rows, point & (sign & code != 0)))


def whole(relation: Relation) -> IntervalSets:
    """Return each row's whole range: half open, or its instant."""
    return chosen(relation, np.ones(len(relation), bool))


def chosen(relation: Relation, mask: BoolArray) -> IntervalSets:
    """Return the whole range of the rows in a mask, and empty sets for others."""
    ranges = full(relation.lo, np.where(mask, relation.hi, relation.lo))
    points = mask & relation.is_point
    return union(ranges, _instants(relation, points)) if points.any() else ranges


def _instants(relation: Relation, mask: BoolArray) -> IntervalSets:
    at = relation.lo[mask]
    offsets = np.concatenate(([0], np.cumsum(mask))).astype(np.int64)
    return IntervalSets(offsets, np.stack((at, at), axis=1), np.full(len(at), LOWER | UPPER, np.uint8))


def nested(certain: IntervalSets, model: IntervalSets, possible: IntervalSets | None) -> Truths:
    """Nest the three sets, even where their ends differ only by rounding."""
    model = union(model, certain)
    return Truths(certain, model, model if possible is None else union(model, possible))


def same(sets: IntervalSets) -> Truths:
    """Return the truths of what is decided without error."""
    return Truths(sets, sets, sets)


def _sign(value: float) -> int:
    return 1 if value < 0.0 else 4 if value > 0.0 else 2
