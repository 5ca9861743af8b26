"""The truth of small streams in exact arithmetic: piecewise polynomials with fractions for coefficients, made from tuples alone.

Independent of the engine: what a stream is between its tuples (semantics 2.2), polynomial arithmetic, integrals. Floats are taken
as the numbers they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

SECOND = 1_000_000
Poly = list[Fraction]  # in seconds since the start of its piece, lowest order first


@dataclass(frozen=True)
class Exact:
    """One attribute of one key: polynomial ``polys[i]`` on ``[cuts[i], cuts[i + 1])``, microseconds."""

    cuts: list[int]
    polys: list[Poly]

    @classmethod
    def of(cls, times: list[int], values: list[float], kind: str) -> Exact:
        """From tuples with distinct, ascending times."""
        polys: list[Poly] = []
        for i in range(len(times) - 1):
            a, b = Fraction(values[i]), Fraction(values[i + 1])
            slope = (b - a) / Fraction(times[i + 1] - times[i], SECOND) if kind == "linear" else Fraction(0)
            polys.append([a, slope])
        return cls(list(times), polys)

    def at(self, t: int) -> Fraction:
        """The value at an instant from the first cut to before the last."""
        i = self._piece(t)
        return evaluate(self.polys[i], Fraction(t - self.cuts[i], SECOND))

    def integral(self, begin: int, end: int) -> Fraction:
        """Value times seconds from ``begin`` to ``end``, both covered."""
        total = Fraction(0)
        for i, poly in enumerate(self.polys):
            a, b = max(begin, self.cuts[i]), min(end, self.cuts[i + 1])
            if a < b:
                grown = [Fraction(0), *(c / (j + 1) for j, c in enumerate(poly))]
                low, high = (Fraction(x - self.cuts[i], SECOND) for x in (a, b))
                total += evaluate(grown, high) - evaluate(grown, low)
        return total

    def combined(self, other: Exact, op: str) -> Exact:
        """Sum, difference or product with another attribute of the same key, which has the same cuts."""
        assert self.cuts == other.cuts
        return Exact(self.cuts, [_OPS[op](a, b) for a, b in zip(self.polys, other.polys, strict=True)])

    def constant(self, value: float) -> Exact:
        """A number, on the same pieces."""
        return Exact(self.cuts, [[Fraction(value)] for _ in self.polys])

    def _piece(self, t: int) -> int:
        for i in range(len(self.polys)):
            if self.cuts[i] <= t < self.cuts[i + 1]:
                return i
        raise ValueError(f"{t} is outside of {self.cuts[0]} to {self.cuts[-1]}")


def evaluate(poly: Poly, t: Fraction) -> Fraction:
    """The value of a polynomial."""
    value = Fraction(0)
    for c in reversed(poly):
        value = value * t + c
    return value


def _sum(a: Poly, b: Poly, sign: int = 1) -> Poly:
    n = max(len(a), len(b))
    pad = [(*p, *[Fraction(0)] * (n - len(p))) for p in (a, b)]
    return [x + sign * y for x, y in zip(*pad, strict=True)]


def _product(a: Poly, b: Poly) -> Poly:
    out = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return out


_OPS: dict[str, Any] = {"+": _sum, "-": lambda a, b: _sum(a, b, -1), "*": _product}
