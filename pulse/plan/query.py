"""A query: a plan, its output columns, and its clauses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import (
    Column,
    Comparison,
    Constant,
    Expression,
    Instant,
    Parameter,
    transform,
    walk,
)
from pulse.core.time import parse_duration, parse_instant
from pulse.operators.node import Duration, Node, PlanError
from pulse.operators.node import transform as transform_plan
from pulse.operators.node import walk as walk_plan
from pulse.operators.relational.exchange import Grid
from pulse.operators.relational.near import Near
from pulse.operators.relational.scan import AsOf


class ParameterError(PulseError, ValueError):
    """A parameter that is missing, unknown, or of the wrong kind for its place."""


@dataclass(frozen=True)
class Query:
    """A plan with the clauses of its query.

    ``select`` are the output columns in order, including all of the plan's keys except those that a join made equal to another
    one. ``every`` is the SAMPLE clause. ``errors`` are the ERROR WITHIN clauses: attribute, None for all modelled ones, and
    bound (a parameter possible). ``possible`` adds possible ranges.
    """

    plan: Node
    select: tuple[str, ...]
    every: Duration | None = None
    errors: tuple[tuple[str | None, ErrorBound | Parameter], ...] = ()
    possible: bool = False
    text: str = ""

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of all parameters, in order of appearance in the plan."""
        found: dict[str, None] = {}
        for node in walk_plan(self.plan):
            for value in _values(node):
                found.update(dict.fromkeys(_parameters(value)))
        for value in (self.every, *(bound for _, bound in self.errors)):
            found.update(dict.fromkeys(_parameters(value)))
        return tuple(found)

    def output(self, columns: Columns) -> Columns:
        """Return the columns of results: a plan's, with the selected keys only."""
        return replace(columns, key=tuple(pair for pair in columns.key if pair[0] in self.select))

    def bind(self, values: Mapping[str, Any]) -> Query:
        """Replace all parameters by values."""
        known = self.parameters
        missing = [name for name in known if name not in values]
        if missing:
            raise ParameterError(
                f"query: no value for {', '.join(':' + name for name in missing)}; give it as a keyword (--param {missing[0]}=…)"
            )
        for name in values:
            if name not in known:
                has = ", ".join(":" + other for other in known) or "none"
                raise ParameterError(f"query: there is no parameter :{name}; it has {has}")
        plan = transform_plan(self.plan, lambda node: _bound(node, values))
        every = _duration(self.every, values, "sample every")
        errors = tuple(
            (name, ErrorBound.parse(values[bound.name]) if isinstance(bound, Parameter) else bound)
            for name, bound in self.errors
        )
        return replace(self, plan=plan, every=every, errors=errors)

    @property
    def rate(self) -> int | None:
        """Return the rate of its tuples in microseconds: the SAMPLE clause, else the advance of its outermost windows (3.8).

        Windows with different advances share the closing times that are multiples of both. Points have none: their tuples are
        at their own instants.
        """
        if self.plan.columns.points:
            return None
        if self.every is not None:
            assert isinstance(self.every, int)
            return self.every
        advances = [one for one in self.plan.advances if isinstance(one, int)]
        return math.lcm(*advances) if advances else None


def _values(node: Node) -> list[Any]:
    return [getattr(node, field.name) for field in fields(node)]


def _parameters(value: Any) -> Any:
    if isinstance(value, Expression):
        yield from (one.name for one in walk(value) if isinstance(one, Parameter))
    elif isinstance(value, Near):
        yield from _parameters((value.reach, value.window))
    elif isinstance(value, Grid):
        yield from _parameters((value.reach, value.bucket, value.margin))
    elif isinstance(value, AsOf):
        yield from _parameters((value.version, value.time))
    elif isinstance(value, tuple):
        for one in value:
            yield from _parameters(one)


def _bound(node: Node, values: Mapping[str, Any]) -> Node:
    """Replace a node's own parameters; its inputs are done already."""
    changed: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node) or not any(True for _ in _parameters(value)):
            continue
        if isinstance(value, Expression):
            value = _timed(value, {one.columns.time for one in node.inputs}, values)
        duration = f"{type(node).__name__.lower()} {field.name}" if field.name in node.durations else ""
        changed[field.name] = _replaced(value, values, duration)
    return replace(node, **changed) if changed else node


def _timed(predicate: Expression, times: set[str], values: Mapping[str, Any]) -> Expression:
    """Replace the parameters that the time is compared with by instants."""

    def change(e: Expression) -> Expression:
        if not (isinstance(e, Comparison) and isinstance(e.left, Column) and isinstance(e.right, Parameter)):
            return e
        if e.left.name not in times:
            return e
        given = values[e.right.name]
        try:
            return Comparison(e.relation, e.left, Instant(parse_instant(given)))
        except PulseError as problem:
            raise ParameterError(f"query: parameter :{e.right.name}: {problem}") from None

    return transform(predicate, change)


def _replaced(value: Any, values: Mapping[str, Any], duration: str) -> Any:
    if duration and isinstance(value, Parameter):
        return _duration(value, values, duration)
    if isinstance(value, Expression):
        return transform(value, lambda e: _constant(e, values) if isinstance(e, Parameter) else e)
    if isinstance(value, Near):
        return replace(
            value,
            reach=_replaced(value.reach, values, ""),
            window=_duration(value.window, values, "window size"),
        )
    if isinstance(value, Grid):
        return replace(
            value,
            reach=None if value.reach is None else _replaced(value.reach, values, ""),
            bucket=_duration(value.bucket, values, "bucket"),
            margin=tuple(_duration(one, values, "window size") for one in value.margin),
        )
    if isinstance(value, AsOf):
        return _as_of(value, values)
    if isinstance(value, tuple):
        return tuple(_replaced(one, values, duration) for one in value)
    return value


def _as_of(at: AsOf, values: Mapping[str, Any]) -> AsOf:
    """Replace the parameter of its version or time."""
    if isinstance(at.version, Parameter):
        given = values[at.version.name]
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ParameterError(
                f"query: parameter :{at.version.name}: expected the number of a version, from 1 on, got {given!r}"
            )
        return AsOf(version=given)
    if isinstance(at.time, Parameter):
        try:
            return AsOf(time=parse_instant(values[at.time.name]))
        except PulseError as problem:
            raise ParameterError(f"query: parameter :{at.time.name}: {problem}") from None
    return at


def _constant(parameter: Parameter, values: Mapping[str, Any]) -> Constant:
    value = values[parameter.name]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ParameterError(
            f"query: parameter :{parameter.name}: expected a number or text, got {value!r} ({type(value).__name__})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"query: parameter :{parameter.name}: expected a finite number, got {value!r}")
    return Constant(value)


def _duration(value: Duration | None, values: Mapping[str, Any], where: str) -> Any:
    if not isinstance(value, Parameter):
        return value
    given = values[value.name]
    try:
        return parse_duration(given.item() if hasattr(given, "item") else given)
    except (PulseError, TypeError) as e:
        raise ParameterError(
            f"query: parameter :{value.name} ({where}): expected a duration, seconds or such as '10 s', got {given!r}: {e}"
        ) from None


__all__ = ["ParameterError", "PlanError", "Query"]
