"""Plot tracks on a map: where moving objects went, which of them went together, and where a condition held.

Positions in metres (``x``, ``y``) are drawn in kilometres, degrees (``lon``, ``lat``) as they are; either way a circle on
the ground is a circle in the picture, as far as a flat map allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulse.core.area import Area
from pulse.core.arrays import FloatArray
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import to_microseconds
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.plot.bulk import outside_bulk
from pulse.plot.errors import PlotError
from pulse.plot.style import GREY, INK, NARROW, SERIES, WIDE, blank, legend, line_mark, tidy, titled
from pulse.plot.together import Episode, Together, pairs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PAIRS = 6
_MOST_STROKES = 60_000  # of all tracks together; more are joined
_PER_CURVE = 8
_NEAR = 600_000_000  # µs on either side of the middle of the enlarged part
_MEETINGS = 5  # instants at which both places are marked
_TOUCHING = 2.0  # µs between two consecutive segments
DEGREES = {"lon": "lat", "longitude": "latitude"}


def plot_tracks(
    batch: SegmentBatch,
    *,
    x: str | None = None,
    y: str | None = None,
    pairs: Sequence[Together] | pa.Table = (),
    episodes: Sequence[Episode] = (),
    area: Area | None = None,
    most: int = MOST_PAIRS,
    whole: bool = False,
    width: float = WIDE,
) -> Figure:
    """Plot all tracks in grey, and the first pairs in colour while they were together.

    Beside the map are some minutes of the first pair, with both places at the same instants.

    Parameters
    ----------
    batch : segments of the model
    x, y : attributes of the axes; default those of these names, or longitude and latitude
    pairs : pairs to highlight, or a table of an answer's rows
        A table is joined to pairs first (:func:`pulse.plot.together`), the longest first.
    episodes : stretches of single objects to draw in colour (:func:`pulse.plot.episodes`)
    area : area whose outline is drawn, in the coordinates of the axes
    most : highlight so many pairs
    whole : if False, a few positions far away from all others are left outside the map, whose title gives their number
    width : width in inches
    """
    across, up = positions(batch, x, y)
    shown = _known(pairs_of(pairs), batch)[:most]
    count = 2 if shown else 1
    beside = width > NARROW + 1 and count == 2
    size = (width, 4.6 if beside or count == 1 else 2.0 * width)
    figure = blank(*size)
    made = figure.subplots(1, 2) if beside else figure.subplots(count, 1, squeeze=False)[:, 0]
    axes: list[Axes] = list(np.atleast_1d(made))
    scale = 1.0 if across in DEGREES else 1e-3
    _all_tracks(axes[0], batch, across, up, scale)
    marks = [
        _highlight(axes[0], batch, pair, SERIES[i % len(SERIES)], across, up, scale)
        for i, pair in enumerate(shown)
    ]
    if episodes:
        marks.append(_highlight_episodes(axes[0], batch, episodes, across, up, scale))
    if area is not None:
        marks.append(_outline(axes[0], area, scale))
    named = (across, up) if scale == 1.0 else (f"{across} (km)", f"{up} (km)")
    title = f"{len(np.unique(batch.key_ranks)):,} tracks"
    if not whole and (bulk := outside_bulk(batch, across, up)).segments:
        title += f"; {bulk.text}"
        corners = zip(bulk.across, bulk.up, strict=True)
        axes[0].dataLim.set_points(scale * np.array(list(corners)))
        axes[0].autoscale_view()
    titled(axes[0], title, x=named[0], y=named[1])
    if shown:
        _enlarge(axes[1], batch, shown[0], across, up, scale)
        titled(axes[1], f"{shown[0].one} and {shown[0].other}", x=named[0], y=named[1])
        axes[1].margins(0.15)
    for one in axes:
        tidy(one)
        one.set_aspect(_aspect(batch, up, across), adjustable="datalim")
    legend(figure, marks, long=True)
    return figure


def positions(batch: SegmentBatch, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the attributes of the horizontal and vertical axis: those given, or those with the usual names."""
    names = batch.schema.modelled_names
    usual = [("x", "y"), *DEGREES.items()]
    across, up = next((one for one in usual if set(one) <= set(names)), (None, None))
    found = x or across, y or up
    for name in found:
        if name not in names:
            raise PlotError(
                f"plot: a map needs two modelled attributes, such as x and y or lon and lat; "
                f"got {name or 'none'}, the model has {', '.join(names)}"
            )
    return str(found[0]), str(found[1])


def _known(pairs: list[Together], batch: SegmentBatch) -> list[Together]:
    """Return the pairs that both have a track here: others may be of times that are not drawn."""
    names = batch.schema.key_names
    if len(names) != 1 or not pairs or not len(batch):
        return pairs
    there = set(batch.column(names[0]).unique().to_pylist())
    found = [pair for pair in pairs if pair.one in there and pair.other in there]
    if not found:
        raise PlotError(
            f"pairs: none of the {len(pairs):,} pairs, such as {pairs[0].one!r} and {pairs[0].other!r}, has tracks here; "
            f"there are tracks such as {names[0]} {next(iter(sorted(there)))!r}"
        )
    return found


def _aspect(batch: SegmentBatch, up: str, across: str) -> float:
    if across not in DEGREES or not len(batch):
        return 1.0
    middle = float(np.median(batch.coefficients(up)[:, 0]))
    return float(1.0 / max(np.cos(np.radians(middle)), 0.05))


def _strokes(batch: SegmentBatch, across: str, up: str, scale: float) -> FloatArray:
    """Return the path of each segment as ``(n, points, 2)``."""
    cx, cy = batch.coefficients(across), batch.coefficients(up)
    count = 2 if max(cx.shape[1], cy.shape[1]) <= 2 else _PER_CURVE
    local = (batch.lo[:, None] + (batch.hi - batch.lo)[:, None] * np.linspace(0.0, 1.0, count)).ravel()
    places = [evaluate(np.repeat(c, count, axis=0), local).reshape(-1, count) for c in (cx, cy)]
    return scale * np.stack(places, axis=2)


def _all_tracks(axes: Axes, batch: SegmentBatch, across: str, up: str, scale: float) -> None:
    from matplotlib.collections import LineCollection

    strokes = _strokes(batch, across, up, scale)
    # Join so many segments of a key to one stroke, from the first's start to the last's end.
    if len(strokes) > _MOST_STROKES:
        strokes = _joined(batch, strokes)
    axes.add_collection(
        LineCollection(list(strokes), colors=GREY, linewidths=0.6, alpha=0.55, capstyle="round")
    )
    axes.autoscale_view()


def _joined(batch: SegmentBatch, strokes: FloatArray) -> FloatArray:
    order = np.lexsort((batch.ref + batch.lo * 1e6, batch.key_ranks))
    every = -(-len(order) // _MOST_STROKES)
    ranks = batch.key_ranks[order]
    first = np.flatnonzero(np.r_[True, np.diff(ranks) > 0])
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    begins = np.flatnonzero(place % every == 0)
    ends = np.r_[begins[1:], len(order)] - 1
    joined: FloatArray = np.stack([strokes[order[begins], 0], strokes[order[ends], -1]], axis=1)
    return joined


def _highlight(
    axes: Axes, batch: SegmentBatch, pair: Together, colour: str, across: str, up: str, scale: float
) -> Any:
    """Draw two tracks while they were together; return the legend entry with names and times."""
    start, end = _ends(pair)
    for key in (pair.one, pair.other):
        way = _way(batch, key, start, end, across, up, scale)
        axes.plot(way[:, 0], way[:, 1], color=colour, linewidth=1.8)
    label = f"{pair.one} and {pair.other}, {_clock(start)} to {_clock(end)}"
    return line_mark(label, colour, linewidth=2.0)


def _highlight_episodes(
    axes: Axes, batch: SegmentBatch, episodes: Sequence[Episode], across: str, up: str, scale: float
) -> Any:
    """Draw tracks while a condition held, with a dot where each episode starts; return the legend entry."""
    from matplotlib.collections import LineCollection

    colour = SERIES[1]
    by_key: dict[Any, list[Episode]] = {}
    for one in episodes:
        by_key.setdefault(one.key, []).append(one)
    ways = []
    for key, stretches in by_key.items():
        own = batch.of_key(key)
        ways += [_way_of(own.restrict(one.start, one.end), across, up, scale) for one in stretches]
    ways = [way for way in ways if len(way)]
    axes.add_collection(LineCollection(ways, colors=colour, linewidths=1.0, capstyle="round"))
    if ways:
        axes.plot(*np.array([way[0] for way in ways]).T, ".", color=colour, markersize=2)
    count = len(ways)
    return line_mark(f"{count:,} {'episode' if count == 1 else 'episodes'}", colour, linewidth=2.0)


def _outline(axes: Axes, area: Area, scale: float) -> Any:
    """Draw the rings of an area; return the legend entry."""
    import shapely

    for ring in shapely.get_rings(shapely.get_parts(shapely.from_wkb(area.wkb))):
        corners = scale * shapely.get_coordinates(ring)
        axes.plot(corners[:, 0], corners[:, 1], color=INK, linewidth=1.4, linestyle=":", zorder=5)
    return line_mark("area", INK, linewidth=1.4, linestyle=":")


def _enlarge(axes: Axes, batch: SegmentBatch, pair: Together, across: str, up: str, scale: float) -> None:
    """Draw some minutes of a pair, and where both were at the same instants."""
    start, end = _ends(pair)
    if end - start > 2 * _NEAR:
        middle = (start + end) // 2
        start, end = middle - _NEAR, middle + _NEAR
    at = np.linspace(start, end, _MEETINGS + 2)[1:-1].astype(np.int64)
    places = []
    for key, colour, line in ((pair.one, SERIES[0], "-"), (pair.other, SERIES[1], "--")):
        way = _way(batch, key, start, end, across, up, scale)
        axes.plot(way[:, 0], way[:, 1], color=colour, linewidth=1.4, linestyle=line, label=str(key))
        own = batch.of_key(key).restrict(start, end)
        where = [np.ma.filled(own.evaluate(name, at), np.nan) * scale for name in (across, up)]
        axes.plot(*where, "o", color=colour, markersize=5)
        places.append(np.stack(where, axis=1))
    for one, other, when in zip(*places, at.tolist(), strict=True):
        axes.plot([one[0], other[0]], [one[1], other[1]], color=INK, linewidth=0.8)
        if np.all(np.isfinite(one)):
            axes.annotate(_clock(when), one, xytext=(6, 4), textcoords="offset points", fontsize=8, color=INK)
    axes.legend(fontsize=8, frameon=False)


def _way(
    batch: SegmentBatch, key: Any, start: int, end: int, across: str, up: str, scale: float
) -> FloatArray:
    """Return the path of one key between two instants, broken at holes."""
    return _way_of(batch.of_key(key).restrict(start, end), across, up, scale)


def _way_of(own: SegmentBatch, across: str, up: str, scale: float) -> FloatArray:
    """Return the path of the segments of one key, broken at holes."""
    own = own.sort()
    strokes = _strokes(own, across, up, scale)
    if not len(own):
        return strokes.reshape(-1, 2)
    begin, until = own.ref + own.lo * 1e6, own.ref + own.hi * 1e6
    ended = np.full((len(own), 1, 2), np.nan)
    ended[:-1][begin[1:] - until[:-1] <= _TOUCHING] = strokes[:-1, -1:][begin[1:] - until[:-1] <= _TOUCHING]
    way: FloatArray = np.concatenate([strokes, ended], axis=1).reshape(-1, 2)
    return way


def _ends(pair: Together) -> tuple[int, int]:
    start, end = (int(to_microseconds(one)[0]) for one in (pair.start, pair.end))
    return start, end


def _clock(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[m]")).partition("T")[2]
