"""Implement ``pulse explain``: show the plan of a query before it runs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pulse.commands import options


def explain(
    query: options.Query,
    stream: options.Streams,
    param: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: a parameter of the query; those not given stay open."),
    ] = None,
    as_json: options.JsonObject = False,
) -> None:
    """Show a query's plan, its equation systems, and its shuffles.

    \b
    Examples:
      pulse explain --stream S=prices @macd.sql
      pulse explain --stream S=vessels @following.sql --param reach=1000
      pulse explain --stream S=prices @macd.sql --json       sections by title, lines in each
    """
    from pulse.commands.starting import session

    text, given = options.query_text(query), options.parameters(param)
    found = session("local", "local").explain(text, streams=options.streams(stream), parameters=given)
    if as_json:
        typer.echo(json.dumps({"query": text, "parameters": given, "sections": found.sections}, indent=2))
    else:
        typer.echo(found)
