"""Replace the parameters of a plan's nodes, written ``:name``, by values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from pulse.core.area import Area
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

Values = Mapping[str, Any]
"""The value of each parameter, by its name."""


class ParameterError(PulseError, ValueError):
    """A parameter that is missing, unknown, or of the wrong kind for its place."""


@dataclass(frozen=True)
class Parametric:
    """A dataclass whose fields may hold parameters."""

    durations: ClassVar[Mapping[str, str]] = {}
    """The fields that are durations, with what errors call them."""

    @property
    def times(self) -> frozenset[str]:
        """Return the time attributes of its expressions: what they are compared with is an instant."""
        return frozenset()

    @property
    def terms(self) -> Iterator[Expression]:
        """Yield all expressions in its fields, each with its parts."""
        for field in fields(self):
            yield from _terms(getattr(self, field.name))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of its parameters, in order of appearance."""
        return tuple(dict.fromkeys(one.name for one in self.terms if isinstance(one, Parameter)))

    def bind(self, values: Values) -> Self:
        """Replace its parameters by values."""
        if not self.parameters:
            return self
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if any(isinstance(one, Parameter) for one in _terms(value)):
                changed[field.name] = self._bound(value, values, self.durations.get(field.name))
        return replace(self, **changed)

    def _bound(self, value: Any, values: Values, duration: str | None) -> Any:
        if isinstance(value, tuple):
            return tuple(self._bound(one, values, duration) for one in value)
        if duration is not None:
            return bound_duration(value, values, duration)
        if isinstance(value, Expression):
            timed = transform(value, lambda e: _compared_instant(e, self.times, values))
            return transform(timed, lambda e: _constant(e, values) if isinstance(e, Parameter) else e)
        return value.bind(values) if isinstance(value, NodePart) else value


@dataclass(frozen=True)
class NodePart(Parametric):
    """A value in a field of a node that may hold parameters itself."""


def _terms(value: Any) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield from walk(value)
    elif isinstance(value, NodePart):
        yield from value.terms
    elif isinstance(value, tuple):
        for one in value:
            yield from _terms(one)


def _compared_instant(e: Expression, times: frozenset[str], values: Values) -> Expression:
    """Replace the parameter that a time is compared with by an instant."""
    if not (isinstance(e, Comparison) and isinstance(e.left, Column) and isinstance(e.right, Parameter)):
        return e
    if e.left.name not in times:
        return e
    return Comparison(e.relation, e.left, Instant(bound_instant(e.right, values)))


def _constant(parameter: Parameter, values: Values) -> Expression:
    value = values[parameter.name]
    if isinstance(value, Area):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ParameterError(
            f"query: parameter :{parameter.name}: expected a number or text, got {value!r} ({type(value).__name__})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"query: parameter :{parameter.name}: expected a finite number, got {value!r}")
    return Constant(value)


def bound_instant(parameter: Parameter, values: Values) -> int:
    """Return the value of a parameter for an instant, in microseconds."""
    try:
        return parse_instant(values[parameter.name])
    except PulseError as problem:
        raise ParameterError(f"query: parameter :{parameter.name}: {problem}") from None


def bound_duration(value: Any, values: Values, where: str) -> Any:
    """Return a duration, in microseconds, with the value of its parameter if it is one; errors name ``where`` it stands.

    >>> bound_duration(Parameter("long"), {"long": "2 s"}, "window size")
    2000000
    """
    if not isinstance(value, Parameter):
        return value
    given = values[value.name]
    try:
        return parse_duration(given.item() if hasattr(given, "item") else given)
    except (PulseError, TypeError) as e:
        raise ParameterError(
            f"query: parameter :{value.name} ({where}): expected a duration, seconds or such as '10 s', got {given!r}: {e}"
        ) from None
