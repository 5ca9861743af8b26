"""Define how pictures look: colours for the colour-blind, a light ground, letters that stay readable on a phone.

Figures are made without pyplot: no window opens, no state is kept, and a notebook shows the returned figure. matplotlib
(the extra ``plot``) is loaded when the first figure is made, not before.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pulse.plot.errors import PlotError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOW = "pip install 'pulse-stream[plot]'"

# Okabe and Ito's colours, which also differ in lightness.
INK, BLUE, ORANGE, GREEN, RED = "#1c2733", "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, GROUND = "#56B4E9", "#CC79A7", "#8a94a0", "#ffffff"
SERIES = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)

# Colour, opacity and hatching of certain, likely and possible ranges: each of the three alone distinguishes them.
SHADES: dict[str, tuple[str, float, str | None]] = {
    "certain": (GREEN, 0.32, None),
    "likely": (ORANGE, 0.30, None),
    "possible": (GREY, 0.18, "///"),
}

WIDE, NARROW = 9.0, 4.6
"""Inches: for desktops, and for phones, where letters keep their size and the picture is narrower."""
DOTS = 144  # per inch
COLUMNS = 1200  # columns that curves are thinned to: about the width of a picture in pixels


def require() -> None:
    """Raise if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as e:
        raise PlotError(f"plot: matplotlib is missing ({e}); install it with {HOW}") from None


def blank(width: float, height: float) -> Figure:
    """Create a figure of a size in inches, which a notebook shows by itself."""
    require()
    figure = _shown()(figsize=(width, height), layout="constrained", dpi=100)
    figure.set_facecolor(GROUND)
    return figure


@functools.cache
def _shown() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            made = io.BytesIO()
            self.savefig(made, format="png")
            return made.getvalue()

    return ShownFigure


def panels(
    count: int, width: float = WIDE, *, height: float = 2.2, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Create a figure of panels below each other with a common axis, such as time."""
    figure = blank(width, 0.8 + height * max(count, 1))
    if not count:
        return figure, []
    made = figure.subplots(count, 1, squeeze=False, gridspec_kw={"height_ratios": ratios})
    axes = [row[0] for row in made]
    for one in axes:
        tidy(one)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Keep only the lines that are needed."""
    axes.set_facecolor(GROUND)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=9, colors=INK)
    axes.grid(True, color="#e6e9ec", linewidth=0.7)
    axes.set_axisbelow(True)


def titled(axes: Axes, title: str = "", *, x: str = "", y: str = "") -> None:
    """Set the title and the names of the axes."""
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)


def over_time(axes: Axes) -> None:
    """Format the bottom axis as time, with labels as short as possible."""
    from matplotlib.dates import MINUTELY, SECONDLY, AutoDateLocator, ConciseDateFormatter

    width, _ = axes.figure.get_size_inches()  # type: ignore[union-attr]
    most = 9 if width > NARROW + 1 else 7
    locator = AutoDateLocator(minticks=3, maxticks=most)  # type: ignore[no-untyped-call]
    for unit in (MINUTELY, SECONDLY):  # without these an axis of ten minutes has two ticks
        locator.intervald[unit] = [1, 2, 5, 10, 15, 20, 30]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set_fontsize(9)


def legend(figure: Figure, handles: Sequence[Any], *, long: bool = False) -> None:
    """Draw a legend below the picture, in fewer columns if the words are ``long``; nothing if there are no handles."""
    if handles:
        width, _ = figure.get_size_inches()
        beside = (2 if long else 5) if width > NARROW + 1 else (1 if long else 2)
        figure.legend(
            handles=list(handles),
            loc="outside lower center",
            ncols=min(len(handles), beside),
            frameon=False,
            fontsize=9,
        )


def percent(share: float) -> str:
    """Format a share in percent; never round to nothing or to all.

    >>> [percent(one) for one in (0.0, 1e-7, 0.25, 0.9999, 1.0)]
    ['0 %', '< 0.1 %', '25 %', '> 99.9 %', '100 %']
    """
    if 0.0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1.0:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def shade_patch(certainty: str, share: float | None = None) -> Any:
    """Return the legend entry of a certainty, with its share of all answered time if known."""
    colour, alpha, hatch = SHADES[certainty]
    label = certainty if share is None else f"{certainty}, {percent(share)}"
    return patch_mark(label, facecolor=colour, alpha=alpha, hatch=hatch)


def line_mark(label: str, colour: str, **look: Any) -> Any:
    """Return the legend entry of a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, label=label, **look)


def patch_mark(label: str, **look: Any) -> Any:
    """Return the legend entry of an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)
