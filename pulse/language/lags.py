"""Bind functions of time: give sources columns with the values that their attributes had some time ago, or averages of them.

An expression of earlier values is the earlier value of the expression, so a source is delayed once per duration, with the
attributes that are asked for; an average is of its expression::

    select price / lag(price, 60 s) from S      Project(Join(S, Project(Delay(S, 60 s)), on the key))
    select ema(price, 12 s) from S              Project(Join(S, Project(Smooth(Project(S), 12 s)), on the key))

Values are those of the source in FROM: WHERE does not remove them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from pulse.core.expression import Column, Expression, columns_of
from pulse.core.schema import Role
from pulse.language.errors import source_text, wrong
from pulse.language.expressions import Averaged
from pulse.language.literals import duration
from pulse.language.scope import Attribute, Bound, Scope
from pulse.operators.functions.of_time import OF_TIME
from pulse.operators.node import Duration, Node
from pulse.operators.relational.delay import Delay
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project
from pulse.operators.relational.smooth import Smooth

Lagged = dict[tuple[str, Duration], str]


def with_lags(select: exp.Select, scope: Scope) -> Scope:
    """Return the scope with sources that have the earlier values, and averages, which a select uses."""
    made = _with_averages(select, scope)
    wanted: dict[Duration, dict[str, None]] = {}
    for call in _calls(select, averages=False):
        by = _duration(call)
        for value in call.expressions[:-1]:
            for column in value.find_all(exp.Column):
                found = scope.resolve(column)
                if isinstance(found, Attribute) and found.role is Role.MODELLED:
                    _check_ranges(_source_of(found.column, scope), source_text(column), call)
                    wanted.setdefault(by, {})[found.column] = None
    lagged: Lagged = {}
    sources = list(made.sources)
    for number, (by, columns) in enumerate(wanted.items(), 1):
        for i, source in enumerate(scope.sources):
            own = [one for one in columns if one in source.node.columns.modelled]
            if own:
                names = {one: f"{one}#{number}" for one in own}
                lagged |= {(one, by): name for one, name in names.items()}
                earlier = Delay(source.node, by)
                sources[i] = _beside(sources[i], source, earlier, names, f"#{number}")
    return replace(made, sources=tuple(sources), lagged=lagged)


def _with_averages(select: exp.Select, scope: Scope) -> Scope:
    """Return the scope with sources that have the averages which a select uses."""
    averaged: dict[tuple[Expression, Duration], str] = {}
    sources = list(scope.sources)
    for call in _calls(select, averages=True):
        tau, argument = _duration(call), Averaged(scope, str(call.this)).number(call.expressions[0])
        if (argument, tau) in averaged:
            continue
        used = columns_of(argument)
        owners = [i for i, one in enumerate(scope.sources) if used & set(one.node.columns.names)]
        if not owners:
            raise wrong(f"{call.this} takes an attribute or an expression of some", call)
        if len(owners) > 1:
            raise wrong(
                f"{call.this} takes attributes of one stream; put the join in a subquery: from (select … from … join …) as name",
                call,
            )
        source = scope.sources[owners[0]]
        _check_ranges(source, source_text(call.expressions[0]), call)
        name = averaged[argument, tau] = f"{source.alias}.{call.this}#{len(averaged) + 1}"
        values = Project(source.node, ((name, argument),), source.node.columns.time)
        sources[owners[0]] = _beside(
            sources[owners[0]], source, Smooth(values, tau), {name: name}, f"#{call.this}{len(averaged)}"
        )
    return replace(scope, sources=tuple(sources), averaged=averaged)


def _calls(select: exp.Select, *, averages: bool) -> Iterator[exp.Anonymous]:
    """Yield the calls of functions of time with all arguments; what is wrong with others shows as they are bound."""
    clauses = [select.args.get("where"), select.args.get("having")]
    conditions = [join.args.get("on") for join in select.args.get("joins") or []]
    for root in (*select.expressions, *clauses, *conditions):
        for call in () if root is None else root.find_all(exp.Anonymous):
            rules = OF_TIME.get(str(call.this))
            if rules is not None and len(call.expressions) == rules.arity + 1 and rules.averages == averages:
                yield call


def _duration(call: exp.Anonymous) -> Duration:
    by = duration(call.expressions[-1])
    if by == 0:
        raise wrong(f"{call.this} needs a duration above 0", call.expressions[-1])
    return by


def _source_of(column: str, scope: Scope) -> Bound:
    return next(one for one in scope.sources if column in one.node.columns.names)


def _check_ranges(source: Bound, name: str, call: exp.Anonymous) -> None:
    if source.node.columns.points:
        raise wrong(
            f"'{name}' is known at its tuples alone, so it has no value between them; fit it with the truth step or "
            f"linear to use {call.this}",
            call,
        )


def _beside(joined: Bound, source: Bound, earlier: Node, names: dict[str, str], mark: str) -> Bound:
    """Join a source with columns computed from it, key by key; ``mark`` makes the names of their keys distinct."""
    keys = {key: f"{key}{mark}" for key in source.node.columns.key_names}
    outputs = tuple((name, Column(one)) for one, name in {**keys, **names}.items())
    other = Project(earlier, outputs, source.node.columns.time)
    return replace(joined, node=Join(joined.node, other, tuple(keys.items())))
