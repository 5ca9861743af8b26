"""Plot the effect of a correction: an answer before and after it, with the stretches where the two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.plot.curves import thin
from pulse.plot.style import BLUE, COLUMNS, GREY, ORANGE, RED, WIDE, legend, over_time, panels, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAME = 1e-9  # relative to the larger of two values, for rounding


def plot_revised(
    before: pa.Table, after: pa.Table, *, attribute: str, time: str = "t", width: float = WIDE
) -> Figure:
    """Plot tuples of one key before (red, dashed) and after (blue) a revision; where they differ, the ground is orange."""
    figure, (axes,) = panels(1, width, height=2.8)
    old, new = (_series(table, attribute, time) for table in (before, after))
    for (at, values), colour, line in ((old, RED, "--"), (new, BLUE, "-")):
        kept = thin(at.astype(float), values, COLUMNS)
        axes.plot(
            at[kept].astype("datetime64[us]"), values[kept], color=colour, linewidth=1.3, linestyle=line
        )
    begin, end = changed(old, new)
    for a, b in zip(begin, end, strict=True):
        axes.axvspan(
            a.astype("datetime64[us]"), b.astype("datetime64[us]"), color=ORANGE, alpha=0.25, linewidth=0
        )
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    titled(axes, y=attribute)
    over_time(axes)
    legend(figure, _marks())
    return figure


def _series(table: pa.Table, attribute: str, time: str) -> tuple[Any, Any]:
    at = table.column(time).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    order = np.argsort(at, kind="stable")
    return at[order], table.column(attribute).to_numpy()[order]


def changed(old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the stretches, from the first to the last instant, in which two series of instants and values differ."""
    at = np.union1d(old[0], new[0])
    values = []
    for own, value in (old, new):
        found = np.full(len(at), np.nan)
        found[np.searchsorted(at, own)] = value
        values.append(found)
    a, b = values
    size = np.maximum(np.abs(np.nan_to_num(a)), np.abs(np.nan_to_num(b)))
    with np.errstate(invalid="ignore"):
        differs = (np.isnan(a) != np.isnan(b)) | (np.abs(a - b) > _SAME * size)
    edges = np.flatnonzero(np.diff(np.r_[False, differs, False].astype(np.int8)))
    return at[edges[::2]], at[edges[1::2] - 1]


def _marks() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color=RED, linestyle="--", label="before"),
        Line2D([], [], color=BLUE, label="after"),
        Patch(facecolor=ORANGE, alpha=0.25, label="changed"),
    ]
