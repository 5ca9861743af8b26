"""Define the options of ``pulse fit``, and read them in groups: which columns are modelled, with which bounds, and to where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import completing, options, reading

if TYPE_CHECKING:
    from pulse.datasets.format import Format

Files = Annotated[
    list[str], typer.Argument(help="Files, folders or patterns to read: Parquet, CSV, TAQ or AIS.")
]
Model = Annotated[
    list[str],
    typer.Option(
        "--model",
        help="ATTRIBUTE:TRUTH: an attribute to model; the truth is linear, step or samples; several with commas.",
        autocompletion=completing.models,
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder to write the model to.")]
Key = Annotated[
    list[str] | None,
    typer.Option("--key", help="Key column(s), several with commas.", autocompletion=completing.columns),
]
Time = Annotated[str | None, typer.Option("--time", help="Time column.", autocompletion=completing.columns)]
Error = Annotated[
    str | None,
    typer.Option("--error", help="Bound on the value: 0.05%, 0.01, '0.05% or 0.001', x=10,y=20."),
]
Drift = Annotated[
    str | None,
    typer.Option("--drift", help="Bound on the integral, in value·seconds, written the same way."),
]
Degree = Annotated[
    str | None,
    typer.Option(
        "--degree",
        help="Degree of the polynomials: 0 to 5, or auto (constants or lines per segment). Default: auto with --drift "
        "(linear with both: 1), else 1.",
        autocompletion=completing.words(*"012345", "auto"),
    ),
]
MaxGap = Annotated[
    str | None,
    typer.Option("--max-gap", help="Leave a hole where the next tuple is later than this: '2 h', 10min."),
]
NonFinite = Annotated[
    str,
    typer.Option(
        "--nonfinite",
        help="Treat NaN, infinity and null: reject sets the tuple aside, hole makes it a hole.",
        autocompletion=completing.words("reject", "hole"),
    ),
]
Late = Annotated[
    str,
    typer.Option(
        "--late",
        help="Treat tuples out of order: refuse the fit if they are more than 1 %, or aside: fit the others.",
        autocompletion=completing.words("refuse", "aside"),
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
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
        "--format",
        help="Format of the files: parquet, csv, taq, taq-daily, taq-parquet, taq-wrds, ais; default detected.",
        autocompletion=completing.words(*completing.FORMATS),
    ),
]
Read = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        help="NAME=VALUE: an option of the format, such as separated_by=';' or time_unit=ms; may be repeated.",
    ),
]
Projection = Annotated[
    str | None,
    typer.Option(
        "--projection",
        help="Projection of AIS positions: EPSG:25832 or PROJ text; default by the first file.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")]
Append = Annotated[bool, typer.Option("--append", help="Add later files to an existing model.")]
KeepTuples = Annotated[
    str | None,
    typer.Option(
        "--keep-tuples",
        help="Store the tuples beside the model, so that they can be revised: all, none, or a time before the newest: '2 h'.",
        autocompletion=completing.words("all", "none"),
    ),
]
Accents = Annotated[
    Path | None, typer.Option("--accents", help="Log of accents: where units and schema change.")
]
Splits = Annotated[
    Path | None, typer.Option("--splits", help="Table of stock splits: symbol, t, ratio (4:1).")
]
ForQuery = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="Choose the bounds that are not given so that this query (or @FILE) meets its ERROR WITHIN.",
    ),
]
StreamName = Annotated[str, typer.Option("--as", help="Name of the data in the query of --for.")]
Param = Annotated[
    list[str] | None, typer.Option("--param", help="NAME=VALUE: a parameter of the query of --for.")
]


def roles(
    key: list[str] | None, time: str | None, model: list[str], keep: list[str] | None, points: bool
) -> dict[str, Any]:
    """Return the roles of columns."""
    return {
        "key": options.names(key) or None,
        "time": time,
        "model": options.models(model),
        "keep": options.names(keep),
        "points": points,
    }


def bounds(error: str | None, drift: str | None) -> dict[str, Any]:
    """Return the bounds on the distance between model and truth."""
    return {"error": options.bounds(error, "--error"), "drift": options.bounds(drift, "--drift")}


def purpose(for_query: str | None, stream: str, param: list[str] | None) -> dict[str, Any]:
    """Return the query that chooses bounds."""
    text = None if for_query is None else options.query_text(for_query)
    return {"for_query": text, "stream": stream, "parameters": options.parameters(param)}


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
        if name not in (None, "ais"):
            raise options.OptionError(
                f"--projection {projection}: goes with --format ais, got --format {name}"
            )
        name, chosen = "ais", {**chosen, "projection": projection}
    return reading.format_of(name, chosen, files, options.names(key), time)
