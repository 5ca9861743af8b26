"""How a contender is drawn: a colour of its family, and within a family a shape and a dash of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pulse.benchmarks.recording import FLOOR

FAMILIES = {
    "pulse": 0,
    "Numba tuples": 1,
    "DuckDB": 2,
    "Polars": 3,
    "Spark SQL": 4,
    "Structured Streaming": 4,
    "pandas": 5,
    "MEOS": 6,
    "PyMEOS": 6,
    "numpy": 7,
    "Python": 5,
}
COLOURS = 8
"""Of which the page's style has both a light and a dark kind, ``c0`` … ``c7``; ``c8``, grey, is for floors."""
SHAPES = ("circle", "square", "triangle", "diamond", "cross")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4")


@dataclass(frozen=True)
class Look:
    """A class of the style, the name of a shape, an SVG dash pattern."""

    colour: str
    shape: str
    dash: str


def looks(contenders: Iterable[str]) -> dict[str, Look]:
    """One for each of those in a plot: colours are the same on all of a page, shapes tell apart those here."""
    found: dict[str, Look] = {}
    seen: dict[int, int] = {}
    for name in sorted(set(contenders), key=lambda name: (family(name) != 0, len(name), name)):
        colour = family(name)
        i = seen[colour] = seen.get(colour, -1) + 1
        found[name] = Look(f"c{colour}", SHAPES[i % len(SHAPES)], DASHES[i % len(DASHES)])
    return found


def family(contender: str) -> int:
    """By how the name begins; names that are not known share what is left, by their letters."""
    if contender.startswith(FLOOR):
        return COLOURS
    for name, colour in FAMILIES.items():
        if contender == name or contender.startswith((f"{name},", f"{name} ", f"{name}.")):
            return colour
    return 1 + sum(contender.encode()) % (COLOURS - 1)


def mark(look: Look, x: float, y: float, *, radius: float = 4.5, title: str = "") -> str:
    """Its shape at a place. A thin edge in the ground's colour keeps it apart from what it covers."""
    r = radius
    shapes = {
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"',
        "square": f'<rect x="{x - r * 0.9:.1f}" y="{y - r * 0.9:.1f}" width="{1.8 * r:.1f}" height="{1.8 * r:.1f}"',
        "triangle": f'<path d="M{x:.1f} {y - 1.2 * r:.1f}l{1.1 * r:.1f} {2 * r:.1f}h{-2.2 * r:.1f}z"',
        "diamond": f'<path d="M{x:.1f} {y - 1.25 * r:.1f}l{1.25 * r:.1f} {1.25 * r:.1f}l{-1.25 * r:.1f} {1.25 * r:.1f}'
        f'l{-1.25 * r:.1f} {-1.25 * r:.1f}z"',
        "cross": f'<path d="M{x - r:.1f} {y - r / 3:.1f}h{2 * r / 3:.1f}v{-2 * r / 3:.1f}h{2 * r / 3:.1f}v{2 * r / 3:.1f}'
        f"h{2 * r / 3:.1f}v{2 * r / 3:.1f}h{-2 * r / 3:.1f}v{2 * r / 3:.1f}h{-2 * r / 3:.1f}v{-2 * r / 3:.1f}"
        f'h{-2 * r / 3:.1f}z"',
    }
    inside = f"<title>{title}</title>" if title else ""
    return f'{shapes[look.shape]} class="mark {look.colour}">{inside}</{shapes[look.shape][1:].split()[0]}>'
