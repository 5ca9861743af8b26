"""Implement ``pulse fit``: fit a stored model to files."""

from __future__ import annotations

import json
import time as clock
import warnings
from typing import TYPE_CHECKING, Any

import typer

from pulse.commands import fit_options as given
from pulse.commands import options

if TYPE_CHECKING:
    from pathlib import Path

    from pulse.store.manifest import Manifest


def fit(
    files: given.Files,
    out: given.Out,
    model: given.Model = None,
    flow: given.Flow = None,
    key: given.Key = None,
    time: given.Time = None,
    error: given.Error = None,
    drift: given.Drift = None,
    degree: given.Degree = None,
    max_gap: given.MaxGap = None,
    max_speed: given.MaxSpeed = None,
    nonfinite: given.NonFinite = "reject",
    late: given.Late = "refuse",
    keep: given.Keep = None,
    points: given.Points = False,
    format: given.FormatName = None,
    read: given.Read = None,
    projection: given.Projection = None,
    overwrite: given.Overwrite = False,
    append: given.Append = False,
    keep_tuples: given.KeepTuples = None,
    accents: given.Accents = None,
    splits: given.Splits = None,
    where: given.Where = None,
    optional: given.Optional = None,
    zone: given.Zone = None,
    session_code: given.SessionCode = None,
    for_query: given.ForQuery = None,
    stream: given.StreamName = "S",
    param: given.Param = None,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: options.JsonSummary = False,
) -> None:
    """Fit a model to files once, with a proven error, to query it many times.

    \b
    Examples:
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0.05% --out prices
      pulse fit ticks.parquet --key symbol --time t --model price:step --drift 0.005% --out prices
      pulse fit rooms.parquet --key id --time t --model temp:linear --error 0.5 --max-gap "2 h" --keep run --out rooms
      pulse fit ticks.parquet --key symbol --time t --model price:step --for @macd.sql --out prices
      pulse fit ticks.parquet --key symbol --time t --model price:samples --points --out trades
      pulse fit ticks.parquet --key symbol --time t --model size:flow --flow trades=1 --error size=100,trades=0 --out volume
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0 --splits splits.csv --out prices
      pulse fit log.csv --read separated_by=";" --read time_unit=ms --key id --time at --model temp:linear --error 0.5 --out rooms
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0 --where "venue = 'N' and size > 0" --out n
      pulse fit ais.csv --format ais --model x:linear,y:linear --error 10 --max-gap 10min --out vessels
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import session as started
    from pulse.runtime.fit.rejects import SetAsideWarning

    begin = clock.perf_counter()
    before = _version(out) if append else None
    with started(master, engine) as session, Bar(quiet=as_json) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", SetAsideWarning)  # the report includes it
        asked: dict[str, Any] = {
            "key": options.names(key) or None,
            "time": time,
            "model": options.models(model or ()),
            "flow": options.flows(flow),
            "keep": options.names(keep),
            "points": points,
            "error": options.bounds(error, "--error"),
            "drift": options.bounds(drift, "--drift"),
            "for_query": None if for_query is None else options.query_text(for_query),
            "stream": stream,
            "parameters": options.parameters(param),
            "degree": degree,
            "max_gap": max_gap,
            "nonfinite": nonfinite,
            "max_speed": max_speed,
            "late": late,
            "format": given.format_of(format, projection, read, files, key, time),
            "out": out,
            "overwrite": overwrite,
            "append": append,
            "keep_tuples": keep_tuples,
            "accents": accents,
            "splits": splits,
            "where": where,
            "zone": zone,
            "session": session_code,
            "progress": lambda units, rows: bar.update(f"{units} units, ", rows),
        }
        apart = options.names(optional)
        models = (
            session.fit_apart(files, optional=apart, **asked) if apart else {"": session.fit(files, **asked)}
        )
    unchanged = models[""].version == before
    _print_report(models[""].manifest, out, clock.perf_counter() - begin, as_json, unchanged=unchanged)
    for name, model_of in models.items():
        if name and not as_json:
            typer.echo(f"{name}: {model_of.manifest.modelled:,} tuples that have it, in {model_of.path}")


def _version(out: Path) -> int | None:
    """Return the version before anything is appended; None if there is no model."""
    from pulse.store.errors import ModelNotFoundError
    from pulse.store.manifest import Manifest

    try:
        return Manifest.read(out).version
    except ModelNotFoundError:
        return None


def _print_report(manifest: Manifest, out: Path, seconds: float, as_json: bool, *, unchanged: bool) -> None:
    from pulse.commands.output import report

    if as_json:
        facts = {**report.facts(manifest), "out": str(out), "seconds": seconds, "unchanged": unchanged}
        typer.echo(json.dumps(facts, indent=2))
        return
    for line in report.lines(manifest):
        typer.echo(line)
    typer.echo(
        f"{out} stays as it was: version {manifest.version}"
        if unchanged
        else f"written to {out} in {seconds:.1f} s"
    )
