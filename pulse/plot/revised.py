"""Plot the effect of a correction: an answer before and after it, with the stretches where the two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.time import to_microseconds
from pulse.plot import style
from pulse.plot.curves import runs, thin
from pulse.plot.style import BLUE, COLUMNS, GREY, ORANGE, RED, WIDE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAME = 1e-9  # relative to the larger of two values, for rounding


def plot_revised(
    before: pa.Table, after: pa.Table, *, attribute: str, time: str = "t", width: float = WIDE
) -> Figure:
    """Plot tuples of one key before (red, dashed) and after (blue) a revision; where they differ, the ground is orange."""
    figure, (axes,) = style.panels(1, width, height=2.8)
    old, new = (_series(table, attribute, time) for table in (before, after))
    for (at, values), colour, line in ((old, RED, "--"), (new, BLUE, "-")):
        kept = thin(at.astype(float), values, COLUMNS)
        shown = at[kept].astype("datetime64[us]")
        axes.plot(shown, values[kept], color=colour, linewidth=1.3, linestyle=line)
    begin, end = (one.astype("datetime64[us]") for one in changed(old, new))
    for a, b in zip(begin, end, strict=True):
        axes.axvspan(a, b, color=ORANGE, alpha=0.25, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    style.titled(axes, y=attribute)
    style.over_time(axes)
    lines = [style.line_mark("before", RED, linestyle="--"), style.line_mark("after", BLUE)]
    style.legend(figure, [*lines, style.patch_mark("changed", facecolor=ORANGE, alpha=0.25)])
    return figure


def _series(table: pa.Table, attribute: str, time: str) -> tuple[Any, Any]:
    at = to_microseconds(table.column(time))
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
    begin, end = np.array(runs(differs), np.int64).reshape(-1, 2).T
    return at[begin], at[end - 1]
