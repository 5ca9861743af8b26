"""``inside(x, y, :area)``: 1 where a position lies in an area, its edges included, and 0 elsewhere.

As a condition, ``inside(x, y, :area)`` is ``inside(x, y, :area) = 1``. Inside is certain where the box of all truths around the
position lies in the area, and possible where it meets it (:mod:`pulse.operators.functions.area_edges`). As a value it has the
bound 0 where it is certain and 1 where it is not.

An area does not change with the units of positions: accents that alter them are followed as for every number that a query
compares with, in the units of the stream's start; as an output it has no affine image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulse.core.area import Area
from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import HOLDS, Column, Expression, Function
from pulse.kernels.polynomial.interval_sets import LOWER, UPPER, IntervalSets
from pulse.operators.expressions.solution_sets import Truths
from pulse.operators.functions.area_edges import Pieces, Tracks, certainties_at, cut_pieces
from pulse.operators.functions.base import Ranges, ScalarFunction

if TYPE_CHECKING:
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand


class Inside(ScalarFunction):
    """``inside(x, y, :area)``."""

    name = "inside"
    arity = 2
    takes_area = True
    is_condition = True
    needs_bounds = False
    approximated = False

    @staticmethod
    def of_numbers(x: float, y: float) -> float:
        """Refuse: a fixed position is decided where the query runs, as its area is known there."""
        raise ValueError("inside is decided by its area")

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        pieces = cut_pieces(_tracks(work, arguments), _area(e))
        work.refine(pieces.row, pieces.lo, pieces.hi, work.relation.ref[pieces.row])
        value, err = _values(pieces.inside)
        return work.add(value[:, None], err)

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        return _values(_at_samples(work, e, arguments)[0])

    def solution(self, work: Evaluation, e: Function, level: float) -> ComparedArea:
        return ComparedArea(work, e, level)

    def codes(self, work: Numbers, e: Function, relation: str, level: float) -> CertaintyArray:
        arguments = [work.fold(one) for one in e.arguments]
        inside, outside = _at_samples(work, e, arguments)
        found = _either(inside, outside, *_holding(relation, level))
        return np.minimum(found, work.samples.certainty)

    def objection(self, names: Sequence[str]) -> str | None:
        if are_degrees([Column(name) for name in reversed(names)]):
            return f"{self.name} takes longitude first: {self.name}({names[1]}, {names[0]}, …)"
        return None

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        # However little a position may be off, it may be on the other side of an edge.
        return np.where((errors[0] == 0.0) & (errors[1] == 0.0), 0.0, np.inf)


class ComparedArea:
    """``inside`` beside a number: the times inside, those outside, both or neither."""

    def __init__(self, work: Evaluation, e: Function, level: float) -> None:
        self._work, self._area, self._level = work, _area(e), level
        self._operands = [work.as_model(work.fold(one)) for one in e.arguments]

    def truths(self, relation: str, *, possible: bool) -> Truths:
        rows = self._work.relation
        pieces = cut_pieces(_tracks(self._work, self._operands), self._area)
        codes = _either(pieces.inside, pieces.outside, *_holding(relation, self._level))
        certain, model = (_sets(pieces, codes >= least, len(rows)) for least in (CERTAIN, LIKELY))
        return Truths(certain, model, _sets(pieces, codes >= POSSIBLE, len(rows)) if possible else model)


def are_degrees(arguments: Sequence[Expression]) -> bool:
    """Return whether the columns of a position are named as longitude and latitude, in this order.

    >>> are_degrees([Column("S.lon"), Column("S.lat")]), are_degrees([Column("x"), Column("y")])
    (True, False)
    """
    names = [one.name.rpartition(".")[2].casefold() if isinstance(one, Column) else "" for one in arguments]
    return names[0].startswith(("lon", "lng")) and names[1].startswith("lat")


def _area(e: Function) -> Area:
    assert isinstance(e.area, Area), f"the area of {e} was not bound"
    return e.area


def _tracks(work: Evaluation, arguments: Sequence[Operand]) -> Tracks:
    x, y = (work.as_model(one) for one in arguments)
    rows = work.relation
    return Tracks(rows.models[x], rows.models[y], rows.err[x], rows.err[y], rows.lo, rows.hi)


def _at_samples(
    work: Numbers, e: Function, arguments: Sequence[Number]
) -> tuple[CertaintyArray, CertaintyArray]:
    (x, ex), (y, ey) = arguments
    at_x, at_y, error_x, error_y = work.arrays(x, y, ex, ey)
    return certainties_at(at_x, at_y, error_x, error_y, _area(e))


def _values(inside: CertaintyArray) -> tuple[FloatArray, FloatArray]:
    """Return 1 inside and 0 outside, with the bound 0 where that is certain, else 1."""
    value = (inside >= LIKELY).astype(np.float64)
    return value, ((inside == LIKELY) | (inside == POSSIBLE)).astype(np.float64)


def _holding(relation: str, level: float) -> tuple[bool, bool]:
    """Return whether 1 and 0 have this relation to a number."""
    return bool(HOLDS[relation](1.0, level)), bool(HOLDS[relation](0.0, level))


def _either(
    inside: CertaintyArray, outside: CertaintyArray, holds_inside: bool, holds_outside: bool
) -> CertaintyArray:
    if holds_inside and holds_outside:
        return np.full(len(inside), np.uint8(CERTAIN))
    return inside if holds_inside else outside if holds_outside else np.full(len(inside), np.uint8(ABSENT))


def _sets(pieces: Pieces, chosen: BoolArray, rows: int) -> IntervalSets:
    """Return the union of some pieces of each row, adjacent ones joined."""
    at = np.flatnonzero(chosen)
    row, lo, hi = pieces.row[at], pieces.lo[at], pieces.hi[at]
    fresh = np.append(True, (row[1:] != row[:-1]) | (lo[1:] > hi[:-1]))[: len(at)]
    first = np.flatnonzero(fresh)
    last = np.append(first[1:] - 1, len(at) - 1)[: len(first)]
    bounds = np.stack((lo[first], hi[last]), axis=1)
    ends = np.where(bounds[:, 0] == bounds[:, 1], LOWER | UPPER, LOWER).astype(np.uint8)
    return IntervalSets(np.searchsorted(row[first], np.arange(rows + 1)), bounds, ends)
