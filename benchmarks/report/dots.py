"""How many times Pulse's time each contender takes, group by group, as SVG: a line a group, a mark a contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pulse.benchmarks.report.axes import labels, scale
from pulse.benchmarks.report.marks import Look, mark
from pulse.benchmarks.report.rows import Row, ours_of
from pulse.benchmarks.report.words import times

SIDE, TOP, STEP, BOTTOM = 14.0, 8.0, 40.0, 48.0


def dots(groups: Mapping[str, Sequence[Row]], looks: Mapping[str, Look], *, width: int) -> str:
    """Of the groups in which both Pulse and others take part; nothing where there are none."""
    ratios = {name: _ratios(rows) for name, rows in groups.items()}
    ratios = {name: some for name, some in ratios.items() if len(some) > 1}
    if not ratios:
        return ""
    height = TOP + STEP * len(ratios) + BOTTOM
    x = scale(
        [1.0, *(one for some in ratios.values() for one in some.values())], SIDE, width - SIDE, log=True
    )
    base = height - BOTTOM
    parts = [
        f'<svg viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" role="img" '
        'aria-label="time of each contender to that of Pulse">'
    ]
    ticks = x.ticks(max(3, int(width / 90)))
    for one, label in zip(ticks, labels(ticks), strict=True):
        parts.append(f'<line class="grid" x1="{x(one):.1f}" x2="{x(one):.1f}" y1="{TOP}" y2="{base}"/>')
        parts.append(
            f'<text class="tick" x="{x(one):.1f}" y="{base + 16:.1f}" text-anchor="middle">{label}×</text>'
        )
    parts.append(f'<line class="one" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{TOP}" y2="{base}"/>')
    parts.append(
        f'<text class="name" x="{width / 2:.1f}" y="{height - 10:.1f}" text-anchor="middle">'
        "← peer faster · time a unit, in Pulse’s · Pulse faster →</text>"
    )
    for i, (name, some) in enumerate(ratios.items()):
        y = TOP + STEP * i
        parts.append(f'<text class="row" x="{SIDE}" y="{y + 13:.1f}">{escape(_short(name, width))}</text>')
        ends = [x(one) for one in some.values()]
        parts.append(
            f'<line class="span" x1="{min(ends):.1f}" x2="{max(ends):.1f}" y1="{y + 27:.1f}" y2="{y + 27:.1f}"/>'
        )
        for contender, one in sorted(some.items(), key=lambda item: -item[1]):
            title = escape(f"{name}: {contender}: {times(one)}")
            parts.append(mark(looks[contender], x(one), y + 27, radius=5, title=title))
    return "".join([*parts, "</svg>"])


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    ours = ours_of(rows)
    if ours is None or len(rows) < 2:
        return {}
    return {row.contender: row.per_unit / ours.per_unit for row in rows}


def _short(name: str, width: int) -> str:
    most = int(width / 7.2)
    return name if len(name) <= most else f"{name[: most - 1]}…"
