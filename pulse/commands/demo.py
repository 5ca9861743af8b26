"""Implement ``pulse demo``: the main job in miniature."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands.options import Engine, JsonObject, Master, OptionError

if TYPE_CHECKING:
    from pulse.demo import Shown


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the page, pictures, data and models; default a new temporary one."),
    ] = None,
    rows: Annotated[str, typer.Option(help="Number of ticks.")] = "2M",
    engine: Engine = "local",
    master: Master = "local[*]",
    as_json: JsonObject = False,
) -> None:
    """Generate ticks and vessels, fit models, query them, correct, split and predict; write pictures and one page.

    Files of an earlier run in the folder are replaced.

    \b
    Examples:
      pulse demo
      pulse demo --out demo
      pulse demo --rows 10M --engine spark --out demo
      pulse demo --out demo --json              scene by scene: tables, files and times
    """
    from pulse.commands.starting import leave_pandas_out

    if engine == "local":
        leave_pandas_out()
    from pulse.demo import run

    folder = out or Path(tempfile.mkdtemp(prefix="pulse-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OptionError(f"--out {folder}: cannot create the folder: {e.strerror}") from None
    shown = run(folder, rows=rows, engine=engine, master=master, echo=_nothing if as_json else typer.echo)
    if as_json:
        typer.echo(json.dumps(_facts(shown, folder, engine), indent=2, default=_plain))


def _nothing(_: str) -> None:
    """Print nothing: programs get all output at the end."""


def _facts(shown: Shown, folder: Path, engine: str) -> dict[str, Any]:
    return {
        "out": str(folder),
        "engine": engine,
        "page": str(shown.page),
        "pictures": None if shown.pictures is None else str(shown.pictures),
        "scenes": [scene._asdict() for scene in shown.scenes],
        "compiling_seconds": shown.compiling,
        "seconds": shown.seconds,
    }


def _plain(value: Any) -> Any:
    """Convert a NumPy number to Python's."""
    return value.item() if hasattr(value, "item") else str(value)
