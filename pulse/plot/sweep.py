"""Plot a sweep's summary: a heat map over two parameters, a line over one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.plot.errors import PlotError
from pulse.plot.style import BLUE, INK, WIDE, panels, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = ("ranges", "seconds", "certain_seconds")
_WRITTEN = 120  # at most so many cells have their values written into them
_TICKS = 14


def parameters_of(summary: pa.Table) -> list[str]:
    """Return the parameters of a summary from a file: the columns before its figures.

    >>> parameters_of(pa.table({"short": [5], "long": [60], "ranges": [1], "seconds": [2.0], "certain_seconds": [1.0]}))
    ['short', 'long']
    """
    names: list[str] = summary.column_names
    if not all(name in names for name in FIGURES):
        raise PlotError(
            "plot: expected a summary of a sweep, with ranges, seconds and certain_seconds, "
            f"got {', '.join(names)}; write one with pulse sweep --summary"
        )
    return names[: names.index(FIGURES[0])]


def plot_sweep(
    summary: pa.Table, names: Sequence[str] | None = None, *, value: str = "seconds", width: float = WIDE
) -> Figure:
    """Plot one column of a sweep's summary: a heat map over two parameters, a line over one.

    Parameters
    ----------
    summary : the summary, of :meth:`pulse.Sweep.summary` or from a file
    names : the parameters; default the columns before the figures
    value : column to show, default ``"seconds"``
    width : width in inches
    """
    names = parameters_of(summary) if names is None else list(names)
    if value not in summary.column_names or value in names:
        others = ", ".join(name for name in summary.column_names if name not in names)
        raise PlotError(f"plot: the summary has no column {value!r} to show; it has {others}")
    varied = [name for name in names if len(set(summary.column(name).to_pylist())) > 1]
    if len(varied) > 2:
        raise PlotError(f"plot: a heat map shows two parameters, {', '.join(varied)} vary; fix all but two")
    shown = [float("nan") if one is None else float(one) for one in summary.column(value).to_pylist()]
    if len(varied) < 2:
        return _line(summary, varied[0] if varied else names[0], value, shown, width)
    return _map(summary, (varied[0], varied[1]), value, shown, width)


def _line(summary: pa.Table, name: str, value: str, shown: list[float], width: float) -> Figure:
    figure, (axes,) = panels(1, width, height=2.8)
    places = summary.column(name).to_pylist()
    axes.plot(range(len(places)), shown, marker="o", color=BLUE)
    every = max(1, -(-len(places) // _TICKS))
    axes.set_xticks(range(0, len(places), every), [str(place) for place in places[::every]])
    titled(axes, x=name, y=value)
    return figure


def _map(summary: pa.Table, varied: tuple[str, str], value: str, shown: list[float], width: float) -> Figure:
    down, across = varied
    rows, columns = (list(dict.fromkeys(summary.column(name).to_pylist())) for name in varied)
    grid = np.full((len(rows), len(columns)), np.nan)
    places = zip(summary.column(down).to_pylist(), summary.column(across).to_pylist(), shown, strict=True)
    row_of, column_of = ({one: i for i, one in enumerate(listed)} for listed in (rows, columns))
    for i, j, one in places:
        grid[row_of[i], column_of[j]] = one
    figure, (axes,) = panels(1, width, height=min(max(2.6, 0.42 * len(rows) + 0.6), 6.0))
    axes.grid(False)
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="cividis")
    for listed, ticks in ((columns, axes.set_xticks), (rows, axes.set_yticks)):
        every = max(1, -(-len(listed) // _TICKS))
        ticks(range(0, len(listed), every), [str(one) for one in listed[::every]])
    titled(axes, x=across, y=down)
    if grid.size <= _WRITTEN:
        _write(axes, grid, image, width)
    bar = figure.colorbar(image, ax=axes, label=value)
    bar.ax.tick_params(labelsize=9, colors=INK)
    return figure


def _write(axes: Any, grid: Any, image: Any, width: float) -> None:
    """Write the values into their cells, light on dark and dark on light."""
    size = min(9.0, max(6.0, 9.0 * width / grid.shape[1]))
    digits = 3 if width / grid.shape[1] > 0.8 else 2
    for (i, j), one in np.ndenumerate(grid):
        if np.isfinite(one):
            colour = "white" if image.norm(one) < 0.55 else INK
            axes.text(j, i, short(one, digits), ha="center", va="center", fontsize=size, color=colour)


def short(value: float, digits: int) -> str:
    """Format a number for a cell of a map: large ones in thousands, millions or billions rather than with an exponent.

    >>> [short(one, 2) for one in (20764.0, -740.2, 0.0313, 8.6e-7, 999_600.0, 3.2e12)]
    ['20.8k', '-740', '0.031', '8.6e-07', '1000k', '3.2e+12']
    """
    for least, unit, sign in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if least <= abs(value) < 1e12:
            scaled = value / unit
            return f"{scaled:.0f}{sign}" if abs(scaled) >= 100 else f"{scaled:.3g}{sign}"
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e4 else f"{value:.{digits}g}"
