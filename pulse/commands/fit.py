"""``pulse fit``: files in, a stored model out."""

from __future__ import annotations

import json
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulse.commands.options import Engine, JsonSummary, Master

if TYPE_CHECKING:
    from pulse.datasets.format import Format


def fit(
    files: Annotated[list[str], typer.Argument(help="Files, folders or patterns; Parquet, CSV, TAQ or AIS.")],
    model: Annotated[
        list[str],
        typer.Option(
            "--model", help="ATTRIBUTE:TRUTH, truth one of linear, step, samples; several with commas."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the model to.")],
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Key column(s), several with commas.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="Time column.")] = None,
    error: Annotated[
        str | None,
        typer.Option("--error", help="Bound on the value: 0.05%, 0.01, '0.05% or 0.001', x=10,y=20."),
    ] = None,
    drift: Annotated[
        str | None,
        typer.Option("--drift", help="Bound on the integral, in value·seconds, written the same way."),
    ] = None,
    degree: Annotated[
        str | None,
        typer.Option(
            "--degree",
            help="0 to 5, or auto: constants or lines per segment. Default: auto for --drift alone, else 1.",
        ),
    ] = None,
    max_gap: Annotated[
        str | None, typer.Option("--max-gap", help="A longer silence is a hole: '2 h', 10min.")
    ] = None,
    nonfinite: Annotated[
        str, typer.Option("--nonfinite", help="NaN, infinity, null: reject (set aside) or hole.")
    ] = "reject",
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Unmodelled column(s) to keep; a change ends a segment."),
    ] = None,
    points: Annotated[
        bool,
        typer.Option("--points", help="Keep every tuple of samples as it is: windows are over tuples."),
    ] = False,
    format: Annotated[
        str | None,
        typer.Option("--format", help="parquet, csv, taq, taq-daily, taq-parquet, ais; else found out."),
    ] = None,
    projection: Annotated[
        str | None,
        typer.Option(
            "--projection", help="Of AIS positions: EPSG:25832 or PROJ text; else by the first file."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add later files to a model that is there.")
    ] = False,
    keep_tuples: Annotated[
        str | None,
        typer.Option(
            "--keep-tuples",
            help="Keep the tuples beside the model, so that they can be revised: all, none, or a time before the newest: '2 h'.",
        ),
    ] = None,
    accents: Annotated[
        Path | None, typer.Option("--accents", help="A log of accents: where units and schema change.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="A table of stock splits: symbol, t, ratio (4:1).")
    ] = None,
    for_query: Annotated[
        str | None,
        typer.Option(
            "--for", help="A query (or @FILE) whose ERROR WITHIN chooses the bounds that are not given."
        ),
    ] = None,
    stream: Annotated[str, typer.Option("--as", help="What the query of --for calls these data.")] = "S",
    param: Annotated[
        list[str] | None, typer.Option("--param", help="NAME=VALUE: a parameter of the query of --for.")
    ] = None,
    engine: Engine = "spark",
    master: Master = "local[*]",
    as_json: JsonSummary = False,
) -> None:
    """Model files once, with a proven error, to ask about them many times.

    \b
    Examples:
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0.05% --out prices
      pulse fit ticks.parquet --key symbol --time t --model price:step --drift 0.005% --out prices
      pulse fit rooms.parquet --key id --time t --model temp:linear --error 0.5 --max-gap "2 h" --keep run --out rooms
      pulse fit ticks.parquet --key symbol --time t --model price:step --for @macd.sql --out prices
      pulse fit ticks.parquet --key symbol --time t --model price:samples --points --out trades
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0 --splits splits.csv --out prices
      pulse fit ais.csv --format ais --model x:linear,y:linear --error 10 --max-gap 10min --out vessels
    """
    from pulse.commands import options, report
    from pulse.commands.progress import Bar
    from pulse.session import Session

    begin = clock.perf_counter()
    with Session(master, engine=engine) as session, Bar(quiet=as_json) as bar:
        fitted = session.fit(
            files,
            key=options.names(key) or None,
            time=time,
            model=options.models(model),
            error=options.bounds(error, "--error"),
            drift=options.bounds(drift, "--drift"),
            degree=degree,
            max_gap=max_gap,
            nonfinite=nonfinite,
            keep=options.names(keep),
            points=points,
            format=_format(format, projection),
            out=out,
            overwrite=overwrite,
            append=append,
            keep_tuples=keep_tuples,
            accents=accents,
            splits=splits,
            for_query=None if for_query is None else options.query_text(for_query),
            stream=stream,
            parameters=options.parameters(param),
            progress=lambda units, rows: bar.update(f"{units} units, ", rows),
        )
    seconds = clock.perf_counter() - begin
    if as_json:
        typer.echo(
            json.dumps({**report.facts(fitted.manifest), "out": str(out), "seconds": seconds}, indent=2)
        )
        return
    for line in report.lines(fitted.manifest):
        typer.echo(line)
    typer.echo(f"written to {out} in {seconds:.1f} s")


def _format(name: str | None, projection: str | None) -> str | Format | None:
    """The format by name, or AIS with a projection of the user's."""
    from pulse.commands.options import OptionError
    from pulse.datasets.registry import get_format

    if projection is None:
        return name
    if name not in (None, "ais"):
        raise OptionError(f"--projection {projection}: goes with --format ais, got --format {name}")
    return get_format("ais", projection=projection)
