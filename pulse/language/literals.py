"""Convert literals: numbers, durations, points in time, error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from pulse.core.bounds import ErrorBound
from pulse.core.errors import PulseError
from pulse.core.expression import Parameter
from pulse.core.time import parse_duration, parse_instant
from pulse.language.errors import wrong
from pulse.operators.node import Duration
from pulse.operators.relational.scan import AsOf

T = TypeVar("T")


def number(node: exp.Literal) -> float | int:
    """Return a whole number as int where floats hold it exactly, else the nearest float."""
    written = str(node.this)
    try:
        value = float(written)
    except ValueError:
        raise wrong(f"'{written}' is no number", node) from None
    if not math.isfinite(value):
        raise wrong(f"the number {written[:40]} is too large for floating point", node)
    return int(written) if written.isdigit() and value < 2**53 else value


def duration(node: exp.Expr) -> Duration:
    """Return microseconds, or the parameter for them."""
    return _converted(node, parse_duration)


def instant(node: exp.Expr) -> int | Parameter:
    """Return the microseconds since the epoch of a timestamp in ISO form, or the parameter for them."""
    return _converted(node, parse_instant)


def moment(node: exp.Expr) -> AsOf:
    """Return a version, or a point in time, or the parameter for either."""
    version, time = node.args.get("version"), node.args.get("time")
    if version is not None:
        number = isinstance(version, exp.Literal)
        return AsOf(version=int(version.this) if number else Parameter(str(version.this)))
    assert time is not None
    return AsOf(time=instant(time))


def bound(node: exp.Expr) -> ErrorBound | Parameter:
    """Return an error bound, or the parameter for it."""
    return _converted(node, ErrorBound.parse)


def _converted(node: exp.Expr, convert: Callable[[str], T]) -> T | Parameter:
    if isinstance(node, exp.Placeholder):
        return Parameter(str(node.this))
    try:
        return convert(str(node.this))
    except PulseError as e:
        raise wrong(str(e), node) from None
