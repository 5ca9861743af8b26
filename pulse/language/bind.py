"""Bind statements to queries: a select is its FROM and WHERE, its aggregates, HAVING, and a projection to its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.expression import Column, Parameter
from pulse.language.aggregates import bind_aggregates, is_grouped
from pulse.language.errors import known, wrong
from pulse.language.expressions import Binder
from pulse.language.literals import bound, duration, moment
from pulse.language.outputs import OutputColumn, Outputs, bind_outputs, check_names
from pulse.language.scope import Bound, Context, Named, attributes_of
from pulse.language.sources import bind_from, shared_window
from pulse.language.syntax import Statement, TopClause
from pulse.operators.across.top import Top
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.intersect import Intersect
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import as_of
from pulse.operators.relational.union import Union
from pulse.plan.query import Query


def bind_statement(statement: Statement, context: Context) -> Query:
    """Bind a statement to a query."""
    for cte in statement.args.get("with_") or []:
        name = cte.args["alias"].this
        if name.name.casefold() in context.named:
            raise wrong(f"WITH names '{name.name}' twice", name)
        context = replace(context, named={**context.named, name.name.casefold(): Named(cte.this, context)})
    members = _members(statement.this, context)
    plan = _united(statement.this, members, "")
    outputs = members[0].outputs
    check_names(outputs, plan.columns.modelled, context.text)
    if statement.args.get("at") is not None:
        plan = as_of(plan, moment(statement.args["at"]))
    every = statement.args.get("every")
    if statement.args.get("top") is not None:
        plan = _top(statement.args["top"], plan, every)
    if every is not None and plan.columns.points:
        raise wrong(
            "SAMPLE EVERY asks for values between tuples, and points have none there; leave it out: the answer is then the "
            "tuples at their own instants. A window has values at a rate: from S[size 60 advance 2]",
            every,
        )
    return Query(
        plan,
        tuple(one.name for one in outputs.columns if not one.hidden),
        None if every is None else duration(every),
        _errors(statement, plan),
        bool(statement.args.get("possible")),
        context.text,
    )


def bind_subquery(query: exp.Expr, context: Context, alias: str) -> Bound:
    """Bind a query in FROM: its outputs are named ``alias.output``."""
    members = _members(query, context)
    node = _united(query, members, f"{alias}.")
    outputs = members[0].outputs
    names = {f"{alias}.{one.name}": one.name for one in outputs.columns if not one.hidden}
    names[node.columns.time] = outputs.time
    return Bound(alias, node, attributes_of(node.columns, alias, names))


@dataclass(frozen=True)
class _Member:
    """A select before its last projection."""

    select: exp.Expr
    node: Node
    outputs: Outputs

    @property
    def shown(self) -> list[OutputColumn]:
        """Return the columns that are matched with those of other members: without keys that equal one of them."""
        return [one for one in self.outputs.columns if not one.hidden]

    def projected(self, names: list[str], time: str) -> Project:
        """Return the select with its columns named, carrying keys that equal another."""
        made = zip(names, self.outputs.columns, strict=True)
        return Project(self.node, tuple((name, one.expression) for name, one in made), time)

    def matched(self, names: list[str], time: str) -> Project:
        """Return the select with only its shown columns, named."""
        made = zip(names, self.shown, strict=True)
        columns = ((one.expression, one.equals) for one in self.outputs.columns if one.hidden)
        hidden = tuple((key.name, equal) for key, equal in columns if isinstance(key, Column))
        return Project(self.node, tuple((name, one.expression) for name, one in made), time, hidden)


def _members(query: exp.Expr, context: Context) -> list[_Member]:
    """Return the selects of a query: one, or those that UNION ALL and INTERSECT combine, in their order."""
    selects: list[exp.Expr] = []
    stack = [query]
    while stack:
        one = stack.pop()
        if isinstance(one, (exp.Union, exp.Intersect)):
            stack += [one.expression, one.this]
        else:
            selects.append(one)
    return [_member(one, context) for one in selects if isinstance(one, exp.Select)]


def _member(select: exp.Select, context: Context) -> _Member:
    node, scope = bind_from(select, context, bind_subquery)
    binder = Binder(scope, "the select list")
    if is_grouped(select):
        node, binder = bind_aggregates(select, node, scope, shared_window(select, scope))
        if select.args.get("having"):
            node = Filter(node, binder.predicate(select.args["having"].this))
    return _Member(select, node, bind_outputs(select, node, binder))


def _united(query: exp.Expr, members: list[_Member], prefix: str) -> Node:
    """Return one projection, or a combination of several, whose columns are matched by position and named as in the first."""
    first = members[0].outputs
    if len(members) == 1:
        return members[0].projected([f"{prefix}{one.name}" for one in first.columns], f"{prefix}{first.time}")
    kind = "an intersect" if isinstance(query, exp.Intersect) else "a union all"
    shown = [one.name for one in members[0].shown]
    names = [f"{prefix}{name}" for name in shown]
    plans: list[Node] = []
    for member in members:
        if len(member.shown) != len(names):
            raise wrong(
                f"the queries of {kind} must have the same columns, keys included: the first has "
                f"{', '.join(shown)}, this one {', '.join(one.name for one in member.shown)}",
                member.select,
            )
        plan = member.matched(names, f"{prefix}{first.time}")
        if plans and plan.columns != plans[0].columns:
            columns = plan.columns
            differing = next((n for n in names if _column(columns, n) != _column(plans[0].columns, n)), None)
            if differing is None:
                raise wrong(
                    f"the queries of {kind} must all be of points, or none: windows over tuples and over time differ",
                    member.select,
                )
            raise wrong(
                f"the queries of {kind} must have the same columns: '{differing.removeprefix(prefix)}' is "
                f"{_column(plans[0].columns, differing)} in the first and {_column(columns, differing)} in this one",
                member.select,
            )
        _check_instants(plan, plans[0] if plans else plan, member, prefix)
        plans.append(plan)
    return _combined(query, iter(plans))


def _check_instants(plan: Node, first: Node, member: _Member, prefix: str) -> None:
    """Check that columns of one place are all instants, which tuples show as timestamps, or all numbers."""
    differing = sorted({*plan.columns.instants} ^ {*first.columns.instants})
    if differing:
        kinds = [
            "an instant" if differing[0] in one.columns.instants else "a number" for one in (first, plan)
        ]
        raise wrong(
            f"the queries must have the same columns: '{differing[0].removeprefix(prefix)}' is {kinds[0]} in the first and "
            f"{kinds[1]} in this one; an instant in a calculation, such as -min_at(x), is a number of seconds",
            member.select,
        )


def _combined(query: exp.Expr, plans: Iterator[Node]) -> Node:
    """Combine plans as the query specifies; a chain of unions is one."""
    if isinstance(query, exp.Intersect):
        return Intersect(_combined(query.this, plans), _combined(query.expression, plans))
    if not isinstance(query, exp.Union):
        return next(plans)
    sides = [_combined(one, plans) for one in (query.this, query.expression)]
    return Union(
        tuple(part for side in sides for part in (side.members if isinstance(side, Union) else (side,)))
    )


def _column(columns: Columns, name: str) -> str:
    return f"{columns.role(name)} {columns.type_of(name)}"


def _top(clause: TopClause, plan: Node, every: exp.Expr | None) -> Node:
    """Return the plan with only the rows of the largest values at each sampled instant."""
    name = clause.expression.name
    modelled = {one.casefold(): one for one in plan.columns.modelled}
    if name.casefold() not in modelled:
        raise wrong(
            f"'{name}' is not a modelled column of the result: name what to rank by in the select list, with as; "
            f"{known(name, plan.columns.modelled)}",
            clause.expression,
        )
    if plan.columns.points:
        raise wrong(
            "points have instants of their own, at which other keys have no value to compare: take a window over them, or fit "
            "the stream with the truth step or linear",
            clause,
        )
    if every is None and not plan.advances:
        raise wrong(
            "TOP is decided at sampled instants: add sample every 60 s, or a window with an advance", clause
        )
    return Top(plan, int(clause.this), modelled[name.casefold()], bool(clause.args.get("smallest")))


def _errors(statement: Statement, plan: Node) -> tuple[tuple[str | None, ErrorBound | Parameter], ...]:
    """Return the ERROR WITHIN clauses by output column."""
    modelled = {name.casefold(): name for name in plan.columns.modelled}
    errors: dict[str | None, ErrorBound | Parameter] = {}
    for clause in statement.args.get("errors") or []:
        requested = bound(clause.this)
        for node in clause.expressions or [None]:
            name = None if node is None else modelled.get(node.name.casefold())
            if node is not None and name is None:
                raise wrong(
                    f"'{node.name}' is not a modelled column of the result; {known(node.name, plan.columns.modelled)}",
                    node,
                )
            if name in errors:
                raise wrong(f"there are two bounds on {name or 'all columns'}; write one", clause)
            errors[name] = requested
    return tuple(errors.items())
