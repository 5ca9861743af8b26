"""Errors of operators: every message names the operator, the expression, the key and time, and what to do."""

from __future__ import annotations

from pulse.core.errors import PulseError


class OperatorError(PulseError, ValueError):
    """The data does not allow an operator to compute its result."""


class DomainError(OperatorError):
    """A function meets values outside its domain: a root of a negative number, a division by zero."""


class MissingValueError(OperatorError):
    """A null occurs where arithmetic needs a number."""


class OperandError(OperatorError, TypeError):
    """An operand has a kind that the operation does not take: text in a sum, a time in a product."""


class ApproximationError(OperatorError):
    """No piecewise polynomial of reasonable size approximates a function closely enough."""


class OverlappingInputsError(OperatorError):
    """Two inputs of a union have segments of one key at one time."""

    @classmethod
    def at(cls, where: str) -> OverlappingInputsError:
        """Return the error of two inputs that overlap at a key and time."""
        return cls(
            f"union: two inputs overlap for {where}; give each a text column of its own to tell them apart "
            "(select 'a' as source, …)"
        )
