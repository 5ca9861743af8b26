"""Plot a result and the segments that caused it: the answer on top, below it each input with its causes marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.core.segment.columns import row_ranges
from pulse.plot.answer import draw_answer
from pulse.plot.curves import curve
from pulse.plot.drawing import draw_curve
from pulse.plot.errors import PlotError
from pulse.plot.model import pieces_of
from pulse.plot.style import BLUE, INK, RED, WIDE, legend, line_mark, over_time, panels, shade_patch, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_INPUTS = 5
_MOST_BARS = 4000


def plot_lineage(
    result: pa.Table,
    causes: pa.Table,
    *,
    modelled: Sequence[str],
    attribute: str | None = None,
    inputs: Mapping[str, SegmentBatch] | None = None,
    width: float = WIDE,
) -> Figure:
    """Plot segments of an answer above the input segments that caused them.

    Every key among the causes is a row of bars, one for each segment's range, unless ``inputs`` has its curves.

    Parameters
    ----------
    result : segments of an answer
    causes : the input segments behind them, as :meth:`Answer.causes` returns them
    modelled : names of the answer's modelled columns
    attribute : column to draw; default the first modelled one
    inputs : models by stream name; their curves are drawn instead of bars, those of the causes in red
    width : width in inches
    """
    if not result.num_rows:
        raise PlotError("plot: there are no results, so there are no causes to draw")
    names = [name for name in modelled if attribute in (None, name)]
    if attribute is not None and not names:
        raise PlotError(
            f"plot: there is no modelled column {attribute!r} to draw; the results have {', '.join(modelled) or 'none'}"
        )
    drawn = _drawn_inputs(inputs or {}, causes)
    rows = (1 if names else 0) + max(len(drawn), 1)
    figure, axes = panels(rows, width, height=2.0)
    marks: list[Any] = []
    if names:
        _, seen = draw_answer(axes[0], result, names[0], time="")
        titled(axes[0], "the result", y=names[0])
        marks = [shade_patch(one) for one in seen]
    below = axes[1:] if names else axes
    for one, (label, batch, ids) in zip(below, drawn, strict=False):
        _input(one, label, batch, ids)
    if not drawn:
        _bars(below[0], causes)
    begin, end = _span(result, causes)
    for one in axes:
        one.set_xlim(begin, end)
        over_time(one)
    legend(figure, [*marks, *_marks(bool(drawn))])
    return figure


def _span(result: pa.Table, causes: pa.Table) -> tuple[Any, Any]:
    ends = [row_ranges(table) for table in (result, causes) if table.num_rows]
    begin, end = min(one[0].min() for one in ends), max(one[1].max() for one in ends)
    margin = max((end - begin) // 50, 1)
    return (begin - margin).astype("datetime64[us]"), (end + margin).astype("datetime64[us]")


def _drawn_inputs(
    inputs: Mapping[str, SegmentBatch], causes: pa.Table
) -> list[tuple[str, SegmentBatch, Any]]:
    """Return the keys of the inputs that hold causes: label, segments around the causes, and the ids of causes."""
    ids = causes.column("segment_id").to_numpy()
    found = []
    for stream, batch in inputs.items():
        named = batch if batch.has("segment_id") else batch.with_ids()
        own = np.isin(named.column("segment_id").to_numpy(zero_copy_only=False), ids)
        for rank in np.unique(named.key_ranks[own]):
            mine = named.filter(named.key_ranks == rank)
            key_text = ", ".join(f"{name}={mine.column(name)[0].as_py()}" for name in mine.schema.key_names)
            found.append((f"{stream}: {key_text}" if key_text else stream, mine, ids))
    return found[:_MOST_INPUTS]


def _input(axes: Axes, label: str, batch: SegmentBatch, ids: Any) -> None:
    attribute = batch.schema.modelled_names[0]
    causing = np.isin(batch.column("segment_id").to_numpy(zero_copy_only=False), ids)
    for chosen, colour, width in ((~causing, BLUE, 1.3), (causing, RED, 2.0)):
        made = curve(pieces_of(batch.filter(chosen), attribute))._replace(holes=[])
        draw_curve(axes, made, colour=colour, width=width)
    count = int(causing.sum())
    titled(axes, f"{label}: {'1 cause' if count == 1 else f'{count:,} causes'}", y=attribute)
    begin = batch.ref + batch.lo * 1e6
    end = batch.ref + batch.hi * 1e6
    near = (end >= begin[causing].min()) & (begin <= end[causing].max())
    _fit_height(axes, batch.filter(near), attribute)


def _fit_height(axes: Axes, batch: SegmentBatch, attribute: str) -> None:
    """Fit the height to the part of the model that is shown."""
    made = curve(pieces_of(batch, attribute))
    low, high = (
        np.nanmin(np.r_[made.tube_low, made.points[1]]),
        np.nanmax(np.r_[made.tube_high, made.points[1]]),
    )
    margin = 0.08 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)


def _bars(axes: Axes, causes: pa.Table) -> None:
    keys = causes.column("key").to_pylist()
    labels = list(dict.fromkeys(keys))[: 4 * _MOST_INPUTS]
    begin, end = row_ranges(causes)
    for place, label in enumerate(labels):
        own = np.flatnonzero(np.array([key == label for key in keys]))[:_MOST_BARS]
        spans = [(begin[i] / 86_400e6, max(end[i] - begin[i], 1) / 86_400e6) for i in own]
        axes.broken_barh(
            spans, (place - 0.35, 0.7), facecolor=RED, alpha=0.75, edgecolor="white", linewidth=0.5
        )
    axes.set_yticks(range(len(labels)), [str(label) for label in labels])
    axes.xaxis_date()
    axes.invert_yaxis()
    titled(axes, f"caused by {causes.num_rows:,} input segments")


def _marks(curves: bool) -> list[Any]:
    causes = line_mark("segments that caused it", RED, linewidth=2.5)
    if curves:
        return [causes, line_mark("others of the same key", BLUE, linewidth=1.5)]
    return [line_mark("result", INK, linewidth=1.2), causes]
