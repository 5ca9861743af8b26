"""How the bounds that a query states are shared out among the keys and attributes of its streams (semantics 4.3, 6.2), and
whether results and models keep them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse.core.arrays import BoolArray
from pulse.core.bounds import ErrorBound
from pulse.operators.data.relation import Relation
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.predict.spec import Predictor
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.inverter import absolute_bounds, invert
from pulse.validation.inversion.volatility import expected_violations, pooled

CLEARLY = 0.8
"""What part of the expected violations unequal shares must come down to, to be taken instead of more equal ones."""

_ROUNDING = 1e-9
"""By what part of itself a bound may be exceeded before that counts: it went through a few operations."""


def shared_out(
    predictor: Predictor, evaluation: FragmentEvaluation, rates: Mapping[str, Allotment], *, alone: bool
) -> dict[str, Allotment]:
    """What the split gives. Of ours, where outputs share inputs, the one of three that clearly promises fewest violations.

    Its shares are the best for each output by itself (``alone``: every key takes part in one). Where a key takes part in
    many, only the smallest of its shares counts, and what others gave up for it is lost. Then it may be better to tell
    streams and attributes apart, not keys, or nothing at all; and rates are estimates of what comes from what was.
    """

    def inverted(split: str, known: Mapping[str, Allotment]) -> dict[str, Allotment]:
        plan, bounds = predictor.standing.plan, predictor.bounds
        return invert(plan, bounds, evaluation.segments, split=split, restlessness=known)

    if predictor.split != "restless" or alone:
        return inverted(predictor.split, rates)
    best = inverted("equi", rates)
    least = CLEARLY * expected_violations(best, rates)
    for known in (pooled(rates), rates):
        found = inverted("restless", known)
        expected = expected_violations(found, rates)
        if expected < least:
            best, least = found, CLEARLY * expected
    return best


def beyond(results: Relation, bounds: Mapping[str | None, ErrorBound]) -> BoolArray:
    """Which results may be further from the truth than the query asks for, as they state themselves."""
    found = np.zeros(len(results), bool)
    for name, bound in bounds.items():
        for one in results.columns.modelled if name is None else (name,):
            allowed = absolute_bounds(results, one, bound)
            # What is relative may become anything next to zero: there no bound but 0 would do.
            above = (results.err[one] > allowed * (1.0 + _ROUNDING)) & (allowed > 0.0)
            # Where a key is unknown there is no bound at all, and none of the others' shares would make one.
            found |= above & np.isfinite(results.err[one])
    return found


def too_loose(updates: Relation, allotted: Allotment | None) -> bool:
    """Whether models were begun with bounds above those that are allotted now."""
    if allotted is None or not len(updates):
        return False
    bounds = allotted.of(updates.keys, updates.groups)
    return any(
        bool((updates.err[name] > values[updates.group] * (1.0 + _ROUNDING)).any())
        for name, values in bounds.items()
    )
