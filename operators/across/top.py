"""Top: keep the n keys with the largest, or smallest, value at each sampled instant (semantics 3.8, 3.9).

1 Transforms: no value. A row is among the top n of a truth where fewer than n rows have a strictly larger value, so keys that tie
  for the last place are all kept. It is decided at the instants of tuples alone: segments would be cut wherever two keys cross.
2 Bounds: stay. A row is certain where it is so itself and fewer than n others may lie above it, for every truth within the
  bounds; likely where that holds on the model; possible where fewer than n certain rows surely lie above it.
3 Inverts: passes the bound on.
4 Revises: refused: which keys are kept depends on all of them at each instant.
5 Accents: a selection by the compared attribute (semantics 8.2): values are compared in the units of the stream's start.

Rows with n certain ones surely above them are neither kept nor change what is said of others: their place among those that are
kept is taken by these n. So parts are reduced below an exchange, and merged above it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.inversion.fit import Fit
from pulse.operators.node import (
    Duration,
    Node,
    PlanError,
    Predicates,
    PushInto,
    Unary,
    is_selective,
    plan_node,
)
from pulse.operators.output.sampling import sample
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.exchange import Exchange
from pulse.stream.propagation.signature import Signature

_SPARSE = 4  # a table of all instants may have so many places a point


@plan_node
class Top(Unary):
    """The rows of the ``count`` largest values of ``by`` at each sampled instant; with ``smallest``, of the smallest."""

    count: int
    by: str
    smallest: bool = False
    phase: str = "whole"  # or "partial" (below an exchange) and "merge" (above it)

    # -- evaluation -----------------------------------------------------------------------------------------

    combines_keys = True
    of_one_instant = True
    samples_inputs = True
    closes = True

    @property
    def is_partial(self) -> bool:  # type: ignore[override]
        return self.phase == "partial"

    @property
    def why_not_in_jobs(self) -> str:
        return (
            f"'{self.clause.lower()}' is decided at sampled instants, and the results of a job are changes of segments; leave it "
            "out, or rank what `pulse changes --holds` shows"
        )

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        self._refuse("its answer is tuples", "ask for tuples, as `pulse query` and .tuples() do")

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        return replace(sample(run.instants(self, every), every), columns=self.columns)

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        # Certainty depends also on the keys that only possibly take part.
        possible = run.possible or is_selective(self.input)
        points = run.instants(self.input, every, possible=possible)
        if self.phase == "partial":
            return points.take(np.flatnonzero(Ranking(points, self).possible)).without_empty_groups()
        return top_rows(points.merged(), self)

    # -- rewriting ------------------------------------------------------------------------------------------

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        return self.with_inputs((push_into(self.input, ()),)), predicates

    def prune_columns(self, wanted: set[str]) -> Node:
        return self.with_inputs((self.input.prune_columns(wanted | {self.by}),))

    def equal_keys(self) -> dict[str, Hashable]:
        return self.input.equal_keys()

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, ())
        if place.parts is not None and place.holds(()):
            return self.with_inputs((below,)), place
        partial = replace(self, input=below, phase="partial")
        return replace(self, input=Exchange(partial, ()), phase="merge"), Placement.exchanged(())

    # -- inversion ------------------------------------------------------------------------------------------

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        return Handling(Signature.select(self.by))

    # -- revisions ------------------------------------------------------------------------------------------

    separates_keys = False
    takes_possible = True
    is_storable = False
    why_not_patched = "which keys are kept depends on all of them"
    revision_modes = "none", "differences of versions are refused: compare the answers of both"

    def incremental(self, *arguments: Any) -> NoReturn:
        self._refuse(
            "results are not maintained under revisions",
            "compare the answers on both versions, or leave it out",
        )

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        phase = "" if self.phase == "whole" else f" [{self.phase}]"
        return f"{self.clause}{phase}"

    @property
    def clause(self) -> str:
        """Return the clause of the query."""
        return f"{'Bottom' if self.smallest else 'Top'} {self.count} by {self.by}"

    def _refuse(self, why: str, instead: str) -> NoReturn:
        raise PlanError(
            f"query: '{self.clause.lower()}' is decided at sampled instants, as keys change places at any time between them, so "
            f"{why}; {instead}"
        )


class Ranking:
    """Points by instant: which of them surely are among the top, are so on the model, or may be; each computed when asked for."""

    def __init__(self, points: Relation, top: Top) -> None:
        sign, self.count = -1.0 if top.smallest else 1.0, top.count
        self.x, err = sign * points.models[top.by][:, 0], points.err[top.by]
        exact = err == 0.0
        self.lower = np.where(exact, self.x, np.nextafter(self.x - err, -np.inf))
        self.upper = np.where(exact, self.x, np.nextafter(self.x + err, np.inf))
        self.instants = Instants.of(points.ref)
        self.sure, self.held = points.certainty == CERTAIN, points.certainty >= LIKELY

    @property
    def certain(self) -> BoolArray:
        """Return which rows are among the top for every truth."""
        every, n = np.ones(len(self.x), bool), self.count
        # A row counts itself among those that may lie above it, unless it has no error.
        one, other = (self.instants.nth_largest(self.upper, every, k) for k in (n + 1, n))
        certain: BoolArray = self.sure & (np.where(self.upper > self.lower, one, other) <= self.lower)
        return certain

    @property
    def likely(self) -> BoolArray:
        """Return which rows are among the top on the model."""
        likely: BoolArray = self.held & (self.instants.nth_largest(self.x, self.held, self.count) <= self.x)
        return likely

    @property
    def possible(self) -> BoolArray:
        """Return which rows are among the top for some truth."""
        possible: BoolArray = self.instants.nth_largest(self.lower, self.sure, self.count) <= self.upper
        return possible


@dataclass(frozen=True, eq=False)
class Instants:
    """The instant of each point, by number, and its own place among those of the instant."""

    number: IntArray
    place: IntArray
    shape: tuple[int, int]

    @classmethod
    def of(cls, ref: IntArray) -> Instants:
        """Number the instants, and the points at each.

        >>> Instants.of(np.array([5, 5, 9])).nth_largest(np.array([1.0, 5.0, 3.0]), np.ones(3, bool), 2)
        array([  1.,   1., -inf])
        """
        order = np.argsort(ref, kind="stable")
        begins = np.ones(len(ref), bool)
        begins[1:] = np.diff(ref[order]) != 0
        starts = np.flatnonzero(begins)
        counts = np.diff(np.append(starts, len(ref)))
        number, place = np.empty_like(order), np.empty_like(order)
        number[order] = np.repeat(np.arange(len(starts)), counts)
        place[order] = np.arange(len(ref)) - np.repeat(starts, counts)
        return cls(number, place, (len(starts), int(counts.max(initial=0))))

    def nth_largest(self, values: FloatArray, among: BoolArray, n: int) -> FloatArray:
        """Return for each point the n-th largest value of its instant among some; minus infinity where there are fewer."""
        instants, most = self.shape
        if most < n:
            return np.full(len(values), -np.inf)
        if instants * most > _SPARSE * len(values) + 1024:
            return self.by_sorting(values, among, n)
        table = np.full((instants, most), -np.inf)
        table[self.number[among], self.place[among]] = values[among]
        found: FloatArray = np.partition(table, most - n, axis=1)[:, most - n]
        return found[self.number]

    def by_sorting(self, values: FloatArray, among: BoolArray, n: int) -> FloatArray:
        """Return the same where few instants have many points, so that a table would be large."""
        rows = np.flatnonzero(among)
        rows = rows[np.lexsort((-values[rows], self.number[rows]))]
        starts = np.searchsorted(self.number[rows], np.arange(self.shape[0] + 1))
        nth = np.full(self.shape[0], -np.inf)
        some = np.flatnonzero(np.diff(starts) >= n)
        nth[some] = values[rows[starts[some] + n - 1]]
        return nth[self.number]


def top_rows(points: Relation, top: Top) -> Relation:
    """Select the points that are among the top of some truth, with the certainty that they are."""
    ranking = Ranking(points, top)
    likely = ranking.likely
    codes = np.where(ranking.certain, CERTAIN, np.where(likely, LIKELY, POSSIBLE)).astype(np.uint8)
    made = replace(points, certainty=np.minimum(points.certainty, codes))
    return made.take(np.flatnonzero(ranking.possible | likely))
