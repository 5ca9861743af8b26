"""Implement ``pulse sweep``: answer one query over a grid of parameters."""

from __future__ import annotations

import json
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulse.commands import completing, options

if TYPE_CHECKING:
    import pyarrow as pa


Param = Annotated[
    list[str],
    typer.Option(
        help="NAME=VALUES of a parameter: 5,10,20 or FROM:TO:STEP with both ends; all combinations are run."
    ),
]
Out = Annotated[
    str | None,
    typer.Option(help="Write the rows of all variants to a .parquet or .csv file, parameters as columns."),
]
Segments = Annotated[bool, typer.Option("--segments", help="Write segments instead of tuples to --out.")]
SummaryFile = Annotated[
    str | None,
    typer.Option(help="Write the summary to a .parquet or .csv file; Parquet also stores the query."),
]
HeatMap = Annotated[
    Path | None, typer.Option(help="Draw the summary over two parameters to a picture (.png, .svg).")
]
Value = Annotated[
    str,
    typer.Option(
        help="Column of the summary that --heatmap shows.",
        autocompletion=completing.words(*completing.FIGURES),
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Number of variants to show.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON lines, all of it.")]


def sweep(
    query: options.Query,
    stream: options.Streams,
    param: Param,
    out: Out = None,
    segments: Segments = False,
    summary: SummaryFile = None,
    heatmap: HeatMap = None,
    value: Value = "seconds",
    possible: options.Possible = False,
    limit: Limit = options.SHOWN,
    overwrite: Overwrite = False,
    zone: options.ShownZone = None,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Answer a query for all combinations of its parameters, in one pass over the model.

    The summary has for each combination: in how many ranges and for how many seconds it holds, how many of these are
    certain, and the mean, minimum and maximum of each column while it holds.

    \b
    Examples:
      pulse sweep --stream S=prices @macd.sql --param short=5,10,20 --param long=30:300:30
      pulse sweep --stream S=prices @macd.sql --param short=5,10,20 --param long=30:300:30 --out out.parquet
      pulse sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --heatmap macd.png
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import session as started
    from pulse.runtime.io.table_writer import write_batches

    begin = clock.perf_counter()
    _check(out, summary, heatmap, overwrite=overwrite, spark=engine == "spark")
    rows = None
    with started(master, engine) as session:
        swept = session.sweep(
            options.query_text(query),
            streams=options.streams(stream),
            parameters=options.axes(param),
            possible=possible,
        ).in_zone(zone)
        with Bar(quiet=as_json) as bar:
            if out is not None:
                rows = swept.write(
                    out, tuples=False if segments else None, overwrite=overwrite, progress=bar.step
                )
            table = swept.summary(progress=bar.step)
    seconds = clock.perf_counter() - begin
    if summary is not None:
        write_batches(table.to_batches(), table.schema, summary)
    for line in [json.dumps(row) for row in table.to_pylist()] if as_json else _lines(table, limit, seconds):
        typer.echo(line)
    if out is not None and not as_json:
        typer.echo(f"{'' if rows is None else f'{rows:,} '}rows written to {out}")
    for note in swept.notes:
        typer.echo(f"note: {note}", err=True)
    if heatmap is not None:  # last: if it fails, the summary is there
        from pulse.plot import plot_sweep, save

        save(plot_sweep(table, list(swept.grid.names), value=value), heatmap, overwrite=True)


def _check(
    out: str | None, summary: str | None, heatmap: Path | None, *, overwrite: bool, spark: bool
) -> None:
    """Check that all files can be written, before any work is done."""
    from pulse.runtime.io.table_writer import check

    if out is not None:
        check(out, overwrite=overwrite, folders=spark)
    if summary is not None:
        check(summary, overwrite=overwrite, folders=False)
    if heatmap is not None:
        from pulse.plot import check_picture

        check_picture(heatmap, overwrite=overwrite)


def _lines(table: pa.Table, limit: int, seconds: float) -> list[str]:
    """Format the summary for people: the first variants, and how many there are."""
    from pulse.commands.output.table import lines

    count, shown = table.num_rows, lines(table.slice(0, limit))
    if count > limit:
        shown.append(f"… {count - limit:,} more variants; --limit {count} shows all, --summary keeps them")
    return [*shown, f"{count:,} variants in {seconds:.1f} s"]
