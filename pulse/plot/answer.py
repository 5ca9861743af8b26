"""Plot an answer over time: its values inside the error they can have, on a ground that shows the certainty of each range.

Certain ranges lie on green, likely ones on orange, possible ones on grey hatching; where a column of the picture holds several,
their shares of its time are stacked. Ranges without an answer stay empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.segment.coefficients import to_padded
from pulse.core.time import to_microseconds
from pulse.plot.curves import Curve, DrawnPieces, curve
from pulse.plot.drawing import curve_marks, draw_curve
from pulse.plot.errors import PlotError
from pulse.plot.model import MOST_KEYS
from pulse.plot.shading import shade
from pulse.plot.style import COLUMNS, INK, SHADES, WIDE, legend, over_time, panels, shade_patch, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_answer(
    table: pa.Table,
    *,
    modelled: Sequence[str],
    key: Sequence[str] = (),
    time: str = "t",
    attribute: str | None = None,
    rate: int | None = None,
    keys: int = MOST_KEYS,
    named: bool = True,
    width: float = WIDE,
) -> Figure:
    """Plot an attribute with its error and its certainty, one panel per key.

    Parameters
    ----------
    table : tuples if it has the column ``time``, else segments, as :meth:`Answer.to_arrow` returns them
    modelled : names of the modelled columns
    key : names of the key columns
    time : name of the time column, default ``"t"``
    attribute : column to draw; default the first modelled one
    rate : rate of the tuples in microseconds, to detect gaps; default the median step
    keys : draw so many of the first keys
    named : title panels ``name=value``; if False by the values alone
    width : width in inches
    """
    names = [name for name in modelled if attribute in (None, name)]
    if not names:
        has = ", ".join(modelled) or "none, only keys and times"
        raise PlotError(
            f"plot: there is no modelled column {attribute or ''!r} to draw; the answer has {has}"
        )
    groups = split_rows(table, [name for name in key if name in table.column_names], keys, named=named)
    figure, axes = panels(len(groups), width, height=2.4 if len(groups) < 3 else 1.8)
    made: Curve | None = None
    found: dict[str, float] = {}
    for one, (label, rows) in zip(axes, groups, strict=True):
        made, seen = draw_answer(one, rows, names[0], time, rate)
        found = {name: found.get(name, 0.0) + seen.get(name, 0.0) for name in {**found, **seen}}
        titled(one, label, y=names[0])
        over_time(one)
    marks = curve_marks(made, label=names[0], tube="its error", colour=INK) if made is not None else []
    legend(
        figure,
        [*marks[:2], *(shade_patch(name, share) for name, share in _shares(found).items())],
    )
    return figure


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    """Return the share of each certainty in all answered time; the strongest first."""
    whole = sum(seconds.values())
    return {name: seconds[name] / whole if whole else 1.0 for name in SHADES if name in seconds}


def draw_answer(
    axes: Axes, rows: pa.Table, name: str, time: str, rate: int | None = None
) -> tuple[Curve, dict[str, float]]:
    """Draw the rows of one key on axes; return the curve, and the seconds that each certainty covers."""
    certainty = np.array(rows.column("certainty").to_pylist(), dtype=object)
    if time in rows.column_names:
        made, begin, end, certainty = _sampled(rows, name, time, rate, certainty)
    else:
        pieces = _pieces(rows, name)
        made = curve(pieces)
        order = np.argsort(pieces.ref + pieces.lo * 1e6, kind="stable")
        ends = [pieces.ref + np.round(one * 1e6).astype(np.int64) for one in (pieces.lo, pieces.hi)]
        begin, end = (one[order].astype("datetime64[us]") for one in ends)
        certainty = certainty[order]
        made = made._replace(holes=[])  # a range without an answer is not a hole of a model
    seen = shade(axes, begin, end, certainty, columns=COLUMNS)
    draw_curve(axes, made, colour=INK)
    return made, seen


def _pieces(rows: pa.Table, name: str) -> DrawnPieces:
    ref = to_microseconds(rows.column("ref"))
    c = to_padded(rows.column(name).combine_chunks()) if rows.num_rows else np.zeros((0, 1))
    lo, hi, err = (rows.column(one).to_numpy() for one in ("lo", "hi", f"{name}_err"))
    return DrawnPieces(ref, lo, hi, c, err)


def _sampled(
    rows: pa.Table, name: str, time: str, rate: int | None, certainty: Any
) -> tuple[Curve, Any, Any, Any]:
    """Convert tuples to a curve that is broken at gaps, and to the range that each covers."""
    at = to_microseconds(rows.column(time))
    order = np.argsort(at, kind="stable")
    at, certainty = at[order], certainty[order]
    err = rows.column(f"{name}_err").to_numpy()[order]
    if pa.types.is_timestamp(
        rows.schema.field(name).type
    ):  # an instant: how long before the row's time it was
        value = (to_microseconds(rows.column(name))[order] - at) / 1e6
    else:
        value = rows.column(name).cast(pa.float64()).to_numpy()[order]
    step = rate or (int(np.median(np.diff(at))) if len(at) > 1 else 1_000_000)
    left_out = np.flatnonzero(np.diff(at) > 1.5 * step) + 1 if len(at) > 1 else np.zeros(0, np.int64)
    begin, end = at, at + step
    end = np.minimum(end, np.r_[at[1:], end[-1:]]) if len(at) else end
    shown = [np.insert(one, left_out, np.nan) for one in (value, value - err, value + err)]
    when = np.insert(at, left_out, at[left_out])
    many = len(at) > 4 * COLUMNS
    places, low, high, tube_low, tube_high = _columns(when, *shown) if many else (when, shown[0], *shown)
    drawn = Curve(places.astype("datetime64[us]"), low, high, tube_low, tube_high, thinned=many)
    ranges = (one.astype("datetime64[us]") for one in (begin, end))
    return drawn, *ranges, certainty


def _columns(at: Any, value: Any, low: Any, high: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the smallest and largest value of each column of the picture, with the band around them."""
    width = max((at[-1] - at[0]) / COLUMNS, 1.0)
    column = np.minimum((at - at[0]) // width, COLUMNS - 1).astype(np.int64)
    bounds = []
    for of, take, start in (
        (value, np.fmin, np.inf),
        (value, np.fmax, -np.inf),
        (low, np.fmin, np.inf),
        (high, np.fmax, -np.inf),
    ):
        into = np.full(COLUMNS, start)
        take.at(into, column, of)
        bounds.append(np.where(np.isfinite(into), into, np.nan))
    places = at[0] + (width * (np.arange(COLUMNS) + 0.5)).astype(np.int64)
    return places, bounds[0], bounds[1], bounds[2], bounds[3]


def split_rows(
    table: pa.Table, names: Sequence[str], most: int, *, named: bool = True
) -> list[tuple[str, pa.Table]]:
    """Split the rows by key, for the first keys, with a label each."""
    if not names or not table.num_rows:
        return [("", table)]
    distinct = table.select(names).group_by(list(names), use_threads=False).aggregate([]).slice(0, most)
    found = []
    for key in distinct.to_pylist():
        mask = np.ones(table.num_rows, bool)
        for name, one in key.items():
            mask &= pc.equal(table.column(name), pa.scalar(one, table.schema.field(name).type)).to_numpy()
        label = (f"{name}={one}" if named else str(one) for name, one in key.items())
        found.append((", ".join(label), table.filter(pa.array(mask))))
    return found
