"""Implement ``pulse plot model``: draw a stored model in the tube that the truth never leaves."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import options
from pulse.commands.plot import options as given

if TYPE_CHECKING:
    from pulse.plot import Table
    from pulse.store.manifest import Manifest


def plot_model(
    model: options.Stored,
    out: given.Out,
    key: given.Key = None,
    attribute: given.Attribute = None,
    start: given.From = None,
    end: given.To = None,
    tuples: Annotated[str | None, typer.Option(help="Draw the tuples in this file with the model.")] = None,
    keys: given.Keys = 3,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    as_json: options.JsonSummary = False,
) -> None:
    """Draw a stored model: its pieces in the tube that the truth never leaves, jumps as jumps and holes as holes.

    \b
    Examples:
      pulse plot model prices --out prices.png
      pulse plot model prices --key AAPL --from "2024-01-02 10:00" --to "2024-01-02 10:05" --tuples ticks.parquet --out model.svg
      pulse plot model rooms --key id=3,floor=2 --attribute temp --out room.html
    """
    from pulse.commands.starting import leave_pandas_out
    from pulse.plot import check_picture, plot_model
    from pulse.plot.model import attributes_of
    from pulse.store.model import Model
    from pulse.store.plotting import segments_for, tuples_for

    begin = clock.perf_counter()
    leave_pandas_out()
    check_picture(out, overwrite=overwrite, pages=True)
    first, last = given.instant_of(start, "--from"), given.instant_of(end, "--to")
    opened = Model(model)
    batch = segments_for(opened, key=given.key_of(key, opened), start=first, end=last, keys=keys)
    names = list(attributes_of(batch, attribute))
    rows = None if tuples is None else tuples_for(batch, tuples, opened.schema, first, last)
    facts: dict[str, Any] = {
        "model": str(model),
        "version": opened.manifest.version,
        "attributes": names,
        "keys": len(set(batch.key_ranks.tolist())),
        "segments": len(batch),
        "tuples": None if rows is None else rows.num_rows,
        "largest_error": given.largest_errors(batch, names),
        **given.span_of(batch),
    }
    drawing = given.Drawing(
        lambda inches: plot_model(batch, attribute=attribute, tuples=rows, keys=keys, width=inches),
        title=f"Model {model.name}",
        alt=f"The model {model.name} over time inside its tube: {len(batch):,} segments",
        caption="The truth never leaves the tube. Jumps are dotted; where there is no model, the ground is hatched.",
        blocks=[_table(facts, opened.manifest)],
        facts=facts,
    )
    given.write_picture(drawing, out, width, begin=begin, as_json=as_json)


def _table(facts: dict[str, Any], manifest: Manifest) -> Table:
    """Return the figures of a page."""
    from pulse.core.time import format_instant
    from pulse.plot import Table

    rows = [
        ("segments drawn", facts["segments"]),
        ("tuples drawn", facts["tuples"]),
        *((f"largest bound of {name}", bound) for name, bound in facts["largest_error"].items()),
        ("the model is of", f"{manifest.modelled:,} tuples in {manifest.segments:,} segments"),
        ("it reaches to", None if manifest.end is None else format_instant(manifest.end)),
    ]
    return Table.of(["", "value"], [one for one in rows if one[1] is not None])
