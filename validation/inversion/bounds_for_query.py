"""Choose the fit that keeps a query's ERROR WITHIN (semantics 4.3): ``pulse fit --for QUERY``.

The plan alone suffices (:func:`~pulse.plan.required_fit.required_fit`) for absolute bounds, linear expressions and windows. A
trial, a quick fit of some of the data evaluated by the plan, is needed where magnitudes count: relative bounds, products, powers,
roots, sums across keys, and the decisions of predicates. A trial represents the rest of the data only as far as that is similar,
so its result is advice; the query checks its bounds when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse.core.bounds import Absolute, ErrorBound
from pulse.core.errors import PulseError
from pulse.core.expression import columns_of
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.node import Node, walk
from pulse.operators.relational.scan import scans
from pulse.plan.query import Query
from pulse.plan.required_fit import required_fit
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.inversion.inverter import absolute_bounds, bounds_by_column, invert
from pulse.validation.inversion.volatility import Evaluate


class NoBoundError(PulseError, ValueError):
    """An error for a query without a bound, for which no fit can be chosen."""


def for_query(
    query: Query, evaluate: Evaluate | None = None, *, split: str = "equi"
) -> dict[str, dict[str, Fit]]:
    """Return per stream and attribute the fit that keeps the query's bounds: its ``error`` or its ``drift``, either suffices.

    ``query`` has its parameters bound; ``evaluate`` returns the output of a plan node on a trial fit. Both bounds are None for
    an attribute without a derivable bound. A relative bound refers to the smallest value in the trial's output.
    Attributes that only predicates use get their share of the trial's decision margin, if there is any.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> average = Window(Scan("S", "S", Columns((), ("x",))), "avg", "S.x", "a", 10_000_000, None)
    >>> for_query(Query(average, ("a",), errors=((None, Absolute(0.01)),)))
    {'S': {'x': Fit(error=0.01, drift=0.05)}}
    """
    if not query.errors:
        raise NoBoundError("the query states no bound to fit for; add ERROR WITHIN … to it")
    bounds = bounds_by_column(query.plan, query.errors)
    fixed = _absolute(query.plan, bounds, evaluate)
    found = required_fit(query, fixed) if fixed else {}
    if evaluate is not None:
        for place, error in _tried(query.plan, bounds, evaluate, split, inferences=False).items():
            known = found.get(place, UNKNOWN)
            # The plan alone ignores the approximation error of functions.
            found[place] = Fit(error if known.error is None else min(error, known.error), known.drift)
    decided = _predicates(query.plan)
    if evaluate is not None and any(place not in found for place in decided):
        tried = _tried(query.plan, bounds, evaluate, split, inferences=True)
        found |= {place: Fit(tried[place]) for place in decided if place not in found and tried.get(place)}
    out: dict[str, dict[str, Fit]] = {}
    for stream, name in (*found, *decided):
        out.setdefault(stream, {})[name] = found.get((stream, name), UNKNOWN)
    return out


def _absolute(
    plan: Node, bounds: Mapping[str, tuple[ErrorBound, ...]], evaluate: Evaluate | None
) -> dict[str, float]:
    """Convert the bounds to absolute ones, relative ones by the trial; without a trial, omit columns with relative bounds."""
    out = {}
    for name, many in bounds.items():
        if all(isinstance(one, Absolute) for one in many):
            out[name] = min(one.value for one in many if isinstance(one, Absolute))
        elif evaluate is not None:
            result = evaluate(plan)
            if len(result):
                out[name] = min(float(absolute_bounds(result, name, one).min()) for one in many)
    return out


def _tried(
    plan: Node,
    bounds: Mapping[str, tuple[ErrorBound, ...]],
    evaluate: Evaluate,
    split: str,
    *,
    inferences: bool,
) -> dict[tuple[str, str], float]:
    """Return the smallest bound that inversion on the trial gives to any key, where it gives one."""
    out: dict[tuple[str, str], float] = {}
    for i in range(max((len(many) for many in bounds.values()), default=0)):
        nth: dict[str | None, ErrorBound] = {name: many[i] for name, many in bounds.items() if i < len(many)}
        for stream, allotment in invert(plan, nth, evaluate, split=split, inferences=inferences).items():
            for name in allotment.attributes:
                least = _least(allotment, name)
                if np.isfinite(least):
                    out[stream, name] = min(out.get((stream, name), np.inf), least)
    return out


def _least(allotment: Allotment, name: str) -> float:
    listed = allotment.bounds.get(name, np.zeros(0))
    return float(min(listed.min(initial=np.inf), allotment.default.get(name, np.inf)))


def _predicates(plan: Node) -> list[tuple[str, str]]:
    """Return the stored attributes that predicates mention under a scan's alias."""
    used = {name for node in walk(plan) for name in columns_of(node.selection)}
    return [
        (one.stream, name)
        for one in scans(plan)
        for name in one.stored.modelled
        if f"{one.alias}.{name}" in used and name not in dict(one.models)
    ]
