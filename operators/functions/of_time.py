"""Functions of values now and earlier: ``lag``, ``rate``, ``speed``, ``course``, ``ema``.

Each is an expression of values and of their earlier ones, which :class:`~pulse.operators.relational.delay.Delay`
provides; bounds, inversion, revision and accents are those of that expression. A derivative at an instant has no
certificate: a model within ``err`` of the truth may rise where the truth falls. The mean rate over ``d`` has one,
``2 err / d``.

``ema`` is of all earlier values of an expression, and computed by :class:`~pulse.operators.relational.smooth.Smooth`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pulse.core.expression import Arithmetic, Expression, Function
from pulse.operators.functions.course import Bearing
from pulse.operators.functions.distance import Distance

Operands = tuple[Expression, ...]


@dataclass(frozen=True)
class FunctionOfTime:
    """A function of ``arity`` values and a duration.

    ``expanded(now, earlier, seconds)`` returns its expression; ``needs_now`` is False where it ignores the values now. One that
    ``averages`` has the average of its argument as its earlier value.
    """

    arity: int
    expanded: Callable[[Operands, Operands, Expression], Expression]
    needs_now: bool = True
    averages: bool = False


def _lag(now: Operands, earlier: Operands, seconds: Expression) -> Expression:
    return earlier[0]


def _rate(now: Operands, earlier: Operands, seconds: Expression) -> Expression:
    return Arithmetic("/", Arithmetic("-", now[0], earlier[0]), seconds)


def _speed(now: Operands, earlier: Operands, seconds: Expression) -> Expression:
    return Arithmetic("/", Function(Distance.name, (*now, *earlier)), seconds)


def _course(now: Operands, earlier: Operands, seconds: Expression) -> Expression:
    dx, dy = (Arithmetic("-", one, other) for one, other in zip(now, earlier, strict=True))
    return Function(Bearing.name, (dx, dy))


OF_TIME: dict[str, FunctionOfTime] = {
    "lag": FunctionOfTime(1, _lag, needs_now=False),
    "rate": FunctionOfTime(1, _rate),
    "speed": FunctionOfTime(2, _speed),
    "course": FunctionOfTime(2, _course),
    "ema": FunctionOfTime(1, _lag, needs_now=False, averages=True),
}
"""The functions of time, by name."""
