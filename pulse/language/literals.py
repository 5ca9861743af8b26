"""Convert literals: numbers, durations, points in time, error bounds."""

from __future__ import annotations

import math

from sqlglot import exp

from pulse.core.bounds import ErrorBound
from pulse.core.errors import PulseError
from pulse.core.expression import Parameter
from pulse.core.time import parse_duration, parse_instant
from pulse.language.errors import wrong
from pulse.operators.node import Duration
from pulse.operators.relational.scan import AsOf


def number(node: exp.Literal, text: str) -> float | int:
    """Return a whole number as int where floats hold it exactly, else the nearest float."""
    written = str(node.this)
    try:
        value = float(written)
    except ValueError:
        raise wrong(f"'{written}' is no number", text, node) from None
    if not math.isfinite(value):
        raise wrong(f"the number {written[:40]} is too large for floating point", text, node)
    return int(written) if written.isdigit() and value < 2**53 else value


def instant(written: str, text: str, node: exp.Expr) -> int:
    """Return the microseconds since the epoch of a timestamp in ISO form."""
    try:
        return parse_instant(written)
    except PulseError as e:
        raise wrong(str(e), text, node) from None


def duration(node: exp.Expr, text: str) -> Duration:
    """Return microseconds, or the parameter for them."""
    if isinstance(node, exp.Placeholder):
        return Parameter(str(node.this))
    try:
        return parse_duration(str(node.this))
    except PulseError as e:
        raise wrong(str(e), text, node) from None


def moment(node: exp.Expr, text: str) -> AsOf:
    """Return a version, or a point in time, or the parameter for either."""
    version, time = node.args.get("version"), node.args.get("time")
    if version is not None:
        number = isinstance(version, exp.Literal)
        return AsOf(version=int(version.this) if number else Parameter(str(version.this)))
    if isinstance(time, exp.Placeholder):
        return AsOf(time=Parameter(str(time.this)))
    assert isinstance(time, exp.Literal)
    return AsOf(time=instant(str(time.this), text, time))


def bound(node: exp.Expr, text: str) -> ErrorBound | Parameter:
    """Return an error bound, or the parameter for it."""
    if isinstance(node, exp.Placeholder):
        return Parameter(str(node.this))
    try:
        return ErrorBound.parse(str(node.this))
    except PulseError as e:
        raise wrong(str(e), text, node) from None
