"""``pulse sweep``: one query over a grid of parameters."""

from __future__ import annotations

import json
import time as clock
from pathlib import Path
from typing import Annotated

import typer

from pulse.commands.options import Engine, Master, Possible, Query, Streams


def sweep(
    query: Query,
    stream: Streams,
    param: Annotated[
        list[str],
        typer.Option(
            "--param", help="NAME=VALUES: 5,10,20 or FROM:TO:STEP with both ends; all combinations are run."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="A .parquet or .csv file for the rows of all variants, parameters as columns."
        ),
    ] = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="Into --out: segments instead of tuples.")
    ] = False,
    summary: Annotated[
        str | None, typer.Option("--summary", help="A .parquet or .csv file for the summary table.")
    ] = None,
    heatmap: Annotated[
        Path | None,
        typer.Option("--heatmap", help="A picture of the summary over two parameters (.png, .svg)."),
    ] = None,
    value: Annotated[
        str, typer.Option("--value", help="The column of the summary that --heatmap shows.")
    ] = "seconds",
    possible: Possible = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    engine: Engine = "spark",
    master: Master = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON lines.")] = False,
) -> None:
    """Ask a query for all combinations of its parameters, in one pass over the model.

    The summary says of each combination: in how many ranges and for how many seconds it holds, how many of these are
    certain, and the mean, minimum and maximum of each column while it holds.

    \b
    Examples:
      pulse sweep --stream S=prices @macd.sql --param short=5,10,20 --param long=30:300:30
      pulse sweep --stream S=prices @macd.sql --param short=5,10,20 --param long=30:300:30 --out out.parquet
      pulse sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --heatmap macd.png
    """
    from pulse.commands import options
    from pulse.commands.progress import Bar
    from pulse.commands.table import lines
    from pulse.runtime.write import check, write_batches
    from pulse.session import Session

    begin = clock.perf_counter()
    if out is not None:
        check(out, overwrite=overwrite, folders=engine == "spark")
    if summary is not None:
        check(summary, overwrite=overwrite, folders=False)
    if heatmap is not None:
        from pulse.plot import check_picture, plot_sweep

        check_picture(heatmap, overwrite=overwrite)
    with Session(master, engine=engine) as session:
        swept = session.sweep(
            options.query_text(query),
            streams=options.streams(stream),
            parameters=options.axes(param),
            possible=possible,
        )
        with Bar(quiet=as_json) as bar:
            if out is not None:
                rows = swept.write(
                    out, tuples=False if segments else None, overwrite=overwrite, progress=bar.step
                )
            table = swept.summary(progress=bar.step)
    seconds = clock.perf_counter() - begin
    if summary is not None:
        write_batches(table.to_batches(), table.schema, summary)
    for line in [json.dumps(row) for row in table.to_pylist()] if as_json else lines(table):
        typer.echo(line)
    if not as_json:
        typer.echo(f"{len(swept.grid)} variants in {seconds:.1f} s")
        if out is not None:
            typer.echo(f"{'' if rows is None else f'{rows:,} '}rows written to {out}")
    if heatmap is not None:  # last: whatever it has to say, the summary is there
        plot_sweep(table, list(swept.grid.names), value=value).savefig(heatmap)
