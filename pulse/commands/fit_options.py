"""Define the options of ``pulse fit``, and choose the format of its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulse.commands import completing, options, reading

if TYPE_CHECKING:
    from pulse.datasets.format import Format

Files = Annotated[
    list[str], typer.Argument(help="Files, folders or patterns to read: Parquet, CSV, TAQ or AIS.")
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        help="ATTRIBUTE:TRUTH: an attribute to model; the truth is linear, step, samples or flow; several with commas.",
        autocompletion=completing.models,
    ),
]
Flow = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=ARITHMETIC: what adds up, computed from columns: notional=price*size, trades=1; several with commas."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder to write the model to.")]
Key = Annotated[
    list[str] | None,
    typer.Option(help="Key column(s), several with commas.", autocompletion=completing.columns),
]
Time = Annotated[str | None, typer.Option(help="Time column.", autocompletion=completing.columns)]
Error = Annotated[
    str | None, typer.Option(help="Bound on the value: 0.05%, 0.01, '0.05% or 0.001', x=10,y=20.")
]
Drift = Annotated[
    str | None, typer.Option(help="Bound on the integral, in value·seconds, written the same way.")
]
Degree = Annotated[
    str | None,
    typer.Option(
        help="Degree of the polynomials: 0 to 5, or auto (constants or lines per segment). Default: auto with --drift "
        "(linear with both: 1), else 1.",
        autocompletion=completing.words(*"012345", "auto"),
    ),
]
MaxGap = Annotated[
    str | None, typer.Option(help="Leave a hole where the next tuple is later than this: '2 h', 10min.")
]
MaxSpeed = Annotated[
    str | None,
    typer.Option(
        help="Set aside positions that cannot be reached at this speed: '60 kn', 30m/s, '110 km/h'."
    ),
]
NonFinite = Annotated[
    str,
    typer.Option(
        help="Treat NaN, infinity and null: reject sets the tuple aside, hole makes it a hole.",
        autocompletion=completing.words("reject", "hole"),
    ),
]
Late = Annotated[
    str,
    typer.Option(
        help="Treat tuples out of order: refuse the fit if they are more than 1 %, or aside: fit the others.",
        autocompletion=completing.words("refuse", "aside"),
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        help="Unmodelled column(s) to store; a change ends a segment; several with commas.",
        autocompletion=completing.columns,
    ),
]
Points = Annotated[
    bool, typer.Option("--points", help="Store every tuple of samples as it is: windows are over tuples.")
]
FormatName = Annotated[
    str | None,
    typer.Option(
        help="Format of the files: parquet, arrow, csv, taq, taq-daily, taq-parquet, taq-wrds, taq-quotes, "
        "taq-daily-quotes, taq-wrds-quotes, dbn, ais, nmea; default detected.",
        autocompletion=completing.words(*completing.FORMATS),
    ),
]
Read = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=VALUE: an option of the format, such as separated_by=';' or time_unit=ms; may be repeated."
    ),
]
Projection = Annotated[
    str | None,
    typer.Option(help="Projection of AIS positions: EPSG:25832 or PROJ text; default by the first file."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")]
Append = Annotated[bool, typer.Option("--append", help="Add later files to an existing model.")]
KeepTuples = Annotated[
    str | None,
    typer.Option(
        help="Store the tuples beside the model, so that they can be revised: all, none, or a time before the newest: '2 h'.",
        autocompletion=completing.words("all", "none"),
    ),
]
Accents = Annotated[Path | None, typer.Option(help="Log of accents: where units and schema change.")]
Splits = Annotated[Path | None, typer.Option(help="Table of stock splits: symbol, t, ratio (4:1).")]
Optional = Annotated[
    list[str] | None,
    typer.Option(
        help="Modelled attribute(s) that rows may lack, each in a model of its own, OUT-NAME; several with commas: cog,sog.",
        autocompletion=completing.columns,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        help="Fit the rows for which this is true, over any columns: \"venue = 'N' and size > 0\". Others count as filtered."
    ),
]
Zone = Annotated[
    str | None,
    typer.Option(
        help="Time zone of the stream, America/New_York, for queries that name none; times stay in UTC."
    ),
]
SessionCode = Annotated[
    str | None,
    typer.Option(
        "--session",
        help="Exchange, by its calendar's code (XNYS): the model ends with each session; other rows count as filtered.",
    ),
]
ForQuery = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="Choose the bounds that are not given so that this query (or @FILE) meets its ERROR WITHIN.",
    ),
]
StreamName = Annotated[str, typer.Option("--as", help="Name of the data in the query of --for.")]
Param = Annotated[list[str] | None, typer.Option(help="NAME=VALUE: a parameter of the query of --for.")]


def format_of(
    name: str | None,
    projection: str | None,
    read: list[str] | None,
    files: list[str],
    key: list[str] | None,
    time: str | None,
) -> str | Format | None:
    """Return the format by name, or with the user's options."""
    chosen = reading.reading(read)
    if projection is not None:
        name = name or _positions_of(files[0])
        if name not in ("ais", "nmea"):
            raise options.OptionError(
                f"--projection {projection}: goes with --format ais or nmea, got --format {name}"
            )
        chosen = {**chosen, "projection": projection}
    return reading.format_of(name, chosen, files, options.names(key), time)


def _positions_of(file: str) -> str:
    """Return the format of positions of a file, by its content."""
    from pulse.datasets.registry import detect

    return "nmea" if detect(file) == "nmea" else "ais"
