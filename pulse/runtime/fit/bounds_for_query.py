"""Bounds of a fit from what will be asked: ``fit --for QUERY`` (semantics 4.3).

The query's ERROR WITHIN is inverted through its plan. Where magnitudes count (relative bounds, products, predicates) an exact
model of the first tuples stands for the data; what is got from it is advice, and the query checks its bounds when it runs.
"""

from __future__ import annotations

from typing import NamedTuple

from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.plan.nodes import Node, scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.store.model import Model
from pulse.validation.inversion.bounds_for_query import for_query

TRIAL = 100_000
"""Tuples that stand for the rest."""


ROOM = 0.999
"""Of what the query leaves, the part a fit is asked for: certificates carry the rounding of their own sums."""


class FitForError(PulseError, ValueError):
    """A query that no fit of the stream can be chosen for."""


class Bounds(NamedTuple):
    """What to ask of the fit: an error or a drift per attribute."""

    error: dict[str, float]
    drift: dict[str, float]

    def __str__(self) -> str:
        said = [
            f"{what} {bound:.6g} on {name}"
            for what in self._fields
            for name, bound in getattr(self, what).items()
        ]
        return ", ".join(said)


def bounds_for(query: Query, stream: str, trial: Model | None) -> Bounds:
    """The bounds that keep the query's own, for a stream of which ``trial`` is an exact model of some tuples.

    A bound on the integral is chosen where one suffices: it is what averages and sums over windows need.
    """
    plan = optimise(query.plan, mirror=False)
    leaves = tuple(dict.fromkeys(scans(plan)))
    evaluate = None
    if trial is not None and all(leaf.stream == stream for leaf in leaves):
        relation = Relation.from_table(trial.read().to_arrow(), Columns.of(trial.schema))
        inputs: dict[Node, Relation] = {leaf: as_scanned(relation, leaf) for leaf in leaves}
        evaluate = FragmentEvaluation(inputs).segments
    found = for_query(Query(plan, query.select, query.every, query.errors), evaluate).get(stream)
    if not found:
        raise FitForError(
            f"--for: the query does not depend on a modelled attribute of {stream}; give --error or --drift"
        )
    error, drift = {}, {}
    for name, fit in found.items():
        if fit.drift is not None:
            drift[name] = ROOM * fit.drift
        elif fit.error is not None:
            error[name] = ROOM * fit.error
        else:
            raise FitForError(
                f"--for: nothing can be told of '{name}' from the query and the first tuples; give --error {name}=…"
            )
    return Bounds(error, drift)
