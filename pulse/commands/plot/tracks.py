"""Implement ``pulse plot tracks``: draw positions on a map, and pairs that were together."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import options
from pulse.commands.plot import options as given

if TYPE_CHECKING:
    from pulse.plot import Together

_FEW = 5  # keys listed by name
_PAIR = ["one", "other", "from", "to", "minutes", "certain"]


def plot_tracks(
    model: options.Stored,
    out: given.Out,
    key: given.Key = None,
    start: given.From = None,
    end: given.To = None,
    x: Annotated[str | None, typer.Option(help="Attribute of the horizontal axis; default x, lon.")] = None,
    y: Annotated[str | None, typer.Option(help="Attribute of the vertical axis; default y, lat.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Draw and list the pairs in these results (pulse query … --out), in colour."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Number of pairs to draw and list.")] = 6,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also draw the few positions that are far away from all others.")
    ] = False,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    as_json: options.JsonSummary = False,
) -> None:
    """Draw the tracks of a model of positions on a map, and the pairs that were together longest.

    \b
    Examples:
      pulse plot tracks vessels --out map.png
      pulse query --stream S=vessels @following.sql --out following.parquet
      pulse plot tracks vessels --pairs following.parquet --out map.html
      pulse plot tracks vessels --key 200000007 --from "2024-01-01 02:00" --to "2024-01-01 04:00" --out track.svg
    """
    from pulse.commands.starting import leave_pandas_out
    from pulse.plot import Table, check_picture, plot_tracks, together
    from pulse.plot.bulk import NOTHING_OUTSIDE, outside_bulk
    from pulse.plot.tracks import positions
    from pulse.store.model import Model
    from pulse.store.plotting import segments_for

    begin = clock.perf_counter()
    leave_pandas_out()
    check_picture(out, overwrite=overwrite, pages=True)
    opened = Model(model)
    first, last = given.instant_of(start, "--from"), given.instant_of(end, "--to")
    found = [] if pairs is None else together(given.read_results(pairs))
    batch = segments_for(opened, key=given.key_of(key, opened), start=first, end=last)
    across, up = positions(batch, x, y)
    outside = NOTHING_OUTSIDE if whole else outside_bulk(batch, across, up)
    listed = [_listed(one) for one in found[:most]]
    drawing = given.Drawing(
        lambda inches: plot_tracks(batch, x=x, y=y, pairs=found, most=most, whole=whole, width=inches),
        title=f"Tracks of {model.name}",
        alt=f"A map of the tracks of {model.name}: {len(batch):,} segments",
        caption=" ".join(
            [
                *(
                    ["Grey are all tracks, coloured those of pairs while they were together."]
                    if found
                    else []
                ),
                *([f"{outside.text.capitalize()}: {_some(outside.keys)}."] if outside.segments else []),
            ]
        ),
        blocks=[Table.of(_PAIR, listed)] if found else [],
        facts={
            "model": str(model),
            "version": opened.manifest.version,
            "keys": len(set(batch.key_ranks.tolist())),
            "segments": len(batch),
            "largest_error": given.largest_errors(batch, list(batch.schema.modelled_names)),
            **given.span_of(batch),
            "outside": {"segments": outside.segments, "keys": outside.keys},
            "together": None if pairs is None else len(found),
            "pairs": [_pair_facts(one) for one in found[:most]],
        },
    )
    given.write_picture(drawing, out, width, begin=begin, as_json=as_json)
    if outside.segments and not as_json:
        typer.echo(f"{outside.text}: {_some(outside.keys)}; --whole draws them, too")
    if pairs is not None and not as_json:
        _print_pairs(listed, len(found))


def _some(keys: list[Any]) -> str:
    """List the first keys, and how many more there are."""
    few = ", ".join(map(str, keys[:_FEW]))
    return few if len(keys) <= _FEW else f"{few} and {len(keys) - _FEW:,} more"


def _pair_facts(one: Together) -> dict[str, Any]:
    """Describe a stretch of two objects together, for programs."""
    from pulse.core.time import format_instant

    begin, end = (format_instant(int(at)) for at in (one.start, one.end))
    return {"one": one.one, "other": one.other, "from": begin, "to": end, "certain": one.certain}


def _listed(one: Together) -> list[Any]:
    """Format a stretch of two objects together as a row of a table."""
    from pulse.core.time import to_datetime64

    begin, end = (
        str(to_datetime64(at).astype("datetime64[s]")).replace("T", " ") for at in (one.start, one.end)
    )
    minutes = round((one.end - one.start) / 60e6, 1)
    return [one.one, one.other, begin, end, minutes, f"{100 * (one.certain or 0.0):.0f} %"]


def _print_pairs(shown: list[list[Any]], count: int) -> None:
    import pyarrow as pa

    from pulse.commands.output.table import lines

    if shown:
        columns = zip(*shown, strict=True)
        for line in lines(
            pa.table({name: pa.array(column) for name, column in zip(_PAIR, columns, strict=True)})
        ):
            typer.echo(line)
    more = f"; the {len(shown)} longest are shown (--most)" if count > len(shown) else ""
    typer.echo(f"together {count:,} {'time' if count == 1 else 'times'}{more}")
