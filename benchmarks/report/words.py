"""Figures as they are read: few digits, and a unit that fits."""

from __future__ import annotations

import math

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0.0, "B"))
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, ""))


def number(value: float) -> str:
    """Three digits: ``0.0123``, ``4.5``, ``1,230``, ``2.1e-07``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size >= 1e7 or size < 1e-3:
        return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e")
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """``1.23 s``, ``45 ms``, ``6.7 ns``."""
    return _scaled(value, _SECONDS)


def count(value: float) -> str:
    """``1.5 M``, ``20 k``, ``7``."""
    return _scaled(value, _COUNTS).strip()


def size(value: float) -> str:
    """``1.5 GB``."""
    return _scaled(value, _BYTES)


def share(value: float) -> str:
    """Of 1: ``1``, ``0.99987``, ``0.5``; never rounded up to 1."""
    if value in (0.0, 1.0):
        return f"{value:.0f}"
    return f"{math.floor(value * 1e5) / 1e5:.5f}".rstrip("0").rstrip(".")


def fact(value: str | float) -> str:
    """A further figure of a row, which may be a word."""
    return value if isinstance(value, str) else number(value)


def percent(value: float) -> str:
    """``± 3 %``."""
    shown = 100 * value
    return f"± {shown:.0f} %" if shown >= 9.5 else f"± {shown:.1f} %"


def times(value: float) -> str:
    """``3.2×``."""
    return f"{number(value)}×"


def one_of(unit: str) -> str:
    """One of them: ``a tuple`` of ``tuples``, ``an accent`` of ``accents``."""
    one = unit[:-1] if unit.endswith("s") and not unit.endswith("ss") else unit
    return f"{'an' if one[:1] in 'aeio' else 'a'} {one}"


def several(n: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _scaled(value: float, scale: tuple[tuple[float, str], ...]) -> str:
    for least, name in scale:
        if abs(value) >= least and least:
            return f"{number(value / least)} {name}"
    factor = 1e9 if scale is _SECONDS else 1.0
    return f"{number(value * factor)} {scale[-1][1]}"
