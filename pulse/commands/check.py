"""``pulse check``: what becomes of accents in a query, before it is deployed (semantics 8.5)."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pulse.commands.options import Accumulate, JsonObject, Parameters, Policy, Query, Streams


def check(
    query: Query,
    stream: Streams,
    accents: Annotated[
        list[str] | None,
        typer.Option(
            "--accents", help="NAME=FILE: a log of accents, after those the model holds; FILE alone."
        ),
    ] = None,
    param: Parameters = None,
    policy: Policy = None,
    accumulate: Accumulate = True,
    as_json: JsonObject = False,
) -> None:
    """Show for each accent whether it passes the query, is held, or ends it, operator by operator; exit code 1 if one does.

    \b
    Examples:
      pulse check --stream S=prices @macd.sql --accents splits.log
      pulse check --stream S=prices --stream R=rates @cross.sql --accents R=rates.log --abort
    """
    from pulse.commands import options
    from pulse.session import Session

    answer = Session(engine="local").sql(
        options.query_text(query),
        streams=options.streams(stream),
        parameters=options.parameters(param),
        accents=options.accents(accents),
        evolution=options.policies(policy),
        accumulate=accumulate,
        later=True,
    )
    found = answer.accents()
    aborts = found.aborted_at is not None
    if as_json:
        fates = [
            {
                "stream": fate.stream,
                "accent": fate.accent.to_json(),
                "outcome": fate.outcome,
                "operators": [{"operator": one.operator, "does": one.does} for one in fate.verdicts],
                "passed": [one.to_json() for one in fate.passed],
            }
            for fate in found.fates
        ]
        typer.echo(json.dumps({"survives": not aborts, "reason": found.reason, "accents": fates}, indent=2))
    else:
        for line in found.lines():
            typer.echo(line)
        typer.echo(found.reason if aborts else _counted([fate.outcome for fate in found.fates]))
    raise typer.Exit(1 if aborts else 0)


def _counted(outcomes: list[str]) -> str:
    """How many of each, as a sentence has it."""
    times = {what: outcomes.count(what) for what in dict.fromkeys(outcomes)}
    several = {what: "pass" if what == "passes" else what.replace("is ", "are ", 1) for what in times}
    counted = ", ".join(f"{n} {what if n == 1 else several[what]}" for what, n in times.items())
    return f"{len(outcomes)} accent{'' if len(outcomes) == 1 else 's'}: {counted or 'none'}"
