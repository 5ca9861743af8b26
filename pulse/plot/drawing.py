"""Draw curves with their tubes and tuples on axes, for models, answers and lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse.plot.curves import Curve
from pulse.plot.style import BLUE, GREY, line_mark, patch_mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_curve(axes: Axes, curve: Curve, *, colour: str = BLUE, width: float = 1.3) -> None:
    """Draw the model as strokes inside its tube; jumps dotted, holes hatched; thinned pieces as the band they fill."""
    axes.fill_between(curve.at, curve.tube_low, curve.tube_high, color=colour, alpha=0.22, linewidth=0)
    if curve.thinned:
        axes.fill_between(curve.at, curve.low, curve.high, color=colour, alpha=0.9, linewidth=0.6)
    else:
        axes.plot(curve.at, curve.low, color=colour, linewidth=width, solid_capstyle="round")
        at, before, after = curve.jumps
        if len(at):
            axes.vlines(at, before, after, color=colour, linewidth=0.7, linestyle=":")
    for begin, end in curve.holes:
        axes.axvspan(begin, end, facecolor="none", edgecolor=GREY, alpha=0.35, hatch="xx", linewidth=0)
    at, value, err = curve.points
    if len(at):
        axes.errorbar(at, value, yerr=err, fmt="o", markersize=2.5, color=colour, elinewidth=0.8)


def curve_marks(
    curve: Curve, *, label: str = "model", tube: str = "within its bound", colour: str = BLUE
) -> list[Any]:
    """Return the legend entries of a curve."""
    marks = [line_mark(label, colour, linewidth=1.5), patch_mark(tube, facecolor=colour, alpha=0.22)]
    if curve.holes:
        marks.append(patch_mark("no model", facecolor="none", edgecolor=GREY, hatch="xx"))
    return marks
