"""Implement ``pulse info``: describe a stored model and its quality."""

from __future__ import annotations

import json

import typer

from pulse.commands.options import JsonObject, Stored


def info(
    model: Stored,
    as_json: JsonObject = False,
) -> None:
    """Describe a stored model: its stream, its bounds and the errors it achieved.

    \b
    Examples:
      pulse info prices
      pulse info prices --json
    """
    from pulse.commands.output import report
    from pulse.store.manifest import Manifest
    from pulse.store.versions.as_of_spans import as_of_spans

    manifest = Manifest.read(model)
    answered = as_of_spans(model, manifest)
    if as_json:
        typer.echo(json.dumps(report.facts(manifest, answered), indent=2))
        return
    for line in report.lines(manifest, answered):
        typer.echo(line)
    for source in manifest.sources[:10]:
        typer.echo(f"source    {source.path}")
    if len(manifest.sources) > 10:
        typer.echo(f"          and {len(manifest.sources) - 10} more")
    typer.echo(f"created   {manifest.created} by Pulse {manifest.pulse_version}")
