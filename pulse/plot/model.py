"""Plot a model over its tuples: every piece inside the tube that the truth never leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import FloatArray
from pulse.core.keys import key_mask
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import to_microseconds
from pulse.plot.curves import Curve, DrawnPieces, curve, thin
from pulse.plot.drawing import curve_marks, draw_curve
from pulse.plot.errors import PlotError
from pulse.plot.style import COLUMNS, RED, WIDE, legend, line_mark, over_time, panels, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_KEYS = 6
_DOTS = 600  # at most so many tuples are also drawn as dots


def pieces_of(batch: SegmentBatch, attribute: str) -> DrawnPieces:
    """Convert the segments of one key to pieces."""
    return DrawnPieces(batch.ref, batch.lo, batch.hi, batch.coefficients(attribute), batch.err(attribute))


def plot_model(
    batch: SegmentBatch,
    *,
    attribute: str | None = None,
    tuples: pa.Table | None = None,
    keys: int = MOST_KEYS,
    width: float = WIDE,
) -> Figure:
    """Plot a model, its tube and its tuples, one panel per key and attribute.

    Jumps are dotted, and the ground is hatched where there is no model. If there are more pieces than the picture has columns,
    the band that they fill is drawn, so that a year takes no longer to look at than an hour.

    Parameters
    ----------
    batch : segments of the model
    attribute : attribute to draw; default all
    tuples : tuples to draw with the model; default none
    keys : draw so many of the first keys
    width : width in inches
    """
    names = attributes_of(batch, attribute)
    groups = split_keys(batch, keys)
    figure, axes = panels(max(len(groups) * len(names), 1), width, height=2.4 if len(groups) < 3 else 1.8)
    marks: list[Any] = []
    drawn = [(label, own, name) for label, own in groups for name in names]
    for one, (label, own, name) in zip(axes, drawn, strict=False):
        made = curve(pieces_of(own, name))
        if tuples is not None:
            draw_tuples(one, _of_key(tuples, own), name, own.schema.truth(name).value, own.schema.time, made)
        draw_curve(one, made)
        titled(one, label, y=name)
        over_time(one)
        mine = curve_marks(made)
        if tuples is not None:
            mine.append(line_mark("tuples", RED, marker=".", linewidth=0.7))
        marks = mine if len(mine) > len(marks) else marks
    legend(figure, marks)
    return figure


def attributes_of(batch: SegmentBatch, attribute: str | None) -> Sequence[str]:
    """Return the attributes to draw."""
    names = batch.schema.modelled_names
    if attribute is None:
        return names
    if attribute not in names:
        raise PlotError(
            f"plot: there is no modelled attribute {attribute!r} to draw; the model has {', '.join(names)}"
        )
    return (attribute,)


def split_keys(batch: SegmentBatch, most: int) -> list[tuple[str, SegmentBatch]]:
    """Split the segments by key, for the first keys, with a label each."""
    names = batch.schema.key_names
    if not len(batch):
        return []
    ranks = batch.key_ranks
    found = []
    for rank in np.unique(ranks)[:most]:
        own = batch.filter(ranks == rank)
        label = (f"{name}={own.column(name)[0].as_py()}" for name in names)
        found.append((", ".join(label), own))
    return found


def _of_key(tuples: pa.Table, own: SegmentBatch) -> pa.Table:
    names = own.schema.key_names
    if not names:
        return tuples
    key = {name: own.column(name)[0].as_py() for name in names}
    batch = pa.RecordBatch.from_arrays(
        [tuples.column(name).combine_chunks().cast(dict(own.schema.key)[name]) for name in names],
        names=list(names),
    )
    return tuples.filter(pa.array(key_mask(batch, own.schema, key)))


def draw_tuples(axes: Axes, rows: pa.Table, name: str, truth: str, time: str, model: Curve | None) -> None:
    """Draw the tuples, joined according to their truth, but not across holes; thinned if there are many."""
    rows = rows.filter(pc.is_finite(rows.column(name).cast(pa.float64())))
    at = to_microseconds(rows.column(time))
    values: FloatArray = rows.column(name).cast(pa.float64()).to_numpy()
    kept = thin(at / 1e6, values, COLUMNS)
    at, values = at[kept].astype("datetime64[us]"), values[kept]
    if truth != "samples" and len(at) > 1:
        shown, line = at, values
        if model is not None and model.holes:
            cuts = np.searchsorted(at, [end for _, end in model.holes])
            cuts = cuts[(cuts > 0) & (cuts < len(at))]
            shown, line = np.insert(at, cuts, at[cuts - 1]), np.insert(values, cuts, np.nan)
        style = "steps-post" if truth == "step" else "default"
        axes.plot(shown, line, color=RED, linewidth=0.7, alpha=0.65, drawstyle=style)
    size = 3.0 if len(at) <= _DOTS else 1.0
    if truth == "samples" or len(at) <= _DOTS:
        axes.plot(at, values, ".", color=RED, markersize=size, alpha=0.8)
