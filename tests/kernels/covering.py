"""Whether ranges follow each other without a hole, in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.naive import instant

GRAIN = Fraction(1001, 1_000_000)  # microseconds: a nanosecond, and a little


def unbroken(ref: Any, lo: Any, hi: Any, base: int, begin: float, end: float) -> bool:
    """Whether ranges, in time, follow each other from ``base + begin`` to ``base + end`` with no hole above a nanosecond."""
    starts = [instant(int(r), float(x)) for r, x in zip(ref, lo, strict=True)]
    ends = [instant(int(r), float(x)) for r, x in zip(ref, hi, strict=True)]
    before, after = [instant(base, begin), *ends], [*starts, instant(base, end)]
    return all(b - a <= GRAIN for a, b in zip(before, after, strict=True))
