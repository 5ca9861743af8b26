"""What can go wrong in an operator: every message names the operator, the expression, the key and time, and what to do."""

from __future__ import annotations

from pulse.core.errors import PulseError


class OperatorError(PulseError, ValueError):
    """Data on which an operator cannot give its answer."""


class DomainError(OperatorError):
    """A function was asked of values that it is not defined on: a root of what is below zero, a division by zero."""


class MissingValueError(OperatorError):
    """A null where a number is computed with."""


class OperandError(OperatorError, TypeError):
    """An operand of a kind that the operation does not take: a text that is added, a time that is multiplied."""


class ApproximationError(OperatorError):
    """A function that no piecewise polynomial of reasonable size comes near enough."""


class OverlappingInputsError(OperatorError):
    """Two inputs of a union that say something of one key at one time."""
