"""Curves with their tubes, tuples and certainty put onto axes: what the pictures of models, answers and lineage share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.plot.curves import Curve, runs
from pulse.plot.style import BLUE, GREY, SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WEAKEST_LAST = tuple(SHADES)


def draw_curve(
    axes: Axes, curve: Curve, *, colour: str = BLUE, tube: float = 0.22, width: float = 1.3
) -> None:
    """The model as strokes inside its tube; jumps dotted, holes hatched; of thinned pieces the band they fill."""
    axes.fill_between(curve.at, curve.tube_low, curve.tube_high, color=colour, alpha=tube, linewidth=0)
    if curve.thinned:
        axes.fill_between(curve.at, curve.low, curve.high, color=colour, alpha=0.9, linewidth=0.6)
    else:
        axes.plot(curve.at, curve.low, color=colour, linewidth=width, solid_capstyle="round")
        at, before, after = curve.jumps
        if len(at):
            axes.vlines(at, before, after, color=colour, linewidth=0.7, linestyle=":")
    draw_holes(axes, curve.holes)
    at, value, err = curve.points
    if len(at):
        axes.errorbar(at, value, yerr=err, fmt="o", markersize=2.5, color=colour, elinewidth=0.8)


def draw_holes(axes: Axes, holes: Iterable[tuple[Any, Any]]) -> None:
    """Where there is no model: hatched from top to bottom."""
    for begin, end in holes:
        axes.axvspan(begin, end, facecolor="none", edgecolor=GREY, alpha=0.35, hatch="xx", linewidth=0)


def curve_marks(
    curve: Curve, *, label: str = "model", tube: str = "within its bound", colour: str = BLUE
) -> list[Any]:
    """What a legend says of it."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [
        Line2D([], [], color=colour, linewidth=1.5, label=label),
        Patch(facecolor=colour, alpha=0.22, label=tube),
    ]
    if curve.holes:
        marks.append(Patch(facecolor="none", edgecolor=GREY, hatch="xx", label="no model"))
    return marks


def shade(axes: Axes, begin: Any, end: Any, certainty: Any, *, columns: int) -> list[str]:
    """Colour the ground of ranges by their certainty; returns those that occur.

    Of many ranges a column of the picture shows the weakest that it holds: what is not certain is never hidden.
    """
    found = [name for name in SHADES if np.any(certainty == name)]
    begin, end, certainty = _merged(begin, end, certainty, columns)
    for name in found:
        chosen = certainty == name
        if not chosen.any():
            continue
        colour, alpha, hatch = SHADES[name]
        spans = [
            (_days(a), _days(b) - _days(a))
            for a, b in zip(begin[chosen].tolist(), end[chosen].tolist(), strict=True)
        ]
        axes.broken_barh(
            spans,
            (0, 1),
            transform=axes.get_xaxis_transform(),
            facecolor=colour,
            alpha=alpha,
            hatch=hatch,
            edgecolor=colour if hatch else "none",
            linewidth=0,
            zorder=0.5,
        )
    return found


def _days(microseconds: int) -> float:
    """An instant as matplotlib counts them."""
    return microseconds / 86_400e6


def _merged(begin: Any, end: Any, certainty: Any, columns: int) -> tuple[Any, Any, Any]:
    """Ranges in µs that touch and say the same made one; those that are still too many, per column."""
    begin, end = (np.asarray(one).astype("datetime64[us]").astype(np.int64) for one in (begin, end))
    if not len(begin):
        return begin, end, certainty
    same = (certainty[1:] == certainty[:-1]) & (begin[1:] - end[:-1] <= 2)
    starts = np.r_[True, ~same]
    groups = np.flatnonzero(starts)
    begin, certainty = begin[groups], certainty[groups]
    end = np.maximum.reduceat(end, groups)
    if len(begin) <= columns:
        return begin, end, certainty
    rank = np.array([WEAKEST_LAST.index(one) for one in certainty])
    first, width = begin.min(), max((end.max() - begin.min()) / columns, 1.0)
    shown = np.full(columns, -1)
    left = np.minimum((begin - first) // width, columns - 1).astype(np.int64)
    right = np.minimum((end - first) // width, columns - 1).astype(np.int64)
    for weak in range(len(WEAKEST_LAST)):  # the weakest last, so that it is what stays
        change = np.zeros(columns + 1, np.int64)
        np.add.at(change, left[rank == weak], 1)
        np.add.at(change, right[rank == weak] + 1, -1)
        shown[np.cumsum(change)[:-1] > 0] = weak
    spans = [(a, b, weak) for weak in range(len(WEAKEST_LAST)) for a, b in runs(shown == weak)]
    begin = np.array([first + int(a * width) for a, _, _ in spans])
    end = np.array([first + int(b * width) for _, b, _ in spans])
    return begin, end, np.array([WEAKEST_LAST[weak] for _, _, weak in spans], dtype=object)
