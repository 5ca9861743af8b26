"""Parse and apply users' error bounds: absolute, relative, or relative with a floor (semantics 2.4).

Written ``0.01``, ``0.05%`` and ``0.05% or 0.001``; parsing the output of ``str()`` gives
the same bound, bit by bit.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pulse.core.arrays import FloatArray
from pulse.core.errors import BoundError

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FORM = re.compile(rf"({_NUMBER})\s*(%)?(?:\s*or\s*({_NUMBER}))?", re.IGNORECASE)
_FORMS = "write an absolute bound as 0.01, a relative one as 0.05%, one with a floor as 0.05% or 0.001"


class ErrorBound(ABC):
    """A bound on the distance of a model from the truth: :class:`Absolute`, :class:`Relative` or :class:`RelativeWithFloor`."""

    @staticmethod
    def parse(text: str | float | ErrorBound) -> ErrorBound:
        """Parse the bound that a text, or a plain number (absolute), states.

        >>> ErrorBound.parse("0.05% OR 0.001")
        RelativeWithFloor(percent=0.05, floor=0.001)
        """
        if isinstance(text, ErrorBound):
            return text
        if not isinstance(text, str):
            return Absolute(text)
        match = _FORM.fullmatch(text.strip())
        if match is None or (match[3] and not match[2]):
            raise BoundError(f"error bound: cannot read {text!r}; {_FORMS}")
        number = float(match[1])
        if match[3]:
            return RelativeWithFloor(number, float(match[3]))
        return Relative(number) if match[2] else Absolute(number)

    @property
    @abstractmethod
    def share_and_floor(self) -> tuple[float, float]:
        """Return which share of the truth's absolute value the bound is, and what it is at least."""

    def at(self, truth: npt.ArrayLike) -> FloatArray:
        """Return the absolute bound at instants where the truth has these values."""
        share, floor = self.share_and_floor
        return np.maximum(share * np.abs(np.asarray(truth, dtype=np.float64)), floor)

    @abstractmethod
    def scaled(self, factor: float) -> ErrorBound:
        """Return the bound ``factor`` times as wide."""


@dataclass(frozen=True)
class Absolute(ErrorBound):
    """``|model - truth| <= value``."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _checked(self.value, "an absolute bound"))

    @property
    def share_and_floor(self) -> tuple[float, float]:
        return 0.0, self.value

    def at(self, truth: npt.ArrayLike) -> FloatArray:
        return np.full(np.shape(truth), self.value)  # also where the truth is not finite

    def scaled(self, factor: float) -> Absolute:
        return Absolute(self.value * _checked(factor, "a factor"))

    def __str__(self) -> str:
        return _text(self.value)


@dataclass(frozen=True)
class Relative(ErrorBound):
    """``|model - truth| <= percent / 100 * |truth|``: at a truth of zero, the model must be zero."""

    percent: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "percent", _checked(self.percent, "a relative bound"))

    @property
    def share_and_floor(self) -> tuple[float, float]:
        return self.percent / 100.0, 0.0

    def scaled(self, factor: float) -> Relative:
        return Relative(self.percent * _checked(factor, "a factor"))

    def __str__(self) -> str:
        return f"{_text(self.percent)}%"


@dataclass(frozen=True)
class RelativeWithFloor(ErrorBound):
    """``|model - truth| <= max(percent / 100 * |truth|, floor)``."""

    percent: float
    floor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "percent", _checked(self.percent, "a relative bound"))
        object.__setattr__(self, "floor", _checked(self.floor, "a bound's floor"))

    @property
    def share_and_floor(self) -> tuple[float, float]:
        return self.percent / 100.0, self.floor

    def scaled(self, factor: float) -> RelativeWithFloor:
        factor = _checked(factor, "a factor")
        return RelativeWithFloor(self.percent * factor, self.floor * factor)

    def __str__(self) -> str:
        return f"{_text(self.percent)}% or {_text(self.floor)}"


def _checked(number: float, what: str) -> float:
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, float, np.integer, np.floating)):
        raise BoundError(f"error bound: {what} must be a number, got {number!r}; {_FORMS}")
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0.0:
        raise BoundError(f"error bound: {what} must be finite and not negative, got {number!r}; {_FORMS}")
    return value + 0.0  # -0.0 prints as a negative number


def _text(value: float) -> str:
    """Return the shortest text that reads back as exactly this float."""
    return repr(value).removesuffix(".0")


SHARE = 0.125
"""The share of the existing error that an approximation may add to it."""
