"""Format the parts of nodes' labels."""

from __future__ import annotations

from pulse.core.expression import And, Expression, Or, Parameter
from pulse.core.time import format_duration


def duration(value: int | Parameter) -> str:
    """Format microseconds as people write them, or the parameter.

    >>> duration(2_000_000), duration(Parameter("size"))
    ('2 s', ':size')
    """
    return format_duration(value) if isinstance(value, int) else str(value)


def predicate_label(expression: Expression) -> str:
    """Format a predicate without the outermost parentheses."""
    return (
        str(expression)[1:-1]
        if isinstance(expression, (And, Or)) and expression.operands
        else str(expression)
    )
