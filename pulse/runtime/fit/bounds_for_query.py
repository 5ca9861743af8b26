"""Derive the bounds of a fit from a query: ``fit --for QUERY`` (semantics 4.3).

The query's ERROR WITHIN is inverted through its plan. Where magnitudes count (relative bounds, products, predicates) an exact
model of the first tuples stands for the data; the bounds derived from it are advice, and the query checks its bounds when it
runs.
"""

from __future__ import annotations

from typing import NamedTuple

from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.operators.node import Node
from pulse.operators.relational.scan import scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.store.model import Model
from pulse.validation.inversion.bounds_for_query import for_query

TRIAL = 100_000
"""Tuples in the trial model, which stands for all the data."""


ROOM = 0.999
"""Part of the derived bound that the fit gets: certificates carry the rounding of their own sums."""


class FitForError(PulseError, ValueError):
    """No bounds of the stream can be derived from the query."""


class Bounds(NamedTuple):
    """The bounds of a fit: an error or a drift per attribute."""

    error: dict[str, float]
    drift: dict[str, float]

    def __str__(self) -> str:
        texts = [
            f"{what} {bound:.6g} on {name}"
            for what in self._fields
            for name, bound in getattr(self, what).items()
        ]
        return ", ".join(texts)


def bounds_for(query: Query, stream: str, trial: Model | None) -> Bounds:
    """Return bounds that satisfy the query's own; ``trial`` is an exact model of some tuples of the stream.

    A bound on the integral is chosen where one suffices: averages and sums over windows need only that.
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
                f"--for: the query and the first tuples do not determine a bound of '{name}'; give --error {name}=…"
            )
    return Bounds(error, drift)
