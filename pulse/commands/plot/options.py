"""Define the options that the commands of ``pulse plot`` share, parse them, and write pictures."""

from __future__ import annotations

import json
import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import completing

if TYPE_CHECKING:
    from pulse.plot import Code, Table
    from pulse.plot.picture import Draw

Out = Annotated[Path, typer.Option(help="Picture to write: .png, .svg, .pdf, or a page, .html.")]
Key = Annotated[
    str | None, typer.Option(help="Key to draw: VALUE, or NAME=VALUE with commas; default the first keys.")
]
Attribute = Annotated[
    str | None,
    typer.Option(help="Attribute to draw; default the first, or all.", autocompletion=completing.attributes),
]
Keys = Annotated[int, typer.Option(min=1, help="Number of keys to draw without --key.")]
From = Annotated[str | None, typer.Option("--from", help="First instant to draw: '2024-01-02 09:30'.")]
To = Annotated[str | None, typer.Option("--to", help="Draw up to this instant, exclusive.")]
Width = Annotated[float, typer.Option(min=2.0, max=40.0, help="Width in inches.")]


@dataclass(frozen=True)
class Drawing:
    """A drawing and its description: around it on a page (``blocks``), and for programs (``facts``)."""

    draw: Draw
    title: str
    alt: str
    caption: str
    blocks: list[Code | Table]
    facts: dict[str, Any]


def write_picture(drawing: Drawing, out: Path, width: float, *, begin: float, as_json: bool) -> None:
    """Write a picture, or a page around it; then print its path, or all facts. ``begin``: when the work began."""
    from pulse.plot import Picture, Section, both_widths, page, save, write_whole
    from pulse.plot.picture import PAGES

    if out.suffix.lower() in PAGES:
        picture = Picture(drawing.alt, drawing.caption, *both_widths(drawing.draw))
        write_whole(out, page(drawing.title, [], [Section("", (picture, *drawing.blocks))]).encode())
    else:
        save(drawing.draw(width), out, overwrite=True)  # checked before the work began
    if not as_json:
        typer.echo(f"written to {out}")
        return
    written = {"out": str(out), "bytes": out.stat().st_size}
    facts = {**written, **drawing.facts, "seconds": clock.perf_counter() - begin}
    typer.echo(json.dumps(facts, indent=2, default=str))


def span(starts: Any, ends: Any) -> dict[str, str | None]:
    """Return the first and last instant drawn, from arrays of microseconds."""
    from pulse.core.time import format_instant

    if not len(starts):
        return {"from": None, "to": None}
    return {"from": format_instant(int(starts.min())), "to": format_instant(int(ends.max()))}


def span_of(batch: Any) -> dict[str, str | None]:
    """Return the first and last instant of segments."""
    return span(batch.ref + batch.lo * 1e6, batch.ref + batch.hi * 1e6)


def largest_errors(batch: Any, names: list[str]) -> dict[str, float | None]:
    """Return the largest error of each attribute's segments."""
    return {name: float(batch.err(name).max()) if len(batch) else None for name in names}


def instant_of(given: str | None, option: str) -> Any:
    """Parse the instant of an option, if given."""
    from pulse.commands.options import OptionError
    from pulse.core.errors import PulseError
    from pulse.core.time import parse_instant

    if given is None:
        return None
    try:
        return parse_instant(given)
    except PulseError as e:
        raise OptionError(f"{option} {given}: expected a time such as '2024-01-02 09:30': {e}") from None


def key_of(given: str | None, model: Any) -> Any:
    """Parse ``AAPL`` for the only key column, or ``NAME=VALUE`` with commas, in the types of the model."""
    if given is None:
        return None
    types = dict(model.schema.key)
    return {name: _typed(text, types[name], name) for name, text in _parts(given, tuple(types)).items()}


def _parts(given: str, names: tuple[str, ...]) -> dict[str, str]:
    from pulse.commands.options import OptionError

    if len(names) == 1 and not given.startswith(f"{names[0]}="):
        return {names[0]: given}
    pairs = [one.partition("=") for one in given.split(",")]
    found = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    if len(found) != len(pairs) or set(found) != set(names):
        raise OptionError(
            f"--key {given}: expected {','.join(f'{name}=VALUE' for name in names) or 'none: there is no key'}"
        )
    return found


def _typed(text: str, type_: Any, name: str) -> Any:
    import pyarrow as pa

    from pulse.commands.options import OptionError

    try:
        return pa.scalar(text).cast(type_).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise OptionError(f"--key {name}={text}: expected a value of type {type_}") from None


def rows_of_key(table: Any, given: str | None, names: tuple[str, ...]) -> Any:
    """Return the rows of a result with the given key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if given is None:
        return table
    held = [name for name in names if name in table.column_names]
    for name, text in _parts(given, tuple(held)).items():
        type_ = table.schema.field(name).type
        table = table.filter(pc.equal(table.column(name), pa.scalar(_typed(text, type_, name), type_)))
    return table


def read_results(path: Path) -> Any:
    """Read a file of results."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from pulse.commands.options import OptionError

    try:
        return pacsv.read_csv(path) if path.suffix.lower() == ".csv" else pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as e:
        raise OptionError(f"{path}: cannot read the results: {e}") from None
