"""Share the bounds that a query states among the keys and attributes of its streams (semantics 4.3, 6.2), and check that
results and models keep them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse.core.arrays import BoolArray
from pulse.core.bounds import ErrorBound
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import begins
from pulse.operators.node import Node
from pulse.operators.relational.scan import scans
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned
from pulse.runtime.incremental.continuous_view import ContinuousView
from pulse.runtime.predict.spec import Predictor
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.inverter import absolute_bounds, invert
from pulse.validation.inversion.volatility import expected_violations, pooled

CLEARLY = 0.8
"""Share of the expected violations that less equal shares must reach to replace more equal ones."""

_ROUNDING = 1e-9
"""Relative excess of a bound that rounding may cause."""


def share_bounds(
    predictor: Predictor, evaluation: FragmentEvaluation, rates: Mapping[str, Allotment], *, alone: bool
) -> dict[str, Allotment]:
    """Allot bounds by the predictor's split; if outputs share inputs, ``restless`` takes the best of three allotments.

    Its shares are optimal for each output by itself (``alone``: every key takes part in one output). If a key takes part in
    many, only its smallest share counts, and the shares that others gave up for it are lost. Then shares per stream and
    attribute, or equal shares, may be better than shares per key; and rates only estimate the future from the past.
    """

    def inverted(split: str, known: Mapping[str, Allotment]) -> dict[str, Allotment]:
        plan, bounds = predictor.continuous.plan, predictor.bounds
        return invert(plan, bounds, evaluation.segments, split=split, volatility=known)

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


def allotments(
    predictor: Predictor,
    view: ContinuousView,
    before: Mapping[str, Allotment],
    rates: Mapping[str, Allotment],
    updates: Mapping[str, Relation],
    evaluation: FragmentEvaluation | None = None,
    since: int | None = None,
) -> dict[str, Allotment]:
    """Invert the query's bounds through the current segments; return the bounds of all keys by stream.

    If the plan is one scan that processes keys separately, only the changed keys (those of ``evaluation``, if given) are inverted
    and the others keep their bounds ``before``; else all keys, from now or from ``since`` on.
    """
    if not predictor.bounds:
        return {}
    query, alone = predictor.continuous, predictor.continuous.alone
    if evaluation is None or not alone:
        now = since
        if now is None:
            now = max((int(begins(one).max()) for one in view.streams.values() if len(one)), default=0)
        inputs: dict[Node, Relation] = {}
        for leaf in dict.fromkeys(scans(query.plan)):
            segments = view.segments(leaf.stream, updates[leaf.stream].keys if alone else None)
            inputs[leaf] = as_scanned(query.recent(segments, now), leaf)
        evaluation = FragmentEvaluation(inputs, possible=query.query.possible)
    found = share_bounds(predictor, evaluation, rates, alone=alone)
    return {
        stream: before[stream].renewed(one) if alone and stream in before else one
        for stream, one in found.items()
    }


def beyond(results: Relation, bounds: Mapping[str | None, ErrorBound]) -> BoolArray:
    """The mask of results whose certified error exceeds the query's bound."""
    found = np.zeros(len(results), bool)
    for name, bound in bounds.items():
        for one in results.columns.modelled if name is None else (name,):
            allowed = absolute_bounds(results, one, bound)
            # A relative bound vanishes near zero: only an exact model would keep it there.
            above = (results.err[one] > allowed * (1.0 + _ROUNDING)) & (allowed > 0.0)
            # An unknown key leaves the error unbounded, whatever the shares of the others.
            found |= above & np.isfinite(results.err[one])
    return found


def too_loose(updates: Relation, allotted: Allotment | None) -> bool:
    """Whether models were started with bounds above their current allotment."""
    if allotted is None or not len(updates):
        return False
    bounds = allotted.of(updates.keys, updates.groups)
    return any(
        bool((updates.err[name] > values[updates.group] * (1.0 + _ROUNDING)).any())
        for name, values in bounds.items()
    )
