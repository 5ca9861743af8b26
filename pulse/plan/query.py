"""A query: a plan, its output columns, and its clauses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pulse.core.area import Area
from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.errors import BoundError
from pulse.core.expression import Function, Parameter
from pulse.datasets.areas import read_area
from pulse.operators.functions.inside import are_degrees
from pulse.operators.node import Duration, Node, transform, walk
from pulse.operators.parameters import ParameterError, bound_duration
from pulse.operators.relational.scan import scans


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
        for node in walk(self.plan):
            found.update(dict.fromkeys(node.parameters))
        for value in (self.every, *(bound for _, bound in self.errors)):
            if isinstance(value, Parameter):
                found[value.name] = None
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
        values = {**values, **self._areas(values)}
        plan = transform(self.plan, lambda node: node.bind(values))
        every = bound_duration(self.every, values, "sample every")
        errors = tuple(
            (name, _bound(bound.name, values[bound.name]) if isinstance(bound, Parameter) else bound)
            for name, bound in self.errors
        )
        return replace(self, plan=plan, every=every, errors=errors)

    def _areas(self, values: Mapping[str, Any]) -> dict[str, Area]:
        """Return the parameters that are areas, in the coordinates of the positions that they are compared with."""
        terms = {one for node in walk(self.plan) for one in node.terms if isinstance(one, Function)}
        calls = [(one, one.area.name) for one in terms if isinstance(one.area, Parameter)]
        planes = {one.stored.plane.crs for one in scans(self.plan) if one.stored.plane is not None}
        if calls and len(planes) > 1:
            raise ParameterError(
                f"query: area :{calls[0][1]}: the models have different projections; query them one by one, or fit both with one"
            )
        crs = next(iter(planes), "")
        return {
            name: read_area(values[name], name=name, crs=crs, in_degrees=are_degrees(call.arguments))
            for call, name in calls
        }

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


def _bound(name: str, value: Any) -> ErrorBound:
    """Return the bound that a parameter stands for."""
    try:
        return ErrorBound.parse(value)
    except BoundError as e:
        raise ParameterError(f"query: parameter :{name}: {e}") from None
