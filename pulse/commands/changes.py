"""``pulse changes``: what a job has said, or what holds of it."""

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
        bool, typer.Option("--holds", help="What holds after all changes, instead of the changes.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Only rows that speak of this time or later: '2026-03-02 06:10'."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Only rows that speak of times before this one.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The last rows, instead of the first.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help=f"How many rows; {_SHOWN}, or with --json all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON lines.")] = False,
) -> None:
    """Show what a job has said: its changes in order, or with --holds what is left of them.

    \b
    Examples:
      pulse changes results                          the first changes
      pulse changes job.toml --last                  the newest, of the job's results
      pulse changes results --holds                  what holds now, by key and time
      pulse changes results --holds --from "2026-03-02 06:10" --to "2026-03-02 06:20"
      pulse changes results --json | jq .kind
    \b
    kind: +I is new, -D is taken back, -U and +U are the old and the new of a replacement. A row speaks of the time from
    begin to end; `now` is the newest time that was known when it was said: a row that ends later is a prediction.
    """
    from pulse.commands.output.result_rows import for_people, for_programs
    from pulse.commands.output.table import lines
    from pulse.core.time import parse_instant
    from pulse.runtime.jobs.result_log import read_holds, results_folder, within

    bounds = tuple(None if one is None else parse_instant(one) for one in (since, until))
    folder = results_folder(results)
    most = limit if limit is not None or as_json else _SHOWN
    if holds:
        found = iter([within(rows, *bounds) if (rows := read_holds(folder)).num_columns else rows])
    else:
        found = _said(folder, bounds, last)
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
    told = f"{'earlier' if last else 'more'} rows; --limit {2 * (most or _SHOWN)} shows more"
    count = "1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows"
    ends = ("holds" if rows.num_rows == 1 else "hold") if holds else "in all"
    typer.echo(f"… {told}" if more else f"{count} {ends}")


def _said(folder: Path, bounds: tuple[int | None, ...], last: bool) -> Iterator[pa.Table]:
    from pulse.runtime.jobs.result_log import change_batches, within

    for part in change_batches(folder, newest_first=last):
        yield within(part, *bounds)


def _first(found: Iterator[pa.Table], most: int | None) -> Iterator[pa.Table]:
    """The first rows, in pieces: none is read that is not asked for."""
    left = most
    for part in found:
        yield part if left is None else part.slice(0, left)
        left = None if left is None else left - part.num_rows
        if left is not None and left <= 0:
            return


def _shown(found: Iterator[pa.Table], most: int | None, last: bool) -> tuple[pa.Table, bool]:
    """The first or the last rows, and whether there are others."""
    import pyarrow as pa

    parts = list(_first(found, None if most is None else most + 1)) if not last else _tail(found, most)
    rows = pa.concat_tables(parts, promote_options="default") if parts else pa.table({})
    if most is None or rows.num_rows <= most:
        return rows, False
    return rows.slice(rows.num_rows - most if last else 0, most), True


def _tail(found: Iterator[pa.Table], most: int | None) -> list[pa.Table]:
    """The last rows, and one before them if there is one; pieces come from the end."""
    parts: list[pa.Table] = []
    rows = 0
    for part in found:
        kept = part if most is None else part.slice(max(part.num_rows - (most + 1 - rows), 0))
        parts.insert(0, kept)
        rows += kept.num_rows
        if most is not None and rows > most:
            break
    return parts
