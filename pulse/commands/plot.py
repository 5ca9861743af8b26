"""``pulse plot``: pictures of models, answers, sweeps, lineage and tracks, as files or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pulse.commands.options import (
    Accumulate,
    Engine,
    Master,
    Parameters,
    Policy,
    Possible,
    Query,
    Stored,
    Streams,
)
from pulse.commands.plot_lineage import plot_lineage
from pulse.commands.plot_options import (
    Attribute,
    From,
    Key,
    Keys,
    Out,
    Overwrite,
    To,
    Width,
    instant_of,
    key_of,
    read_results,
    rows_of_key,
    write_picture,
)
from pulse.commands.plot_tracks import plot_tracks

plot = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Draw models, answers, sweeps, lineage and tracks.

    Pictures are .png, .svg or .pdf; .html is a page of its own that any browser shows, also on a phone.

    \b
    Examples:
      pulse plot model prices --key AAPL --tuples ticks.parquet --out model.png
      pulse plot query --stream S=prices @macd.sql --param short=10 --param long=60 --possible --out macd.svg
      pulse plot sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --out macd.html
      pulse plot lineage high.parquet --row 0 --model S=prices --out causes.png
      pulse plot tracks vessels --out map.png
    """,
)


@plot.command("model")
def plot_model(
    model: Stored,
    out: Out,
    key: Key = None,
    attribute: Attribute = None,
    start: From = None,
    end: To = None,
    tuples: Annotated[
        str | None, typer.Option("--tuples", help="A file of the tuples, to draw them with the model.")
    ] = None,
    keys: Keys = 3,
    width: Width = 9.0,
    overwrite: Overwrite = False,
) -> None:
    """Draw a stored model: its pieces in the tube that the truth never leaves, jumps as jumps and holes as holes.

    \b
    Examples:
      pulse plot model prices --out prices.png
      pulse plot model prices --key AAPL --from "2024-01-02 10:00" --to "2024-01-02 10:05" --tuples ticks.parquet --out model.svg
      pulse plot model rooms --key id=3,floor=2 --attribute temp --out room.html
    """
    from pulse.core.time import format_instant
    from pulse.plot import Table, check_picture
    from pulse.plot.model import attributes_of, plot_model
    from pulse.store.model import Model
    from pulse.store.picture import segments_for, tuples_for

    check_picture(out, overwrite=overwrite, pages=True)
    begin, stop = instant_of(start, "--from"), instant_of(end, "--to")
    opened = Model(model)
    batch = segments_for(opened, key=key_of(key, opened), start=begin, end=stop, keys=keys)
    attributes_of(batch, attribute)
    rows = None if tuples is None else tuples_for(batch, tuples, opened.schema, begin, stop)
    facts = [
        ("segments drawn", len(batch)),
        ("tuples drawn", None if rows is None else rows.num_rows),
        *(
            (f"largest bound of {name}", _largest(batch.err(name)))
            for name in attributes_of(batch, attribute)
        ),
        ("the model is of", f"{opened.manifest.modelled:,} tuples in {opened.manifest.segments:,} segments"),
    ]
    if opened.manifest.end is not None:
        facts.append(("it reaches to", format_instant(opened.manifest.end)))
    write_picture(
        lambda inches: plot_model(batch, attribute=attribute, tuples=rows, keys=keys, width=inches),
        out,
        width,
        title=f"Model {model.name}",
        alt=f"The model {model.name} over time inside its tube: {len(batch):,} segments",
        caption="The truth never leaves the tube. Jumps are dotted; where there is no model, the ground is hatched.",
        blocks=[Table.of(["", "value"], [one for one in facts if one[1] is not None])],
    )


@plot.command("query")
def plot_query(
    query: Query,
    stream: Streams,
    out: Out,
    param: Parameters = None,
    attribute: Attribute = None,
    key: Key = None,
    keys: Keys = 3,
    segments: Annotated[bool, typer.Option("--segments", help="Segments instead of sampled tuples.")] = False,
    possible: Possible = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Read the models as they were known at a time.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Read this version of the model.")
    ] = None,
    accents: Annotated[
        list[str] | None, typer.Option("--accents", help="NAME=FILE: a log of accents; FILE alone.")
    ] = None,
    policy: Policy = None,
    accumulate: Accumulate = True,
    width: Width = 9.0,
    overwrite: Overwrite = False,
    engine: Engine = "spark",
    master: Master = "local[*]",
) -> None:
    """Draw the answer to a query: values in the error they can have, certain, likely and possible ranges told apart.

    \b
    Examples:
      pulse plot query --stream S=prices @macd.sql --param short=10 --param long=60 --out macd.png
      pulse plot query --stream S=prices @macd.sql --key AAPL --possible --out macd.html
      pulse plot query --stream S=prices "select symbol, price from S where price > 100" --segments --out high.svg
    """
    from pulse.commands import options
    from pulse.plot import Code, Table, check_picture, plot_answer
    from pulse.session import Session

    check_picture(out, overwrite=overwrite, pages=True)
    text = options.query_text(query)
    with Session(master, engine=engine) as session:
        answer = session.sql(
            text,
            streams=options.streams(stream),
            parameters=options.parameters(param),
            possible=possible,
            as_of=as_of,
            version=version,
            accents=options.accents(accents),
            evolution=options.policies(policy),
            accumulate=accumulate,
        )
        found: Any = answer.segments() if segments or answer.query.rate is None else answer.tuples()
        table = found if hasattr(found, "column_names") else found.toArrow()
    columns = answer.query.plan.columns
    table = rows_of_key(table, key, columns.key_names)
    certainty = table.column("certainty").to_pylist()
    counts = [
        (name, certainty.count(name)) for name in ("certain", "likely", "possible") if name in certainty
    ]
    write_picture(
        lambda inches: plot_answer(
            table,
            modelled=columns.modelled,
            key=columns.key_names,
            time=columns.time,
            attribute=attribute,
            rate=answer.query.rate,
            keys=keys,
            width=inches,
        ),
        out,
        width,
        title="Answer",
        alt=f"The answer over time with its error and its certainty: {table.num_rows:,} rows",
        caption="The band is the error that each value can have; the ground says how sure each range is.",
        blocks=[Code(text), Table.of(["certainty", "rows"], counts)],
    )


@plot.command("sweep")
def plot_sweep(
    query: Annotated[
        str,
        typer.Argument(
            help="The query, @FILE, or a summary that pulse sweep --summary wrote.", show_default=False
        ),
    ],
    out: Out,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="NAME=DIR: a stream of the query and the model it is."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="NAME=VALUES: 5,10,20 or FROM:TO:STEP with both ends.")
    ] = None,
    value: Annotated[str, typer.Option("--value", help="The column of the summary to show.")] = "seconds",
    possible: Possible = False,
    width: Width = 9.0,
    overwrite: Overwrite = False,
    engine: Engine = "spark",
    master: Master = "local[*]",
) -> None:
    """Draw a sweep: a heat map over two parameters, a line over one.

    \b
    Examples:
      pulse plot sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --out macd.png
      pulse plot sweep --stream S=prices @macd.sql --param short=5,10 --param long=60 --value ranges --out macd.svg
      pulse plot sweep summary.parquet --value diff_mean --out macd.html
    """
    from pulse.commands import options
    from pulse.commands.progress import Bar
    from pulse.plot import Code, Table, check_picture, parameters_of, plot_sweep
    from pulse.session import Session

    check_picture(out, overwrite=overwrite, pages=True)
    blocks: list[Any] = []
    if not stream and Path(query).suffix.lower() in (".parquet", ".csv"):
        table = read_results(Path(query))
        names = parameters_of(table)
    else:
        if not stream or not param:
            raise options.OptionError(
                "plot sweep: --stream NAME=DIR and --param NAME=VALUES are missing; or name a summary, a .parquet or .csv file"
            )
        text = options.query_text(query)
        blocks.append(Code(text))
        with Session(master, engine=engine) as session, Bar() as bar:
            swept = session.sweep(
                text, streams=options.streams(stream), parameters=options.axes(param), possible=possible
            )
            table, names = swept.summary(progress=bar.step), list(swept.grid.names)
    rows = [list(row.values()) for row in table.to_pylist()]
    write_picture(
        lambda inches: plot_sweep(table, names, value=value, width=inches),
        out,
        width,
        title="Sweep",
        alt=f"{value} for {table.num_rows:,} combinations of {', '.join(names)}",
        caption=f"{value} of each combination.",
        blocks=[*blocks, Table.of(table.column_names, rows[:200])],
    )


def _largest(err: Any) -> float | None:
    return float(err.max()) if len(err) else None


plot.command("lineage")(plot_lineage)
plot.command("tracks")(plot_tracks)
