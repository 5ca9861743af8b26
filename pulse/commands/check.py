"""Implement ``pulse check``: trace accents through a query before it is deployed (semantics 8.5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from pulse.commands import options


def check(
    query: options.Query,
    stream: options.Streams,
    accents: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: a log of accents that follow those of the model; FILE alone for one stream."
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=venue,lot: attributes of a stream's tuples that its model lacks; venue,lot alone for all streams."
        ),
    ] = None,
    param: options.Parameters = None,
    policy: options.Policy = None,
    accumulate: options.Accumulate = True,
    as_json: options.JsonObject = False,
) -> None:
    """Show for each accent whether it passes the query, is held, or ends it, operator by operator; exit code 1 if one ends it.

    \b
    Examples:
      pulse check --stream S=prices @macd.sql --accents splits.log
      pulse check --stream S=prices --stream R=rates @cross.sql --accents R=rates.log --abort
      pulse check --stream S=prices @macd.sql --accents venues.log --attributes venue
    """
    from pulse.commands.starting import session

    streams = options.streams(stream)
    answer = session("local", "local").sql(
        options.query_text(query),
        streams=streams,
        parameters=options.parameters(param),
        accents=_logs(options.accents(accents), streams, _attributes(attributes, streams)),
        evolution=options.policies(policy),
        accumulate=accumulate,
        later=True,
    )
    found = answer.accents()
    aborts = found.aborted_at is not None
    if as_json:
        traces = [
            {
                "stream": trace.stream,
                "accent": trace.accent.to_json(),
                "outcome": trace.outcome,
                "operators": [{"operator": one.operator, "does": one.does} for one in trace.verdicts],
                "passed": [one.to_json() for one in trace.passed],
            }
            for trace in found.traces
        ]
        typer.echo(json.dumps({"survives": not aborts, "reason": found.reason, "accents": traces}, indent=2))
    else:
        for line in found.lines():
            typer.echo(line)
        typer.echo(found.reason if aborts else _counted([trace.outcome for trace in found.traces]))
    raise typer.Exit(1 if aborts else 0)


def _attributes(given: list[str] | None, streams: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the named attributes of the tuples by stream."""

    found: dict[str, list[str]] = {name: [] for name in streams}
    for one in given or ():
        name, equals, listed = one.rpartition("=")
        if (equals and name.strip() not in streams) or not options.names([listed]):
            raise options.OptionError(
                f"--attributes {one}: expected names of attributes, or NAME=… for one of the streams "
                f"{', '.join(streams)}"
            )
        for stream in [name.strip()] if equals else streams:
            found[stream] += options.names([listed])
    return found


def _logs(
    given: str | dict[str, str] | None, streams: Mapping[str, str], attributes: Mapping[str, list[str]]
) -> Any:
    """Read the logs, with the attributes of the streams' tuples: those named, and those of models fitted with accents."""
    from pulse.store.model import Model
    from pulse.stream.accents.log import AccentLog

    if isinstance(given, str) and len(streams) == 1:
        given = dict.fromkeys(streams, given)
    if not isinstance(given, dict):
        return given
    found: dict[str, Any] = dict(given)
    for name, file in given.items():
        if name not in streams:
            continue  # the session raises
        model = Model(streams[name])
        stored = () if model.accents is None else model.accents.attributes
        known = tuple(dict.fromkeys((*stored, *attributes[name])))
        found[name] = replace(AccentLog.read(file, times=[model.schema.time]), attributes=known)
    return found


def _counted(outcomes: list[str]) -> str:
    """Count the outcomes in a sentence."""
    times = {what: outcomes.count(what) for what in dict.fromkeys(outcomes)}
    several = {what: "pass" if what == "passes" else what.replace("is ", "are ", 1) for what in times}
    counted = ", ".join(f"{n} {what if n == 1 else several[what]}" for what, n in times.items())
    return f"{len(outcomes)} accent{'' if len(outcomes) == 1 else 's'}: {counted or 'none'}"
