"""Scales of a plot: from values to places on the paper, with the ticks that are labelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pulse.benchmarks.report.words import count, number


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` to places from ``begin`` to ``end``, evenly, or evenly in logarithms."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = self._map(self.low), self._map(self.high)
        return self.begin + (self.end - self.begin) * (self._map(value) - low) / (high - low)

    def _map(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, most: int = 7) -> list[float]:
        """Round values within, at most about so many."""
        return _log_ticks(self.low, self.high, most) if self.log else _even_ticks(self.low, self.high, most)

    def faint(self) -> list[float]:
        """Lines between the ticks of a logarithmic scale: they show that it is one."""
        if not self.log or self.high / self.low > 1e5:
            return []
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [d * 10.0**e for e in decades for d in range(1, 10) if self.low <= d * 10.0**e <= self.high]


def scale(values: Sequence[float], begin: float, end: float, *, log: bool | None = None) -> Scale:
    """One that holds all values, with some room; logarithmic by default where they span a factor of ten or more."""
    low, high = min(values), max(values)
    if log is None:
        log = low > 0 and high / low >= 10
    if log:
        if low <= 0:
            raise ValueError(f"a logarithmic scale holds values above 0; got {low}")
        room = max((high / low) ** 0.06, 1.12)
        return Scale(low / room, high * room, begin, end, True)
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (-1.0, 1.0)
    room = 0.06 * (high - low)
    return Scale(max(low - room, 0.0) if low >= 0 else low - room, high + room, begin, end, False)


def labels(ticks: Sequence[float]) -> list[str]:
    """Of ticks: short, and as many digits as tell them apart."""
    found = [count(one) if abs(one) >= 1000 else number(one) for one in ticks]
    for digits in range(4, 16):
        if len(set(found)) == len(found):
            break
        found = [f"{one:.{digits}g}" for one in ticks]
    return found


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in decades for d in digits if low <= d * 10.0**e <= high]
        if len(found) <= most:
            break
    step = max(1, math.ceil(len(found) / most))
    # Within less than a factor of two there may be one round value or none.
    return found[::step] if len(found) >= 2 else _even_ticks(low, high, most)


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most - 1, 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]
