"""``pulse query``: SQL in, tuples or segments with their error out."""

from __future__ import annotations

import json
import time as clock
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pulse.runtime.answer import Answer

_SHOWN = 20

Query = Annotated[str, typer.Argument(help="The query, or @FILE.", show_default=False)]
Streams = Annotated[
    list[str], typer.Option("--stream", help="NAME=DIR: a stream of the query and the model it is.")
]
Engine = Annotated[str, typer.Option("--engine", help="spark, or local: in this process.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def query(
    query: Query,
    stream: Streams,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="NAME=VALUE: a parameter, :name in the query.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="A .parquet or .csv file; ending in / a folder. Without it, rows are shown."
        ),
    ] = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="Result segments instead of sampled tuples.")
    ] = False,
    possible: Annotated[bool, typer.Option("--possible", help="Add possible ranges: WITH POSSIBLE.")] = False,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="With --segments: the inputs that caused each.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many rows to show without --out.")
    ] = _SHOWN,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    engine: Engine = "spark",
    master: Master = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", help="Show rows as JSON lines; with --out, the summary.")
    ] = False,
) -> None:
    """Ask a query of stored models; every answer says the error it can have.

    \b
    Examples:
      pulse query --stream S=prices "select symbol, price from S where price > 100 sample every 1 s"
      pulse query --stream S=prices @macd.sql --out out.parquet
      pulse query --stream S=prices @macd.sql --param short=10 --param long=60 --out out.parquet
      pulse query --stream S=prices "select * from S where price > 100" --segments --out out.parquet
    """
    from pulse.commands import options
    from pulse.commands.progress import Bar
    from pulse.session import Session

    begin = clock.perf_counter()
    with Session(master, engine=engine) as session:
        answer = session.sql(
            options.query_text(query),
            streams=options.streams(stream),
            parameters=options.parameters(param),
            possible=possible,
            lineage=lineage,
        )
        if out is None:
            for line in _shown(answer, segments, limit, as_json):
                typer.echo(line)
            return
        with Bar() as bar:
            rows = answer.write(out, tuples=not segments, overwrite=overwrite, progress=bar.step)
    seconds = clock.perf_counter() - begin
    if as_json:
        typer.echo(json.dumps({"out": out, "rows": rows, "seconds": seconds}))
    else:
        what = "segments" if segments else "tuples"
        typer.echo(f"{'' if rows is None else f'{rows:,} '}{what} written to {out} in {seconds:.1f} s")


def _shown(answer: Answer, segments: bool, limit: int, as_json: bool) -> list[str]:
    """The first rows as a table, or as JSON lines."""
    rows, more = answer.head(limit, tuples=not segments)
    if as_json:
        return [json.dumps(row, default=str) for row in rows.to_pylist()]
    from pulse.commands.table import lines

    return [
        *lines(rows),
        f"… more rows; --limit {2 * limit} shows more, --out keeps all" if more else f"{rows.num_rows} rows",
    ]
