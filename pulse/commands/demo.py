"""``pulse demo``: the main job in miniature."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pulse.commands.options import Engine, Master


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The folder for the page, pictures, data and models; else a new temporary one."
        ),
    ] = None,
    rows: Annotated[str, typer.Option("--rows", help="How many ticks.")] = "2M",
    engine: Engine = "local",
    master: Master = "local[*]",
) -> None:
    """Generate ticks and vessels, model them, ask of the models, correct, split and predict; pictures and one page.

    What is there of an earlier run in the folder is replaced.

    \b
    Examples:
      pulse demo
      pulse demo --out demo
      pulse demo --rows 10M --engine spark --out demo
    """
    from pulse.commands.options import OptionError
    from pulse.demo import run

    folder = out or Path(tempfile.mkdtemp(prefix="pulse-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OptionError(f"--out {folder}: cannot be a folder: {e.strerror}") from None
    run(folder, rows=rows, engine=engine, master=master, say=typer.echo)
