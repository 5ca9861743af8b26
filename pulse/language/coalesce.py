"""Bind ``coalesce(A.x, B.x)``: a join whose sources fill each other's holes.

Each source is projected to its keys and its arguments of all calls, under common names; where the first has no row, that of the
next counts::

    select symbol, coalesce(A.price, B.price) as price from A join B on (A.symbol = B.symbol)

    Project(Coalesce(Project(A), Project(B)))

Everything else in the select, conditions and aggregates included, is over the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from pulse.core.expression import Column, Comparison, Expression, columns_of
from pulse.core.schema import Role
from pulse.language.errors import source_text, wrong
from pulse.language.expressions import ANY, COALESCE, NUMBER, Binder, bare
from pulse.language.scope import Attribute, Bound, Scope
from pulse.operators.node import Node
from pulse.operators.relational.coalesce import Coalesce
from pulse.operators.relational.project import Project

_SOURCES = (
    "coalesce takes the value of one stream, and where it has none that of another: coalesce(A.price, B.price) from A join B on "
    "(A.symbol = B.symbol)"
)


def coalesce_calls(select: exp.Select) -> list[exp.Anonymous]:
    """Return the outermost calls of coalesce in a select, distinct, in their order."""
    clauses = [select.args.get("where"), select.args.get("having")]
    conditions = [join.args.get("on") for join in select.args.get("joins") or []]
    found: dict[exp.Anonymous, None] = {}
    roots = (*select.expressions, *clauses, *conditions)
    stack = [one for one in reversed(roots) if one is not None]
    while stack:
        node = stack.pop()
        if _is_call(node):
            found.setdefault(node)
        else:
            stack.extend(reversed(list(node.iter_expressions())))
    return list(found)


def with_coalesce(calls: Sequence[exp.Anonymous], scope: Scope) -> tuple[Node, Scope]:
    """Return the sources of a join as one, with a column for each call, and the scope of its names."""
    bound = {call: _Values.of(call, scope) for call in calls}
    order = _order(bound, len(scope.sources))
    keys = _keys(scope, order, calls[0])
    first = scope.sources[order[0]]
    names = _names(bound, first)
    parts = []
    for place, number in enumerate(order):
        values = tuple((names[call], one.at(place)) for call, one in bound.items())
        parts.append(_projected(scope.sources[number], keys[number], values, first.node.columns.time))
    node: Node = parts[0]
    for number, part in zip(order[1:], parts[1:], strict=True):
        if part.columns.points != node.columns.points:
            raise wrong(
                f"'{scope.sources[number].alias}' and '{first.alias}' cannot fill each other's holes: one has values at its "
                "tuples alone, the other between them as well; fit both with the truth samples, or neither",
                calls[0],
            )
        node = Coalesce(node, part)
    sources = tuple(
        replace(source, node=node, attributes=_attributes(source, keys[i], node))
        for i, source in enumerate(scope.sources)
    )
    return node, replace(scope, sources=sources, same=(), coalesced=names)


def is_trivial(predicate: Expression) -> bool:
    """Check whether a predicate compares a key with itself, as the condition of a join does once its sources are one."""
    return (
        isinstance(predicate, Comparison) and predicate.relation == "=" and predicate.left == predicate.right
    )


def _is_call(node: exp.Expr) -> TypeGuard[exp.Anonymous]:
    return isinstance(node, exp.Anonymous) and node.this == COALESCE


class _Values:
    """The arguments of a call: an expression of each of some sources, and maybe a constant for all others."""

    def __init__(self, call: exp.Anonymous, sources: list[int], values: list[Expression]) -> None:
        self.call, self.sources, self._values = call, sources, values

    @classmethod
    def of(cls, call: exp.Anonymous, scope: Scope) -> _Values:
        """Bind the arguments of a call."""
        sources: list[int] = []
        values: list[Expression] = []
        arguments = list(_arguments(call))
        for i, argument in enumerate(arguments):
            value = _argument(argument, scope)
            used = columns_of(value)
            owners = [n for n, one in enumerate(scope.sources) if used & set(one.node.columns.names)]
            if not owners and i < len(arguments) - 1:
                raise wrong(
                    f"'{source_text(argument)}' has a value at all times, so what follows it never counts",
                    argument,
                )
            if len(owners) > 1:
                raise wrong("each argument of coalesce is of one stream; " + _SOURCES, argument)
            if owners and owners[0] in sources:
                raise wrong(
                    f"'{source_text(argument)}' is of the same stream as another argument, and is there where that is; "
                    + _SOURCES,
                    argument,
                )
            sources += owners
            values.append(value)
        if not sources:
            raise wrong(f"coalesce takes attributes of streams, got '{source_text(call)}'; " + _SOURCES, call)
        if len(scope.sources) == 1:
            raise wrong(
                f"a row of '{scope.sources[0].alias}' exists only where its attributes have values, so there is no hole to "
                "fill here; " + _SOURCES,
                call,
            )
        return cls(call, sources, values)

    @property
    def has_default(self) -> bool:
        """Return whether the last argument is a constant."""
        return len(self._values) > len(self.sources)

    def at(self, place: int) -> Expression:
        """Return the value where the source at a place of the order is the first that has a row."""
        return self._values[min(place, len(self._values) - 1)]


def _arguments(call: exp.Anonymous) -> Iterator[exp.Expr]:
    """Yield the arguments; those of a call inside belong to the outer one."""
    if not call.expressions:
        raise wrong("coalesce takes two arguments or more, got 0; " + _SOURCES, call)
    for one in call.expressions:
        inner = bare(one)
        if _is_call(inner):
            yield from _arguments(inner)
        else:
            yield one


def _argument(node: exp.Expr, scope: Scope) -> Expression:
    value, kind = Binder(scope, COALESCE).value(node)
    found = scope.resolve(inner) if isinstance(inner := bare(node), exp.Column) else None
    role = getattr(found, "role", Role.MODELLED)
    if kind not in (NUMBER, ANY) or role is not Role.MODELLED:
        what = {Role.KEY: "a key", Role.UNMODELLED: "not modelled"}.get(role, f"a {kind}")
        raise wrong(f"coalesce takes modelled attributes and numbers; '{source_text(node)}' is {what}", node)
    return value


def _order(bound: dict[exp.Anonymous, _Values], sources: int) -> list[int]:
    """Return the sources in the order in which they count: that of the longest call, of which all others are a part.

    Sources in no call come last, if every call has a number for their times.
    """
    values = list(bound.values())
    longest = max(values, key=lambda one: len(one.sources))
    for one in values:
        n = len(one.sources)
        if one.sources != longest.sources[:n]:
            raise wrong(
                f"'{source_text(one.call)}' and '{source_text(longest.call)}' take the streams in different orders, and a "
                "row is of one; write all in one order",
                one.call,
            )
        if n < len(longest.sources) and not one.has_default:
            raise wrong(
                f"'{source_text(one.call)}' has no value where '{source_text(longest.call)}' takes its last one; add "
                "arguments, or a number for these times",
                one.call,
            )
    rest = range(sources) if all(one.has_default for one in values) else ()
    return [*longest.sources, *(number for number in rest if number not in longest.sources)]


def _keys(scope: Scope, order: list[int], call: exp.Anonymous) -> list[dict[str, str]]:
    """Return the name of each key column in the result, by source: that of the first one's key which it equals."""
    first = scope.sources[order[0]]
    found: list[dict[str, str]] = []
    for number, source in enumerate(scope.sources):
        if number not in order:
            raise wrong(
                f"'{source.alias}' is in no coalesce: join it in a query around this one: from (select …, coalesce(…) as name "
                f"from … join …) as filled join {source.alias} on …",
                call,
            )
        own = {key: key for key in _key_columns(source)}
        if source is not first:
            own = {key: other for other in _key_columns(first) for key in own if _equal(scope, key, other)}
            types = dict(source.node.columns.key), dict(first.node.columns.key)
            whole = len(own) == len(_key_columns(source)) and list(own.values()) == _key_columns(first)
            if not whole or any(types[0][key] != types[1][other] for key, other in own.items()):
                raise wrong(_needed_keys(first, source), call)
        found.append(own)
    return found


def _key_columns(source: Bound) -> list[str]:
    return [one.column for one in source.attributes if one.role is Role.KEY]


def _equal(scope: Scope, a: str, b: str) -> bool:
    return any({a, b} <= group for group in scope.same)


def _needed_keys(first: Bound, source: Bound) -> str:
    a, b = ([one for one in side.attributes if one.role is Role.KEY] for side in (first, source))
    if sorted(str(one.type) for one in a) != sorted(str(one.type) for one in b):
        listed = [", ".join(f"{one.name} ({one.type})" for one in side) or "none" for side in (a, b)]
        return (
            f"coalesce fills holes key by key, and the keys of '{first.alias}' ({listed[0]}) and '{source.alias}' "
            f"({listed[1]}) are not alike; select both with the same keys in subqueries"
        )
    named = {one.name.casefold(): one for one in b}
    pairs = [(one, named.get(one.name.casefold(), other)) for one, other in zip(a, b, strict=True)]
    condition = " and ".join(
        f"{first.alias}.{one.name} = {source.alias}.{other.name}" for one, other in pairs
    )
    return f"coalesce fills holes key by key: equate all keys of '{first.alias}' and '{source.alias}', on ({condition})"


def _names(bound: dict[exp.Anonymous, _Values], first: Bound) -> dict[exp.Expr, str]:
    """Return a column's name for each call: ``coalesce.price`` for one of prices."""
    names: dict[exp.Expr, str] = {}
    for call in bound:
        argument = bare(next(_arguments(call)))
        name = base = f"{COALESCE}.{argument.name if isinstance(argument, exp.Column) else 'value'}"
        taken = {*names.values(), *first.node.columns.names}
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        names[call] = name
    return names


def _projected(
    source: Bound, keys: dict[str, str], values: tuple[tuple[str, Expression], ...], time: str
) -> Project:
    """Return a source's keys and values under common names; keys that equal others of it are hidden."""
    labels = source.node.equal_keys()
    shown = {labels[key]: key for key in keys}
    others = [key for key in source.node.columns.key_names if key not in keys]
    hidden = tuple((key, shown[labels[key]]) for key in others)
    named = tuple((name, Column(key)) for key, name in keys.items())
    return Project(source.node, (*named, *values), time, hidden)


def _attributes(source: Bound, keys: dict[str, str], node: Node) -> tuple[Attribute, ...]:
    """Return a source's attributes over the result: its keys and the time; others may lack a value there."""
    return tuple(
        replace(one, column=keys[one.column])
        if one.role is Role.KEY
        else replace(one, column=node.columns.time)
        if one.role is Role.TIME
        else replace(one, partial=True)
        for one in source.attributes
    )
