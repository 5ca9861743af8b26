"""Bind the select list: the columns of a query's result, and their names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from pulse.core.expression import Column, Expression
from pulse.core.schema import RESERVED, Role
from pulse.language.errors import LanguageError, source_text, wrong
from pulse.language.expressions import TRUTH, Binder, bare, is_aggregate
from pulse.language.scope import Attribute, Scope, refuse_flow, refuse_partial
from pulse.operators.node import Node


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result. ``given`` marks a name that the user gave with AS.

    A key that ``equals`` another one of the result is hidden: it is only carried along.
    """

    name: str
    expression: Expression
    node: exp.Expr
    alias: str = ""
    given: bool = False
    equals: str = ""

    @property
    def hidden(self) -> bool:
        """Check whether the result omits it."""
        return bool(self.equals)


@dataclass(frozen=True)
class Outputs:
    """All columns of a select, and the name of its time."""

    columns: tuple[OutputColumn, ...]
    time: str


def bind_outputs(select: exp.Select, node: Node, binder: Binder) -> Outputs:
    """Return the outputs of a select list over a node: the listed ones, then the keys that were not listed.

    A key that equals a listed one is hidden: it is carried, as every key is, but adds nothing.
    """
    listed: list[OutputColumn] = []
    time = ""
    for item in select.expressions:
        named = isinstance(item, exp.Alias)
        value = bare(item.this if named else item)
        attribute = _attribute(value, binder.scope)
        if attribute is not None and attribute.role is Role.TIME:
            wanted = item.alias if named else attribute.name
            if time and time != wanted:
                raise wrong(f"the time is selected twice, as '{time}' and '{wanted}'", item)
            time = wanted
        elif _is_star(value):
            listed += _expanded(value, binder)
        else:
            listed.append(_output(item, value, attribute, binder))
    time = time or _plain_time(binder.scope)
    listed = _unique(listed, time)
    return Outputs((*listed, *_unlisted_keys(listed, node, select, binder.scope, time)), time)


def _attribute(value: exp.Expr, scope: Scope) -> Attribute | None:
    if not isinstance(value, exp.Column) or _is_star(value):
        return None
    found = scope.resolve(value)
    return found if isinstance(found, Attribute) else None


def _is_star(value: exp.Expr) -> bool:
    return isinstance(value, exp.Star) or (isinstance(value, exp.Column) and isinstance(value.this, exp.Star))


def _expanded(value: exp.Expr, binder: Binder) -> list[OutputColumn]:
    scope = binder.scope
    sources = scope.sources if isinstance(value, exp.Star) else (scope.source(value.args["table"]),)
    if type(binder) is not Binder:
        raise wrong("* and aggregates do not go together; list the group's keys", value)
    for one in (one for source in sources for one in source.attributes):
        refuse_flow(value, one)
        refuse_partial(value, [one])
    return [
        OutputColumn(one.name, Column(one.column), value, one.alias)
        for source in sources
        for one in source.attributes
        if one.role is not Role.TIME
    ]


def _output(item: exp.Expr, value: exp.Expr, attribute: Attribute | None, binder: Binder) -> OutputColumn:
    bound, kind = binder.value(value)
    if kind == TRUTH and not isinstance(bound, Column):
        raise wrong("a truth value cannot be selected; put the condition in where", item)
    if isinstance(item, exp.Alias):
        return OutputColumn(item.alias, bound, item, given=True)
    if attribute is not None:
        return OutputColumn(attribute.name, bound, item, attribute.alias)
    return OutputColumn(readable_name(value, binder.scope), bound, item)


def readable_name(value: exp.Expr, scope: Scope) -> str:
    """Return an identifier for an expression without a name: ``avg(dist)`` is ``avg_dist``, ``S.ap - L.ap`` is ``S_ap_L_ap``."""
    text = source_text(value)
    if is_aggregate(value) and len(value.expressions) == 1:
        attribute = _attribute(bare(value.expressions[0]), scope)
        text = f"{value.this} {attribute.name}" if attribute is not None else text
    name = re.sub(r"\W+", "_", text).strip("_")[:60]
    return name if name and not name[0].isdigit() else f"value_{name}".rstrip("_")


def _unique(listed: list[OutputColumn], time: str) -> list[OutputColumn]:
    """Prefix columns of several streams that share a name with their alias; raise an error for other clashes."""
    plain = [(one.name.casefold(), one.alias) for one in listed if one.alias]
    clashing = {name for name, alias in plain if any(name == n and alias != a for n, a in plain)}
    fixed = {one.name.casefold() for one in listed if one.given or one.alias}
    taken = {time.casefold()}
    result: list[OutputColumn] = []
    for one in listed:
        name = f"{one.alias}_{one.name}" if one.alias and one.name.casefold() in clashing else one.name
        if not one.given and not one.alias:
            name = _numbered(name, taken | fixed)
        if name.casefold() in taken:
            which = "the time is" if name.casefold() == time.casefold() else "another column is"
            raise wrong(f"{which} called '{name}' already; name this one with AS", one.node)
        taken.add(name.casefold())
        result.append(replace(one, name=name))
    return result


def _numbered(name: str, taken: set[str]) -> str:
    tried, number = name, 1
    while tried.casefold() in taken:
        number += 1
        tried = f"{name}_{number}"
    return tried


def _unlisted_keys(
    listed: list[OutputColumn], node: Node, select: exp.Select, scope: Scope, time: str
) -> list[OutputColumn]:
    labels = node.equal_keys()
    named = {one.expression.name for one in listed if isinstance(one.expression, Column)}
    shown = {labels[name]: name for name in node.columns.key_names if name in named}
    taken = {time.casefold(), *(one.name.casefold() for one in listed)}
    known = {one.column: one for source in scope.sources for one in source.attributes}
    added: list[OutputColumn] = []
    for column in node.columns.key_names:
        if column in named:
            continue
        alias, _, plain = column.rpartition(".")
        if column in known:
            alias, plain = known[column].alias, known[column].name
        name = plain if plain.casefold() not in taken else _numbered(f"{alias}_{plain}", taken)
        taken.add(name.casefold())
        added.append(OutputColumn(name, Column(column), select, alias, equals=shown.get(labels[column], "")))
        shown.setdefault(labels[column], column)
    return sorted(added, key=lambda one: one.hidden)


def _plain_time(scope: Scope) -> str:
    return next(one.name for one in scope.sources[0].attributes if one.role is Role.TIME)


def check_names(outputs: Outputs, modelled: tuple[str, ...], text: str) -> None:
    """Check that the columns of a result, and their accompanying ones, have unique names."""
    taken = {name: f"'{name}' is a column of every result" for name in RESERVED}
    companions = {
        f"{name}{end}".casefold(): f"'{name}{end}' is the column of {name}'s {what}"
        for name in modelled
        for end, what in (("_err", "error bound"), ("_drift", "drift"))
    }
    for one in outputs.columns:
        if one.name.casefold() in (clash := {**taken, **companions}):
            raise wrong(f"{clash[one.name.casefold()]}; give this one another name with AS", one.node)
    if outputs.time.casefold() in {**taken, **companions}:
        problem = f"the time cannot be called '{outputs.time}'; select it with AS and another name"
        raise wrong(problem, outputs.columns[0].node) if outputs.columns else LanguageError(problem, text)
