"""Cut rows where a predicate becomes true, false or undecided, so that each part has one answer.

An instant has a code of :mod:`pulse.core.certainty`: CERTAIN where the predicate holds for every truth within the bounds, LIKELY
and POSSIBLE where truths differ and the model says yes or no, ABSENT where it holds for none. Parts are half open::

    x - 5     ────────╲                      x > 5, with a bound e
              ─ ─ ─ ─ ─╲─ ─ ─ ─  e
                        ╲
              ─ ─ ─ ─ ─ ─╲─ ─ ─ -e
    code      CERTAIN  |L|P|  ABSENT

A boundary between CERTAIN and ABSENT that no undecided part separates, and a single instant with another code than the time
around it, is known only up to the rounding of a root: the parts within :data:`AROUND` of it become undecided.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import Expression, columns_of
from pulse.core.instants import tolerances
from pulse.kernels.polynomial.interval_sets import (
    LOWER,
    UPPER,
    IntervalSets,
    complement,
    intersect,
    union,
)
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.solution_sets import Truths
from pulse.operators.expressions.solve import solve

AROUND = 1e-6
"""Seconds before and after a boundary that count as undecided; times are exact to the microsecond."""


class DecidedRanges(NamedTuple):
    """Parts of the rows of ``relation``: the row, the half-open range, and the code of each, by row and time."""

    relation: Relation
    row: IntArray
    lo: FloatArray
    hi: FloatArray
    code: CertaintyArray


def decided_ranges(relation: Relation, predicate: Expression) -> DecidedRanges:
    """Solve a predicate and cut rows so that each part has one code; ``relation`` may be cut finer and have hidden columns."""
    refined, truths = solve(relation, predicate, possible=True, strict=True)
    parts = _parts(refined, truths)
    if columns_of(predicate) & set(relation.columns.modelled):
        doubt = _boundaries(refined, truths, parts)
        if len(doubt.bounds):
            end = _ends(refined)
            decided = complement(doubt, refined.lo, end)
            certain = intersect(truths.certain, decided)
            parts = _parts(refined, Truths(certain, truths.model, union(truths.possible, doubt)))
    return DecidedRanges(refined, parts.row, parts.lo, parts.hi, parts.code)


class _Parts(NamedTuple):
    """Parts of rows; ``dropped`` are the cuts (row, instant) too near another to make a part."""

    row: IntArray
    lo: FloatArray
    hi: FloatArray
    code: CertaintyArray
    dropped: tuple[IntArray, FloatArray]


def _ends(relation: Relation) -> FloatArray:
    """Return the open end of each row; of a point the next number."""
    ends: FloatArray = np.where(relation.is_point, np.nextafter(relation.lo, np.inf), relation.hi)
    return ends


def _parts(relation: Relation, truths: Truths) -> _Parts:
    sets = (truths.certain, truths.model, truths.possible)
    row = np.concatenate([np.repeat(_rows(one), 2) for one in sets])
    at = np.concatenate([one.bounds.ravel() for one in sets])
    inside = (at > relation.lo[row]) & (at < relation.hi[row])
    row, at = row[inside], at[inside]
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    fresh = np.ones(len(row), bool)
    fresh[1:] = (row[1:] != row[:-1]) | (at[1:] != at[:-1])
    row, at = row[fresh], at[fresh]
    apart = _apart(relation, row, at)
    dropped = row[~apart], at[~apart]
    row, at = row[apart], at[apart]
    whole = np.arange(len(relation))
    of = np.concatenate((whole, row))
    begin = np.concatenate((relation.lo, at))
    order = np.lexsort((begin, of))
    of, begin = of[order], begin[order]
    last = np.append(of[1:] != of[:-1], True)
    stop = np.where(last, relation.hi[of], np.append(begin[1:], 0.0))
    code = _codes(truths, of, begin + 0.5 * (stop - begin))
    change = np.ones(len(of), bool)
    change[1:] = (of[1:] != of[:-1]) | (code[1:] != code[:-1])
    of, begin, code = of[change], begin[change], code[change]
    last = np.append(of[1:] != of[:-1], True)
    stop = np.where(last, relation.hi[of], np.append(begin[1:], 0.0))
    return _Parts(of, begin, stop, code, dropped)


def _apart(relation: Relation, row: IntArray, at: FloatArray) -> BoolArray:
    """Tell which cuts, sorted by row and time, leave parts longer than the timeline's tolerance on both sides."""
    ref = relation.ref[row]
    slack = tolerances(ref, at, ref, at)
    before = np.where(np.append([True], row[1:] != row[:-1])[: len(row)], relation.lo[row], np.roll(at, 1))
    apart: BoolArray = (at - before > slack) & (relation.hi[row] - at > slack)
    return apart


def _boundaries(relation: Relation, truths: Truths, parts: _Parts) -> IntervalSets:
    """Return the time around boundaries that are known only up to the rounding of a root."""
    decided = (parts.code == CERTAIN) | (parts.code == ABSENT)
    abrupt = np.zeros(len(parts.row), bool)
    abrupt[1:] = decided[1:] & decided[:-1] & (parts.row[1:] == parts.row[:-1])
    row = np.concatenate([parts.row[abrupt], parts.dropped[0]])
    at = np.concatenate([parts.lo[abrupt], parts.dropped[1]])
    for one in (truths.certain, truths.possible):  # single instants, in a set or left out of it
        of, bounds = _rows(one), one.bounds
        within = ~relation.is_point[of]
        single = within & (bounds[:, 0] == bounds[:, 1])
        left_out = np.zeros(len(of), bool)
        left_out[1:] = within[1:] & (of[1:] == of[:-1]) & (bounds[1:, 0] == bounds[:-1, 1])
        starts = within & ((one.ends & LOWER) == 0) & (bounds[:, 0] == relation.lo[of])
        chosen = single | left_out | starts
        row, at = np.concatenate([row, of[chosen]]), np.concatenate([at, bounds[chosen, 0]])
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    lo, hi = np.maximum(at - AROUND, relation.lo[row]), np.minimum(at + AROUND, relation.hi[row])
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (lo[1:] > hi[:-1])
    last = np.append(first[1:], True)[: len(row)]
    row, bounds = row[first], np.stack((lo[first], hi[last]), axis=1)
    some = bounds[:, 0] < bounds[:, 1]
    row, bounds = row[some], bounds[some]
    offsets = np.searchsorted(row, np.arange(len(relation) + 1))
    return IntervalSets(offsets, np.ascontiguousarray(bounds), np.full(len(row), LOWER | UPPER, np.uint8))


def _codes(truths: Truths, row: IntArray, at: FloatArray) -> CertaintyArray:
    """Return the code of each instant."""
    code = np.full(len(row), ABSENT, np.uint8)
    for sets, value in ((truths.possible, POSSIBLE), (truths.model, LIKELY), (truths.certain, CERTAIN)):
        code[_contains(sets, row, at)] = value
    return code


def _contains(sets: IntervalSets, row: IntArray, at: FloatArray) -> BoolArray:
    counts = np.diff(sets.offsets)[row]
    query = np.repeat(np.arange(len(row)), counts)
    first = np.repeat(sets.offsets[row] - np.concatenate(([0], np.cumsum(counts)))[:-1], counts)
    interval = first + np.arange(len(query))
    lower, upper, ends = sets.bounds[interval, 0], sets.bounds[interval, 1], sets.ends[interval]
    t = at[query]
    holds = (t > lower) | ((t == lower) & (ends & LOWER != 0))
    holds &= (t < upper) | ((t == upper) & (ends & UPPER != 0))
    found = np.zeros(len(row), bool)
    found[query[holds]] = True
    return found


def _rows(sets: IntervalSets) -> IntArray:
    return np.repeat(np.arange(len(sets.offsets) - 1), np.diff(sets.offsets))
