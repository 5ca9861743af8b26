"""A figure: throughput of each contender over x, as SVG, with the places where Pulse's lines cross a peer's; or a fact over x."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from pulse.benchmarks.report.axes import Scale, labels, scale
from pulse.benchmarks.report.marks import Look, mark
from pulse.benchmarks.report.reading import Crossing
from pulse.benchmarks.report.rows import Row, gathered
from pulse.benchmarks.report.words import count, number

LEFT, RIGHT, TOP, BOTTOM = 72.0, 16.0, 14.0, 46.0


def lines(
    rows: Sequence[Row], looks: Mapping[str, Look], crossed: Sequence[Crossing], *, width: int, height: int
) -> str:
    """One line a contender through its medians; the quartiles of the rounds as whiskers."""
    x = _across(rows, width)
    rates = [row.work / one for row in rows for one in (row.median, *row.quartiles)]
    y = scale(rates, height - BOTTOM, TOP)
    parts = [_opened(rows[0].figure, width, height), _grid(x, y, rows[0].x_label, f"{rows[0].unit} a second")]
    for contender, some in gathered(rows, lambda row: row.contender).items():
        parts.append(_line(sorted(some, key=lambda row: row.x or 0.0), looks[contender], x, y))
    parts += [_ring(one, rows, x, y) for one in crossed]
    return "".join([*parts, "</svg>"])


def fact_lines(rows: Sequence[Row], looks: Mapping[str, Look], fact: str, *, width: int, height: int) -> str:
    """One line a contender through its values of a fact, in logarithms, in which 0 has no place; nothing where all are 0."""
    found = {
        contender: sorted((row.x or 0.0, value) for row in some if (value := _above_0(row, fact)))
        for contender, some in gathered(rows, lambda row: row.contender).items()
    }
    values = [value for points in found.values() for _, value in points]
    if not values:
        return ""
    x, y = _across(rows, width), scale(values, height - BOTTOM, TOP, log=True)
    parts = [_opened(f"{rows[0].figure}: {fact}", width, height), _grid(x, y, rows[0].x_label, fact)]
    for contender, points in found.items():
        if points:
            parts.append(_path([(x(a), y(b)) for a, b in points], looks[contender]))
        for a, b in points:
            title = f"{contender}: {fact} {number(b)} at {number(a)} {rows[0].x_label}"
            parts.append(mark(looks[contender], x(a), y(b), title=escape(title)))
    return "".join([*parts, "</svg>"])


def _above_0(row: Row, fact: str) -> float:
    """The fact's value, 0 where there is none above it."""
    value = row.facts.get(fact)
    return max(float(value), 0.0) if isinstance(value, int | float) else 0.0


def _across(rows: Sequence[Row], width: int) -> Scale:
    xs = [row.x for row in rows if row.x is not None]
    # Crossings are sought in logarithms, and lie on the lines where these are straight in them, too.
    return scale(xs, LEFT, width - RIGHT, log=min(xs) > 0 and max(xs) / min(xs) >= 4)


def _opened(label: str, width: int, height: int) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def _grid(x: Scale, y: Scale, x_label: str, y_label: str) -> str:
    parts = [
        f'<line class="faint" x1="{x(one):.1f}" x2="{x(one):.1f}" y1="{y.end:.1f}" y2="{y.begin:.1f}"/>'
        for one in x.faint()
    ]
    parts += [
        f'<line class="faint" x1="{x.begin:.1f}" x2="{x.end:.1f}" y1="{y(one):.1f}" y2="{y(one):.1f}"/>'
        for one in y.faint()
    ]
    ticks = y.ticks(6)
    for one, label in zip(ticks, labels(ticks), strict=True):
        parts.append(
            f'<line class="grid" x1="{x.begin:.1f}" x2="{x.end:.1f}" y1="{y(one):.1f}" y2="{y(one):.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{x.begin - 8:.1f}" y="{y(one) + 4:.1f}" text-anchor="end">{label}</text>'
        )
    ticks = x.ticks(max(3, int((x.end - x.begin) / 64)))
    for one, label in zip(ticks, labels(ticks), strict=True):
        parts.append(
            f'<line class="axis" x1="{x(one):.1f}" x2="{x(one):.1f}" y1="{y.begin:.1f}" y2="{y.begin + 5:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{x(one):.1f}" y="{y.begin + 18:.1f}" text-anchor="middle">{label}</text>'
        )
    logs = ", logarithmic" if x.log else ""
    middle = (y.begin + y.end) / 2
    parts += [
        f'<line class="axis" x1="{x.begin:.1f}" x2="{x.end:.1f}" y1="{y.begin:.1f}" y2="{y.begin:.1f}"/>',
        f'<text class="name" x="{(x.begin + x.end) / 2:.1f}" y="{y.begin + 38:.1f}" text-anchor="middle">'
        f"{escape(x_label)}{logs}</text>",
        f'<text class="name" transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}{', logarithmic' if y.log else ''}</text>",
    ]
    return "".join(parts)


def _line(rows: Sequence[Row], look: Look, x: Scale, y: Scale) -> str:
    at = [(x(row.x or 0.0), y(row.rate)) for row in rows]
    parts = [_path(at, look)]
    for row, (a, b) in zip(rows, at, strict=True):
        slow, fast = (y(row.work / one) for one in reversed(row.quartiles))
        if abs(slow - fast) > 4:
            parts.append(
                f'<line class="line {look.colour}" x1="{a:.1f}" x2="{a:.1f}" y1="{slow:.1f}" y2="{fast:.1f}"/>'
            )
        title = (
            f"{row.contender}: {count(row.rate)} {row.unit} a second at {number(row.x or 0.0)} {row.x_label}"
        )
        parts.append(mark(look, a, b, title=escape(title)))
    return "".join(parts)


def _path(at: Sequence[tuple[float, float]], look: Look) -> str:
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    return f'<path class="line {look.colour}"{dash} d="{path}"/>'


def _ring(crossing: Crossing, rows: Sequence[Row], x: Scale, y: Scale) -> str:
    """Around the last place where two lines cross."""
    if not crossing.found.at:
        return ""
    where = crossing.found.at[-1]
    mine = sorted((row.x, row.rate) for row in rows if row.contender == crossing.ours and row.x)
    logs = np.log(np.array(mine, dtype=np.float64))
    rate = math.exp(float(np.interp(math.log(where), logs[:, 0], logs[:, 1])))
    title = f"{crossing.ours} and {crossing.peer} cross at {number(where)} {crossing.x_label}"
    return f'<circle class="ring" cx="{x(where):.1f}" cy="{y(rate):.1f}" r="9"><title>{escape(title)}</title></circle>'
