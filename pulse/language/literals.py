"""What is written in digits and quotes: numbers, durations, points in time, error bounds."""

from __future__ import annotations

import datetime
import math
import re

from sqlglot import exp

from pulse.core.bounds import ErrorBound
from pulse.core.errors import PulseError
from pulse.core.expression import Parameter
from pulse.core.time import parse_duration, to_microseconds
from pulse.language.errors import fail
from pulse.plan.nodes import Duration

_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
_FORMS = (
    "write it as '2013-10-07', '2013-10-07 10:00' or '2013-10-07T10:00:00.5+02:00'; without a zone it is UTC"
)


def number(node: exp.Literal, text: str) -> float | int:
    """A whole number as int where floats hold it exactly, else the nearest float."""
    written = str(node.this)
    try:
        value = float(written)
    except ValueError:
        fail(f"'{written}' is no number", text, node)
    if not math.isfinite(value):
        fail(f"the number {written[:40]} is too large for floating point", text, node)
    return int(written) if written.isdigit() and value < 2**53 else value


def instant(written: str, text: str, node: exp.Expr) -> int:
    """Microseconds since the epoch of a timestamp in ISO form."""
    try:
        if _FINER.search(written):
            raise ValueError("finer than a microsecond")
        return int(to_microseconds(datetime.datetime.fromisoformat(written.strip()))[0])
    except (ValueError, OverflowError, PulseError):
        fail(f"cannot read '{written}' as a point in time; {_FORMS}", text, node)


def duration(node: exp.Expr, text: str) -> Duration:
    """Microseconds, or the parameter that stands for them."""
    if isinstance(node, exp.Placeholder):
        return Parameter(str(node.this))
    try:
        return parse_duration(str(node.this))
    except PulseError as e:
        fail(str(e), text, node)


def bound(node: exp.Expr, text: str) -> ErrorBound | Parameter:
    """An error bound, or the parameter that stands for it."""
    if isinstance(node, exp.Placeholder):
        return Parameter(str(node.this))
    try:
        return ErrorBound.parse(str(node.this))
    except PulseError as e:
        fail(str(e), text, node)
