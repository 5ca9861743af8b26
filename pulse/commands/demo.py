"""``pulse demo``: the main job in miniature."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pulse.commands.options import Engine


def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where to keep the data and models; else a new temporary folder."),
    ] = None,
    rows: Annotated[str, typer.Option("--rows", help="How many ticks.")] = "2M",
    engine: Engine = "spark",
) -> None:
    """Generate ticks and vessels, model them, and ask a query of the models.

    \b
    Examples:
      pulse demo
      pulse demo --rows 10M --out demo
    """
    from pulse.demo import run

    folder = out or Path(tempfile.mkdtemp(prefix="pulse-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, rows=rows, engine=engine, say=typer.echo)
