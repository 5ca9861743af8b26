"""Plot predictions and the actual values: when a condition was predicted, for when, and the values that arrived afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulse.plot import style
from pulse.plot.style import BLUE, GREEN, INK, ORANGE, RED, WIDE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Foretold(NamedTuple):
    """A prediction made at ``now`` that a condition holds from ``begin`` to ``end``; instants in µs since 1970."""

    now: int
    begin: int
    end: int


def plot_prediction(
    at: Any,
    values: Any,
    foretold: Sequence[Foretold],
    *,
    threshold: float,
    what: str,
    came: tuple[int, int] | None = None,
    width: float = WIDE,
) -> Figure:
    """Plot the actual values over time, and below a bar for each prediction: from when it was made to the time it covers.

    Parameters
    ----------
    at : instants of the values, in µs since 1970
    values : the actual values
    foretold : the predictions
    threshold : limit of the condition, drawn as a line
    what : label of the values
    came : when the condition actually held; default not drawn
    width : width in inches
    """
    figure, (above, below) = style.panels(2, width, height=2.0, ratios=(1.3, 1.0))
    above.plot(_instants(at), values, color=BLUE, linewidth=1.3)
    above.axhline(threshold, color=RED, linewidth=1.0, linestyle="--")
    if foretold:
        above.axvline(_instants([foretold[0].now])[0], color=ORANGE, linewidth=1.5)
    if came is not None:
        begin, end = _instants(came)
        for axes in (above, below):
            axes.axvspan(begin, end, color=GREEN, alpha=0.3, linewidth=0)
    style.titled(above, y=what)
    for place, one in enumerate(foretold):
        now, begin, end = _instants(one)
        below.plot([now, begin], [place, place], color=INK, linewidth=0.8, linestyle=":")
        below.plot([now], [place], "o", color=ORANGE, markersize=4)
        below.plot([begin, end], [place, place], color=ORANGE, linewidth=5, solid_capstyle="butt")
    below.set_yticks([])
    below.invert_yaxis()
    style.titled(below, "predictions, the first on top")
    ends = _instants([min(at), max(at)])
    for axes in (above, below):
        axes.set_xlim(*ends)
        style.over_time(axes)
    marks = [
        style.line_mark("actual", BLUE),
        style.line_mark("limit", RED, linestyle="--"),
        style.line_mark("predicted", ORANGE, marker="o", linewidth=4),
        style.patch_mark("held", facecolor=GREEN, alpha=0.3),
    ]
    style.legend(figure, marks)
    return figure


def _instants(microseconds: Any) -> Any:
    return np.asarray(microseconds, np.int64).astype("datetime64[us]")
