"""Aggregate across keys: one function of all keys that share a key, at each instant (semantics 3.6, 3.7).

1 Transforms: by the function, a class of :mod:`pulse.operators.across.functions`; whole, or in parts below an exchange that are
  merged above it.
2 Bounds: by the function, for every choice of the keys that take part only possibly (:mod:`pulse.operators.across.membership`).
3 Inverts: by the function, to the rows present at the instant (semantics 4.3, 4.4).
4 Revises: where a key changed, all keys of its group are read again.
5 Accents: aggregate by ``by`` (semantics 8.2): an alteration whose description stays within it acts on results, else
  accumulates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import columns_of
from pulse.operators.accent_handling import Handling, aggregate_handling
from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.functions import OVER_RANGES, OVER_TUPLES
from pulse.operators.across.incremental_across import IncrementalAcross
from pulse.operators.across.inversion import Contributions
from pulse.operators.aggregate import Aggregate
from pulse.operators.data.relation import Relation
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import Needs, positions
from pulse.operators.inversion.sources import Inversion, Source, Volatilities
from pulse.operators.node import Duration, Node, is_selective, plan_node, walk
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.exchange import Exchange


@plan_node
class Across(Aggregate):
    """``function`` of ``argument`` over all keys that share ``by``, at each instant: envelope, sum or mean of those present.

    ``each``, of points, leaves them unchanged: a window above is over the tuples of all these keys.

    The output is named ``output``. ``by`` are key columns of the input. With ``partial`` the input holds partial results of the
    same function (for ``avg``: sums and counts), which are merged.
    """

    by: tuple[str, ...]
    phase: str = "whole"  # or "partial" (below an exchange) and "merge" (above it)

    @cached_property
    def columns(self) -> Columns:
        return self.operator().columns(self.input.columns)

    # -- evaluation -----------------------------------------------------------------------------------------

    combines_keys = True
    of_one_instant = True

    @property
    def is_partial(self) -> bool:  # type: ignore[override]
        return self.phase == "partial"

    @property
    def samples_inputs(self) -> bool:
        return self.closes

    def operator(self, *, points: bool | None = None) -> AcrossKeys:
        """Return the function's operator over ``points`` or segments; by default over what the input holds."""
        over_points = self.input.columns.points if points is None else points
        functions = OVER_TUPLES if over_points else OVER_RANGES
        return functions[self.function](self.function, self.argument, self.output, self.by, self.phase)

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        # Certainty depends also on the keys that only possibly take part.
        return self.operator().segments(run.segments(self.input, is_selective(self.input) or possible))

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        below = run.instants(self.input, every, possible=is_selective(self.input) or run.possible)
        return self.operator(points=True).segments(below)

    # -- rewriting ------------------------------------------------------------------------------------------

    def prune_columns(self, wanted: set[str]) -> Node:
        if self.phase == "merge":  # of all columns of the partial results
            return self.with_inputs((self.input.prune_columns(set(self.input.columns.names)),))
        return super().prune_columns(wanted)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        """Aggregate partially below the exchange and merge above it; neither where a group already lies together."""
        below, place = self.input.place(placing, ())
        if place.parts is not None and place.holds(self.by):
            kept = tuple(part & frozenset(self.by) for part in place.parts)
            return self.with_inputs((below,)), replace(place, parts=kept)
        exchanged = Placement.exchanged(self.by)
        if not self.operator().has_parts(in_doubt=_chosen_by_models(self.input)):
            return self.with_inputs((Exchange(below, self.by),)), exchanged
        partial = replace(self, input=below, phase="partial")
        return replace(self, input=Exchange(partial, self.by), phase="merge"), exchanged

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        return (Source.renamed(0, {self.output: self.operator().source}),)

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        raise NotImplementedError("a group of an aggregate across keys comes from several")

    def input_fit(self, fit: Fit) -> Fit:
        return self.operator().input_fit(fit)

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        if self.output not in needs:
            return ({},)
        below = inversion.segments(self.input)
        found = Contributions.align(self.argument, self.output, below, relation)
        volatility = inversion.volatility.rows(self.input).get(self.argument)
        return ({self.argument: self.operator().invert(inversion, found, needs[self.output], volatility)},)

    def volatility(self, known: Volatilities, relation: Relation) -> Needs:
        below, values = known.segments(self.input), known.groups(self.input).get(self.argument)
        if values is None:
            return {}
        names = below.columns.key_names
        own = [below.keys[names.index(name)] for name in relation.columns.key_names]
        at = positions(own, relation.keys, below.groups, relation.groups)
        there = (at >= 0) & ~np.isnan(values)
        return {self.output: self.operator().volatility(values[there], at[there], relation.groups)}

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        kept = (*self.by, self.input.columns.time)
        return aggregate_handling(self.function, self.arguments, kept, self.operator().derived_output())

    # -- revisions ------------------------------------------------------------------------------------------

    separates_keys = False
    takes_possible = True
    is_storable = False
    why_not_patched = "all keys of a group contribute to a result; which ones is not stored with it"
    revision_modes = "upstream", f"not downstream: {why_not_patched}"
    maintained = IncrementalAcross

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        phase = "" if self.phase == "whole" else f" [{self.phase}]"
        return f"Across {self.output} = {self.function}({self.argument}){by}{phase}"

    @property
    def equations(self) -> tuple[str, ...]:
        return self.operator().equations


def _chosen_by_models(node: Node) -> bool:
    """Check whether a predicate on modelled attributes lies below: then the set of rows may be in doubt."""
    return any(
        one.reads_certainty
        or columns_of(one.selection) & {name for below in one.inputs for name in below.columns.modelled}
        for one in walk(node)
    )
