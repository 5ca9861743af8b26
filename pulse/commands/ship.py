"""Implement ``pulse ship``: pack what a cluster's workers need into one archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pulse.commands.options import JsonSummary, OptionError, Overwrite


def ship(
    out: Annotated[Path, typer.Argument(help="Archive to write: a name that ends in .tar.gz.")],
    kernels: Annotated[
        bool, typer.Option("--kernels/--no-kernels", help="Include compiled kernels, or not.")
    ] = True,
    overwrite: Overwrite = False,
    as_json: JsonSummary = False,
) -> None:
    """Write an archive for workers that have a Python of this version and nothing else.

    It holds Pulse, its dependencies and its kernels, compiled on this machine. Workers that have
    the dependencies need no archive: the code itself is shipped with every job.

    \b
    Examples:
      pulse ship pulse.tar.gz
      PULSE_ENVIRONMENT=pulse.tar.gz pulse fit ticks.parquet … --master spark://host:7077
      spark-submit --archives pulse.tar.gz#environment \\
        --conf spark.pyspark.python=./environment/bin/python program.py
    """
    from pulse.commands.output.progress import Bar
    from pulse.runtime.spark.packaging import archive_settings, pack_environment

    if not out.name.endswith((".tar.gz", ".tgz")):
        raise OptionError(f"{out}: expected a name that ends in .tar.gz, which Spark unpacks")
    if out.exists() and not overwrite:
        raise OptionError(f"{out}: it is there already; choose another name, or --overwrite it")
    with Bar(quiet=as_json):
        archive = pack_environment(out, kernels=kernels)
    settings = archive_settings(archive.absolute())
    if as_json:
        summary = {"out": str(archive), "bytes": archive.stat().st_size, "settings": settings}
        typer.echo(json.dumps(summary, indent=2))
        return
    typer.echo(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB")
    typer.echo(f"with Pulse: PULSE_ENVIRONMENT={archive.absolute()}, and a --master")
    for name, value in settings.items():
        typer.echo(f"with spark-submit: --conf {name}={value}")
