"""``pulse query``: SQL in, tuples or segments with their error out."""

from __future__ import annotations

import json
import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands.options import Accumulate, Engine, Master, Parameters, Policy, Possible, Query, Streams

if TYPE_CHECKING:
    import pyarrow as pa

    from pulse.runtime.answer import Answer
    from pulse.runtime.revised import RevisedAnswer

_SHOWN = 20


def query(
    query: Query,
    stream: Streams,
    param: Parameters = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="A .parquet or .csv file; ending in / a folder. Without it, rows are shown."
        ),
    ] = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="Result segments instead of sampled tuples.")
    ] = False,
    possible: Possible = False,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="With --segments: the inputs that caused each.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Read the models as they were known at a time: '2018-01-03 10:00'."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Read this version of the model.")
    ] = None,
    accents: Annotated[
        list[str] | None,
        typer.Option(
            "--accents", help="NAME=FILE: a log of accents, for a model that was fitted without; FILE alone."
        ),
    ] = None,
    policy: Policy = None,
    accumulate: Accumulate = True,
    revised_from: Annotated[
        list[str] | None,
        typer.Option(
            "--revised-from",
            help="Only what changed of the results since this version (or STREAM=VERSION, or a time).",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            help="With --revised-from --segments: upstream, downstream or adaptive; says how it went.",
        ),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            help="With --revised-from: a file of the old results (--segments), which are patched.",
        ),
    ] = None,
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
      pulse query --stream S=prices @macd.sql --as-of "2018-01-03 10:00"
      pulse query --stream S=raw @macd.sql --accents S=splits.log
      pulse query --stream S=prices @macd.sql --revised-from 3 --out revisions.parquet
    """
    from pulse.commands import options
    from pulse.commands.progress import Bar
    from pulse.session import Session

    begin = clock.perf_counter()
    since = options.since(revised_from)
    if since is None and (mode is not None or results is not None):
        raise options.OptionError("--mode and --results go with --revised-from: say since which version")
    if since is not None and lineage:
        raise options.OptionError("--lineage does not go with --revised-from: ask for it with --version")
    with Session(master, engine=engine) as session:
        asked: dict[str, Any] = {
            "streams": options.streams(stream),
            "parameters": options.parameters(param),
            "possible": possible,
            "as_of": as_of,
            "version": version,
            "accents": options.accents(accents),
            "evolution": options.policies(policy),
            "accumulate": accumulate,
        }
        answer: Answer | RevisedAnswer
        if since is None:
            answer = session.sql(
                options.query_text(query),
                lineage=lineage,
                **asked,
            )
        else:
            answer = session.revised(options.query_text(query), since, mode=mode, results=results, **asked)
        if out is None:
            _show(answer, segments, limit, as_json)
            _tell(answer)
            return
        with Bar(quiet=as_json) as bar:
            rows = answer.write(out, tuples=not segments, overwrite=overwrite, progress=bar.step)
    seconds = clock.perf_counter() - begin
    _tell(answer)
    if as_json:
        typer.echo(json.dumps({"out": out, "rows": rows, "seconds": seconds}))
    else:
        what = ("segments" if segments else "tuples") if since is None else "revisions"
        typer.echo(f"{'' if rows is None else f'{rows:,} '}{what} written to {out} in {seconds:.1f} s")


def _tell(answer: Answer | RevisedAnswer) -> None:
    """How revisions spread, if their way was chosen; beside the rows, not among them."""
    report = getattr(answer, "report", None)
    if report is not None:
        typer.echo(str(report), err=True)


def _show(answer: Answer | RevisedAnswer, segments: bool, limit: int, as_json: bool) -> None:
    """The first rows; of a query that ends at an accent, those before it, and then its error."""
    from pulse.commands.progress import Bar
    from pulse.runtime.accents import QueryAbortedError

    try:
        with Bar(quiet=as_json):
            shown = answer.head(limit, tuples=not segments)
    except QueryAbortedError as e:
        for line in _lines(e.emitted, False, limit, as_json):
            typer.echo(line)
        raise
    for line in _lines(*shown, limit, as_json):
        typer.echo(line)


def _lines(rows: pa.Table, more: bool, limit: int, as_json: bool) -> list[str]:
    """Rows as a table, or as JSON lines."""
    if as_json:
        return [json.dumps(row, default=str) for row in rows.to_pylist()]
    from pulse.commands.table import lines

    return [
        *lines(rows),
        f"… more rows; --limit {2 * limit} shows more, --out keeps all" if more else f"{rows.num_rows} rows",
    ]
