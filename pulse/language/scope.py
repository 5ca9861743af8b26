"""Resolve the names in a query, in any case."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from pulse.core.calendar import Periods, Since
from pulse.core.columns import Columns
from pulse.core.expression import Expression, Parameter
from pulse.core.schema import Role
from pulse.language.errors import known, wrong
from pulse.language.hints import for_name
from pulse.operators.node import Duration, Node

WindowExtent = tuple[Duration, Duration] | Periods | Since
"""Size and advance of a sliding window, the periods of a calendar, or the time since their openings."""

MAX_SOURCES = 256
"""The maximum number of streams and subqueries in one query, counting those of named queries at each use."""


@dataclass(frozen=True)
class Context:
    """Everything a query may refer to: its own text, the streams, the parameters, and the queries named by WITH so far.

    ``budget`` limits the number of streams that a query reads: named queries that join each other double at every step.
    """

    text: str
    streams: Mapping[str, Columns]
    parameters: Container[str]
    named: Mapping[str, Named] = field(default_factory=dict)
    budget: Iterator[int] = field(default_factory=lambda: iter(range(MAX_SOURCES)))


@dataclass(frozen=True)
class Named:
    """A query named by WITH, and its own context."""

    query: exp.Expr
    context: Context


@dataclass(frozen=True)
class Attribute:
    """``name`` is the user's name, ``column`` the plan's; ``partial``: the source may lack it where others have rows."""

    name: str
    column: str
    role: Role
    type: pa.DataType
    alias: str = ""
    flow: bool = False
    partial: bool = False


def refuse_flow(node: exp.Expr, found: Attribute) -> None:
    """Raise an error if an attribute is a flow, which has no value at an instant."""
    if found.flow and found.role is Role.MODELLED:
        raise wrong(
            f"'{found.name}' is a flow: it adds up over time and has no value at an instant; write sum({found.name}), or "
            f"avg({found.name}) per tuple, over a window of the stream, such as [size 5 min]; arithmetic of it is a flow of its "
            f"own, computed at the fit: --flow notional=price*{found.name}",
            node,
        )


def refuse_partial(node: exp.Expr, found: Sequence[Attribute]) -> None:
    """Raise an error if attributes have no value where only other sources have rows: outside of coalesce."""
    lacking = [one for one in found if one.partial]
    if lacking:
        first = lacking[0]
        written = ", ".join(f"{one.alias}.{one.name}" for one in lacking)
        instead = f"write coalesce({written}{'' if len(lacking) > 1 else ', …'})"
        if first.role is not Role.MODELLED:
            instead = f"leave it out, or ask '{first.alias}' alone"
        raise wrong(
            f"'{first.name}' of '{first.alias}' has no value where only another stream of the join has one; {instead}. Keys and "
            "the time need no coalesce",
            node,
        )


@dataclass(frozen=True)
class Bound:
    """A stream or subquery in FROM: its node, and its named attributes, including the time."""

    alias: str
    node: Node
    attributes: tuple[Attribute, ...]
    window: WindowExtent | None = None

    def find(self, name: str) -> Attribute | None:
        """Return the attribute of this name."""
        folded = name.casefold()
        return next((one for one in self.attributes if one.name.casefold() == folded), None)


def attributes_of(columns: Columns, alias: str, names: Mapping[str, str]) -> tuple[Attribute, ...]:
    """Return the attributes of a node that have a name for the user (column: name), in the order of the names, then the time."""
    found = [
        Attribute(
            name,
            column,
            columns.role(column),
            columns.type_of(column),
            alias,
            column in columns.flow_names,
        )
        for column, name in names.items()
        if column != columns.time
    ]
    if columns.time in names:
        found.append(Attribute(names[columns.time], columns.time, Role.TIME, pa.timestamp("us"), alias))
    return tuple(found)


@dataclass(frozen=True)
class Scope:
    """The sources of one FROM.

    ``same`` are groups of columns that the query equates; ``lagged`` the columns with earlier values of others, ``averaged``
    those with the averages of expressions, ``derived`` those with the derivatives of others, ``coalesced`` those that calls of
    coalesce are.
    """

    context: Context
    sources: tuple[Bound, ...]
    same: tuple[frozenset[str], ...] = ()
    lagged: Mapping[tuple[str, Duration], str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    averaged: Mapping[tuple[Expression, Duration], str] = field(default_factory=dict)
    coalesced: Mapping[exp.Expr, str] = field(default_factory=dict)

    def resolve(self, node: exp.Column) -> Attribute | Parameter:
        """Resolve a column; a plain name that is no column may be a parameter."""
        name = node.name
        if node.args.get("table") is not None:
            return self._qualified(node)
        found = [one for source in self.sources if (one := source.find(name)) is not None]
        if not found:
            if name in self.context.parameters:
                return Parameter(name)
            self._unknown(node)
        refuse_partial(node, found)
        if len(found) > 1 and not self._one(found):
            which = " or ".join(f"{one.alias}.{one.name}" for one in found)
            raise wrong(f"'{name}' is ambiguous; write {which}", node)
        return found[0]

    def _one(self, found: list[Attribute]) -> bool:
        """Check whether all are the same: times in a join, and columns that the query equates."""
        if all(one.role is Role.TIME for one in found):
            return True
        columns = {one.column for one in found}
        return len(columns) == 1 or any(columns <= group for group in self.same)

    def source(self, alias: exp.Expr) -> Bound:
        """Return the source of this alias."""
        folded = alias.name.casefold()
        for source in self.sources:
            if source.alias.casefold() == folded:
                return source
        raise wrong(
            f"there is no stream or alias '{alias.name}' in this FROM; {known(alias.name, (s.alias for s in self.sources))}",
            alias,
        )

    def _qualified(self, node: exp.Column) -> Attribute:
        source = self.source(node.args["table"])
        found = source.find(node.name)
        if found is None:
            names = [one.name for one in source.attributes]
            raise wrong(f"'{source.alias}' has no column '{node.name}'; {known(node.name, names)}", node)
        refuse_partial(node, [found])
        return found

    def _unknown(self, node: exp.Column) -> None:
        names = dict.fromkeys(one.name for source in self.sources for one in source.attributes)
        raise wrong(
            f"there is no column '{node.name}'; {known(node.name, names)}{for_name(node)}",
            node,
        )
