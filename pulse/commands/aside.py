"""Implement ``pulse aside``: show the rows that a job set aside, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulse.commands.options import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa


def aside(
    job: Annotated[
        Path,
        typer.Argument(help="A job's TOML file, its checkpoint, or the folder that `aside` in [sink] names."),
    ],
    reason: Annotated[
        str | None, typer.Option(help="Show only rows whose reason begins with this text: late.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Number of rows to show, beside the counts.")] = 20,
    as_json: JsonObject = False,
) -> None:
    """Show the rows that a job set aside: the count of each reason, and the first rows.

    \b
    Examples:
      pulse aside job.toml
      pulse aside checkpoint --reason late --limit 100
      pulse aside checkpoint --limit 0 --json         counts only, for programs
    \b
    Such rows do not contribute to results. `file` is the source file of a row; `line` its line, for text read in process.
    """
    from pulse.commands.output.result_rows import plain_rows, with_instants_as_text
    from pulse.commands.output.table import lines
    from pulse.runtime.jobs.dead_letters import aside_folder, reasons

    folder = aside_folder(job)
    counts = [] if folder is None else reasons(folder, begins=reason or "")
    total = sum(one.rows for one in counts)
    shown = [] if folder is None or not total else _first(folder, reason, limit)
    if as_json:
        by_reason = [one._asdict() for one in counts]
        rows = [row for part in shown for row in plain_rows(part)]
        typer.echo(json.dumps({"aside": total, "reasons": by_reason, "rows": rows}, indent=2))
        return
    if not total:
        typer.echo("no rows were set aside" if reason is None else f"no rows were set aside for {reason!r}")
        return
    import pyarrow as pa

    names = ("stream", "reason", "rows")
    for line in lines(pa.table([list(one) for one in zip(*counts, strict=True)], names=names)):
        typer.echo(line)
    for part in shown:
        typer.echo("")
        for line in lines(_nearby(with_instants_as_text(part))):
            typer.echo(line)
    seen = sum(part.num_rows for part in shown)
    more = f", {seen:,} shown" if seen < total else ""
    typer.echo(f"\n{total:,} {'row was' if total == 1 else 'rows were'} set aside{more}")


def _nearby(rows: pa.Table) -> pa.Table:
    """Shorten the paths of files inside this folder to relative ones."""
    import pyarrow as pa

    if "file" not in rows.column_names or not pa.types.is_string(rows.schema.field("file").type):
        return rows
    here = f"{Path.cwd()}/"
    named = [None if one is None else one.removeprefix(here) for one in rows.column("file").to_pylist()]
    return rows.set_column(rows.column_names.index("file"), "file", pa.array(named, pa.string()))


def _first(folder: Path, reason: str | None, limit: int) -> list[pa.Table]:
    """Read the first rows of each stream, a table per stream, since columns differ. Reads no more than is shown."""
    from pulse.runtime.jobs.dead_letters import aside_batches, concat_rows, filter_by_reason, with_stream

    found: dict[str, list[pa.Table]] = {}
    left = limit
    for stream, table in aside_batches(folder) if limit else ():
        table = filter_by_reason(table, reason or "")
        if table.num_rows:
            found.setdefault(stream, []).append(with_stream(stream, table.slice(0, left)))
            left -= min(left, table.num_rows)
        if not left:
            break
    return [concat_rows(parts) for parts in found.values()]
