"""Filter: cut segments to the times at which a predicate holds (semantics 3.2, 3.9).

1 Transforms: the predicate becomes equation systems ``D(t) R 0``, solved per row (:mod:`pulse.operators.expressions.solve`). Each
  row is cut to the solution, in separate parts for certain, likely and, on request, possible. Output ranges are half open: an
  upper end in the solution is dropped, a lower end outside it is included. A solution of one instant
  is a point.
2 Bounds: a cut changes neither models nor their bounds. Where it opens holes the drift is lost.
3 Inverts: the predicate's attributes get a share of the slack (inferences, semantics 4.3); others pass their bound
  on.
4 Revises: solves a changed segment again, on its own; a change that crosses the predicate is emitted as an insertion or
  deletion (semantics 7.6). Holes depend on all segments of a key, so revisions carry no drift.
5 Accents: the foundation is the predicate's attributes: adding one is absorbed, dropping one aborts, altering one
  changes the constants in its comparisons (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE, CertaintyArray
from pulse.core.expression import TRUE, Constant, Expression, all_of, columns_of, conjuncts
from pulse.core.instants import tolerances
from pulse.kernels.polynomial.interval_sets import IntervalSets, complement, intersect
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import Program, ProgramArc
from pulse.operators.expressions.sign_fast_path import UNDECIDED, classify, possible_rows
from pulse.operators.expressions.solution_sets import Truths
from pulse.operators.expressions.solve import solve
from pulse.operators.expressions.symmetry import Renaming, equal_as, swaps_of
from pulse.operators.incremental.base import IncrementalRowwise
from pulse.operators.inversion.needs import Needs, gather, smaller
from pulse.operators.inversion.sources import Inversion
from pulse.operators.labels import predicate_label
from pulse.operators.node import Duration, Node, Predicates, PushInto, Swaps, Unary, plan_node
from pulse.operators.output.sampling import sample
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.on_samples import filter_samples
from pulse.operators.time_range import TimeRange
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class FilterOperator:
    """A filter by ``predicate``; with ``possible`` it also keeps times at which the predicate holds only for some truth."""

    predicate: Expression
    possible: bool = False

    def segments(self, relation: Relation) -> Relation:
        """Cut rows to the solution; the certainty of a part is the smaller of the row's and the predicate's."""
        if self.predicate == TRUE:
            return relation
        codes = classify(relation, self.predicate)
        if codes is not None:
            short = self._decided(relation, codes)
            if short is not None:
                return short
        refined, truths = solve(relation, self.predicate, possible=self.possible)
        return cut(refined, truths)

    def _decided(self, relation: Relation, codes: CertaintyArray) -> Relation | None:
        """Filter by ``codes`` where they decide whole rows, and solve only the others.

        Return None if that is not faster, or if solving cuts rows finer, so that its row numbers no longer match.
        """
        mixed = np.flatnonzero(codes == UNDECIDED)
        if 2 * len(mixed) > len(relation):
            return None
        least = np.uint8(POSSIBLE if self.possible else LIKELY)
        # Codes are unsigned, so both smaller ones and UNDECIDED exceed the limit.
        row = np.flatnonzero(codes - least <= CERTAIN - least)

        def covered() -> FloatArray:
            return np.where(codes >= least, relation.hi - relation.lo, 0.0)

        if not len(mixed):
            return _take_parts(relation, _Parts(row, None, None, codes.take(row)), covered)
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

        return _take_parts(relation, _Parts(row, lo, hi, certainty), covered_in_part)


def cut(relation: Relation, truths: Truths) -> Relation:
    """Cut rows to the three sets and drop hidden columns; joins use it too."""
    return _take_parts(relation, _parts(relation, truths), lambda: _covered(relation, truths))


def _take_parts(relation: Relation, parts: _Parts, covered: Callable[[], FloatArray]) -> Relation:
    """Take parts of rows; ``covered`` returns, if needed, how much time of each row of ``relation`` they cover."""
    if any(name.startswith("#") for name in relation.models):
        relation = relation.only(relation.columns)
    taken = relation.take(parts.row, lo=parts.lo, hi=parts.hi)
    drift: Mapping[str, FloatArray] = taken.drift
    if any(values.min(initial=np.inf) < np.inf for values in drift.values()):
        holes = _opened_holes(relation, covered())
        if holes.any():
            drift = {name: np.where(holes[taken.group], np.inf, values) for name, values in drift.items()}
    made = replace(taken, drift=drift, certainty=np.minimum(taken.certainty, parts.certainty))
    return made.with_squares(taken.squares)


@dataclass(frozen=True)
class _Parts:
    """Parts of rows, sorted by row and time; without ``lo`` and ``hi`` they are whole rows."""

    row: IntArray
    lo: FloatArray | None
    hi: FloatArray | None
    certainty: CertaintyArray


def _parts(relation: Relation, truths: Truths) -> _Parts:
    """Convert the solution to half-open ranges and points, sorted by row and time."""
    lo, hi = relation.lo, relation.hi
    # The domain of a point row is its instant alone; the next float serves as its open end.
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
    """Merge parts shorter than the timeline's tolerance into their neighbours, in place; return which parts to keep.

    The part that follows such a sliver begins where the sliver began, so no run of slivers opens a hole; a part made of
    several slivers has the smallest of their certainties. If no part follows, the part before ends where the sliver ended.
    An isolated sliver is still a solution, but no wider than an instant. A row that was that short before
    stays.
    """
    ref = relation.ref[row]
    slack = tolerances(ref, begin, ref, stop)
    short = (stop > begin) & (stop - begin <= slack)
    keep = np.ones(len(row), bool)
    for i in np.flatnonzero(short).tolist():  # rare
        if stop[i] - begin[i] > slack[i] or (
            begin[i] == relation.lo[row[i]] and stop[i] == relation.hi[row[i]]
        ):
            continue  # merged from several slivers, or a whole row
        after = _beside(row, begin, stop, i)
        before = _before(row, begin, stop, keep, i)
        if after >= 0:
            begin[i + 1 : after] = stop[i + 1 : after] = begin[after] = begin[i]  # points between precede it
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
    """Find the range of the same row that follows part ``i`` without a gap, or -1; a point may lie between."""
    for j in range(i + 1, len(row)):
        if row[j] != row[i] or begin[j] != stop[i]:
            break
        if stop[j] > begin[j]:
            return j
    return -1


def _before(row: IntArray, begin: FloatArray, stop: FloatArray, keep: BoolArray, i: int) -> int:
    """Find the kept range of the same row that ends where part ``i`` begins, or -1; a point may lie between."""
    for j in range(i - 1, -1, -1):
        if row[j] != row[i] or stop[j] < begin[i]:
            break
        if keep[j] and stop[j] == begin[i] and stop[j] > begin[j]:
            return j
    return -1


def _held_by_next(row: IntArray, begin: FloatArray, stop: FloatArray, code: CertaintyArray) -> BoolArray:
    """Find points at which an equally or more certain range of the same row starts: closed below, it contains them."""
    held = np.zeros(len(row), bool)
    held[:-1] = (begin[:-1] == stop[:-1]) & (row[1:] == row[:-1]) & (begin[1:] == begin[:-1])
    held[:-1] &= (stop[1:] > begin[1:]) & (code[1:] >= code[:-1])
    return held


def _covered(relation: Relation, truths: Truths) -> FloatArray:
    """Return how much of each row's time the widest of the three sets covers."""
    bounds = truths.possible.bounds
    lengths = bounds[:, 1] - bounds[:, 0]
    return np.bincount(_rows(truths.possible), lengths, len(relation)).astype(np.float64)


def _opened_holes(relation: Relation, covered: FloatArray) -> BoolArray:
    """Tell per group whether some of its time was cut off."""
    slack = tolerances(relation.ref, relation.lo, relation.ref, relation.hi)
    holes = np.zeros(relation.groups, bool)
    holes[relation.group[covered < relation.hi - relation.lo - slack]] = True
    return holes


class IncrementalFilter(IncrementalRowwise):
    """Propagate deltas through a filter."""

    node: Filter

    def applied(self, relation: Relation) -> Relation:
        made = FilterOperator(self.node.predicate, self.possible).segments(relation)
        # Whether a filter opens a hole depends on all rows of a key.
        return replace(made, drift={})


@plan_node
class Filter(Unary):
    """The times at which ``predicate`` holds."""

    predicate: Expression

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    passes_instants = True

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.predicate,)

    @property
    def selection(self) -> Expression:
        return self.predicate

    samples_inputs = True

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return FilterOperator(self.predicate, possible).segments(run.segments(self.input, possible))

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        if not self.input.is_stored:
            return filter_samples(run.samples(self.input, every), self.predicate, possible=run.possible)
        worth = possible_rows(run.segments(self.input), self.predicate)
        return filter_samples(sample(worth, every), self.predicate, possible=run.possible)

    def compile(self, program: Program, rows: Mapping[Node, int]) -> ProgramArc:
        return program.filter(self.input.compile(program, rows), self.predicate)

    # -- rewriting ------------------------------------------------------------------------------------------

    def change_predicates(self, change: Callable[[Expression], Expression]) -> Node:
        return Filter(self.input, change(self.predicate))

    def merged(self) -> Node:
        if isinstance(self.predicate, Constant) and self.predicate.value is True:
            return self.input
        if isinstance(self.input, Filter):
            return Filter(self.input.input, all_of((self.input.predicate, self.predicate)))
        return self

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        return push_into(self.input, (*conjuncts(self.predicate), *predicates)), ()

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted | columns_of(self.predicate)),))

    def prune_time(self, wanted: TimeRange) -> Node:
        own = conjuncts(self.predicate)
        below = self.input.prune_time(wanted.where(own, self.columns.time))
        return filtered(below, tuple(one for one in own if not below.reads_only(one)))

    def prune_keys(self) -> Node:
        return filtered(*self.input.take_key_predicates(conjuncts(self.predicate)))

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        return self.with_inputs((self.input.bound_pairs(value, bound, window),))

    def equal_keys(self) -> dict[str, Hashable]:
        return self.input.equal_keys()

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Filter):
            return None
        names = self.input.names_in(other.input)
        return names if names is not None and equal_as(self.predicate, other.predicate, names) else None

    def mirrored(self, exchanged: Renaming) -> Swaps | None:
        same = equal_as(self.predicate, self.predicate, exchanged)
        return swaps_of(exchanged, self.columns.names) if same else None

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, above)
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def stored_rows(self) -> tuple[str, str] | None:
        return self.input.stored_rows

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        """Pass needs on where a key has results; the predicate's columns get a share of its margin."""
        below = inversion.segments(self.input)
        place = self.source_groups(0, relation, below)
        # Where the predicate passes no rows, only its margin counts.
        had_rows = gather(np.diff(below.offsets).astype(float), place) > 0.0
        emptied = had_rows & (np.diff(relation.offsets) == 0)
        kept = {name: np.where(emptied, np.inf, need) for name, need in needs.items()}
        (passed,) = super().invert(inversion, relation, kept)
        if inversion.inferences and self.predicate != TRUE:
            volatility = inversion.volatility.rows(self.input)
            passed = smaller(passed, inversion.decision_shares(below, self.predicate, volatility))
        return (passed,)

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature.select(*sorted(columns_of(self.predicate))))

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "stateless", "a revised row is all it needs"
    maintained = IncrementalFilter

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Filter {predicate_label(self.predicate)}"


def filtered(node: Node, predicates: Predicates) -> Node:
    """Return the node's output where all predicates hold; the node itself if there are none."""
    return Filter(node, all_of(predicates)) if predicates else node
