"""Pictures of answers and sweeps, with matplotlib (the extra ``plot``). Figures are made without pyplot: no window opens.

An answer is drawn with the error it can have as a band, and with its certainty as the colour of what is below: certain ranges
filled dark, likely ones light, possible ones hatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.coefficients import to_padded
from pulse.core.errors import PulseError
from pulse.kernels.polynomial import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_KEYS = 6
_PER_SEGMENT = 16
_SHADES = {"certain": ("#1b7f5c", 0.30), "likely": ("#e0a100", 0.25), "possible": ("#7a7a7a", 0.15)}


class PlotError(PulseError, ValueError):
    """A picture that cannot be drawn."""


def check_picture(path: Path, *, overwrite: bool = False) -> None:
    """That a picture of this name can be written, before any work is done."""
    figure, _ = _panels(0, 1.0)
    known = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise PlotError(f"plot: {path}: expected a name that ends in one of .{', .'.join(known)}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise PlotError(f"plot: {path}: it is there already; choose another name, or --overwrite a file")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"plot: {path}: there is no folder {path.absolute().parent}; make it first")


def plot_answer(
    answer: Any, *, attribute: str | None = None, keys: int = _MOST_KEYS, width: float = 10.0
) -> Figure:
    """One panel for each of the first ``keys`` keys: the attribute over time, its error band, and its certainty.

    ``attribute`` is by default the first modelled column. The answer is brought to this process: restrict it first if it is
    large. Tuples are drawn where the query has a rate, else segments.
    """
    columns = answer.query.plan.columns
    names = [name for name in columns.modelled if attribute in (None, name)]
    if not names:
        has = ", ".join(columns.modelled) or "none: it says only who and when"
        raise PlotError(
            f"plot: there is no modelled column {attribute or ''!r} to draw; the answer has {has}"
        )
    table = answer.to_arrow()
    key_names = [name for name in columns.key_names if name in table.column_names]
    groups = _groups(table, key_names, keys)
    figure, panels = _panels(len(groups), width)
    for axes, (label, rows) in zip(panels, groups, strict=True):
        times, values, err, certainty = _series(rows, names[0], columns.time)
        _draw(axes, times, values, err, certainty)
        axes.set_title(label, loc="left", fontsize=9)
        axes.set_ylabel(names[0], fontsize=8)
    if panels:
        from matplotlib.patches import Patch

        shades = [Patch(color=colour, alpha=alpha, label=name) for name, (colour, alpha) in _SHADES.items()]
        figure.legend(handles=shades, loc="lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def plot_sweep(
    summary: pa.Table, names: Sequence[str], *, value: str = "seconds", width: float = 7.0
) -> Figure:
    """A heat map of one column of a sweep's summary over two parameters; over one parameter, a line."""
    if value not in summary.column_names or value in names:
        others = ", ".join(name for name in summary.column_names if name not in names)
        raise PlotError(f"plot: the summary has no column {value!r} to show; it has {others}")
    varied = [name for name in names if len(set(summary.column(name).to_pylist())) > 1]
    if len(varied) > 2:
        raise PlotError(f"plot: a heat map shows two parameters, {', '.join(varied)} vary; fix all but two")
    figure, (axes,) = _panels(1, width)
    shown = [float("nan") if one is None else float(one) for one in summary.column(value).to_pylist()]
    if len(varied) < 2:
        name = varied[0] if varied else names[0]
        places = summary.column(name).to_pylist()
        axes.plot(range(len(places)), shown, marker="o")
        axes.set_xticks(range(len(places)), [str(place) for place in places])
        axes.set_xlabel(name)
        axes.set_ylabel(value)
        return figure
    down, across = varied
    rows, columns = (list(dict.fromkeys(summary.column(name).to_pylist())) for name in (down, across))
    grid = np.full((len(rows), len(columns)), np.nan)
    for i, j, one in zip(
        summary.column(down).to_pylist(), summary.column(across).to_pylist(), shown, strict=True
    ):
        grid[rows.index(i), columns.index(j)] = one
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), [str(one) for one in columns])
    axes.set_yticks(range(len(rows)), [str(one) for one in rows])
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    figure.colorbar(image, ax=axes, label=value)
    return figure


def _panels(count: int, width: float) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as e:
        raise PlotError(
            f"plot: matplotlib is missing ({e}); install it with pip install 'pulse-stream[plot]'"
        ) from None
    figure = Figure(figsize=(width, 1.0 + 2.2 * max(count, 1)), layout="constrained")
    return figure, [figure.add_subplot(max(count, 1), 1, i + 1) for i in range(count)]


def _groups(table: pa.Table, names: list[str], most: int) -> list[tuple[str, pa.Table]]:
    """The rows of each of the first keys, with a label."""
    if not names or not table.num_rows:
        return [("", table)]
    distinct = table.select(names).group_by(names, use_threads=False).aggregate([]).slice(0, most)
    found = []
    for key in distinct.to_pylist():
        mask = np.ones(table.num_rows, bool)
        for name, one in key.items():
            mask &= pc.equal(table.column(name), pa.scalar(one, table.schema.field(name).type)).to_numpy()
        found.append((", ".join(f"{name}={one}" for name, one in key.items()), table.filter(pa.array(mask))))
    return found


def _series(rows: pa.Table, name: str, time: str) -> tuple[Any, Any, Any, Any]:
    """Times, values, errors and certainty in the order of time; of segments a few instants each, with a gap after each."""
    certainty = np.array(rows.column("certainty").to_pylist(), dtype=object)
    if time in rows.column_names:
        order = np.argsort(rows.column(time).to_numpy(), kind="stable")
        columns = (rows.column(one).to_numpy() for one in (time, name, f"{name}_err"))
        times, values, err = (column[order] for column in columns)
        return times, values, err, certainty[order]
    lo, hi = rows.column("lo").to_numpy(), rows.column("hi").to_numpy()
    at = lo[:, None] + (hi - lo)[:, None] * np.linspace(0.0, 1.0, _PER_SEGMENT)
    c = to_padded(rows.column(name).combine_chunks()) if rows.num_rows else np.zeros((0, 1))
    values = evaluate(np.repeat(c, _PER_SEGMENT, axis=0), at.ravel())
    ref = rows.column("ref").to_numpy()
    times = (ref[:, None] + (at * 1e6).astype("timedelta64[us]")).ravel()
    order = np.argsort(times, kind="stable")
    spread = [
        np.repeat(one, _PER_SEGMENT)[order] for one in (rows.column(f"{name}_err").to_numpy(), certainty)
    ]
    return times[order], values[order], *spread


def _draw(axes: Axes, times: Any, values: Any, err: Any, certainty: Any) -> None:
    if len(times) > 1:  # a line is not drawn across what the answer leaves out
        steps = np.diff(times.astype("datetime64[us]").astype(np.int64))
        gaps = np.flatnonzero(steps > 4 * max(np.median(steps), 1)) + 1
        values = np.insert(values.astype(float), gaps, np.nan)
        err, certainty = np.insert(err, gaps, np.nan), np.insert(certainty, gaps, "")
        times = np.insert(times, gaps, times[gaps])
    axes.plot(times, values, color="#1f3b57", linewidth=0.9)
    axes.fill_between(times, values - err, values + err, color="#1f3b57", alpha=0.25, linewidth=0)
    for name, (colour, alpha) in _SHADES.items():
        where = certainty == name
        if where.any():
            axes.fill_between(
                times,
                0,
                1,
                where=where,
                transform=axes.get_xaxis_transform(),
                color=colour,
                alpha=alpha,
                linewidth=0,
                hatch="//" if name == "possible" else None,
            )
    axes.tick_params(labelsize=8)
