"""``pulse plot``: pictures of models, answers, sweeps, lineage and tracks, as files or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from pulse.plot import Code, Table, Together
    from pulse.plot.picture import Draw

_PAIR = ["one", "other", "from", "to", "minutes", "certain"]
_MOST_KEYS = 8  # keys of a model that are read for the causes of one result

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

Out = Annotated[Path, typer.Option("--out", help="The picture: .png, .svg, .pdf, or a page, .html.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]
Key = Annotated[
    str | None,
    typer.Option("--key", help="VALUE of the key, or NAME=VALUE with commas; else the first keys."),
]
Attribute = Annotated[str | None, typer.Option("--attribute", help="What to draw; else the first, or all.")]
Keys = Annotated[int, typer.Option("--keys", min=1, help="How many keys to draw without --key.")]
From = Annotated[str | None, typer.Option("--from", help="The first instant: '2024-01-02 09:30'.")]
To = Annotated[str | None, typer.Option("--to", help="The instant to end before.")]
Width = Annotated[float, typer.Option("--width", min=2.0, max=40.0, help="Inches.")]


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
    begin, stop = _instant(start, "--from"), _instant(end, "--to")
    opened = Model(model)
    batch = segments_for(opened, key=_key(key, opened), start=begin, end=stop, keys=keys)
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
    _write(
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
    table = _rows_of_key(table, key, columns.key_names)
    certainty = table.column("certainty").to_pylist()
    counts = [
        (name, certainty.count(name)) for name in ("certain", "likely", "possible") if name in certainty
    ]
    _write(
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
        table = _read(Path(query))
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
    _write(
        lambda inches: plot_sweep(table, names, value=value, width=inches),
        out,
        width,
        title="Sweep",
        alt=f"{value} for {table.num_rows:,} combinations of {', '.join(names)}",
        caption=f"{value} of each combination.",
        blocks=[*blocks, Table.of(table.column_names, rows[:200])],
    )


@plot.command("lineage")
def plot_lineage(
    results: Annotated[
        Path, typer.Argument(help="Result segments with lineage: pulse query … --segments --lineage --out.")
    ],
    out: Out,
    row: Annotated[int, typer.Option("--row", help="The result to ask about, counted from 0.")] = 0,
    attribute: Attribute = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="NAME=DIR: a model the causes are from; its curves are drawn."),
    ] = None,
    width: Width = 9.0,
    overwrite: Overwrite = False,
) -> None:
    """Draw a result with the input segments that caused it.

    \b
    Examples:
      pulse query --stream S=prices "select * from S where price > 100" --segments --lineage --out high.parquet
      pulse plot lineage high.parquet --row 0 --out causes.png
      pulse plot lineage high.parquet --row 0 --model S=prices --out causes.html
    """
    from pulse.commands import options
    from pulse.plot import Table, check_picture, plot_lineage
    from pulse.store.model import Model
    from pulse.validation.causes import causes

    check_picture(out, overwrite=overwrite, pages=True)
    table = _read(results)
    behind = causes(table, row)
    inputs = {name: _caused(Model(path), behind) for name, path in options.streams(model).items()}
    modelled = [name for name in table.column_names if f"{name}_err" in table.column_names]
    shown = table.slice(row % table.num_rows, 1)
    listed = [[one["key"], one["segment_id"], one["ref"], one["lo"], one["hi"]] for one in behind.to_pylist()]
    _write(
        lambda inches: plot_lineage(
            shown, behind, modelled=modelled, attribute=attribute, inputs=inputs, width=inches
        ),
        out,
        width,
        title=f"What caused result {row}",
        alt=f"A result over time, and below it the {behind.num_rows:,} input segments that caused it",
        caption="Red is what the result was computed from.",
        blocks=[Table.of(["key", "segment", "ref", "lo", "hi"], listed[:100])],
    )


@plot.command("tracks")
def plot_tracks(
    model: Stored,
    out: Out,
    key: Key = None,
    start: From = None,
    end: To = None,
    x: Annotated[str | None, typer.Option("--x", help="The attribute to the right; else x, lon.")] = None,
    y: Annotated[str | None, typer.Option("--y", help="The attribute upwards; else y, lat.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs", help="Results about pairs (pulse query … --out): drawn in colour, and listed."
        ),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many pairs to draw and list.")] = 6,
    width: Width = 9.0,
    overwrite: Overwrite = False,
) -> None:
    """Draw the tracks of a model of positions on a map; of pairs, the longest times together.

    \b
    Examples:
      pulse plot tracks vessels --out map.png
      pulse query --stream S=vessels @following.sql --out following.parquet
      pulse plot tracks vessels --pairs following.parquet --out map.html
      pulse plot tracks vessels --key 200000007 --from "2024-01-01 02:00" --to "2024-01-01 04:00" --out track.svg
    """
    from pulse.plot import Table, check_picture, plot_tracks, together
    from pulse.store.model import Model
    from pulse.store.picture import segments_for

    check_picture(out, overwrite=overwrite, pages=True)
    opened = Model(model)
    begin, stop = _instant(start, "--from"), _instant(end, "--to")
    found = [] if pairs is None else together(_read(pairs))
    batch = segments_for(opened, key=_key(key, opened), start=begin, end=stop)
    listed = Table.of(_PAIR, [_listed(one) for one in found[:most]])
    _write(
        lambda inches: plot_tracks(batch, x=x, y=y, pairs=found, most=most, width=inches),
        out,
        width,
        title=f"Tracks of {model.name}",
        alt=f"A map of the tracks of {model.name}: {len(batch):,} segments",
        caption="Grey are all tracks, coloured those of pairs while they were together." if found else "",
        blocks=[listed] if found else [],
    )
    if pairs is not None:
        _tell_pairs(found[:most], len(found))


def _listed(one: Together) -> list[Any]:
    """A stretch of two objects together as a row of a table."""
    from pulse.core.time import to_datetime64

    begin, end = (
        str(to_datetime64(at).astype("datetime64[s]")).replace("T", " ") for at in (one.start, one.end)
    )
    minutes = round((one.end - one.start) / 60e6, 1)
    return [one.one, one.other, begin, end, minutes, f"{100 * (one.certain or 0.0):.0f} %"]


def _tell_pairs(shown: list[Together], count: int) -> None:
    import pyarrow as pa

    from pulse.commands.table import lines

    if shown:
        columns = zip(*map(_listed, shown), strict=True)
        for line in lines(
            pa.table({name: pa.array(column) for name, column in zip(_PAIR, columns, strict=True)})
        ):
            typer.echo(line)
    more = f"; the {len(shown)} longest are shown (--most)" if count > len(shown) else ""
    typer.echo(f"together {count:,} {'time' if count == 1 else 'times'}{more}")


def _write(
    draw: Draw, out: Path, width: float, *, title: str, alt: str, caption: str, blocks: list[Code | Table]
) -> None:
    """A picture, or a page around it."""
    from pulse.plot import Picture, Section, both_widths, page, save, write_whole
    from pulse.plot.picture import PAGES

    if out.suffix.lower() in PAGES:
        picture = Picture(alt, caption, *both_widths(draw))
        write_whole(out, page(title, [], [Section("", (picture, *blocks))]).encode())
    else:
        save(draw(width), out, overwrite=True)  # that it may be written was seen before
    typer.echo(f"written to {out}")


def _instant(given: str | None, option: str) -> Any:
    from pulse.commands.options import OptionError
    from pulse.core.errors import PulseError
    from pulse.core.time import parse_instant

    if given is None:
        return None
    try:
        return parse_instant(given)
    except PulseError as e:
        raise OptionError(f"{option} {given}: expected a time such as '2024-01-02 09:30': {e}") from None


def _key(given: str | None, model: Any) -> Any:
    """``AAPL`` for the only key column, or ``NAME=VALUE`` with commas, in the types that the model has."""
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


def _rows_of_key(table: Any, given: str | None, names: tuple[str, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if given is None:
        return table
    held = [name for name in names if name in table.column_names]
    for name, text in _parts(given, tuple(held)).items():
        type_ = table.schema.field(name).type
        table = table.filter(pc.equal(table.column(name), pa.scalar(_typed(text, type_, name), type_)))
    return table


def _caused(model: Any, behind: Any) -> Any:
    """The segments of a model around those that caused something; where the key is one column, only of these keys.

    They are not cut in time: an id is that of a whole segment.
    """
    import numpy as np
    import pyarrow as pa

    from pulse.core import SegmentBatch

    keys, types = dict.fromkeys(behind.column("key").to_pylist()), [type_ for _, type_ in model.schema.key]
    if len(types) == 1 and keys:
        few = [pa.scalar(key).cast(types[0]).as_py() for key in list(keys)[:_MOST_KEYS]]
        batch = SegmentBatch.concat([model.read(key=key) for key in few], at_rest=False).with_ids()
    else:
        batch = model.read().with_ids()
    if not behind.num_rows:
        return batch
    ref = behind.column("ref").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    begin = (ref + behind.column("lo").to_numpy() * 1e6).min()
    end = (ref + behind.column("hi").to_numpy() * 1e6).max()
    margin = max(0.5 * (end - begin), 1e6)
    starts, ends = batch.ref + batch.lo * 1e6, batch.ref + batch.hi * 1e6
    return batch.filter(np.logical_and(ends >= begin - margin, starts <= end + margin))


def _largest(err: Any) -> float | None:
    return float(err.max()) if len(err) else None


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from pulse.commands.options import OptionError

    try:
        return pacsv.read_csv(path) if path.suffix.lower() == ".csv" else pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as e:
        raise OptionError(f"{path}: cannot read the results: {e}") from None
