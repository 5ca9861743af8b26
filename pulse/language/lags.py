"""Bind functions of time: give sources columns with the values that their attributes had some time ago.

An expression of earlier values is the earlier value of the expression, so a source is delayed once per duration, with the
attributes that are asked for::

    select price / lag(price, 60 s) from S      Project(Join(S, Project(Delay(S, 60 s)), on the key))

Values are those of the source in FROM: WHERE does not remove them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from pulse.core.expression import Column
from pulse.core.schema import Role
from pulse.language.errors import wrong
from pulse.language.literals import duration
from pulse.language.scope import Attribute, Bound, Scope
from pulse.operators.functions.of_time import OF_TIME
from pulse.operators.node import Duration, Node
from pulse.operators.relational.delay import Delay
from pulse.operators.relational.join import Join
from pulse.operators.relational.project import Project

Lagged = dict[tuple[str, Duration], str]


def with_lags(select: exp.Select, scope: Scope) -> Scope:
    """Return the scope with sources that have the earlier values which a select uses."""
    wanted: dict[Duration, dict[str, None]] = {}
    for call in _calls(select):
        by = duration(call.expressions[-1])
        if by == 0:
            raise wrong(f"{call.this} needs a duration above 0", call.expressions[-1])
        for value in call.expressions[:-1]:
            for column in value.find_all(exp.Column):
                found = scope.resolve(column)
                if isinstance(found, Attribute) and found.role is Role.MODELLED:
                    _check_ranges(found, scope, call)
                    wanted.setdefault(by, {})[found.column] = None
    lagged: Lagged = {}
    sources = list(scope.sources)
    for number, (by, columns) in enumerate(wanted.items(), 1):
        for i, source in enumerate(scope.sources):
            own = [one for one in columns if one in source.node.columns.modelled]
            if own:
                names = {one: f"{one}#{number}" for one in own}
                lagged |= {(one, by): name for one, name in names.items()}
                sources[i] = replace(sources[i], node=_joined(sources[i].node, source, by, names, number))
    return replace(scope, sources=tuple(sources), lagged=lagged)


def _calls(select: exp.Select) -> Iterator[exp.Anonymous]:
    """Yield the calls of functions of time with all arguments; what is wrong with others shows as they are bound."""
    clauses = [select.args.get("where"), select.args.get("having")]
    conditions = [join.args.get("on") for join in select.args.get("joins") or []]
    for root in (*select.expressions, *clauses, *conditions):
        for call in () if root is None else root.find_all(exp.Anonymous):
            rules = OF_TIME.get(str(call.this))
            if rules is not None and len(call.expressions) == rules.arity + 1:
                yield call


def _check_ranges(found: Attribute, scope: Scope, call: exp.Anonymous) -> None:
    source = next(one for one in scope.sources if found.column in one.node.columns.names)
    if source.node.columns.points:
        raise wrong(
            f"'{found.name}' is known at its tuples alone, so it has no value some time ago; fit it with the truth step or "
            f"linear to use {call.this}",
            call,
        )


def _joined(node: Node, source: Bound, by: Duration, names: dict[str, str], number: int) -> Node:
    """Join a source with its own earlier values, key by key."""
    keys = {key: f"{key}#{number}" for key in source.node.columns.key_names}
    outputs = tuple((name, Column(one)) for one, name in {**keys, **names}.items())
    earlier = Project(Delay(source.node, by), outputs, source.node.columns.time)
    return Join(node, earlier, tuple(keys.items()))
