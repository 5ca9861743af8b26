"""Implement ``pulse changes``: show the changelog of a job's results, or the current results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 20


def changes(
    results: Annotated[
        Path, typer.Argument(help="The folder of a job's Parquet sink, or the job's TOML file.")
    ],
    holds: Annotated[
        bool,
        typer.Option("--holds", help="Show the current results, after all changes, instead of the changes."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Show only rows about this time or later: '2026-03-02 06:10'."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Show only rows about times before this one.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Show the last rows instead of the first.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"Number of rows to show; default {_SHOWN}, with --json all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON lines.")] = False,
) -> None:
    """Show the results of a job: its changes in order, or with --holds the current results.

    \b
    Examples:
      pulse changes results                          the first changes
      pulse changes job.toml --last                  the newest changes of the job's results
      pulse changes results --holds                  the current results, by key and time
      pulse changes results --holds --from "2026-03-02 06:10" --to "2026-03-02 06:20"
      pulse changes results --json | jq .kind
    \b
    kind: +I is new, -D is retracted, -U and +U are the old and the new row of a replacement. A row covers the time from
    begin to end; `now` is the newest event time when it was emitted: a row that ends later is a prediction.
    """
    from pulse.commands.output.result_rows import for_people, for_programs
    from pulse.commands.output.table import lines
    from pulse.core.time import parse_instant
    from pulse.runtime.jobs.result_log import read_holds, results_folder, rows_between

    bounds = tuple(None if one is None else parse_instant(one) for one in (since, until))
    folder = results_folder(results)
    most = limit if limit is not None or as_json else _SHOWN
    if holds:
        found = iter([rows_between(rows, *bounds) if (rows := read_holds(folder)).num_columns else rows])
    else:
        found = _changes(folder, bounds, last)
    if as_json and not last:
        for part in _first(found, most):
            for line in for_programs(part):
                typer.echo(line)
        return
    rows, more = _shown(found, most, last)
    if as_json:
        for line in for_programs(rows):
            typer.echo(line)
        return
    for line in lines(for_people(rows)) if rows.num_rows else ():
        typer.echo(line)
    hint = f"{'earlier' if last else 'more'} rows; --limit {2 * (most or _SHOWN)} shows more"
    count = "1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows"
    ends = ("holds" if rows.num_rows == 1 else "hold") if holds else "in all"
    typer.echo(f"… {hint}" if more else f"{count} {ends}")


def _changes(folder: Path, bounds: tuple[int | None, ...], last: bool) -> Iterator[pa.Table]:
    from pulse.runtime.jobs.result_log import change_batches, rows_between

    for part in change_batches(folder, newest_first=last):
        yield rows_between(part, *bounds)


def _first(found: Iterator[pa.Table], most: int | None) -> Iterator[pa.Table]:
    """Yield the first rows, in pieces: reads no more than needed."""
    left = most
    for part in found:
        yield part if left is None else part.slice(0, left)
        left = None if left is None else left - part.num_rows
        if left is not None and left <= 0:
            return


def _shown(found: Iterator[pa.Table], most: int | None, last: bool) -> tuple[pa.Table, bool]:
    """Return the first or the last rows, and whether there are others; if the last are wanted, pieces come from the end."""
    import pyarrow as pa

    parts = []
    for part in found:
        parts.append(part)
        if most is not None and sum(one.num_rows for one in parts) > most:
            break
    rows = (
        pa.concat_tables(parts[::-1] if last else parts, promote_options="default") if parts else pa.table({})
    )
    if most is None or rows.num_rows <= most:
        return rows, False
    return rows.slice(rows.num_rows - most if last else 0, most), True
