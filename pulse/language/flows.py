"""Bind aggregates of flows: sums over a window, counts by the flow that counts tuples, and means per tuple by both.

The model of a flow is a running total, so a sum is a difference of two values of it::

    sum(size)      sum of the flow            count(*)                     sum of the flow that is 1 (--flow trades=1)
    avg(size)      sum(size) / count(*)       sum(notional) / sum(size)    one function, without a result where it is undefined

Everything else that a query could say about a flow is refused, by name and with what to write instead.
"""

from __future__ import annotations

from sqlglot import exp

from pulse.core.expression import Column, Expression, columns_of
from pulse.language.errors import source_text, wrong
from pulse.language.expressions import bare
from pulse.language.scope import Attribute, Scope
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.scan import Scan
from pulse.operators.windows.flow_ratio import RATIO

Part = tuple[str, tuple[Expression, ...]]
"""A function, and its arguments."""

_OF_FLOWS = ("sum", "avg", "count")


def flow_part(call: exp.Expr, scope: Scope) -> Part | None:
    """Return the function of flows that computes an aggregate, or a quotient of two sums; None if it is of no flow."""
    if not isinstance(call, exp.Anonymous):
        return quotient_of_flows(call, scope)
    function = str(call.this)
    if function == "count":
        counter = _counter(scope)
        return None if counter is None or len(call.expressions) != 1 else ("sum", (Column(counter),))
    found = _flow(call, scope)
    if found is None:
        return None
    if function == "sum":
        return "sum", (Column(found.column),)
    if function != "avg":
        raise wrong(
            f"'{found.name}' is a flow: the model has its running total, not the values of single tuples; {function} needs "
            f"these: fit {found.name} with --points. Of a flow there are {', '.join(_OF_FLOWS)} over a window",
            call,
        )
    counter = _counter(scope)
    if counter is None:
        raise wrong(
            f"avg({found.name}) is the mean per tuple, and nothing counts the tuples: fit the stream with --flow trades=1, or "
            f"write sum({found.name}) by the time that you mean",
            call,
        )
    return RATIO, (Column(found.column), Column(counter))


def quotient_of_flows(node: exp.Expr, scope: Scope) -> Part | None:
    """Return the ratio that a quotient of two sums of flows is; None for everything else."""
    if not isinstance(node, exp.Div):
        return None
    sums = []
    for side in (bare(node.this), bare(node.expression)):
        if not isinstance(side, exp.Anonymous) or side.this not in ("sum", "count"):
            return None
        part = flow_part(side, scope)
        if part is None:
            return None
        sums.append(part[1][0])
    return RATIO, tuple(sums)


def _flow(call: exp.Anonymous, scope: Scope) -> Attribute | None:
    """Return the flow that is the only argument of a call."""
    if len(call.expressions) != 1 or not isinstance(argument := bare(call.expressions[0]), exp.Column):
        return None
    found = scope.resolve(argument)
    return found if isinstance(found, Attribute) and found.flow else None


def check_flow_input(call: exp.Expr, node: Node, keys_whole: bool, select: exp.Select) -> None:
    """Check that a sum of a flow sees whole keys: what is filtered or joined away would be missing from its totals."""
    if not keys_whole:
        raise wrong(
            f"{source_text(call)} is of a flow, whose total is kept per key: group by all keys, and add up over keys in a query "
            "around it: select sum(v) from (select …, sum(…) as v … group by all keys)",
            call,
        )
    below = node
    while isinstance(below, Filter) and columns_of(below.predicate) <= set(below.columns.key_names):
        below = below.input
    if isinstance(below, Filter):
        raise wrong(
            f"{source_text(call)} is of a flow, whose model has no single tuples that where could choose by value or time: "
            "filter the tuples before the fit, or choose closing times with where in a query around this one; keys can be "
            "chosen here",
            select.args.get("where") or call,
        )
    if not isinstance(below, Scan):
        raise wrong(
            f"{source_text(call)} is of a flow: it is added up in a query on its stream alone; join its result with others in a "
            "query around it",
            call,
        )


def _counter(scope: Scope) -> str | None:
    """Return the flow that counts the tuples of the stream, if there is one."""
    flows = (flow for source in scope.sources for flow in source.node.columns.flows)
    return next((column for column, counts in flows if counts), None)
