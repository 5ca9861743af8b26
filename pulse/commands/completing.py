"""Complete options in a shell: known words, columns of files and attributes of models named before.

Where nothing is known a shell offers files, which is right for paths. Nothing here may fail: an unreadable file offers nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

ENGINES = ("spark", "local")
FORMATS = (
    "parquet",
    "arrow",
    "csv",
    "taq",
    "taq-daily",
    "taq-parquet",
    "taq-wrds",
    "taq-quotes",
    "taq-daily-quotes",
    "taq-wrds-quotes",
    "dbn",
    "ais",
    "nmea",
)
KINDS = ("ticks", "objects", "vessels", "sensors")
TRUTHS = ("linear", "step", "samples", "flow")
FIGURES = ("seconds", "ranges", "certain_seconds")


def words(*known: str) -> Callable[[str], list[str]]:
    """Complete some words.

    >>> words("spark", "local")("lo")
    ['local']
    """

    def complete(incomplete: str) -> list[str]:
        return [one for one in known if one.startswith(incomplete)]

    return complete


def knobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the knobs of the named generator, each with its default."""
    from pulse.datasets.generators.generate import KINDS as makers

    maker: Any = makers.get(_first(ctx, "kind"))
    if maker is None:
        return []
    given = [f"{one.name}={one.default}" for one in dataclasses.fields(maker)]
    return [one for one in given if one.startswith(incomplete)]


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete columns of the first file; after a comma the next one."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in _columns(ctx) if name.startswith(last) and name not in taken]


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete ``price:step`` and the like, for columns of numbers."""
    before, comma, last = incomplete.rpartition(",")
    given = [f"{name}:{truth}" for name in _columns(ctx, numbers=True) for truth in TRUTHS]
    return [f"{before}{comma}{one}" for one in given if one.startswith(last)]


def streams(incomplete: str) -> list[str]:
    """Complete ``S=prices``: folders after the name of a stream, models without a slash."""
    from pulse.store.commits import is_model

    name, equals, begun = incomplete.partition("=")
    if not equals:
        return []
    folder, _, last = begun.rpartition("/")
    where = Path(folder or ("/" if begun.startswith("/") else "."))
    try:
        found = sorted(one for one in where.iterdir() if one.is_dir() and one.name.startswith(last))
    except OSError:
        return []
    prefix = f"{name}={begun[: len(begun) - len(last)]}"
    shown = [one for one in found if last.startswith(".") or not one.name.startswith(".")]
    return [f"{prefix}{one.name}{'' if is_model(one) else '/'}" for one in shown]


def attributes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the attributes of the named model."""
    from pulse.core.errors import PulseError
    from pulse.store.manifest import Manifest

    try:
        names = Manifest.read(Path(_first(ctx, "model"))).schema.modelled_names
    except (PulseError, OSError):
        return []
    return [one for one in names if one.startswith(incomplete)]


def figures(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the figures of a summary: all of a summary in a file, else those that every summary has."""
    summary = Path(_first(ctx, "query"))
    known = list(FIGURES)
    if summary.suffix.lower() in (".parquet", ".csv") and summary.is_file():
        names = _columns_of(str(summary))
        known = names[names.index("ranges") :] if "ranges" in names else []
    return [one for one in known if one.startswith(incomplete)]


def _columns(ctx: typer.Context, *, numbers: bool = False) -> list[str]:
    path = _first(ctx, "files")
    return _columns_of(path, ctx.params.get("format"), numbers) if path else []


def _first(ctx: typer.Context, name: str) -> str:
    """Return the first argument: by its name, or if parsing stopped at the option to complete, from the remaining ones."""
    given = ctx.params.get(name)
    if isinstance(given, (list, tuple)):
        given = next(iter(given), None)
    return str(given or next(iter(ctx.args), ""))


def _columns_of(path: str, name: Any = None, numbers: bool = False) -> list[str]:
    """Return the columns of a file, as its format reads it."""
    import pyarrow.types as kinds

    from pulse.core.errors import PulseError
    from pulse.datasets.registry import detect, get_format

    try:
        format = get_format(str(name) if name else detect(path)).prepare(path)
        schema = format.schema(format.files(path)[0])
    except (PulseError, OSError):
        return []
    wanted = [f for f in schema if not numbers or kinds.is_integer(f.type) or kinds.is_floating(f.type)]
    return [field.name for field in wanted]
