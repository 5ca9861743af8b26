"""The filter: the times at which a predicate holds (semantics 3.2, 3.9).

1 Transforms: the predicate becomes equation systems ``D(t) R 0``, solved per row (:mod:`pulse.operators.expressions.solve`). Each
  row is cut to the solution: apart where it is certain, likely and, if asked, possible. Ranges come out half open: an
  upper end that belongs to the solution is dropped, a lower end that does not is taken in. A solution of one instant
  is a point.
2 Bounds: models, and so their bounds, are untouched by a cut. Where the cut opens holes the drift is lost.
3 Inverts: the predicate's attributes get a share of the slack (inferences, semantics 4.3); others pass their bound
  on.
4 Revises: a segment that changes is solved again, on its own; what crosses the predicate comes out as insertion or
  deletion (semantics 7.6). Whether a hole was opened is a fact about all of a key, so revisions do without the drift.
5 Accents: foundation is the predicate's attributes: an addition of one is absorbed, a drop aborts, an alteration
  changes the constants it is compared with (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import TRUE, Expression
from pulse.core.instants import tolerances
from pulse.kernels.polynomial.interval_sets import IntervalSets, complement, intersect
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.on_segments import without_hidden
from pulse.operators.expressions.sign_fast_path import UNDECIDED, classify
from pulse.operators.expressions.solve import Truths, positive, solve


@dataclass(frozen=True)
class FilterOperator:
    """The times at which ``predicate`` holds; with ``possible`` also those at which it does for some truth only."""

    predicate: Expression
    possible: bool = False

    def segments(self, relation: Relation) -> Relation:
        """The rows cut to the solution, each part with the smaller certainty, the row's and the predicate's."""
        if self.predicate == TRUE:
            return relation
        codes = classify(relation, positive(self.predicate))
        if codes is not None:
            short = self._decided(relation, codes)
            if short is not None:
                return short
        refined, truths = solve(relation, self.predicate, possible=self.possible)
        return cut(refined, truths)

    def _decided(self, relation: Relation, codes: CertaintyArray) -> Relation | None:
        """As solving, where ``codes`` tell the answer for whole rows and only the others are solved.

        None where that is no shorter, or where solving cuts rows finer, so that what it says is no longer about these.
        """
        mixed = np.flatnonzero(codes == UNDECIDED)
        if 2 * len(mixed) > len(relation):
            return None
        least = np.uint8(POSSIBLE if self.possible else LIKELY)
        # Unsigned: what is less, and UNDECIDED, comes out large.
        row = np.flatnonzero(codes - least <= CERTAIN - least)

        def covered() -> FloatArray:
            return np.where(codes >= least, relation.hi - relation.lo, 0.0)

        if not len(mixed):
            return _kept(relation, _Parts(row, None, None, codes.take(row)), covered)
        some = relation.take(mixed)
        refined, truths = solve(some, self.predicate, possible=self.possible)
        if len(refined) != len(some) or not np.array_equal(refined.ref, some.ref):
            return None
        parts = _parts(refined, truths)
        own = mixed.take(parts.row)
        at = np.searchsorted(row, own)
        row, place = np.insert(row, at, own), at + np.arange(len(at))
        certainty, lo, hi = codes.take(row), relation.lo.take(row), relation.hi.take(row)
        certainty[place], lo[place], hi[place] = parts.certainty, parts.lo, parts.hi

        def covered_in_part() -> FloatArray:
            lengths = covered()
            lengths[mixed] = _covered(refined, truths)
            return lengths

        return _kept(relation, _Parts(row, lo, hi, certainty), covered_in_part)


def cut(relation: Relation, truths: Truths) -> Relation:
    """The rows cut to the three sets; hidden columns are left behind. Joins use it as well."""
    return _kept(relation, _parts(relation, truths), lambda: _covered(relation, truths))


def _kept(relation: Relation, parts: _Parts, covered: Callable[[], FloatArray]) -> Relation:
    """The rows of these parts; ``covered`` says how much of each row of ``relation`` they are, if that is asked."""
    if any(name.startswith("#") for name in relation.models):
        models, err, known = without_hidden(relation)
        relation = replace(relation, models=models, err=err, drift=known)
    kept = relation.take(parts.row, lo=parts.lo, hi=parts.hi)
    drift: Mapping[str, FloatArray] = kept.drift
    if any(values.min(initial=np.inf) < np.inf for values in drift.values()):
        holes = _opened_holes(relation, covered())
        if holes.any():
            drift = {name: np.where(holes[kept.group], np.inf, values) for name, values in drift.items()}
    return replace(kept, drift=drift, certainty=np.minimum(kept.certainty, parts.certainty))


@dataclass(frozen=True)
class _Parts:
    """Parts of rows, by row and time; without ``lo`` and ``hi`` they are whole."""

    row: IntArray
    lo: FloatArray | None
    hi: FloatArray | None
    certainty: CertaintyArray


def _parts(relation: Relation, truths: Truths) -> _Parts:
    """The solution as half-open ranges and points, by row and time."""
    lo, hi = relation.lo, relation.hi
    # A point row has the instant alone: its domain is closed to the right, which the next float stands for.
    end = np.where(relation.is_point, np.nextafter(lo, np.inf), hi)
    sets = [(truths.certain, CERTAIN)]
    if truths.model is not truths.certain:
        sets.append((intersect(truths.model, complement(truths.certain, lo, end)), LIKELY))
    if truths.possible is not truths.model:
        sets.append((intersect(truths.possible, complement(truths.model, lo, end)), POSSIBLE))
    row = np.concatenate([_rows(one) for one, _ in sets])
    bounds = np.concatenate([one.bounds for one, _ in sets])
    code = np.concatenate([np.full(len(one.bounds), code, np.uint8) for one, code in sets])
    order = np.lexsort((bounds[:, 1], bounds[:, 0], row))
    row, begin, stop, code = row[order], bounds[order, 0].copy(), bounds[order, 1].copy(), code[order]
    keep = _without_slivers(relation, row, begin, stop, code)
    row, begin, stop, code = row[keep], begin[keep], stop[keep], code[keep]
    keep = ~_held_by_next(row, begin, stop, code)
    return _Parts(row[keep], begin[keep], stop[keep], code[keep])


def _rows(sets: IntervalSets) -> IntArray:
    return np.repeat(np.arange(len(sets.offsets) - 1), np.diff(sets.offsets))


def _without_slivers(
    relation: Relation, row: IntArray, begin: FloatArray, stop: FloatArray, code: CertaintyArray
) -> BoolArray:
    """What to keep, after parts shorter than the timeline's tolerance have gone to their neighbours, in place.

    The part that goes on from such a sliver begins where it began, so that no number of them in a row opens a hole; what
    several slivers make together has the least of their certainties. Where nothing goes on from it, the part before ends
    where it ended. One that stands alone is a solution all the same, of which no more than an instant can be told. A row
    that was that short before stays.
    """
    ref = relation.ref[row]
    slack = tolerances(ref, begin, ref, stop)
    short = (stop > begin) & (stop - begin <= slack)
    keep = np.ones(len(row), bool)
    for i in np.flatnonzero(short).tolist():  # rare
        if stop[i] - begin[i] > slack[i] or (
            begin[i] == relation.lo[row[i]] and stop[i] == relation.hi[row[i]]
        ):
            continue  # of several slivers together, or all of a row
        after = _beside(row, begin, stop, i)
        before = _before(row, begin, stop, keep, i)
        if after >= 0:
            begin[i + 1 : after] = stop[i + 1 : after] = begin[after] = begin[i]  # points between come first
            if short[after]:
                code[after] = min(code[after], code[i])
            keep[i] = False
        elif before >= 0:
            begin[before + 1 : i] = stop[before + 1 : i] = stop[before] = stop[i]
            keep[before + 1 : i] &= code[before + 1 : i] > code[before]
            keep[i] = False
        else:
            begin[i] = stop[i] = begin[i] + 0.5 * (stop[i] - begin[i])
    return keep


def _beside(row: IntArray, begin: FloatArray, stop: FloatArray, i: int) -> int:
    """The range of the same row that goes on from part ``i``, or -1; a point may lie between."""
    for j in range(i + 1, len(row)):
        if row[j] != row[i] or begin[j] != stop[i]:
            break
        if stop[j] > begin[j]:
            return j
    return -1


def _before(row: IntArray, begin: FloatArray, stop: FloatArray, keep: BoolArray, i: int) -> int:
    """The range of the same row that is kept and ends where part ``i`` begins, or -1; a point may lie between."""
    for j in range(i - 1, -1, -1):
        if row[j] != row[i] or stop[j] < begin[i]:
            break
        if keep[j] and stop[j] == begin[i] and stop[j] > begin[j]:
            return j
    return -1


def _held_by_next(row: IntArray, begin: FloatArray, stop: FloatArray, code: CertaintyArray) -> BoolArray:
    """Points at which a range of the same row starts that is no less certain: closed below, it holds them."""
    held = np.zeros(len(row), bool)
    held[:-1] = (begin[:-1] == stop[:-1]) & (row[1:] == row[:-1]) & (begin[1:] == begin[:-1])
    held[:-1] &= (stop[1:] > begin[1:]) & (code[1:] >= code[:-1])
    return held


def _covered(relation: Relation, truths: Truths) -> FloatArray:
    """How much of each row's time the widest of the three sets has."""
    bounds = truths.possible.bounds
    lengths = bounds[:, 1] - bounds[:, 0]
    return np.bincount(_rows(truths.possible), lengths, len(relation)).astype(np.float64)


def _opened_holes(relation: Relation, covered: FloatArray) -> BoolArray:
    """Per group whether some of its time was cut off."""
    slack = tolerances(relation.ref, relation.lo, relation.ref, relation.hi)
    holes = np.zeros(relation.groups, bool)
    holes[relation.group[covered < relation.hi - relation.lo - slack]] = True
    return holes
