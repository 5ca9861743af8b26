"""Implement ``pulse plot tracks``: draw positions on a map, and pairs that were together."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import options
from pulse.commands.plot import options as given

if TYPE_CHECKING:
    from pulse.core.area import Area
    from pulse.plot import Episode, Together
    from pulse.store.model import Model

_FEW = 5  # keys listed by name
_STRETCH = ["from", "to", "minutes", "certain"]
_PAIR = ["one", "other", *_STRETCH]
_EPISODE = ["key", *_STRETCH]


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
    episodes: Annotated[
        Path | None,
        typer.Option(
            help="Draw where each object was during these episodes (pulse query … --episodes --out), in colour."
        ),
    ] = None,
    area: Annotated[
        str | None,
        typer.Option(help="Draw the outline of this area: WKT, or a .geojson, .wkt or .parquet file."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Number of pairs to draw, and of stretches to list.")] = 6,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also draw the few positions that are far away from all others.")
    ] = False,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    as_json: options.JsonSummary = False,
) -> None:
    """Draw the tracks of a model of positions on a map, the pairs that were together longest, and episodes of single objects.

    \b
    Examples:
      pulse plot tracks vessels --out map.png
      pulse query --stream S=vessels @following.sql --out following.parquet
      pulse plot tracks vessels --pairs following.parquet --out map.html
      pulse query --stream S=vessels @inside.sql --param area=bay.wkt --episodes --out visits.parquet
      pulse plot tracks vessels --episodes visits.parquet --area bay.wkt --out visits.png
      pulse plot tracks vessels --key 200000007 --from "2024-01-01 02:00" --to "2024-01-01 04:00" --out track.svg
    """
    from pulse.commands.starting import leave_pandas_out
    from pulse.plot import Table, check_picture, plot_tracks, together
    from pulse.plot import episodes as read_episodes
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
    single = [] if episodes is None else read_episodes(given.read_results(episodes))
    outline = None if area is None else _area(area, opened, x)
    batch = segments_for(opened, key=given.key_of(key, opened), start=first, end=last)
    across, up = positions(batch, x, y)
    outside = NOTHING_OUTSIDE if whole else outside_bulk(batch, across, up)
    listed = [[one.one, one.other, *_listed(one)] for one in found[:most]]
    lasting = [[one.key, *_listed(one)] for one in single[:most]]
    drawing = given.Drawing(
        lambda inches: plot_tracks(
            batch, x=x, y=y, pairs=found, episodes=single, area=outline, most=most, whole=whole, width=inches
        ),
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
        blocks=[
            *([Table.of(_PAIR, listed)] if found else []),
            *([Table.of(_EPISODE, lasting)] if single else []),
        ],
        facts={
            "model": str(model),
            "version": opened.manifest.version,
            "keys": len(set(batch.key_ranks.tolist())),
            "segments": len(batch),
            "largest_error": given.largest_errors(batch, list(batch.schema.modelled_names)),
            **given.span_of(batch),
            "outside": {"segments": outside.segments, "keys": outside.keys},
            "together": None if pairs is None else len(found),
            "pairs": [{"one": one.one, "other": one.other, **_facts(one)} for one in found[:most]],
            "episodes": [{"key": one.key, **_facts(one)} for one in single[:most]],
        },
    )
    given.write_picture(drawing, out, width, begin=begin, as_json=as_json)
    if outside.segments and not as_json:
        typer.echo(f"{outside.text}: {_some(outside.keys)}; --whole draws them, too")
    if pairs is not None and not as_json:
        _print_stretches(
            _PAIR, listed, len(found), f"together {len(found):,} {'time' if len(found) == 1 else 'times'}"
        )
    if episodes is not None and not as_json:
        _print_stretches(
            _EPISODE, lasting, len(single), f"{len(single):,} {'episode' if len(single) == 1 else 'episodes'}"
        )


def _area(text: str, model: Model, x: str | None) -> Area:
    """Read an area in the coordinates of a model's positions."""
    from pulse.datasets.areas import read_area
    from pulse.plot.tracks import DEGREES

    plane = model.schema.plane
    in_degrees = x in DEGREES or (x is None and not DEGREES.keys().isdisjoint(model.schema.modelled_names))
    return read_area(text, name="area", crs="" if plane is None else plane.crs, in_degrees=in_degrees)


def _some(keys: list[Any]) -> str:
    """List the first keys, and how many more there are."""
    few = ", ".join(map(str, keys[:_FEW]))
    return few if len(keys) <= _FEW else f"{few} and {len(keys) - _FEW:,} more"


def _facts(one: Together | Episode) -> dict[str, Any]:
    """Describe a stretch of time, for programs."""
    from pulse.core.time import format_instant

    begin, end = (format_instant(int(at)) for at in (one.start, one.end))
    return {"from": begin, "to": end, "certain": one.certain}


def _listed(one: Together | Episode) -> list[Any]:
    """Format a stretch of time as the cells of a table."""
    import numpy as np

    begin, end = (
        str(np.datetime64(int(at) // 1_000_000, "s")).replace("T", " ") for at in (one.start, one.end)
    )
    minutes = round((one.end - one.start) / 60e6, 1)
    return [begin, end, minutes, "in parts" if one.certain is None else f"{100 * one.certain:.0f} %"]


def _print_stretches(names: list[str], shown: list[list[Any]], count: int, summary: str) -> None:
    import pyarrow as pa

    from pulse.commands.output.table import lines

    if shown:
        columns = zip(*shown, strict=True)
        for line in lines(
            pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)})
        ):
            typer.echo(line)
    more = f"; the {len(shown)} longest are shown (--most)" if count > len(shown) else ""
    typer.echo(f"{summary}{more}")
