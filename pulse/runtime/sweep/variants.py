"""Plan the jobs of a sweep's variants: once for all, where planning does not depend on their parameters.

Only two kinds of rules look at window sizes: those that narrow the times that are read, and those for pairs of a join without
equal keys. Without either, the plan is optimised with its parameters and bound for each variant; else each variant is planned
separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulse.operators.node import Node, walk
from pulse.plan.exchanges import place_exchanges
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.runtime.accents.query_units import NO_ACCENTS
from pulse.runtime.execution.bound_plan import BoundPlan, prepare, rate_of_tuples
from pulse.store.model_ref import ModelRef


def jobs_of(
    query: Query,
    variants: Sequence[tuple[Mapping[str, Any], Query]],
    paths: Mapping[str, str | ModelRef],
    *,
    tuples: bool,
    summary: bool,
) -> tuple[BoundPlan, ...]:
    """Return the job of each variant, a pair of its parameters and the query bound to them."""

    def planned(bound: Query) -> BoundPlan:
        return prepare(bound, paths, tuples=tuples, summary=summary)

    if len(variants) < 2 or not sizes_only(query.plan):
        return tuple(planned(bound) for _, bound in variants)
    first = planned(variants[0][1])
    unbound = replace(query, plan=place_exchanges(optimise(query.plan)))
    alone = first.accents is NO_ACCENTS and len(first.fragments) == 1
    if not alone or unbound.bind(variants[0][0]).plan != first.query.plan:
        return tuple(planned(bound) for _, bound in variants)
    made = [first]
    for values, bound in variants[1:]:
        plan = unbound.bind(values).plan
        made.append(
            replace(first, query=replace(bound, plan=plan), rate=rate_of_tuples(bound) if tuples else None)
        )
    return tuple(made)


def sizes_only(plan: Node) -> bool:
    """Return whether all parameters of a plan are sizes of windows that no rule looks at.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Parameter
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> window = Window(Scan("S", "S", Columns((), ("x",))), "avg", "S.x", "a", Parameter("size"), 10)
    >>> sizes_only(window), sizes_only(Filter(window, Comparison(">", Column("a"), Parameter("least"))))
    (True, False)
    """
    return all(node.planned_once for node in walk(plan))
