"""The options of ``pulse fit``, and the groups that they are read in: what of the data is modelled, how well, and to where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import completing, options, reading

if TYPE_CHECKING:
    from pulse.datasets.format import Format

Files = Annotated[list[str], typer.Argument(help="Files, folders or patterns; Parquet, CSV, TAQ or AIS.")]
Model = Annotated[
    list[str],
    typer.Option(
        "--model",
        help="ATTRIBUTE:TRUTH, truth one of linear, step, samples; several with commas.",
        autocompletion=completing.models,
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The folder to write the model to.")]
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
        help="0 to 5, or auto: constants or lines per segment. Default: auto with --drift (linear with both: 1), else 1.",
        autocompletion=completing.words(*"012345", "auto"),
    ),
]
MaxGap = Annotated[str | None, typer.Option("--max-gap", help="A longer silence is a hole: '2 h', 10min.")]
NonFinite = Annotated[
    str,
    typer.Option(
        "--nonfinite",
        help="NaN, infinity, null: reject (set aside) or hole.",
        autocompletion=completing.words("reject", "hole"),
    ),
]
Late = Annotated[
    str,
    typer.Option(
        "--late",
        help="Tuples out of order: refuse the fit where they are more than 1 %, or aside: fit the others.",
        autocompletion=completing.words("refuse", "aside"),
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        help="Unmodelled column(s) to keep; a change ends a segment.",
        autocompletion=completing.columns,
    ),
]
Points = Annotated[
    bool, typer.Option("--points", help="Keep every tuple of samples as it is: windows are over tuples.")
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="parquet, csv, taq, taq-daily, taq-parquet, taq-wrds, ais; else found out.",
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
    typer.Option("--projection", help="Of AIS positions: EPSG:25832 or PROJ text; else by the first file."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")]
Append = Annotated[bool, typer.Option("--append", help="Add later files to a model that is there.")]
KeepTuples = Annotated[
    str | None,
    typer.Option(
        "--keep-tuples",
        help="Keep the tuples beside the model, so that they can be revised: all, none, or a time before the newest: '2 h'.",
        autocompletion=completing.words("all", "none"),
    ),
]
Accents = Annotated[
    Path | None, typer.Option("--accents", help="A log of accents: where units and schema change.")
]
Splits = Annotated[
    Path | None, typer.Option("--splits", help="A table of stock splits: symbol, t, ratio (4:1).")
]
ForQuery = Annotated[
    str | None,
    typer.Option(
        "--for", help="A query (or @FILE) whose ERROR WITHIN chooses the bounds that are not given."
    ),
]
StreamName = Annotated[str, typer.Option("--as", help="What the query of --for calls these data.")]
Param = Annotated[
    list[str] | None, typer.Option("--param", help="NAME=VALUE: a parameter of the query of --for.")
]


def roles(
    key: list[str] | None, time: str | None, model: list[str], keep: list[str] | None, points: bool
) -> dict[str, Any]:
    """Which columns are what."""
    return {
        "key": options.names(key) or None,
        "time": time,
        "model": options.models(model),
        "keep": options.names(keep),
        "points": points,
    }


def bounds(error: str | None, drift: str | None) -> dict[str, Any]:
    """How far a model may be from the truth."""
    return {"error": options.bounds(error, "--error"), "drift": options.bounds(drift, "--drift")}


def purpose(for_query: str | None, stream: str, param: list[str] | None) -> dict[str, Any]:
    """The query that chooses bounds."""
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
    """The format by name, or with options of the user's."""
    said = reading.reading(read)
    if projection is not None:
        if name not in (None, "ais"):
            raise options.OptionError(
                f"--projection {projection}: goes with --format ais, got --format {name}"
            )
        name, said = "ais", {**said, "projection": projection}
    return reading.format_of(name, said, files, options.names(key), time)
