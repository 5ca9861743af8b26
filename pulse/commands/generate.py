"""Implement ``pulse generate``: write data to try things on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pulse.commands import completing
from pulse.commands.options import JsonSummary, Overwrite, knobs


def generate(
    kind: Annotated[
        str,
        typer.Argument(
            help="Kind of data: ticks, vessels, objects or sensors.",
            autocompletion=completing.words(*completing.KINDS),
        ),
    ],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    rows: Annotated[str, typer.Option(help="Number of rows: 250k, 10M, 1500.")] = "1M",
    seed: Annotated[
        int, typer.Option(help="Seed of the random numbers; the same seed gives the same rows.")
    ] = 0,
    knob: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE: a setting of the generator, such as symbols=300; may be repeated.",
            autocompletion=completing.knobs,
        ),
    ] = None,
    accents: Annotated[
        Path | None,
        typer.Option(help="File to write the log of accents to, which announces changes of unit (sensors)."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: JsonSummary = False,
) -> None:
    """Write generated ticks, vessels, moving objects or readings of sensors to a Parquet file.

    \b
    Examples:
      pulse generate ticks --rows 10M --out ticks.parquet
      pulse generate vessels --rows 1M --seed 7 --out vessels.parquet
      pulse generate objects --rows 1M --knob objects=100 --knob rate=3000 --out objects.parquet
      pulse generate vessels --rows 100k --knob late=0.02 --out arrived.parquet
      pulse generate sensors --rows 100k --knob fahrenheit=0.05 --out sensors.parquet --accents units.log
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import leave_pandas_out
    from pulse.datasets.errors import OutputError
    from pulse.datasets.generators.generate import generate as write

    if accents is not None and accents.exists() and not overwrite:
        raise OutputError(
            f"--accents {accents}: exists already; remove it first, choose another name, or use --overwrite"
        )
    leave_pandas_out()
    with Bar(quiet=as_json) as bar:
        made = write(
            kind,
            rows,
            out,
            seed,
            overwrite=overwrite,
            progress=lambda done: bar.update("", done),
            **knobs(knob),
        )
    if accents is not None:
        _write_log(accents, made.accents)
    if as_json:
        summary = {
            "kind": made.kind,
            "path": made.path,
            "rows": made.rows,
            "bytes": made.size,
            "seconds": made.seconds,
        }
        more = {"seed": made.seed, "knobs": made.knobs, "accents": made.accents}
        typer.echo(json.dumps({**summary, **more}, indent=2, default=str))
        return
    speed = made.rows / max(made.seconds, 1e-9) / 1e6
    typer.echo(
        f"{made.rows:,} {made.kind} in {made.path}, {made.size / 1e6:,.1f} MB, {made.seconds:.1f} s ({speed:.1f} M rows/s)"
    )
    if accents is not None:
        typer.echo(f"{len(made.accents):,} accents in {accents}")


def _write_log(path: Path, lines: tuple[str, ...]) -> None:
    from pulse.datasets.errors import OutputError

    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as e:
        raise OutputError(f"--accents {path}: cannot be written ({e}); is the folder there?") from e
