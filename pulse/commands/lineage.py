"""Implement ``pulse lineage``: show the inputs that caused a result, and the results that an input caused."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pulse.commands import options


def lineage(
    results: options.WithLineage,
    row: Annotated[
        int | None, typer.Option(help="Show the causes of this result, counted from 0; default of all.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option(help="Show the results that the input segment with this id contributed to.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of rows to show.")] = options.SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON lines, all of them.")] = False,
) -> None:
    """Show the input segments that caused a result, or the results that an input segment caused.

    \b
    Examples:
      pulse query --stream S=prices "select * from S where price > 100" --segments --lineage --out high.parquet
      pulse lineage high.parquet --row 0
      pulse lineage high.parquet --segment 4611686018427387904
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pulse.commands.output.table import lines
    from pulse.commands.starting import leave_pandas_out
    from pulse.validation.lineage_queries import causes, effects

    leave_pandas_out()
    if row is not None and segment is not None:
        raise options.OptionError("--row shows causes, --segment effects; give one of them")
    try:
        table = pq.read_table(results)
    except (OSError, pa.ArrowInvalid) as e:
        raise options.OptionError(f"{results}: cannot read the results: {e}") from None
    caused = table.slice(0, 0) if segment is None else table.take(pa.array(effects(table, segment)))
    found = causes(table, row) if segment is None else caused.drop(["lineage"])
    if as_json:
        for one in found.to_pylist():
            typer.echo(json.dumps(one, default=str))
        return
    for line in lines(found.slice(0, limit)):
        typer.echo(line)
    more = f", {limit} shown" if found.num_rows > limit else ""
    typer.echo(f"{found.num_rows:,} {'causes' if segment is None else 'results'}{more}")
