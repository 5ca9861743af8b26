"""How pictures look: colours that the colour-blind can tell apart, a light ground, letters that stay readable on a phone.

Figures are made without pyplot: no window opens, no state is kept, and a notebook shows what a function returns. matplotlib
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

# Okabe and Ito's colours, which differ in lightness, too.
INK, BLUE, ORANGE, GREEN, RED = "#1c2733", "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, GROUND = "#56B4E9", "#CC79A7", "#8a94a0", "#ffffff"
SERIES = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)

# Colour, opacity and hatching of what is certain, likely, possible: each of the three tells them apart by itself.
SHADES: dict[str, tuple[str, float, str | None]] = {
    "certain": (GREEN, 0.32, None),
    "likely": (ORANGE, 0.30, None),
    "possible": (GREY, 0.18, "///"),
}

WIDE, NARROW = 9.0, 4.6
"""Inches: for a desk, and for a phone, where letters keep their size and the picture loses width."""
DOTS = 144  # per inch
COLUMNS = 1200  # columns that curves are thinned to: as many as a picture has pixels to show them


def require() -> None:
    """That matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as e:
        raise PlotError(f"plot: matplotlib is missing ({e}); install it with {HOW}") from None


def blank(width: float, height: float) -> Figure:
    """A figure of a size in inches that a notebook shows by itself."""
    require()
    figure = _shown()(figsize=(width, height), layout="constrained", dpi=100)
    figure.set_facecolor(GROUND)
    return figure


@functools.cache
def _shown() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that a notebook shows also where nobody loaded pyplot, which would teach it to show any figure."""

        def _repr_png_(self) -> bytes:
            made = io.BytesIO()
            self.savefig(made, format="png")
            return made.getvalue()

    return ShownFigure


def panels(
    count: int, width: float = WIDE, *, height: float = 2.2, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of panels below each other with one axis of time, or of whatever they share."""
    figure = blank(width, 0.8 + height * max(count, 1))
    if not count:
        return figure, []
    made = figure.subplots(count, 1, squeeze=False, gridspec_kw={"height_ratios": ratios})
    axes = [row[0] for row in made]
    for one in axes:
        tidy(one)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Only the lines that are needed."""
    axes.set_facecolor(GROUND)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=9, colors=INK)
    axes.grid(True, color="#e6e9ec", linewidth=0.7)
    axes.set_axisbelow(True)


def titled(axes: Axes, title: str = "", *, x: str = "", y: str = "") -> None:
    """Its title and the names of its axes."""
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)


def over_time(axes: Axes) -> None:
    """Instants along the bottom, in as few letters as tell them apart."""
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
    """What the marks mean, below the picture, in fewer columns where the words are ``long``; nothing where there are none."""
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
    """A share in percent; what is nearly nothing or nearly all does not become it.

    >>> [percent(one) for one in (0.0, 1e-7, 0.25, 0.9999, 1.0)]
    ['0 %', '< 0.1 %', '25 %', '> 99.9 %', '100 %']
    """
    if 0.0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1.0:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def shade_patch(certainty: str, share: float | None = None) -> Any:
    """The mark of a certainty for a legend, if known with its share of all the time that is answered."""
    from matplotlib.patches import Patch

    colour, alpha, hatch = SHADES[certainty]
    label = certainty if share is None else f"{certainty}, {percent(share)}"
    return Patch(facecolor=colour, alpha=alpha, hatch=hatch, label=label)
