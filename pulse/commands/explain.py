"""``pulse explain``: what a query becomes before it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from pulse.commands.options import Query, Streams


def explain(
    query: Query,
    stream: Streams,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="NAME=VALUE: a parameter; those not given stay open.")
    ] = None,
) -> None:
    """Show a query's plan, its equation systems, and what is shuffled.

    \b
    Examples:
      pulse explain --stream S=prices @macd.sql
      pulse explain --stream S=vessels @following.sql --param reach=1000
    """
    from pulse.commands import options
    from pulse.session import Session

    session = Session(engine="local")
    typer.echo(
        session.explain(
            options.query_text(query),
            streams=options.streams(stream),
            parameters=options.parameters(param),
        )
    )
