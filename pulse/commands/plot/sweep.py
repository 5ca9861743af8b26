"""Implement ``pulse plot sweep``: draw a heat map over two parameters, a line over one; of a new sweep or a stored summary."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from pulse.commands import completing, options
from pulse.commands.plot import options as given

_LISTED = 200  # variants listed on a page


class Swept(NamedTuple):
    """A summary, its parameters, and its query, as far as known."""

    table: Any
    names: list[str]
    query: str | None = None
    parameters: dict[str, Any] | None = None


QueryOrSummary = Annotated[
    str,
    typer.Argument(
        help="Text of the query, @FILE, or a summary written by pulse sweep --summary.", show_default=False
    ),
]
Param = Annotated[
    list[str] | None, typer.Option(help="NAME=VALUES of a parameter: 5,10,20 or FROM:TO:STEP with both ends.")
]
Value = Annotated[str, typer.Option(help="Column of the summary to show.", autocompletion=completing.figures)]


def plot_sweep(
    query: QueryOrSummary,
    out: given.Out,
    stream: options.Streams = None,
    param: Param = None,
    value: Value = "seconds",
    possible: options.Possible = False,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: options.JsonSummary = False,
) -> None:
    """Draw a sweep: a heat map over two parameters, a line over one.

    \b
    Examples:
      pulse plot sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --out macd.png
      pulse plot sweep --stream S=prices @macd.sql --param short=5,10 --param long=60 --value ranges --out macd.svg
      pulse plot sweep summary.parquet --value diff_mean --out macd.html
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import session as started
    from pulse.plot import check_picture

    begin = clock.perf_counter()
    check_picture(out, overwrite=overwrite, pages=True)
    if not stream and Path(query).suffix.lower() in (".parquet", ".csv"):
        swept = _stored(Path(query))
    else:
        if not stream or not param:
            raise options.OptionError(
                "plot sweep: --stream NAME=DIR and --param NAME=VALUES are missing; or name a summary, a .parquet or .csv file"
            )
        axes = options.axes(param)
        with started(master, engine) as session, Bar(quiet=as_json) as bar:
            sweep = session.sweep(
                options.query_text(query), streams=options.streams(stream), parameters=axes, possible=possible
            )
            table = sweep.summary(progress=bar.step)
        swept = Swept(table, list(sweep.grid.names), sweep.query.text, axes)
    given.write_picture(_drawing(swept, value), out, width, begin=begin, as_json=as_json)


def _stored(path: Path) -> Swept:
    """Read a summary from a file; Parquet stores its query."""
    from pulse.plot import parameters_of
    from pulse.runtime.sweep.provenance import origin_of

    table = given.read_results(path)
    names, origin = parameters_of(table), origin_of(table)
    return Swept(table, names) if origin is None else Swept(table, names, origin.query, origin.parameters)


def _drawing(swept: Swept, value: str) -> given.Drawing:
    from pulse.plot import Code, Table, plot_sweep

    table = swept.table
    rows = [list(row.values()) for row in table.to_pylist()[:_LISTED]]
    shown = table.column(value).to_pylist() if value in table.column_names else []
    known = [one for one in shown if one is not None]
    query = [] if swept.query is None else [Code(swept.query)]
    return given.Drawing(
        lambda inches: plot_sweep(table, swept.names, value=value, width=inches),
        title="Sweep",
        alt=f"{value} for {table.num_rows:,} combinations of {', '.join(swept.names)}",
        caption=f"{value} of each combination.",
        blocks=[*query, Table.of(table.column_names, rows, grouped=["ranges"])],
        facts={
            "query": swept.query,
            "parameters": swept.parameters
            or {name: list(dict.fromkeys(table.column(name).to_pylist())) for name in swept.names},
            "variants": table.num_rows,
            "value": value,
            "smallest": min(known, default=None),
            "largest": max(known, default=None),
        },
    )
